"""What names our sources in cache keys: their content, however it came to be there."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from arenite.pipeline.identity import _files, _sources, graph_sources, identity
from arenite.program import cache


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of two files, in place of ours, and an empty cache."""
    package = tmp_path / "package"
    for name in ("ir/node.py", "frontends/deep/file.py"):
        path = package / name
        path.parent.mkdir(parents=True)
        path.write_text(f"name = {name!r}")
    monkeypatch.setattr(sys.modules[graph_sources.__module__], "_HERE", str(package))
    monkeypatch.setenv("ARENITE_CACHE_DIR", str(tmp_path / "cache"))
    return package


def digest() -> bytes:
    """As a new process finds it."""
    for asked in (_sources, _files):
        asked.cache_clear()
    try:
        return graph_sources()
    finally:
        for asked in (_sources, _files):
            asked.cache_clear()


def test_a_change_is_seen_though_size_and_time_stay(sources: Path) -> None:
    before = digest()
    assert digest() == before
    path = sources / "ir/node.py"
    status, text = path.stat(), path.read_text()
    path.write_text(text.upper())
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (status.st_size, status.st_mtime_ns)
    assert digest() != before
    path.write_text(text)
    assert digest() == before, "known by content, not by when it was written"


def test_files_in_another_place_have_another_state(sources: Path) -> None:
    before = digest()
    one, other = sources / "ir/node.py", sources / "frontends/deep/file.py"
    kept = sources / "kept"
    one.rename(kept)
    other.rename(one)
    kept.rename(other)
    assert digest() != before
    (sources / "ir/more.py").write_text("")
    (sources / "ir/notes.txt").write_text("no source")
    with_more = digest()
    (sources / "ir/notes.txt").write_text("still none")
    assert digest() == with_more


def test_what_was_kept_of_sources_may_be_damaged(sources: Path) -> None:
    before = digest()
    folder = cache.default().folder
    assert folder is not None
    for entry in folder.glob(f"*{cache.SUFFIX}"):
        entry.write_bytes(b"nonsense")
    assert digest() == before


def test_programs_and_graphs_have_sources_of_their_own() -> None:
    assert len({graph_sources(), identity()[0]}) == 2
