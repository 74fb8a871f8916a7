"""Block types, described: where the bits of every number lie in a block, and what they stand for.

    x[i] = scale * (number[i] - zero) + least

`BLOCK_TYPES` is all that Arenite knows about them. Sizes, the GGUF reader's table, the reference
(`dtype.blocks`), expressions for kernels (`codegen.block_elements`) and the CPU's packed panels are
derived from it; to add a type, add an entry. docs/adding-a-block-type.md is the guide.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

#: How NumPy reads the dtypes that fields have; multi-byte fields are little-endian.
FIELD_FORMATS = {
    "uint8": "u1",
    "uint16": "<u2",
    "uint32": "<u4",
    "float16": "<f2",
    "bfloat16": "<u2",
    "float32": "<f4",
    "float8_e4m3fn": "u1",
    "float8_e5m2": "u1",
    "float8_e8m0fnu": "u1",
}


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    dtype: str
    count: int = 1

    @property
    def nbytes(self) -> int:
        return int(FIELD_FORMATS[self.dtype][-1]) * self.count


@dataclass(frozen=True, slots=True)
class Bits:
    """`width` bits of one number after the other, in the bytes of a field.

    Of every `group` bytes the first pieces come first, byte by byte, then the second ones, and so
    on; a group of 1 fills each byte before the next. Piece k is the bits from `shifts[k]` on, or
    digit k of a byte b in base 3, which is (b * 3**k % 256) * 3 // 256.
    """

    field: str
    width: int
    group: int = 0  # bytes; 0 for all
    first: int = 0  # byte of the field
    count: int = 0  # bytes; 0 for all from the first on
    shifts: tuple[int, ...] = ()  # empty for all pieces of a byte
    digits: int = 0  # of a byte in base 3; 0 for bits


@dataclass(frozen=True, slots=True)
class Number:
    """Whole numbers: planes of bits, the lowest first, each one Bits or several after each other.

    One stands for itself less `zero`, with a sign where it is `signed`, or for an entry of `table`.
    """

    planes: tuple[tuple[Bits, ...], ...]
    zero: int = 0
    signed: bool = False
    table: tuple[float, ...] = ()

    @property
    def bits(self) -> int:
        return sum(plane[0].width for plane in self.planes)

    @property
    def bias(self) -> int:
        """What is taken off a number without its sign."""
        return 1 << self.bits - 1 if self.signed else self.zero


def number(
    *planes: Bits | tuple[Bits, ...],
    zero: int = 0,
    signed: bool = False,
    table: tuple[float, ...] = (),
) -> Number:
    many = tuple(plane if isinstance(plane, tuple) else (plane,) for plane in planes)
    return Number(many, zero, signed, table)


@dataclass(frozen=True, slots=True)
class Scale:
    """The floats of a field, each for an equal part of a block, times the `codes` of smaller parts;
    minus that where it is `negative`."""

    field: str
    codes: Number | None = None
    negative: bool = False


@dataclass(frozen=True, slots=True)
class Pieces:
    """Bits at their place: numbers [start, stop) of a block have theirs from byte `offset` on."""

    offset: int
    nbytes: int
    group: int
    width: int
    shifts: tuple[int, ...]
    digits: int
    start: int

    @property
    def a_byte(self) -> int:
        """Pieces of a byte."""
        return self.digits or len(self.shifts)

    @property
    def stop(self) -> int:
        return self.start + self.nbytes * self.a_byte


@dataclass(frozen=True, slots=True)
class BlockType:
    """A block of `length` elements, whose fields follow each other without gaps."""

    name: str
    gguf: int | None  # the number of the type in GGUF files
    length: int
    fields: tuple[Field, ...]
    number: Number
    scale: Scale
    least: Scale | None = None

    @property
    def nbytes(self) -> int:
        return sum(field.nbytes for field in self.fields)

    @property
    def scales(self) -> tuple[Scale, ...]:
        """What numbers are multiplied with, then what is added, where something is."""
        return (self.scale, self.least) if self.least else (self.scale,)

    @property
    def layout(self) -> np.dtype[Any]:
        """One block as a NumPy record."""
        return np.dtype(
            [
                (f.name, FIELD_FORMATS[f.dtype], *([f.count] if f.count > 1 else []))
                for f in self.fields
            ]
        )

    def field(self, name: str) -> tuple[Field, int]:
        """A field, and where in a block it begins."""
        offset = 0
        for field in self.fields:
            if field.name == name:
                return field, offset
            offset += field.nbytes
        raise KeyError(f"{self.name} has no field {name!r}")

    def pieces(self, plane: tuple[Bits, ...]) -> list[Pieces]:
        """Where the numbers of a plane have their bits, in order."""
        found: list[Pieces] = []
        for bits in plane:
            field, offset = self.field(bits.field)
            nbytes = bits.count or field.nbytes - bits.first
            shifts = bits.shifts or tuple(range(0, 8, bits.width))
            start = found[-1].stop if found else 0
            found.append(
                Pieces(
                    offset + bits.first,
                    nbytes,
                    bits.group or nbytes,
                    bits.width,
                    shifts,
                    bits.digits,
                    start,
                )
            )
        return found

    def count(self, number: Number) -> int:
        """How many of these numbers a block has."""
        return self.pieces(number.planes[0])[-1].stop

    def n_scales(self, scale: Scale) -> int:
        """Parts of a block that have a scale each."""
        return self.count(scale.codes) if scale.codes else self.field(scale.field)[0].count


#: What codes of 4 bits stand for: those of float4_e2m1fn, and those of iq4_nl and iq4_xs.
E2M1 = (0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6)
IQ4 = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)

_D, _M = Field("d", "float16"), Field("m", "float16")
_QH = Field("qh", "uint32")


def _bytes(name: str, count: int) -> Field:
    return Field(name, "uint8", count)


#: A nibble of each number, all low ones of 16 bytes before the high ones; bit i of a word above it.
_NIBBLES = Bits("qs", 4, group=16)
_NIBBLES_AND_WORD = (_NIBBLES, Bits("qh", 1, group=1))
#: Two bits of each number: 128 numbers share 32 bytes.
_PAIRS = Bits("qs", 2, group=32)


def _eights(low: tuple[int, int], low_shifts: tuple[int, int], high: int) -> Number:
    """Eight numbers of 6 bits in the 12 bytes of `scales`: nibbles of four bytes, then of four
    others; above these the highest two pairs of bits of four bytes."""
    nibbles = tuple(
        Bits("scales", 4, first=first, count=4, shifts=(shift,))
        for first, shift in zip(low, low_shifts, strict=True)
    )
    return number(nibbles, Bits("scales", 2, first=high, count=4, shifts=(4, 6)))


_K_SCALE = Scale("d", _eights((0, 8), (0, 0), 0))
_K_LEAST = Scale("m", _eights((4, 8), (0, 4), 4), negative=True)

BLOCK_TYPES = {
    block.name: block
    for block in (
        BlockType("q4_0", 2, 32, (_D, _bytes("qs", 16)), number(_NIBBLES, zero=8), Scale("d")),
        BlockType(
            "q4_1", 3, 32, (_D, _M, _bytes("qs", 16)), number(_NIBBLES), Scale("d"), Scale("m")
        ),
        BlockType(
            "q5_0",
            6,
            32,
            (_D, _QH, _bytes("qs", 16)),
            number(*_NIBBLES_AND_WORD, zero=16),
            Scale("d"),
        ),
        BlockType(
            "q5_1",
            7,
            32,
            (_D, _M, _QH, _bytes("qs", 16)),
            number(*_NIBBLES_AND_WORD),
            Scale("d"),
            Scale("m"),
        ),
        BlockType(
            "q8_0", 8, 32, (_D, _bytes("qs", 32)), number(Bits("qs", 8), signed=True), Scale("d")
        ),
        BlockType(
            "q2_k",
            10,
            256,
            (_bytes("scales", 16), _bytes("qs", 64), _D, _M),
            number(_PAIRS),
            Scale("d", number(Bits("scales", 4, shifts=(0,)))),
            Scale("m", number(Bits("scales", 4, shifts=(4,))), negative=True),
        ),
        BlockType(
            "q3_k",
            11,
            256,
            (_bytes("hmask", 32), _bytes("qs", 64), _bytes("scales", 12), _D),
            number(_PAIRS, Bits("hmask", 1), zero=4),
            Scale("d", number(Bits("scales", 4, count=8), Bits("scales", 2, first=8), zero=32)),
        ),
        BlockType(
            "q4_k",
            12,
            256,
            (_D, _M, _bytes("scales", 12), _bytes("qs", 128)),
            number(Bits("qs", 4, group=32)),
            _K_SCALE,
            _K_LEAST,
        ),
        BlockType(
            "q5_k",
            13,
            256,
            (_D, _M, _bytes("scales", 12), _bytes("qh", 32), _bytes("qs", 128)),
            number(Bits("qs", 4, group=32), Bits("qh", 1)),
            _K_SCALE,
            _K_LEAST,
        ),
        BlockType(
            "q6_k",
            14,
            256,
            (_bytes("ql", 128), _bytes("qh", 64), _bytes("scales", 16), _D),
            number(Bits("ql", 4, group=64), Bits("qh", 2, group=32), zero=32),
            Scale("d", number(Bits("scales", 8), signed=True)),
        ),
        BlockType(
            "iq4_nl", 20, 32, (_D, _bytes("qs", 16)), number(_NIBBLES, table=IQ4), Scale("d")
        ),
        BlockType(
            "iq4_xs",
            23,
            256,
            (_D, Field("scales_h", "uint16"), _bytes("scales_l", 4), _bytes("qs", 128)),
            number(_NIBBLES, table=IQ4),
            Scale(
                "d",
                number(Bits("scales_l", 4, group=1), Bits("scales_h", 2, group=1), zero=32),
            ),
        ),
        BlockType(
            "tq1_0",
            34,
            256,
            (_bytes("qs", 48), _bytes("qh", 4), _D),
            number(
                (
                    Bits("qs", 2, count=32, digits=5),
                    Bits("qs", 2, first=32, digits=5),
                    Bits("qh", 2, digits=4),
                ),
                zero=1,
            ),
            Scale("d"),
        ),
        BlockType("tq2_0", 35, 256, (_bytes("qs", 64), _D), number(_PAIRS, zero=1), Scale("d")),
        BlockType(
            "mxfp4",
            39,
            32,
            (Field("d", "float8_e8m0fnu"), _bytes("qs", 16)),
            number(_NIBBLES, table=E2M1),
            Scale("d"),
        ),
        BlockType(
            "nvfp4",
            40,
            64,
            (Field("d", "float8_e4m3fn", 4), _bytes("qs", 32)),
            number(Bits("qs", 4, group=8), table=E2M1),
            Scale("d"),
        ),
    )
}
