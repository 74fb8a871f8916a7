"""Reading safetensors: judged by the safetensors package, and by files that lie."""

from __future__ import annotations

import json
import shutil
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import save_file

from arenite.errors import AreniteError, FileMissing, InvalidFile, NotSupported
from arenite.frontends.safetensors import SafetensorsFile

F32 = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


def arrays() -> dict[str, Any]:
    rng = np.random.default_rng(1)
    return {
        "weights": rng.standard_normal((3, 5)).astype(np.float32),
        "half": rng.standard_normal((2, 2, 2)).astype(np.float16),
        "brain": rng.standard_normal(7).astype(ml_dtypes.bfloat16),
        "whole": np.arange(-3, 3, dtype=np.int64),
        "flags": np.array([True, False]),
        "bytes": np.arange(11, dtype=np.uint8),
        "scalar": np.array(2.5),
        "nothing": np.zeros((0, 4), np.int32),
    }


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    save_file(arrays(), path, {"format": "pt"})
    return path


def write(path: Path, header: object, data: bytes = b"", length: int | None = None) -> Path:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(raw) if length is None else length) + raw + data)
    return path


def write_index(folder: Path, weight_map: object) -> Path:
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map}))
    return path


# Files that are true


def test_a_file_of_the_package_is_read(model: Path) -> None:
    file = SafetensorsFile.open(model)
    assert file.metadata == {"format": "pt"}
    assert set(file.tensors) == set(arrays())
    with safe_open(model, "numpy") as judge:
        for name, expected in arrays().items():
            tensor = file.tensors[name]
            found = tensor.buffer().as_array()
            assert (found.shape, tensor.dtype.to_numpy()) == (expected.shape, expected.dtype)
            np.testing.assert_array_equal(found, expected)
            assert list(found.shape) == judge.get_slice(name).get_shape()
    assert file.nbytes == sum(array.nbytes for array in arrays().values())
    assert "8 tensors" in repr(file)


def test_metadata_may_be_nothing(tmp_path: Path) -> None:
    path = write(tmp_path / "m.safetensors", {"__metadata__": None, "t": F32}, bytes(8))
    assert SafetensorsFile.open(path).metadata == {}


def test_nothing_is_copied(model: Path) -> None:
    tensor = SafetensorsFile.open(model).tensors["weights"]
    assert tensor.buffer().raw_ptr == tensor.file.raw_ptr + tensor.offset


def test_a_folder_is_searched(model: Path, tmp_path: Path) -> None:
    assert len(SafetensorsFile.open(tmp_path).tensors) == len(arrays())
    model.unlink()
    with pytest.raises(FileMissing, match=r"neither model\.safetensors\.index\.json nor model"):
        SafetensorsFile.open(tmp_path)


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """A folder with two shards and their index."""
    every = arrays()
    names = sorted(every)
    weight_map: dict[str, str] = {}
    for number, part in enumerate((names[:3], names[3:]), 1):
        file = f"model-0000{number}-of-00002.safetensors"
        save_file({name: every[name] for name in part}, tmp_path / file, {"format": "pt"})
        weight_map |= dict.fromkeys(part, file)
    write_index(tmp_path, weight_map)
    return tmp_path


def test_shards_are_one_model(shards: Path) -> None:
    for path in (shards, shards / "model.safetensors.index.json"):
        file = SafetensorsFile.open(path)
        assert len(file.files) == 2
        for name, expected in arrays().items():
            np.testing.assert_array_equal(file.tensors[name].buffer().as_array(), expected)
        assert "in 2 shards" in repr(file)


def test_a_missing_shard_is_named(shards: Path) -> None:
    (shards / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(FileMissing, match=r"lists several shards.*model-00002-of-00002"):
        SafetensorsFile.open(shards)


def test_a_tensor_that_is_not_where_the_index_says(shards: Path) -> None:
    shutil.copy(shards / "model-00001-of-00002.safetensors", shards / "other.safetensors")
    write_index(shards, {"brain": "model-00001-of-00002.safetensors", "lost": "other.safetensors"})
    with pytest.raises(InvalidFile, match=r"places tensor 'lost' in other\.safetensors: not there"):
        SafetensorsFile.open(shards)


# Files that lie


@pytest.mark.parametrize(
    "file",
    [
        "../model.safetensors",
        "/etc/model.safetensors",
        "sub/model.safetensors",
        "..\\model.safetensors",
        "C:model.safetensors",
        "..",
        "",
        "passwd",
        "a\0b.safetensors",
        7,
        None,
        ["model.safetensors"],
    ],
)
def test_a_shard_never_leads_out_of_the_folder(tmp_path: Path, file: object) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    save_file(arrays(), tmp_path / "model.safetensors")
    write_index(folder, {"weights": file})
    with pytest.raises(
        InvalidFile, match=r"places tensor 'weights' in .* a shard is a file beside"
    ):
        SafetensorsFile.open(folder)


@pytest.mark.parametrize("places", [None, [], {}, "x"])
def test_an_index_without_places_is_refused(tmp_path: Path, places: object) -> None:
    with pytest.raises(InvalidFile, match="has no 'weight_map'"):
        SafetensorsFile.open(write_index(tmp_path, places))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"dtype": "F31"}, "'t' of dtype 'F31'; known: BOOL, F4"),
        ({"dtype": ["F32"]}, "of dtype"),
        ({"dtype": None}, "of dtype 'None'"),
        ({"shape": [3]}, r"float32 of shape \(3,\) takes 12 bytes and has 8"),
        ({"shape": [2.0]}, "shape is no list"),
        ({"shape": [True, 2]}, "shape is no list"),
        ({"shape": [-2]}, "shape is no list"),
        ({"shape": "2"}, "shape is no list"),
        ({"shape": [2**63]}, "shape is no list"),
        ({"shape": [1] * 33}, "at most 32 sizes"),
        ({"shape": [2**40, 2**40]}, "too large for any memory"),
        ({"shape": [0, 2**62, 2**62]}, "too large for any memory"),
        ({"data_offsets": [0, 9]}, "at 0 to 9 of 8 bytes"),
        ({"data_offsets": [8, 0]}, "at 8 to 0"),
        ({"data_offsets": [0]}, "no two byte offsets"),
        ({"data_offsets": [0, 2**64]}, "no two byte offsets"),
        ({"data_offsets": {"begin": 0}}, "no two byte offsets"),
        ({"more": 1}, "needs exactly dtype, shape and data_offsets"),
    ],
)
def test_a_wrong_entry_is_told_apart(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    path = write(tmp_path / "lie.safetensors", {"t": F32 | change}, bytes(8))
    with pytest.raises((InvalidFile, NotSupported), match=rf"lie\.safetensors: .*{reason}"):
        SafetensorsFile.open(path)


@pytest.mark.parametrize(
    ("header", "nbytes", "reason"),
    [
        ({"a": F32, "b": F32}, 8, "'b', which overlaps tensor 'a'|'a', which overlaps tensor 'b'"),
        ({"a": F32 | {"data_offsets": [4, 12]}}, 12, "'a', which leaves a hole after the header"),
        ({"a": F32}, 9, "leaves 1 bytes at the end without a tensor"),
        ({}, 3, "leaves 3 bytes at the end"),
        ({"a": 5}, 0, "needs exactly"),
        ({"__metadata__": {"a": 1}}, 0, "does not map text to text"),
        ({"__metadata__": []}, 0, "does not map text to text"),
        ([], 0, "no JSON object"),
        (b"", 0, "is not JSON"),
        (b"{", 0, "is not JSON"),
        (b'{"a": NaN}', 0, "NaN is no JSON number"),
        (b'{"\xff": 1}', 0, "is not JSON: 'utf-8'"),
        (b'{"t": 1, "t": 2}', 0, "'t' is there twice"),
        (b'{"t": ' + b"9" * 5000 + b"}", 0, "is not JSON"),
        (b"[" * 300_000, 0, "nests too deep"),
        (
            b"[" * 1_600_000,
            0,
            "some 1600000 values and 0 keys; at most 1572864 and 524288 are read",
        ),
        (b'{"a":' * 1_600_000, 0, "some 1600000 values"),
    ],
)
def test_a_wrong_header_is_told_apart(
    tmp_path: Path, header: object, nbytes: int, reason: str
) -> None:
    path = write(tmp_path / "lie.safetensors", header, bytes(nbytes))
    with pytest.raises(InvalidFile, match=rf"lie\.safetensors: .*{reason}"):
        SafetensorsFile.open(path)


@pytest.mark.parametrize("length", [3, 2**20, 2**63, 2**64 - 1])
def test_a_header_longer_than_the_file_is_refused(tmp_path: Path, length: int) -> None:
    path = write(tmp_path / "lie.safetensors", b"{}", length=length)
    with pytest.raises(InvalidFile, match=f"header of {length} bytes is announced and 2 are left"):
        SafetensorsFile.open(path)


def test_a_header_beyond_the_limit_is_not_read(tmp_path: Path) -> None:
    path = write(tmp_path / "lie.safetensors", b"{}", length=2**30)
    with path.open("r+b") as file:
        file.truncate(2**30 + 8)  # sparse
    with pytest.raises(InvalidFile, match="has 1073741824 bytes; at most 16777216 are read"):
        SafetensorsFile.open(path)


def test_reading_a_header_takes_little_memory(tmp_path: Path) -> None:
    n, name = 5000, "model.layers.{}.mlp.experts.{}.down_proj.weight"
    places = ([4 * k, 4 * k + 4] for k in range(n))
    header = {
        name.format(k // 100, k): {"dtype": "F32", "shape": [1, 1], "data_offsets": place}
        for k, place in enumerate(places)
    }
    path = write(tmp_path / "many.safetensors", header, bytes(4 * n))
    tracemalloc.start()
    try:
        file = SafetensorsFile.open(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(file.tensors) == n
    assert peak < 650 * n  # dicts and lists for each would be 900


def test_tensors_may_be_called_like_what_is_said_of_them(tmp_path: Path) -> None:
    names = ("dtype", "shape", "data_offsets")
    header = {name: F32 | {"data_offsets": [8 * k, 8 * k + 8]} for k, name in enumerate(names)}
    path = write(tmp_path / "m.safetensors", header, bytes(24))
    assert {*SafetensorsFile.open(path).tensors} == {*names}


@pytest.mark.parametrize("part", ["dtype", "shape", "data_offsets"])
def test_an_entry_within_an_entry_is_refused(tmp_path: Path, part: str) -> None:
    inner = {"dtype": 0, "shape": 8, "data_offsets": 8}
    path = write(tmp_path / "lie.safetensors", {"t": F32 | {part: inner}}, bytes(8))
    with pytest.raises(AreniteError, match=r"lie\.safetensors: the header"):
        SafetensorsFile.open(path)


def test_keys_are_counted_before_they_are_read(tmp_path: Path) -> None:
    raw = b'{"__metadata__":{' + b",".join(b'"%x":""' % k for k in range(600_000)) + b"}}"
    path = write(tmp_path / "lie.safetensors", raw)
    with pytest.raises(InvalidFile, match="600001 keys; at most 1572864 and 524288"):
        SafetensorsFile.open(path)


def test_a_file_cut_at_any_byte_is_refused(tmp_path: Path, model: Path) -> None:
    whole = model.read_bytes()
    path = tmp_path / "cut.safetensors"
    for nbytes in range(len(whole)):
        path.unlink(missing_ok=True)
        path.write_bytes(whole[:nbytes])
        with pytest.raises(InvalidFile, match=r"cut\.safetensors"):
            SafetensorsFile.open(path)


@given(data=st.data())
def test_flipped_bytes_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("damaged") / "damaged.safetensors"
    save_file(arrays(), path)
    damaged = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 5))):
        at = data.draw(st.integers(0, len(damaged) - 1))
        damaged[at] = data.draw(st.one_of(st.sampled_from(b'"{}[],:0139'), st.integers(0, 255)))
    path.unlink()
    path.write_bytes(damaged)
    refused: AreniteError | None = None
    try:
        file = SafetensorsFile.open(path)
    except (InvalidFile, NotSupported) as error:
        refused = error
    else:
        for tensor in file.tensors.values():
            assert len(tensor.buffer().as_host_bytes()) == tensor.nbytes
    assert refused is None or "damaged.safetensors" in str(refused)
