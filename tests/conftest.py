"""One private cache folder for all tests: nothing is read from or left in the user's own, but for a
model that is fetched once. All processes of a run share it, and share compiled Python files."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

pytest_plugins = ["tests.tiers", "tests.adapters"]

# How long an example takes on a busy machine says nothing.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

MODEL = "smollm2-135m-instruct"
USERS_FOLDER = os.environ.get("ARENITE_CACHE_DIR")


def pytest_configure(config: pytest.Config) -> None:
    """Where Python is told to keep no compiled files, the many processes that tests start would
    each compile the package anew: they keep them in a folder that ends with the run."""
    if sys.dont_write_bytecode and not _is_worker():
        folder = tempfile.TemporaryDirectory(prefix="arenite-tests-")
        config.add_cleanup(folder.cleanup)
        os.environ["PYTHONPYCACHEPREFIX"] = folder.name
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What cannot be split comes first, so that no worker is left alone with it at the end."""
    items.sort(key=lambda item: item.path.name != "test_quality.py")


def pytest_collection_finish() -> None:
    """Modules and tests stay to the end, so that no collection need look through them again."""
    gc.collect()
    gc.freeze()


def _is_worker() -> bool:
    return "PYTEST_XDIST_WORKER" in os.environ


@pytest.fixture(scope="session", autouse=True)
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if _is_worker() else base) / "cache" / "arenite"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ARENITE_CACHE_DIR", str(folder))
        yield folder


@pytest.fixture
def own_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    """What tuning finds in this process is kept apart, in the shared cache: a test that tunes, and
    takes back what it found, would take back another worker's too."""
    from arenite.pipeline import choices

    shared = choices._choices_key
    monkeypatch.setattr(choices, "_choices_key", lambda: f"{os.getpid():016x}{shared()}")


@pytest.fixture(scope="session")
def catalogue_model(cache_folder: Path) -> Callable[[str], Path]:
    """Models by their short names, from the user's own, fetched where they are not there; they are
    in the private folder too, so that they have their short names there."""
    from arenite.errors import AreniteError
    from arenite.fetch import obtain

    def find(name: str) -> Path:
        with pytest.MonkeyPatch.context() as patch:
            if USERS_FOLDER is None:
                patch.delenv("ARENITE_CACHE_DIR")
            else:
                patch.setenv("ARENITE_CACHE_DIR", USERS_FOLDER)
            try:
                path = obtain(name)
            except AreniteError as error:
                pytest.fail(f"this test needs a download, `arenite pull {name}`: {error}")
        link = cache_folder / "models" / name
        link.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with contextlib.suppress(FileExistsError):  # another worker was here
            link.symlink_to(path.parent, target_is_directory=True)
        return path

    return find


@pytest.fixture(scope="session")
def smollm2(catalogue_model: Callable[[str], Path]) -> Path:
    """SmolLM2-135M-Instruct in Q4_1, 94 MB."""
    return catalogue_model(MODEL)
