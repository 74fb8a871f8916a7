"""Model files: what is written is read, what is damaged is refused, and nothing else happens."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arenite.errors import DamagedCache, InvalidArgument
from arenite.program.model_file import (
    code_sections,
    model_bytes,
    parse_code,
    parse_model,
    read_model_file,
    write_atomically,
)

names = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=8)


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(names, st.binary(max_size=200), max_size=8))
def test_sections_come_back_as_they_were(sections: dict[str, bytes]) -> None:
    found = parse_model(memoryview(model_bytes(sections)))
    assert {name: view.tobytes() for name, view in found.items()} == sections


def test_a_file_is_written_whole_and_privately(tmp_path: Path) -> None:
    path = tmp_path / "a.arenite"
    write_atomically(path, model_bytes({"table": bytes(range(5)), "none": b""}))
    found = read_model_file(path)
    assert found["table"].tolist() == [0, 1, 2, 3, 4]
    assert len(found["none"]) == 0
    assert path.stat().st_mode & 0o777 == 0o600
    assert [*tmp_path.iterdir()] == [path]


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.arenite"
    path.mkdir()
    with pytest.raises(OSError, match="directory"):
        write_atomically(path, model_bytes({"x": b"1"}))
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize("name", ["", "registers", "ä", "a\nb"])
def test_names_that_do_not_fit_are_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match="can't name a section"):
        model_bytes({name: b""})
    with pytest.raises(InvalidArgument, match="at most 1024"):
        model_bytes({str(i): b"" for i in range(1025)})


def a_model() -> bytes:
    code = code_sections(bytes(range(64)), {"one": 0, "two": 16})
    return model_bytes({**code, "frame": bytes(320), "key": b"k"})


def load(data: bytes) -> None:
    """What is read of a file before anything in it is looked at."""
    parse_code(parse_model(memoryview(data)))


def with_checksum(data: bytes) -> bytes:
    return data[:24] + hashlib.blake2b(data[64:], digest_size=32).digest() + data[56:]


def test_a_model_with_its_code_comes_back() -> None:
    load(a_model())


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_a_damaged_file_is_refused_also_with_the_checksum_repaired(data: st.DataObject) -> None:
    mutated = bytearray(a_model())
    for _ in range(data.draw(st.integers(1, 6))):
        place = data.draw(st.integers(0, len(mutated) - 1))
        mutated[place] = data.draw(st.integers(0, 255))
    cut = data.draw(st.one_of(st.just(len(mutated)), st.integers(0, len(mutated))))
    result = bytes(mutated[:cut])
    if result == a_model():
        return
    if len(result) >= 64 and data.draw(st.booleans()):
        result = with_checksum(result)
        try:
            load(result)
        except DamagedCache:
            return
    else:
        with pytest.raises(DamagedCache):
            load(result)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (0, b"X", "not a model file"),
        (8, b"\0", "the header says"),
        (16, b"\xff\xff\xff\xff", "does not fit"),
        (20, b"\x01", "does not fit"),
        (56, b"\1", "not a model file"),
        (64, bytes(8), "none or a second time"),
        (64, b"\xff", "has the name"),
        (72, b"\xff" * 8, "not in the file"),
        (72, b"\x01", "not in the file"),
        (80, b"\xff" * 8, "not in the file"),
    ],
)
def test_each_field_is_checked(place: int, value: bytes, message: str) -> None:
    data = bytearray(a_model())
    data[place : place + len(value)] = value
    with pytest.raises(DamagedCache, match=message):
        parse_model(memoryview(with_checksum(bytes(data))))


def test_files_that_others_could_have_written_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.arenite"
    write_atomically(path, model_bytes({"x": b"1"}))
    path.chmod(0o666)
    with pytest.raises(DamagedCache, match="others may write"):
        read_model_file(path)
    link = tmp_path / "link"
    link.symlink_to(path)
    with pytest.raises(DamagedCache, match="can't be opened"):
        read_model_file(link)
    with pytest.raises(DamagedCache, match="can't be opened"):
        read_model_file(tmp_path / "missing")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DamagedCache, match="no regular file"):
        read_model_file(tmp_path / "pipe")


@pytest.mark.parametrize(
    "sections",
    [
        {"code": b"1234"},
        {"code": b"1234", "entries": b"123"},
        {"code": b"1234", "entries": b'{"x": 0'},
        {"code": b"1234", "entries": b'{"x": 4}'},
        {"code": b"1234", "entries": b'{"x": -1}'},
        {"code": b"1234", "entries": b'{"x": "0"}'},
        {"code": b"1234", "entries": b"\xff"},
        {"code": b"1234", "entries": b"[" * 100_000},
    ],
    ids=["missing", "no names", "broken", "outside", "before", "no number", "no text", "deep"],
)
def test_entries_that_lead_nowhere_are_refused(sections: dict[str, bytes]) -> None:
    with pytest.raises(DamagedCache):
        parse_code({name: memoryview(content) for name, content in sections.items()})
