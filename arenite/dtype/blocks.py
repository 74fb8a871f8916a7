"""Block-quantised elements: what numbers the bytes of a tensor stand for.

In: the bytes of a tensor and its dtype. Out: float32, computed from the description of the type
(`dtype.block_types`) in the order of operations of ggml's own C code, so that results agree bit for
bit. This is what kernels are judged by; they read blocks packed and never expand them in memory.
In a file of the other byte order exactly the multi-byte fields of a block are swapped.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from arenite.dtype import BY_NAME, DType, Kind
from arenite.dtype.block_types import BLOCK_TYPES, BlockType, Number, Pieces, Scale
from arenite.errors import SizeMismatch, TypeMismatch

Floats: TypeAlias = NDArray[np.float32]
Bytes: TypeAlias = NDArray[np.uint8]

#: One block of each type as a NumPy record.
LAYOUTS: dict[str, np.dtype[Any]] = {name: block.layout for name, block in BLOCK_TYPES.items()}

_CHUNK_ELEMENTS = 2**18  # expanded at once: temporaries stay in cache


def dequantised(
    raw: bytes | memoryview | NDArray[Any], dtype: DType, shape: Sequence[int]
) -> Floats:
    """The numbers that `raw`, the bytes of a float or block tensor, stands for, in its shape."""
    data = np.frombuffer(raw, np.uint8) if not isinstance(raw, np.ndarray) else raw
    data = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    if data.nbytes != dtype.nbytes(shape):
        raise SizeMismatch(
            f"{data.nbytes} bytes were given for {dtype} of shape {tuple(shape)}, which has "
            f"{dtype.nbytes(shape)}"
        )
    if not dtype.is_block:
        if dtype.kind is not Kind.FLOAT or not dtype.has_numpy:
            raise TypeMismatch(f"{dtype} is neither block-quantised nor a float of whole bytes")
        return data.view(dtype.to_numpy()).reshape(shape).astype(np.float32)
    block = block_type(dtype)
    blocks = data.reshape(-1, block.nbytes)
    numbers = np.empty((len(blocks), block.length), np.float32)
    step = _CHUNK_ELEMENTS // block.length
    with np.errstate(all="ignore"):  # scales may be infinite or no numbers
        for start in range(0, len(blocks), step):
            chunk = blocks[start : start + step]
            numbers[start : start + step] = _expanded(block, chunk)
    return numbers.reshape(shape)


@cache
def block_type(dtype: DType) -> BlockType:
    """The description of a block type, checked when it is first used."""
    if not dtype.is_block:
        raise TypeMismatch(f"{dtype} is no block-quantised type")
    block = BLOCK_TYPES[dtype.name]
    block.check()
    return block


def _expanded(block: BlockType, raw: Bytes) -> Floats:
    """(n, bytes) -> (n, elements)"""
    scale, *least = (_scales(block, scale, raw)[:, :, None] for scale in block.scales)
    values = _values(block.number, unsigned(block, block.number, raw))
    made = scale * values.reshape(len(raw), scale.shape[1], -1)
    if least:
        made = made.reshape(len(raw), least[0].shape[1], -1) + least[0]
    return made.reshape(len(raw), -1)


def _scales(block: BlockType, scale: Scale, raw: Bytes) -> Floats:
    """The scales of all parts: (n, bytes) -> (n, parts)"""
    made = floats_of(block, scale, raw).astype(np.float32)
    if scale.codes:
        codes = code_values(block, scale.codes, raw)
        made = (made[:, :, None] * codes.reshape(*made.shape, -1)).reshape(len(raw), -1)
    return -made if scale.negative else made


def code_values(block: BlockType, codes: Number, raw: Bytes) -> Floats:
    """What the whole numbers of scales stand for: (n, bytes) -> (n, parts)"""
    return _values(codes, unsigned(block, codes, raw))


def floats_of(block: BlockType, scale: Scale, raw: Bytes) -> NDArray[Any]:
    """The floats of a scale's field, in their own dtype."""
    field = block.fields[scale.field]
    own = np.ascontiguousarray(raw[:, field.offset : field.offset + field.nbytes])
    return own.view(BY_NAME[field.dtype].to_numpy())


def unsigned(block: BlockType, number: Number, raw: Bytes) -> Bytes:
    """Numbers before their zero is taken off, or indices of a table: (n, bytes) -> (n, numbers)"""
    made, below = None, 0
    for plane in number.planes:
        own = np.concatenate([_pieces(p, raw) for p in block.pieces(plane)], axis=1)
        made = own if made is None else made | own << np.uint8(below)
        below += plane[0].width
    assert made is not None
    return made ^ np.uint8(number.bias) if number.signed else made


def _pieces(pieces: Pieces, raw: Bytes) -> Bytes:
    bits = pieces.bits
    own = raw[:, pieces.offset : pieces.offset + bits.nbytes].reshape(len(raw), -1, 1, bits.group)
    if bits.digits:
        powers = np.array([[3**k] for k in range(bits.digits)], np.uint8)
        digits = (own * powers).astype(np.uint16) * np.uint16(3) >> np.uint16(8)
        return digits.astype(np.uint8).reshape(len(raw), -1)
    made = own >> np.array(bits.shifts, np.uint8)[:, None] & np.uint8(2**bits.width - 1)
    return made.reshape(len(raw), -1)


def _values(number: Number, whole: Bytes) -> Floats:
    if number.table:
        return np.array(number.table, np.float32)[whole]
    return whole.astype(np.float32) - np.float32(number.bias)


def byteswapped(raw: NDArray[np.uint8], dtype: DType) -> NDArray[np.uint8]:
    """A copy of a tensor's bytes with every multi-byte field in the other byte order."""
    layout = LAYOUTS[dtype.name] if dtype.is_block else dtype.to_numpy()
    if not dtype.is_block and dtype.kind is not Kind.COMPLEX:
        layout = np.dtype(f"u{layout.itemsize}")
    return raw.view(layout).byteswap().view(np.uint8)
