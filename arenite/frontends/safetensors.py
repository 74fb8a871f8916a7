"""safetensors: tensors of one file, or of the shards that an index in their folder lists.

    header length u64, little-endian | header, JSON | data

In: a file, an index (`*.safetensors.index.json`) or the folder of either. Out: `SafetensorsFile`,
with tensors by name, mapped and not copied. The header must describe every byte of the data
exactly once, as the format demands; each fault is one InvalidFile with file, place and reason.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Any, NoReturn

from arenite import dtype as dtypes
from arenite.device import Buffer, DiskAllocator
from arenite.device.allocator import readable_nbytes
from arenite.errors import FileMissing, InvalidFile, NotSupported
from arenite.frontends.stored import StoredTensor, quoted

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
INDEX_SUFFIX = ".safetensors.index.json"
MAX_JSON_NBYTES = 32 * 2**20  # of a header or an index
MAX_TENSORS = 2**18
MAX_AXES = 32
MAX_BITS = 2**63  # of one tensor, sizes of zero counted as one
IS_SWAPPED = sys.byteorder == "big"  # data is little-endian

DTYPES = {
    name: dtypes.of(spelled)
    for name, spelled in {
        "BOOL": "bool",
        "F4": "float4_e2m1fn",
        "F6_E2M3": "float6_e2m3fn",
        "F6_E3M2": "float6_e3m2fn",
        "U8": "uint8",
        "I8": "int8",
        "F8_E5M2": "float8_e5m2",
        "F8_E4M3": "float8_e4m3fn",
        "F8_E8M0": "float8_e8m0fnu",
        "I16": "int16",
        "U16": "uint16",
        "F16": "float16",
        "BF16": "bfloat16",
        "I32": "int32",
        "U32": "uint32",
        "F32": "float32",
        "C64": "complex64",
        "F64": "float64",
        "I64": "int64",
        "U64": "uint64",
    }.items()
}


@dataclass(frozen=True, repr=False)
class SafetensorsFile:
    """A model's tensors; the files stay mapped while anyone holds their buffers."""

    path: str
    metadata: dict[str, str]  # of one file `__metadata__`, of shards those of the first
    tensors: dict[str, StoredTensor]
    files: tuple[str, ...]

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> SafetensorsFile:
        """Map a file or all shards of an index; a folder is searched for either."""
        given = os.fspath(path)
        found = _in_folder(given) if os.path.isdir(given) else given
        if found.endswith(INDEX_SUFFIX):
            return _open_shards(found)
        metadata, tensors = _read_file(found)
        return cls(given, metadata, tensors, (found,))

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.nbytes for tensor in self.tensors.values())

    def __repr__(self) -> str:
        shards = f" in {len(self.files)} shards" if len(self.files) > 1 else ""
        return (
            f"<SafetensorsFile {self.path}: {len(self.tensors)} tensors of "
            f"{readable_nbytes(self.nbytes)}{shards}>"
        )


def _in_folder(folder: str) -> str:
    for name in (INDEX, SINGLE):
        if os.path.exists(os.path.join(folder, name)):
            return os.path.join(folder, name)
    raise FileMissing(f"{folder} has neither {INDEX} nor {SINGLE}; name the file to open")


def _open_shards(index: str) -> SafetensorsFile:
    where = f"{index}: the index"
    parsed = _parsed(DiskAllocator(index).file(), 0, None, where)
    places = parsed.get("weight_map")
    if not isinstance(places, dict) or not places:
        raise InvalidFile(f"{where} has no 'weight_map' of tensors to files")
    folder = os.path.dirname(index)
    by_file: dict[str, list[str]] = {}
    for tensor, file in places.items():
        by_file.setdefault(_checked_shard(where, tensor, file), []).append(tensor)
    tensors: dict[str, StoredTensor] = {}
    metadata: dict[str, str] = {}
    paths = []
    for file in sorted(by_file):
        path = os.path.join(folder, file)
        found = _read_shard(index, path)
        metadata = metadata or found[0]
        paths.append(path)
        for name in by_file[file]:
            if name not in found[1]:
                raise InvalidFile(f"{where} places tensor {quoted(name)} in {file}: not there")
            tensors[name] = found[1][name]
    return SafetensorsFile(index, metadata, tensors, tuple(paths))


def _checked_shard(where: str, tensor: str, file: object) -> str:
    """The name of a shard, which is a plain name and so stays in its folder."""
    if (
        not isinstance(file, str)
        or not file.endswith(".safetensors")
        or not file.isprintable()
        or any(mark in file for mark in "/\\:")
    ):
        raise InvalidFile(
            f"{where} places tensor {quoted(tensor)} in {quoted(str(file))}; a shard is a file "
            "beside the index, named *.safetensors, without a folder"
        )
    return file


def _read_shard(index: str, path: str) -> tuple[dict[str, str], dict[str, StoredTensor]]:
    try:
        return _read_file(path)
    except FileMissing as error:
        raise FileMissing(f"{index} lists several shards, and {error}") from error


def _read_file(path: str) -> tuple[dict[str, str], dict[str, StoredTensor]]:
    """Metadata and tensors of one file."""
    file = DiskAllocator(path).file()
    if file.nbytes < 8:
        raise InvalidFile(f"{path} is no safetensors file: it has {file.nbytes} bytes, not even 8")
    length = int.from_bytes(file.view(0, 8).copyout(), "little")
    if length > file.nbytes - 8:
        raise InvalidFile(
            f"{path}, byte 0: a header of {length} bytes is announced and {file.nbytes - 8} are "
            "left: cut short, or no safetensors file"
        )
    where = f"{path}: the header"
    header = _parsed(file, 8, length, where)
    metadata = header.pop("__metadata__", None)
    metadata = {} if metadata is None else metadata
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise InvalidFile(f"{where} has '__metadata__' that does not map text to text")
    data_offset = 8 + length
    tensors = {
        name: _place(where, name, entry, data_offset, file) for name, entry in header.items()
    }
    _check_covering(where, tensors.values(), data_offset, file.nbytes)
    return metadata, tensors


def _parsed(file: Buffer, start: int, nbytes: int | None, where: str) -> dict[str, Any]:
    """The JSON object in some bytes of a file, sizes checked before it is parsed."""
    nbytes = file.nbytes if nbytes is None else nbytes
    if nbytes > MAX_JSON_NBYTES:
        raise InvalidFile(f"{where} has {nbytes} bytes; at most {MAX_JSON_NBYTES} are read")
    raw = file.view(start, nbytes).copyout()
    # Brackets bound how many objects the parser makes; a tensor has one brace and two brackets.
    if raw.count(b"{") > MAX_TENSORS or raw.count(b"[") > 2 * MAX_TENSORS:
        raise InvalidFile(f"{where} has more parts than {MAX_TENSORS} tensors need")

    def no_number(text: str) -> NoReturn:
        raise ValueError(f"{text} is no JSON number")

    try:
        parsed = json.loads(
            raw.decode(), object_pairs_hook=_without_repeats, parse_constant=no_number
        )
    except RecursionError:
        raise InvalidFile(f"{where} nests too deep") from None
    except ValueError as error:  # UnicodeDecodeError and JSONDecodeError are kinds of it
        raise InvalidFile(f"{where} is no valid JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise InvalidFile(f"{where} is no JSON object")
    return parsed


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"{quoted(twice)} is there twice")
    return found


def _place(where: str, name: str, entry: object, data_offset: int, file: Buffer) -> StoredTensor:
    what = f"{where} has tensor {quoted(name)}"
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise InvalidFile(f"{what}, which needs exactly dtype, shape and data_offsets")
    if not isinstance(entry["dtype"], str) or entry["dtype"] not in DTYPES:
        raise NotSupported(
            f"{what} of dtype {quoted(str(entry['dtype']))}; known: {', '.join(DTYPES)}"
        )
    dtype = DTYPES[entry["dtype"]]
    shape, offsets = entry["shape"], entry["data_offsets"]
    if not _is_sizes(shape) or len(shape) > MAX_AXES:
        raise InvalidFile(f"{what}, whose shape is no list of at most {MAX_AXES} sizes")
    if not _is_sizes(offsets) or len(offsets) != 2:
        raise InvalidFile(f"{what}, whose data_offsets are no two byte offsets")
    begin, end = offsets
    if prod(max(size, 1) for size in shape) * dtype.bits > MAX_BITS:
        raise InvalidFile(f"{what} of shape {tuple(shape)}, too large for any memory")
    if not begin <= end <= file.nbytes - data_offset:
        raise InvalidFile(
            f"{what} at {begin} to {end} of {file.nbytes - data_offset} bytes of data: cut short "
            "or damaged"
        )
    nbytes = dtype.nbytes(shape)
    if end - begin != nbytes:
        raise InvalidFile(
            f"{what}: {dtype} of shape {tuple(shape)} takes {nbytes} bytes and has {end - begin}"
        )
    return StoredTensor(name, dtype, tuple(shape), data_offset + begin, nbytes, file, IS_SWAPPED)


def _is_sizes(value: object) -> bool:
    return isinstance(value, list) and all(
        type(size) is int and 0 <= size < 2**63 for size in value
    )


def _check_covering(
    where: str, tensors: Iterable[StoredTensor], data_offset: int, file_nbytes: int
) -> None:
    """Tensors side by side, from the first byte of the data to the last."""
    end, last = data_offset, "the header"
    for tensor in sorted(tensors, key=lambda t: (t.offset, t.nbytes)):
        if tensor.offset != end:
            fault = "overlaps" if tensor.offset < end else "leaves a hole after"
            raise InvalidFile(f"{where} has tensor {quoted(tensor.name)}, which {fault} {last}")
        end, last = tensor.offset + tensor.nbytes, f"tensor {quoted(tensor.name)}"
    if end != file_nbytes:
        raise InvalidFile(f"{where} leaves {file_nbytes - end} bytes at the end without a tensor")
