"""safetensors: tensors of one file, or of the shards that an index in their folder lists.

    header length u64, little-endian | header, JSON | data

In: a file, an index (`*.safetensors.index.json`) or the folder of either. Out: `SafetensorsFile`,
with tensors by name, mapped and not copied. The header must describe every byte of the data
exactly once, as the format demands; each fault is one InvalidFile with file, place and reason.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple, NoReturn, TypeGuard

from arenite import dtype as dtypes
from arenite.device import Buffer, DiskAllocator
from arenite.device.allocator import readable_nbytes
from arenite.errors import FileMissing, InvalidFile, NotSupported, printable
from arenite.frontends.folder_files import is_inside, map_inside
from arenite.frontends.json_text import Pairs, parsed_object
from arenite.frontends.stored_tensor import StoredTensor, quoted

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
INDEX_SUFFIX = ".safetensors.index.json"
#: Of headers: four times what the largest files have. So reading one takes less than 200 MB.
MAX_HEADER_NBYTES = 2**24
MAX_TENSORS = 2**17
#: Of an index, which has the tensors of all shards: models with many experts have some 200,000.
MAX_INDEX_NBYTES = 2**25
MAX_INDEX_TENSORS = 2**18
MAX_SHARED = 2**12
MAX_AXES = 32
MAX_BITS = 2**63  # of one tensor, sizes of zero counted as one
IS_SWAPPED = sys.byteorder == "big"  # data is little-endian

#: Types as the format and as we spell them.
_SPELLINGS = (
    "BOOL=bool F4=float4_e2m1fn F6_E2M3=float6_e2m3fn F6_E3M2=float6_e3m2fn U8=uint8 I8=int8 "
    "F8_E5M2=float8_e5m2 F8_E4M3=float8_e4m3fn F8_E8M0=float8_e8m0fnu I16=int16 U16=uint16 "
    "F16=float16 BF16=bfloat16 I32=int32 U32=uint32 F32=float32 C64=complex64 F64=float64 "
    "I64=int64 U64=uint64"
).split()
DTYPES = {name: dtypes.of(ours) for name, ours in (pair.split("=") for pair in _SPELLINGS)}


_FIELDS = {"dtype", "shape", "data_offsets"}


class _Entry(NamedTuple):
    """What a header says of a tensor; lists of sizes are tuples, anything else is as it was."""

    dtype: object
    shape: object
    data_offsets: object


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
        if not os.path.isdir(given):
            if given.endswith(INDEX_SUFFIX):
                return _open_shards(given, DiskAllocator(given).file())
            metadata, tensors = _read_file(given, DiskAllocator(given).file())
            return cls(given, metadata, tensors, (given,))
        name = _in_folder(given)
        full, file = os.path.join(given, name), map_inside(given, name).file()
        if name == INDEX:
            return _open_shards(full, file)
        metadata, tensors = _read_file(full, file)
        return cls(given, metadata, tensors, (full,))

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.nbytes for tensor in self.tensors.values())

    def __repr__(self) -> str:
        shards = f" in {len(self.files)} shards" if len(self.files) > 1 else ""
        return (
            f"<SafetensorsFile {printable(self.path)}: {len(self.tensors)} tensors of "
            f"{readable_nbytes(self.nbytes)}{shards}>"
        )


def _in_folder(folder: str) -> str:
    for name in (INDEX, SINGLE):
        if is_inside(folder, name):
            return name
    raise FileMissing(f"{folder} has neither {INDEX} nor {SINGLE}; name the file to open")


def _open_shards(index: str, opened: Buffer) -> SafetensorsFile:
    where = f"{index}: the index"
    if opened.nbytes > MAX_INDEX_NBYTES:
        _refuse_long(where, opened.nbytes, MAX_INDEX_NBYTES)
    raw = memoryview(opened.copyout())
    parsed = _parsed(raw, where, MAX_INDEX_TENSORS, MAX_INDEX_TENSORS)
    places = parsed.get("weight_map")
    if not isinstance(places, dict) or not places:
        raise InvalidFile(f"{where} has no 'weight_map' of tensors to files")
    folder = os.path.dirname(index) or "."
    by_file: dict[str, list[str]] = {}
    for tensor, file in places.items():
        by_file.setdefault(_checked_shard(where, tensor, file), []).append(tensor)
    tensors: dict[str, StoredTensor] = {}
    metadata: dict[str, str] = {}
    paths = []
    for file in sorted(by_file):
        path = os.path.join(folder, file)
        shard = _read_file(path, _shard(index, folder, file))
        metadata = metadata or shard[0]
        paths.append(path)
        for name in by_file[file]:
            if name not in shard[1]:
                raise InvalidFile(f"{where} places tensor {quoted(name)} in {file}: not there")
            tensors[name] = shard[1][name]
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


def _shard(index: str, folder: str, name: str) -> Buffer:
    try:
        return map_inside(folder, name).file()
    except FileMissing as error:
        raise FileMissing(f"{index} lists several shards, and {error}") from error


def _read_file(path: str, file: Buffer) -> tuple[dict[str, str], dict[str, StoredTensor]]:
    """Metadata and tensors of one file."""
    if file.nbytes < 8:
        raise InvalidFile(f"{path} is no safetensors file: it has {file.nbytes} bytes, not even 8")
    length = int.from_bytes(file.view(0, 8).copyout(), "little")
    if length > file.nbytes - 8:
        raise InvalidFile(
            f"{path}, byte 0: a header of {length} bytes is announced and {file.nbytes - 8} are "
            "left: cut short, or no safetensors file"
        )
    where = f"{path}: the header"
    if length > MAX_HEADER_NBYTES:
        _refuse_long(where, length, MAX_HEADER_NBYTES)
    # A tensor with four axes has three lists and objects, nine values in these, and four keys.
    raw = memoryview(file.view(8, length).copyout())
    header = _parsed(raw, where, 12 * MAX_TENSORS, 4 * MAX_TENSORS)
    metadata = header.pop("__metadata__", None)
    metadata = {} if metadata is None else metadata
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise InvalidFile(f"{where} has '__metadata__' that does not map text to text")
    if len(header) > MAX_TENSORS:
        raise InvalidFile(f"{where} has {len(header)} tensors; at most {MAX_TENSORS} are read")
    data_offset = 8 + length
    tensors = {
        name: _place(where, name, entry, data_offset, file) for name, entry in header.items()
    }
    _check_covering(where, tensors.values(), data_offset, file.nbytes)
    return metadata, tensors


def _refuse_long(where: str, nbytes: int, most: int) -> NoReturn:
    raise InvalidFile(f"{where} has {nbytes} bytes; at most {most} are read")


def _parsed(raw: memoryview, where: str, max_values: int, max_keys: int) -> dict[str, Any]:
    """The JSON object in some bytes of a file, with tensors as entries."""
    kept: dict[object, Any] = {}

    def same(value: Any) -> Any:
        """One object for what many tensors share: types, shapes, names of files."""
        return kept.setdefault(value, value) if len(kept) < MAX_SHARED else value

    def of_pairs(pairs: Pairs) -> Any:
        values = dict(pairs)
        if len(values) != len(pairs):
            twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
            raise ValueError(f"{quoted(twice)} is there twice")
        if values.keys() != _FIELDS or any(isinstance(v, _Entry) for v in values.values()):
            for key, value in pairs:
                if isinstance(value, str):
                    values[key] = same(value)
            return values
        dtype, shape, places = (values[field] for field in ("dtype", "shape", "data_offsets"))
        if isinstance(dtype, str):
            dtype = same(dtype)
        if _is_sizes(shape):
            shape = same(tuple(shape))
        return _Entry(dtype, shape, tuple(places) if _is_sizes(places) else places)

    def no_number(text: str) -> NoReturn:
        raise ValueError(f"{text} is no JSON number")

    return parsed_object(raw, where, max_values, max_keys, of_pairs, no_number)


def _place(where: str, name: str, entry: object, data_offset: int, file: Buffer) -> StoredTensor:
    what = f"{where} has tensor {quoted(name)}"
    if not isinstance(entry, _Entry):
        raise InvalidFile(f"{what}, which needs exactly dtype, shape and data_offsets")
    if not isinstance(entry.dtype, str) or entry.dtype not in DTYPES:
        raise NotSupported(
            f"{what} of dtype {quoted(str(entry.dtype))}; known: {', '.join(DTYPES)}"
        )
    dtype, shape = DTYPES[entry.dtype], entry.shape
    if type(shape) is not tuple or len(shape) > MAX_AXES:
        raise InvalidFile(f"{what}, whose shape is no list of at most {MAX_AXES} sizes")
    if type(entry.data_offsets) is not tuple or len(entry.data_offsets) != 2:
        raise InvalidFile(f"{what}, whose data_offsets are no two byte offsets")
    begin, end = entry.data_offsets
    if prod(max(size, 1) for size in shape) * dtype.bits > MAX_BITS:
        raise InvalidFile(f"{what} of shape {shape}, too large for any memory")
    if not begin <= end <= file.nbytes - data_offset:
        raise InvalidFile(
            f"{what} at {begin} to {end} of {file.nbytes - data_offset} bytes of data: cut short "
            "or damaged"
        )
    nbytes = dtype.nbytes(shape)
    if end - begin != nbytes:
        raise InvalidFile(
            f"{what}: {dtype} of shape {shape} takes {nbytes} bytes and has {end - begin}"
        )
    return StoredTensor(name, dtype, shape, data_offset + begin, nbytes, file, IS_SWAPPED)


def _is_sizes(value: object) -> TypeGuard[list[int]]:
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
