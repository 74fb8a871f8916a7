"""One private cache folder for all tests: nothing is read from or left in the user's own, but for a
model that is fetched once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# How long an example takes on a busy machine says nothing.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

MODEL = "smollm2-135m-instruct"
USERS_FOLDER = os.environ.get("ARENITE_CACHE_DIR")


@pytest.fixture(scope="session", autouse=True)
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("cache") / "arenite"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ARENITE_CACHE_DIR", str(folder))
        yield folder


@pytest.fixture(scope="session")
def smollm2(cache_folder: Path) -> Path:
    """SmolLM2-135M-Instruct in Q4_1, from the user's own models, fetched where it is not there
    (94 MB); it is in the private folder too, so that it has its short name there."""
    from arenite.errors import AreniteError
    from arenite.fetch import obtain

    with pytest.MonkeyPatch.context() as patch:
        if USERS_FOLDER is None:
            patch.delenv("ARENITE_CACHE_DIR")
        else:
            patch.setenv("ARENITE_CACHE_DIR", USERS_FOLDER)
        try:
            path = obtain(MODEL)
        except AreniteError as error:
            pytest.fail(f"this test needs a download of 94 MB, `arenite pull {MODEL}`: {error}")
    link = cache_folder / "models" / MODEL
    if not link.exists():
        link.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        link.symlink_to(path.parent, target_is_directory=True)
    return path
