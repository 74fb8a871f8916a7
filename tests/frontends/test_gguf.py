"""Reading GGUF: what the gguf package wrote is read as that package reads it."""

from __future__ import annotations

import gc
import os
import shutil
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf import quants

from arenite.dtype.blocks import dequantised
from arenite.errors import FileMissing, InvalidFile
from arenite.frontends.gguf import GgufFile, MetadataArray
from tests.frontends.gguf_files import (
    TYPES_TURNED,
    TYPES_WRITTEN,
    Layout,
    Tensor,
    array,
    make_big_endian,
    text,
    write_model,
)

VALUES: dict[str, Any] = {
    "general.architecture": "llama",
    "a.uint8": 200,
    "a.int8": -5,
    "a.uint16": 60_000,
    "a.int16": -30_000,
    "a.uint32": 4_000_000_000,
    "a.int32": -2_000_000_000,
    "a.uint64": 2**63 + 1,
    "a.int64": -(2**60),
    "a.float32": 0.5,
    "a.float64": 1e300,
    "a.flag": True,
    "a.text": "grüße, 世界",
    "an.array.of.texts": ["a", "", "übung", "𝄞"],
    "an.array.of.integers": [1, -2, 3],
    "an.array.of.floats": [0.5, -1.25],
    "an.array.of.flags": [True, False, True],
}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    write_model(path)
    return path


def plain(value: object) -> object:
    return value.tolist() if isinstance(value, MetadataArray) else value


def assert_tensors_agree(file: GgufFile, judge: gguf.GGUFReader) -> None:
    """Names, types, shapes, places, and the numbers the bytes stand for."""
    assert list(file.tensors) == [theirs.name for theirs in judge.tensors]
    for theirs in judge.tensors:
        ours = file.tensors[theirs.name]
        assert ours.shape == tuple(reversed(theirs.shape.tolist()))
        assert (ours.offset, ours.nbytes) == (theirs.data_offset, theirs.n_bytes)
        numbers = dequantised(ours.buffer().as_host_bytes(), ours.dtype, ours.shape)
        with np.errstate(all="ignore"):
            expected = quants.dequantize(theirs.data, theirs.tensor_type)
        np.testing.assert_array_equal(numbers, expected.reshape(ours.shape))


# Values and tensors


def test_every_kind_of_value_is_read(model: Path) -> None:
    metadata = GgufFile.open(model).metadata
    assert {key: plain(metadata[key]) for key in metadata} == VALUES
    for key, value in VALUES.items():
        assert type(plain(metadata[key])) is type(value)


def test_tensors_of_every_type_are_where_the_package_finds_them(model: Path) -> None:
    file = GgufFile.open(model)
    assert len(file.tensors) == len(TYPES_WRITTEN)
    assert_tensors_agree(file, gguf.GGUFReader(model))
    assert {t.dtype.name for t in file.tensors.values()} >= {"q4_k", "bfloat16", "iq4_xs"}


def test_a_file_of_the_other_byte_order_reads_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    little, big = tmp_path / "little.gguf", tmp_path / "big.gguf"
    write_model(little, TYPES_TURNED)
    shutil.copy(little, big)
    make_big_endian(big, monkeypatch)
    here, there = GgufFile.open(little), GgufFile.open(big)
    assert there.parts[0].order == ">"
    assert {key: plain(there.metadata[key]) for key in there.metadata} == VALUES
    for name, tensor in here.tensors.items():
        turned = there.tensors[name]
        assert (turned.shape, turned.dtype) == (tensor.shape, tensor.dtype)
        assert turned.buffer().copyout() == tensor.buffer().copyout(), name
    assert there.tensors["of.Q4_K"].file.copyout() != here.tensors["of.Q4_K"].file.copyout()


def test_version_2_is_read(tmp_path: Path) -> None:
    layout = Layout([("k", 8, text("v"))], [Tensor("t", (4, 2))], version=2)
    file = GgufFile.open(layout.write(tmp_path / "v2.gguf"))
    assert (file.parts[0].version, file.metadata.text("k")) == (2, "v")
    assert file.tensors["t"].shape == (2, 4)


def test_a_tensor_is_the_mapped_file_and_no_copy(model: Path) -> None:
    file = GgufFile.open(model)
    tensor = file.tensors["of.F32"]
    one, two = tensor.buffer(), tensor.buffer()
    assert one.raw_ptr == two.raw_ptr == tensor.file.raw_ptr + tensor.offset
    assert one.storage_id == file.tensors["of.Q4_K"].buffer().storage_id
    with pytest.raises(ValueError, match="read-only"):
        one.as_array()[0] = 1


def test_a_buffer_outlives_its_file_object(model: Path) -> None:
    buffer = GgufFile.open(model).tensors["of.F32"].buffer()
    expected = gguf.GGUFReader(model).tensors[0].data.copy()
    gc.collect()
    np.testing.assert_array_equal(buffer.as_array(), expected)


def test_files_without_tensors_or_keys_are_files(tmp_path: Path) -> None:
    empty = GgufFile.open(Layout(data=b"").write(tmp_path / "empty.gguf"))
    assert (len(empty.metadata), empty.tensors, empty.nbytes) == (0, {}, 0)
    scalar = Layout([], [Tensor("s", ()), Tensor("none", (0, 3), offset=32)])
    tensors = GgufFile.open(scalar.write(tmp_path / "scalar.gguf")).tensors
    assert (tensors["s"].shape, tensors["s"].nbytes) == ((), 4)
    assert tensors["none"].buffer().as_array().shape == (3, 0)


def test_alignment_comes_from_the_file(tmp_path: Path) -> None:
    key = ("general.alignment", 4, (128).to_bytes(4, "little"))
    tensors = [Tensor("a"), Tensor("b", offset=128)]
    file = GgufFile.open(Layout([key], tensors, bytes(256), alignment=128).write(tmp_path / "a"))
    assert [t.offset % 128 for t in file.tensors.values()] == [0, 0]
    assert file.parts[0].alignment == 128


def test_arrays_in_arrays(tmp_path: Path) -> None:
    inner = array(4, 2, b"\1\0\0\0\2\0\0\0") + array(4, 0, b"") + array(8, 1, text("x"))
    file = GgufFile.open(Layout([("k", 9, array(9, 3, inner))]).write(tmp_path / "nested"))
    assert file.metadata.array("k").tolist() == [[1, 2], [], ["x"]]


def test_an_array_that_ends_with_the_file(tmp_path: Path) -> None:
    layout = Layout([("k", 9, array(4, 0, b""))], data=b"", alignment=1)
    metadata = GgufFile.open(layout.write(tmp_path / "end")).metadata
    assert (metadata.numbers("k").tolist(), len(metadata.array("k"))) == ([], 0)


def test_a_large_vocabulary_opens_without_being_decoded(tmp_path: Path) -> None:
    tokens = [f"token {i}" for i in range(150_000)]
    path = tmp_path / "vocabulary.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * len(tokens))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    metadata = GgufFile.open(path).metadata
    assert len(metadata.array("tokenizer.ggml.tokens")) == len(tokens)
    assert metadata.texts("tokenizer.ggml.tokens") == tokens
    assert metadata.numbers("tokenizer.ggml.token_type").sum() == len(tokens)


# Typed access


def test_typed_access_and_defaults(model: Path) -> None:
    metadata = GgufFile.open(model).metadata
    assert metadata.text("general.architecture") == "llama"
    assert metadata.integer("a.int8") == -5
    assert (metadata.number("a.int8"), metadata.number("a.float32")) == (-5.0, 0.5)
    assert metadata.flag("a.flag") is True
    assert metadata.texts("an.array.of.texts")[2] == "übung"
    assert metadata.numbers("an.array.of.flags").dtype == np.bool_
    assert metadata.text("not.there", "x") == "x"
    assert (metadata.integer("no", 3), metadata.number("no", 0.5)) == (3, 0.5)
    assert metadata.flag("no", False) is False
    assert ("a.flag" in metadata, "no" in metadata) == (True, False)


@pytest.mark.parametrize(
    ("method", "key", "reason"),
    [
        ("text", "a.uint8", "should be text; it is '200'"),
        ("integer", "a.float32", "should be an integer"),
        ("integer", "a.flag", "should be an integer"),
        ("number", "a.text", "should be a number"),
        ("flag", "a.uint8", "should be a flag"),
        ("array", "a.text", "should be an array"),
        ("texts", "an.array.of.floats", "holds float32, not text"),
        ("numbers", "an.array.of.texts", "holds text, not numbers"),
        ("text", "an.array.of.texts", "MetadataArray"),
        ("text", "general.architektur", "has no key .*; it has 'general.architecture'"),
        ("numbers", "zzz", "has no key 'zzz'$"),
    ],
)
def test_the_wrong_kind_is_said(model: Path, method: str, key: str, reason: str) -> None:
    metadata = GgufFile.open(model).metadata
    with pytest.raises(InvalidFile, match=rf"model\.gguf.*{reason}"):
        getattr(metadata, method)(key)


def test_what_is_open_prints(model: Path) -> None:
    file = GgufFile.open(model)
    assert f"{len(TYPES_WRITTEN)} tensors of" in repr(file)
    assert "17 keys" in repr(file)
    assert "17 keys" in repr(file.metadata)
    assert "of.Q4_0" in repr(file.tensors["of.Q4_0"])


# Shards


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    write_model(tmp_path / "model.gguf", shards_of=6)
    return sorted(tmp_path.glob("model-*.gguf"))


@pytest.mark.parametrize("given", [0, 1, 2])
def test_shards_are_one_model_whichever_is_opened(shards: list[Path], given: int) -> None:
    assert len(shards) == 3
    file = GgufFile.open(shards[given])
    assert [part.path for part in file.parts] == [str(path) for path in shards]
    assert sorted(file.tensors) == sorted(f"of.{name}" for name in TYPES_WRITTEN)
    assert file.metadata.text("general.architecture") == "llama"
    assert "in 3 shards" in repr(file)
    for part, path in zip(file.parts, shards, strict=True):
        alone = GgufFile("", part.metadata, part.tensors, (part,))
        assert_tensors_agree(alone, gguf.GGUFReader(path))


def test_shards_are_found_from_another_folder(
    shards: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(shards[0].parent)
    assert len(GgufFile.open(shards[0].name).parts) == 3


def test_a_missing_shard_is_named(shards: list[Path]) -> None:
    shards[2].unlink()
    with pytest.raises(FileMissing, match=r"one of several shards.*model-00003-of-00003"):
        GgufFile.open(shards[0])


def test_a_renamed_shard_is_refused(shards: list[Path]) -> None:
    other = shards[0].with_name("other.gguf")
    os.rename(shards[0], other)
    with pytest.raises(InvalidFile, match="says it is shard 1 of 3; such a file is named"):
        GgufFile.open(other)


def test_shards_in_the_wrong_place_are_refused(shards: list[Path]) -> None:
    shutil.copy(shards[1], shards[2])
    with pytest.raises(InvalidFile, match=r"should be shard 3 of 3; its keys .* are 1 and 3"):
        GgufFile.open(shards[0])
    shutil.copy(shards[2], shards[0])
    with pytest.raises(InvalidFile, match="says it is shard 2 of 3"):
        GgufFile.open(shards[0])


def split(number: int, total: int = 2) -> list[tuple[str | bytes, int, bytes]]:
    return [
        ("split.no", 2, number.to_bytes(2, "little")),
        ("split.count", 2, (2).to_bytes(2, "little")),
        ("split.tensors.count", 5, total.to_bytes(4, "little")),
    ]


def test_shards_with_the_same_tensor_or_too_few_are_refused(tmp_path: Path) -> None:
    first, second = (tmp_path / f"m-0000{i}-of-00002.gguf" for i in (1, 2))
    Layout(split(0), [Tensor("same")]).write(first)
    Layout(split(1), [Tensor("same")]).write(second)
    with pytest.raises(InvalidFile, match=r"00002.*'same' is in an earlier shard too"):
        GgufFile.open(first)
    Layout(split(1)).write(second)
    with pytest.raises(InvalidFile, match="2 tensors are announced and the 2 shards have 1"):
        GgufFile.open(first)
