"""Block-quantised elements: how a block lies in memory, and what numbers it stands for.

In: the bytes of a tensor and its dtype. Out: float32, computed in the order of operations of
ggml's own C code, so that results agree bit for bit. This is what kernels are judged by; they read
blocks packed and never expand them in memory.

A layout lists the fields of one block in order. Multi-byte fields are little-endian; in a file of
the other byte order exactly these fields are swapped. `lo(b)` is the low nibble of a byte, `hi(b)`
the high one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from arenite.dtype import DType, Kind
from arenite.errors import SizeMismatch, TypeMismatch

Floats: TypeAlias = NDArray[np.float32]
Blocks: TypeAlias = NDArray[Any]  # one record a block, with the fields of its layout

_SCALE = [("d", "<f2")]
_SCALE_AND_MIN = [("d", "<f2"), ("m", "<f2")]

#: Fields of one block, by dtype name.
LAYOUTS: dict[str, np.dtype[Any]] = {
    name: np.dtype(fields)
    for name, fields in {
        "q4_0": [*_SCALE, ("qs", "u1", 16)],
        "q4_1": [*_SCALE_AND_MIN, ("qs", "u1", 16)],
        "q5_0": [*_SCALE, ("qh", "<u4"), ("qs", "u1", 16)],
        "q5_1": [*_SCALE_AND_MIN, ("qh", "<u4"), ("qs", "u1", 16)],
        "q8_0": [*_SCALE, ("qs", "i1", 32)],
        "q2_k": [("scales", "u1", 16), ("qs", "u1", 64), *_SCALE_AND_MIN],
        "q3_k": [("hmask", "u1", 32), ("qs", "u1", 64), ("scales", "u1", 12), *_SCALE],
        "q4_k": [*_SCALE_AND_MIN, ("scales", "u1", 12), ("qs", "u1", 128)],
        "q5_k": [*_SCALE_AND_MIN, ("scales", "u1", 12), ("qh", "u1", 32), ("qs", "u1", 128)],
        "q6_k": [("ql", "u1", 128), ("qh", "u1", 64), ("scales", "i1", 16), *_SCALE],
        "iq4_nl": [*_SCALE, ("qs", "u1", 16)],
        "iq4_xs": [*_SCALE, ("scales_h", "<u2"), ("scales_l", "u1", 4), ("qs", "u1", 128)],
    }.items()
}

#: What the 16 values of a 4-bit index stand for in iq4_nl and iq4_xs.
IQ4_VALUES = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)

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
    blocks = data.view(LAYOUTS[dtype.name])
    numbers = np.empty((len(blocks), dtype.block_length), np.float32)
    expand, step = _EXPAND[dtype.name], _CHUNK_ELEMENTS // dtype.block_length
    with np.errstate(all="ignore"):  # scales may be infinite or no numbers
        for start in range(0, len(blocks), step):
            chunk = blocks[start : start + step]
            numbers[start : start + step] = expand(chunk).reshape(len(chunk), -1)
    return numbers.reshape(shape)


def byteswapped(raw: NDArray[np.uint8], dtype: DType) -> NDArray[np.uint8]:
    """A copy of a tensor's bytes with every multi-byte field in the other byte order."""
    layout = LAYOUTS[dtype.name] if dtype.is_block else dtype.to_numpy()
    if not dtype.is_block and dtype.kind is not Kind.COMPLEX:
        layout = np.dtype(f"u{layout.itemsize}")
    return raw.view(layout).byteswap().view(np.uint8)


def _f32(field: NDArray[Any]) -> Floats:
    return field.astype(np.float32)


def _shifted(qs: NDArray[np.uint8], bits: int, groups: int) -> NDArray[np.uint8]:
    """Pieces of `bits` bits: (n, bytes) -> (n, groups, pieces in a byte, bytes in a group).

    All lowest pieces of a group of bytes come first, then all next ones, and so on.
    """
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    pieces = qs.reshape(len(qs), groups, 1, -1) >> shifts
    return pieces & np.uint8(2**bits - 1)


def _fifth_bits(qh: NDArray[np.uint32]) -> NDArray[np.uint8]:
    """Bit i of a block's word as 16 at element i: (n,) -> (n, 32)."""
    bits = qh[:, None] >> np.arange(32, dtype=np.uint32) & np.uint32(1)
    return bits.astype(np.uint8) << np.uint8(4)


# Blocks of 32.  x[i] takes lo(qs[i]), x[16 + i] takes hi(qs[i]).


def _q4_0(b: Blocks) -> Floats:
    # x = d * (q - 8)
    q = _f32(_shifted(b["qs"], 4, 1)).reshape(-1, 32)
    return _f32(b["d"])[:, None] * (q - np.float32(8))


def _q4_1(b: Blocks) -> Floats:
    # x = d * q + m
    q = _f32(_shifted(b["qs"], 4, 1)).reshape(-1, 32)
    return _f32(b["d"])[:, None] * q + _f32(b["m"])[:, None]


def _q5_0(b: Blocks) -> Floats:
    # q = nibble | bit i of qh << 4;  x = d * (q - 16)
    q = _f32(_shifted(b["qs"], 4, 1).reshape(-1, 32) | _fifth_bits(b["qh"]))
    return _f32(b["d"])[:, None] * (q - np.float32(16))


def _q5_1(b: Blocks) -> Floats:
    # q as in q5_0;  x = d * q + m
    q = _f32(_shifted(b["qs"], 4, 1).reshape(-1, 32) | _fifth_bits(b["qh"]))
    return _f32(b["d"])[:, None] * q + _f32(b["m"])[:, None]


def _q8_0(b: Blocks) -> Floats:
    # x = d * q
    return _f32(b["d"])[:, None] * _f32(b["qs"])


def _iq4_nl(b: Blocks) -> Floats:
    # x = d * table[nibble]
    table = np.array(IQ4_VALUES, np.float32)
    return _f32(b["d"])[:, None] * table[_shifted(b["qs"], 4, 1).reshape(-1, 32)]


# Blocks of 256: 8 parts of 32 or 16 parts of 16, each with a scale of its own.


def _q2_k(b: Blocks) -> Floats:
    # Each half of 128 has 32 bytes; x[128h + 32j + l] takes bits 2j, 2j+1 of qs[32h + l].
    # Part k of 16: x = (d * lo(scales[k])) * q - m * hi(scales[k])
    q = _f32(_shifted(b["qs"], 2, 2)).reshape(-1, 16, 16)
    scale = _f32(b["d"])[:, None] * _f32(b["scales"] & np.uint8(15))
    least = _f32(b["m"])[:, None] * _f32(b["scales"] >> np.uint8(4))
    return scale[:, :, None] * q - least[:, :, None]


def _q3_k(b: Blocks) -> Floats:
    # Low two bits as in q2_k; x[32j + l] has its third in bit j of hmask[l], where 0 means -4.
    # Scales are 6 bits, less 32: scale k takes lo(s[k]) (k < 8) or hi(s[k - 8]), and above them
    # bits 2(k // 4), 2(k // 4) + 1 of s[8 + k % 4].   x = (d * scale) * q
    low = _shifted(b["qs"], 2, 2).reshape(-1, 256).view(np.int8)
    high = _shifted(b["hmask"], 1, 1).reshape(-1, 256).view(np.int8)
    q = _f32(low + high * np.int8(4) - np.int8(4)).reshape(-1, 16, 16)
    four = _shifted(b["scales"][:, :8], 4, 1).reshape(-1, 16)
    two = _shifted(b["scales"][:, 8:], 2, 1).reshape(-1, 16)
    scales = (four | two << np.uint8(4)).view(np.int8) - np.int8(32)
    return (_f32(b["d"])[:, None] * _f32(scales))[:, :, None] * q


def _scales_and_mins(b: Blocks) -> tuple[Floats, Floats]:
    """The 8 scales and 8 least values of q4_k and q5_k: 6 bits each, in 12 bytes s.

    j < 4:  scale = s[j] & 63                          least = s[4 + j] & 63
    j >= 4: scale = lo(s[4 + j]) | s[j - 4] >> 6 << 4  least = hi(s[4 + j]) | s[j] >> 6 << 4
    """
    first, second, third = np.split(b["scales"], 3, axis=1)
    six, above = np.uint8(63), np.uint8(6)
    low = _shifted(third, 4, 1)[:, 0]  # (n, 2, 4): low nibbles, high nibbles
    scale = np.hstack([first & six, low[:, 0] | first >> above << np.uint8(4)])
    least = np.hstack([second & six, low[:, 1] | second >> above << np.uint8(4)])
    return _f32(b["d"])[:, None] * _f32(scale), _f32(b["m"])[:, None] * _f32(least)


def _q4_k(b: Blocks) -> Floats:
    # 32 bytes for two parts of 32: the first takes their low nibbles, the second their high ones.
    # Part j: x = (d * scale[j]) * q - m * least[j]
    scale, least = _scales_and_mins(b)
    q = _f32(_shifted(b["qs"], 4, 4)).reshape(-1, 8, 32)
    return scale[:, :, None] * q - least[:, :, None]


def _q5_k(b: Blocks) -> Floats:
    # As q4_k; element l of part j has its fifth bit in bit j of qh[l].
    scale, least = _scales_and_mins(b)
    nibbles = _shifted(b["qs"], 4, 4).reshape(-1, 8, 32)
    fifth = _shifted(b["qh"], 1, 1).reshape(-1, 8, 32) << np.uint8(4)
    return scale[:, :, None] * _f32(nibbles | fifth) - least[:, :, None]


def _q6_k(b: Blocks) -> Floats:
    # Each half of 128 has 64 bytes of nibbles: its first 64 elements take the low ones, its last
    # 64 the high ones; bits 4 and 5 of x[128h + 32j + l] are bits 2j, 2j+1 of qh[32h + l].
    # Part k of 16: x = (d * scales[k]) * (q - 32)
    low = _shifted(b["ql"], 4, 2).reshape(-1, 256)
    high = _shifted(b["qh"], 2, 2).reshape(-1, 256)
    q = _f32((low | high << np.uint8(4)).view(np.int8) - np.int8(32)).reshape(-1, 16, 16)
    return (_f32(b["d"])[:, None] * _f32(b["scales"]))[:, :, None] * q


def _iq4_xs(b: Blocks) -> Floats:
    # 16 bytes for each part of 32, nibbles as in iq4_nl. Scale j is 6 bits, less 32: nibble j of
    # scales_l, and above it bits 2j, 2j+1 of scales_h.   x = (d * scale) * table[nibble]
    four = np.stack([b["scales_l"] & np.uint8(15), b["scales_l"] >> np.uint8(4)], 2).reshape(-1, 8)
    two = b["scales_h"][:, None] >> np.arange(0, 16, 2, dtype=np.uint16) & np.uint16(3)
    scales = (four | two.astype(np.uint8) << np.uint8(4)).view(np.int8) - np.int8(32)
    table = np.array(IQ4_VALUES, np.float32)
    q = table[_shifted(b["qs"], 4, 8)].reshape(-1, 8, 32)
    return (_f32(b["d"])[:, None] * _f32(scales))[:, :, None] * q


_EXPAND: dict[str, Callable[[Blocks], Floats]] = {
    "q4_0": _q4_0,
    "q4_1": _q4_1,
    "q5_0": _q5_0,
    "q5_1": _q5_1,
    "q8_0": _q8_0,
    "q2_k": _q2_k,
    "q3_k": _q3_k,
    "q4_k": _q4_k,
    "q5_k": _q5_k,
    "q6_k": _q6_k,
    "iq4_nl": _iq4_nl,
    "iq4_xs": _iq4_xs,
}
