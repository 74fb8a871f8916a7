"""The cache: one builder a key, damage is rebuilt, the oldest goes first, no folder is no harm."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from arenite.errors import DamagedCache, InvalidArgument
from arenite.program import cache as cache_module
from arenite.program import model_file
from arenite.program.cache import Cache, default, default_folder, key_of
from arenite.program.model_file import model_bytes, write_atomically

KEY = key_of("content", b"compiler")

#: Python 3.12 and later warn of every fork of a process that has threads.
forks = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


def content(cache: Cache, key: str = KEY) -> bytes | None:
    found = cache.get(key)
    return None if found is None else found["x"].tobytes()


def test_what_was_put_is_found_also_by_another_process(cache: Cache) -> None:
    assert content(cache) is None
    cache.put(KEY, {"x": b"1"})
    assert content(cache) == b"1"
    assert cache.folder is not None
    assert content(Cache(cache.folder)) == b"1"


def test_keys_differ_when_any_part_differs() -> None:
    keys = {key_of(), key_of("a"), key_of("a", "b"), key_of("ab"), key_of(b"a", b""), key_of("b")}
    assert len(keys) == 6
    assert key_of("a") == key_of(b"a")


@pytest.mark.parametrize("key", ["", "../../etc/passwd", "abc", "G" * 64, KEY + "/x", KEY.upper()])
def test_what_is_no_key_is_refused(cache: Cache, key: str) -> None:
    with pytest.raises(InvalidArgument, match="is no key"):
        cache.get(key)


def test_the_folder_is_private(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "a" / "b")
    assert cache.folder is not None
    assert cache.folder.stat().st_mode & 0o777 == 0o700
    cache.put(KEY, {"x": b"1"})
    [entry] = cache.folder.iterdir()
    assert entry.stat().st_mode & 0o077 == 0


def test_many_threads_build_once(cache: Cache) -> None:
    n_built = 0
    start = threading.Barrier(16)
    found = []

    def build() -> dict[str, bytes]:
        nonlocal n_built
        n_built += 1
        time.sleep(0.05)
        return {"x": b"built"}

    def ask() -> None:
        start.wait()
        found.append(cache.obtain(KEY, build)["x"].tobytes())

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert n_built == 1
    assert found == [b"built"] * 16
    assert cache.folder is not None
    assert [p.suffix for p in cache.folder.iterdir()] == [".arenite"], "locks are gone"


BUILDER = """
import sys, time
from pathlib import Path
from arenite.program.cache import Cache
folder, key, log, gate = sys.argv[1:]
def build():
    with open(log, "a") as file:
        file.write("built\\n")
    time.sleep(0.1)
    return {"x": b"built"}
cache = Cache(Path(folder))
while not Path(gate).exists():
    time.sleep(0.001)
assert cache.obtain(key, build)["x"].tobytes() == b"built"
"""


def test_many_processes_build_once(tmp_path: Path) -> None:
    log, gate = tmp_path / "log", tmp_path / "gate"
    arguments = [str(tmp_path / "cache"), KEY, str(log), str(gate)]
    children = [subprocess.Popen([sys.executable, "-c", BUILDER, *arguments]) for _ in range(6)]
    gate.touch()
    assert [child.wait() for child in children] == [0] * 6
    assert log.read_text() == "built\n"


def test_a_builder_that_fails_or_dies_leaves_the_key_free(cache: Cache) -> None:
    def fail() -> dict[str, bytes]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        cache.obtain(KEY, fail)
    assert cache.folder is not None
    (cache.folder / f"{KEY}.lock").touch()  # left by a process that was killed
    assert cache.obtain(KEY, lambda: {"x": b"1"})["x"].tobytes() == b"1"


@pytest.mark.parametrize("damage", ["truncated", "flipped", "foreign", "empty", "writable", "link"])
def test_damaged_entries_are_dropped_and_rebuilt(cache: Cache, damage: str) -> None:
    cache.put(KEY, {"x": b"1" * 100})
    assert cache.folder is not None
    [path] = cache.folder.iterdir()
    data = bytearray(path.read_bytes())
    if damage == "truncated":
        path.write_bytes(data[:-1])
    elif damage == "flipped":
        data[-1] ^= 1
        path.write_bytes(data)
    elif damage == "foreign":
        path.write_bytes(b"PK\x03\x04" * 100)
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "writable":
        path.chmod(0o666)
    else:
        other = cache.folder.parent / "other"
        path.rename(other)
        path.symlink_to(other)
    assert content(cache) is None
    assert not path.exists()
    assert cache.obtain(KEY, lambda: {"x": b"2"})["x"].tobytes() == b"2"
    assert content(cache) == b"2"


def test_entries_renamed_into_each_other_are_not_believed(cache: Cache) -> None:
    keys = [key_of("one"), key_of("other")]
    for k, key in enumerate(keys):
        cache.put(key, {"x": b"%d" % k})
    assert cache.folder is not None
    one, other = (cache.folder / f"{key}.arenite" for key in keys)
    between = cache.folder / "between"
    one.rename(between)
    other.rename(one)
    between.rename(other)
    assert [content(cache, key) for key in keys] == [None, None]
    assert not one.exists()
    assert cache.obtain(keys[0], lambda: {"x": b"again"})["x"].tobytes() == b"again"
    assert content(cache, keys[0]) == b"again"


def test_an_entry_without_a_key_or_the_sections_needed_is_built_anew(cache: Cache) -> None:
    assert cache.folder is not None
    write_atomically(cache.folder / f"{KEY}.arenite", model_bytes({"x": b"1"}))
    assert content(cache) is None
    cache.put(KEY, {"y": b"1"})
    found = cache.obtain(KEY, lambda: {"x": b"2"}, needs=("x",))
    assert found["x"].tobytes() == content(cache) == b"2"
    with pytest.raises(InvalidArgument, match="for its key"):
        cache.put(KEY, {"key": b"mine"})


@pytest.mark.parametrize("place", ["entry", "lock"])
@pytest.mark.parametrize("kind", ["folder", "full folder", "pipe", "link"])
def test_whatever_is_in_the_place_of_an_entry_or_a_lock_is_dropped(
    cache: Cache, tmp_path: Path, kind: str, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert cache.folder is not None
    path = cache.folder / f"{KEY}.{'arenite' if place == 'entry' else 'lock'}"
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").touch()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to(outside)
    else:
        path.mkdir()
        if kind == "full folder":
            (path / "inside").mkdir()
            (path / "link").symlink_to(outside)
    with caplog.at_level(logging.WARNING, "arenite"):
        assert cache.obtain(KEY, lambda: {"x": b"1"})["x"].tobytes() == b"1"
    assert not caplog.records, "entries are not kept in memory for that"
    assert content(Cache(cache.folder)) == b"1"
    assert (outside / "file").exists()


def test_a_folder_in_the_place_of_an_entry_is_cleared_and_a_foreign_one_is_not(
    cache: Cache,
) -> None:
    assert cache.folder is not None
    (cache.folder / f"{KEY}.arenite").mkdir()
    (cache.folder / "mine.arenite").mkdir()
    assert cache.clear() == 1
    assert [path.name for path in cache.folder.iterdir()] == ["mine.arenite"]


def test_what_is_in_memory_is_handed_over_to_another_process(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    keys = [key_of("one"), key_of("other")]
    mine, theirs = Cache(tmp_path / "file"), Cache(tmp_path / "file")
    for k, key in enumerate(keys):
        mine.put(key, {"x": b"%d" % k * 100_000})
    handed = os.memfd_create("handed")
    try:
        mine.hand_over(handed)
        theirs.receive(handed)
    finally:
        os.close(handed)
    assert [content(theirs, key) for key in keys] == [b"%d" % k * 100_000 for k in range(2)]


@pytest.mark.parametrize("header", [False, True])
def test_a_huge_sparse_file_is_dropped_unread_and_costs_no_other_entry(
    cache: Cache, header: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cache.folder is not None
    path, n_huge = cache.folder / f"{KEY}.arenite", 20 * 2**30
    cache.put(KEY, {"x": b"1"})
    data = bytearray(path.read_bytes())
    if header:
        data[8:16] = n_huge.to_bytes(8, "little")

    def make_huge() -> None:
        path.write_bytes(data)
        os.truncate(path, n_huge)

    make_huge()
    monkeypatch.setattr(model_file, "bytearray", None, raising=False)  # memory is never asked for
    assert content(cache) is None
    assert not path.exists()
    monkeypatch.undo()
    make_huge()
    others = [key_of(str(i)) for i in range(3)]
    for key in others:
        cache.put(key, {"x": b"1"})
    assert not path.exists()
    assert [content(cache, key) for key in others] == [b"1"] * 3


def test_a_file_longer_than_its_header_says_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_atomically(path, model_bytes({"x": b"1"}))
    os.truncate(path, 20 * 2**30)
    monkeypatch.setattr(model_file, "bytearray", None, raising=False)
    with pytest.raises(DamagedCache, match="the header says"):
        model_file.read_model_file(path)


def test_a_dropped_entry_is_gone(cache: Cache) -> None:
    cache.put(KEY, {"x": b"1"})
    cache.drop(KEY)
    cache.drop(KEY)
    assert content(cache) is None


def test_over_the_cap_the_least_recently_used_goes(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache", cap_nbytes=3000)
    keys = [key_of(str(i)) for i in range(4)]
    for age, key in enumerate(keys[:3]):
        cache.put(key, {"x": bytes(700)})
        old = time.time() - 100 + age
        os.utime(tmp_path / "cache" / f"{key}.arenite", (old, old))
    assert content(cache, keys[0]) is not None  # now the most recently used
    cache.put(keys[3], {"x": bytes(700)})
    kept = [content(cache, key) is not None for key in keys]
    assert kept == [True, False, True, True]
    assert cache.info().nbytes <= 3000


def test_what_is_larger_than_the_cap_is_used_and_not_kept(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache", cap_nbytes=1000)
    assert cache.obtain(KEY, lambda: {"x": bytes(5000)})["x"].nbytes == 5000
    assert cache.info().n_entries == 0


def test_temporary_files_of_killed_writers_are_swept(cache: Cache) -> None:
    assert cache.folder is not None
    left, fresh = cache.folder / ".new-old", cache.folder / ".new-young"
    left.touch()
    fresh.touch()
    os.utime(left, (1, 1))
    cache.put(KEY, {"x": b"1"})
    assert not left.exists()
    assert fresh.exists()


def unusable_folders(tmp_path: Path) -> list[Path]:
    (tmp_path / "file").write_text("not a folder")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    return [tmp_path / "file", tmp_path / "file" / "below", tmp_path / "open"]


@pytest.mark.parametrize("which", [0, 1, 2], ids=["file", "below a file", "others may write"])
def test_without_a_usable_folder_entries_live_in_memory_which_is_said_once(
    tmp_path: Path, which: int, caplog: pytest.LogCaptureFixture
) -> None:
    folder = unusable_folders(tmp_path)[which]
    with caplog.at_level(logging.WARNING, "arenite"):
        cache = Cache(folder)
        assert cache.obtain(KEY, lambda: {"x": b"1"})["x"].tobytes() == b"1"
        assert content(cache) == b"1"
    assert len(caplog.records) == 1
    assert "in memory only" in caplog.text
    info = cache.info()
    assert (info.folder, info.n_entries) == (None, 1)
    assert str(folder) in info.why_in_memory
    assert cache.clear() == 1
    assert content(cache) is None


def test_a_folder_that_fills_up_or_vanishes_is_left_for_memory(
    cache: Cache, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(path: Path, content: bytes, is_synced: bool) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache_module, "write_atomically", full)
    with caplog.at_level(logging.WARNING, "arenite"):
        cache.put(KEY, {"x": b"1"})
        cache.put(key_of("other"), {"x": b"2"})
    assert len(caplog.records) == 1
    assert "No space left" in caplog.text
    assert content(cache) == b"1"


def test_info_counts_and_clear_removes(cache: Cache) -> None:
    for i in range(3):
        cache.put(key_of(str(i)), {"x": bytes(100)})
    info = cache.info()
    assert info.n_entries == 3
    assert info.nbytes > 300
    assert info.folder == cache.folder
    assert cache.clear() == 3
    assert cache.info().n_entries == 0


def test_the_default_folder_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ARENITE_CACHE_DIR", str(tmp_path / "chosen"))
    assert default_folder() == tmp_path / "chosen"
    assert default().folder == tmp_path / "chosen"
    assert default() is default()
    monkeypatch.delenv("ARENITE_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_folder() == tmp_path / "arenite"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_folder() == tmp_path / ".cache" / "arenite"


@forks
def test_a_process_forked_while_a_key_is_built_does_not_hold_it(cache: Cache) -> None:
    child = 0

    def build() -> dict[str, bytes]:
        nonlocal child
        child = os.fork()
        if child == 0:
            cache.forget_after_fork()
            time.sleep(30)
            os._exit(0)
        return {"x": b"1"}

    cache.obtain(KEY, build)
    cache.drop(KEY)
    try:
        assert cache.folder is not None
        other = Cache(cache.folder)
        assert other.obtain(KEY, lambda: {"x": b"2"})["x"].tobytes() == b"2"
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
