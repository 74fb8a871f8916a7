"""One private cache folder for all tests: nothing is read from or left in the user's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("cache") / "arenite"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ARENITE_CACHE_DIR", str(folder))
        yield folder
