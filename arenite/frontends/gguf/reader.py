"""One GGUF file, versions 2 and 3, of either byte order: header, metadata, places of its tensors.

    "GGUF" | version u32 | n tensors u64 | n keys u64 | keys | tensors | padding | data

In: a path. Out: a `Part`. The file is mapped, nothing of its data is read. Every count, length,
offset and product is checked against the bytes left before anything is allocated for it; each
fault is one InvalidFile (or NotSupported, for a type that is known and not read) with file, place
and reason. The gguf package's own reader takes 4 s and 190 MiB for 49,000 tokens and accepts text
that goes past the end and tensors that overlap: it is the judge of this one and not its base.

GGML's numbers for tensor types, and the dtypes that stand for them.

The number of a type is part of the format and never changes its meaning. A type that is known by
name only is refused with that name; a number beyond the list is refused as a number.
"""

from __future__ import annotations

import os
import struct
import sys
from itertools import pairwise
from math import prod
from typing import NamedTuple

from arenite import dtype
from arenite.device import Buffer, DiskAllocator
from arenite.dtype import DType
from arenite.dtype.block_types import BLOCK_TYPES
from arenite.errors import InvalidFile, NotSupported
from arenite.frontends.gguf.cursor import ByteOrder, Cursor
from arenite.frontends.gguf.metadata import LEAST_KEY_NBYTES, MAX_KEYS, Metadata, read_metadata
from arenite.frontends.stored_tensor import StoredTensor, quoted

#: Types that are read, by their number in a file.
DTYPES: dict[int, DType] = {
    number: dtype.of(name)
    for number, name in {
        0: "float32",
        1: "float16",
        **{b.gguf: name for name, b in BLOCK_TYPES.items() if b.gguf is not None},
        24: "int8",
        25: "int16",
        26: "int32",
        27: "int64",
        28: "float64",
        30: "bfloat16",
    }.items()
}

#: Names of types that are not read.
UNREAD: dict[int, str] = {
    number: name
    for number, name in {
        9: "Q8_1",
        15: "Q8_K",
        16: "IQ2_XXS",
        17: "IQ2_XS",
        18: "IQ3_XXS",
        19: "IQ1_S",
        21: "IQ3_S",
        22: "IQ2_S",
        29: "IQ1_M",
        41: "Q1_0",
    }.items()
    if number not in DTYPES
}


MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_TENSORS = 2**16  # of one file; the largest have some 3,000
MAX_AXES = 4
MAX_BITS = 2**63  # of one tensor, sizes of zero counted as one
LEAST_TENSOR_NBYTES = 8 + 1 + 4 + 4 + 8  # length, a letter, number of axes, type, offset


class Part(NamedTuple):
    """One file: all of a model, or one shard of it."""

    path: str
    version: int
    order: ByteOrder
    alignment: int
    data_offset: int  # where the data starts, from the start of the file
    metadata: Metadata
    tensors: dict[str, StoredTensor]
    file: Buffer


class _Entry(NamedTuple):
    """What the header says about a tensor."""

    name: str
    sizes: tuple[int, ...]  # as in the file: the first axis is the one side by side
    type_number: int
    offset: int  # from the start of the data
    at: int  # where the header says it, for errors


def read_part(path: str | os.PathLike[str], mapped: DiskAllocator | None = None) -> Part:
    """Map a file, unless it is mapped already, and read its header."""
    file = (mapped or DiskAllocator(path)).file()
    data = file.as_host_bytes()
    name = os.fspath(path)
    if data[:4] != MAGIC:
        shown = bytes(data[:4])
        raise InvalidFile(f"{name} is no GGUF file: it starts with {shown!r}, not {MAGIC!r}")
    version, order = _version_and_order(data, name)
    cursor = Cursor(file, data, name, order, 8)
    n_tensors = cursor.count("tensors", LEAST_TENSOR_NBYTES, MAX_TENSORS)
    n_keys = cursor.count("keys", LEAST_KEY_NBYTES, MAX_KEYS)
    metadata = read_metadata(cursor, n_keys)
    alignment = _alignment(metadata)
    entries = [_read_entry(cursor, index) for index in range(n_tensors)]
    data_offset = -(-cursor.position // alignment) * alignment
    is_swapped = order != ("<" if sys.byteorder == "little" else ">")
    tensors: dict[str, StoredTensor] = {}
    for entry in entries:
        if entry.name in tensors:
            cursor.fail(f"tensor {quoted(entry.name)} is there twice", entry.at)
        tensors[entry.name] = _place(cursor, entry, data_offset, alignment, file, is_swapped)
    _check_overlaps(cursor, tensors)
    return Part(name, version, order, alignment, data_offset, metadata, tensors, file)


def _version_and_order(data: memoryview, path: str) -> tuple[int, ByteOrder]:
    if len(data) < 8:
        raise InvalidFile(f"{path}, byte 4: the version needs 4 bytes and {len(data) - 4} are left")
    (little,), (big,) = (struct.unpack_from(order + "I", data, 4) for order in "<>")
    # A version is small: read in the wrong order its low half is zero.
    version, order = (big, ">") if little & 0xFFFF == 0 else (little, "<")
    if version not in VERSIONS:
        known = " and ".join(map(str, VERSIONS))
        raise InvalidFile(f"{path}, byte 4: GGUF version {version}; {known} are read")
    return version, order  # type: ignore[return-value]  # mypy widens the literals


def _alignment(metadata: Metadata) -> int:
    alignment = metadata.integer("general.alignment", DEFAULT_ALIGNMENT)
    if alignment <= 0 or alignment & (alignment - 1) or alignment >= 2**32:
        raise InvalidFile(
            f"{metadata.path}: key 'general.alignment' is {alignment}; it must be a power of two"
        )
    return alignment


def _read_entry(cursor: Cursor, index: int) -> _Entry:
    at = cursor.position
    name = cursor.name(f"the name of tensor {index}")
    what = f"tensor {quoted(name)}"
    n_axes = cursor.integer("I", f"the number of axes of {what}")
    if n_axes > MAX_AXES:
        cursor.fail(f"{what} has {n_axes} axes; at most {MAX_AXES} are allowed", at)
    sizes = tuple(cursor.integer("Q", f"a size of {what}") for _ in range(n_axes))
    type_number = cursor.integer("I", f"the type of {what}")
    return _Entry(name, sizes, type_number, cursor.integer("Q", f"the offset of {what}"), at)


def _place(
    cursor: Cursor,
    entry: _Entry,
    data_offset: int,
    alignment: int,
    file: Buffer,
    is_swapped: bool,
) -> StoredTensor:
    """The tensor of an entry. GGUF lists axes from the innermost out; shapes here are row-major,
    so they are the sizes in reverse."""
    what = f"tensor {quoted(entry.name)}"
    if entry.type_number in UNREAD:
        raise NotSupported(
            f"{cursor.path}: {what} is of type {UNREAD[entry.type_number]}, which Arenite does not "
            f"read; requantise the model to one of {', '.join(map(str, DTYPES.values()))}"
        )
    dtype = DTYPES.get(entry.type_number)
    if dtype is None:
        cursor.fail(f"{what} is of an unknown type, number {entry.type_number}", entry.at)
    shape = entry.sizes[::-1]
    if prod(max(size, 1) for size in shape) * dtype.bits > MAX_BITS:
        cursor.fail(f"{what} of shape {shape} is too large for any memory", entry.at)
    if dtype.is_block and (not shape or shape[-1] % dtype.block_length):
        cursor.fail(
            f"{what} of shape {shape} has rows that are no whole {dtype} blocks of "
            f"{dtype.block_length}",
            entry.at,
        )
    if entry.offset % alignment:
        cursor.fail(f"{what} at {entry.offset} is not aligned to {alignment} bytes", entry.at)
    nbytes, offset = dtype.nbytes(shape), data_offset + entry.offset
    if offset + nbytes > len(cursor.data):
        cursor.fail(
            f"{what} of {nbytes} bytes at {offset} would end at {offset + nbytes} in a file of "
            f"{len(cursor.data)} bytes: cut short or damaged",
            entry.at,
        )
    return StoredTensor(entry.name, dtype, shape, offset, nbytes, file, is_swapped)


def _check_overlaps(cursor: Cursor, tensors: dict[str, StoredTensor]) -> None:
    placed = sorted((t for t in tensors.values() if t.nbytes), key=lambda tensor: tensor.offset)
    for before, after in pairwise(placed):
        if after.offset < before.offset + before.nbytes:
            cursor.fail(
                f"tensors {quoted(before.name)} and {quoted(after.name)} overlap: the first ends "
                f"at {before.offset + before.nbytes}",
                after.offset,
            )
