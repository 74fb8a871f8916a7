"""Block types, described: where the bits of every number lie in a block, and what they stand for.

    x[i] = scale * (number[i] - zero) + least

`BLOCK_TYPES` is all that Arenite knows about them. Sizes, the GGUF reader's table, the reference
(`dtype.blocks`), expressions for kernels (`codegen.block_elements`) and the CPU's packed panels are
derived from it; to add a type, add an entry. docs/adding-a-block-type.md is the guide.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from arenite.errors import InvalidArgument

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


class Field(NamedTuple):
    name: str
    dtype: str
    length: int = 1

    @property
    def nbytes(self) -> int:
        return int(FIELD_FORMATS[self.dtype][-1]) * self.length


class Bits(NamedTuple):
    """`width` bits of one number after the other, in the bytes of a field.

    Of every `group` bytes the first pieces come first, byte by byte, then the second ones, and so
    on; a group of 1 fills each byte before the next. Piece k is the bits from `shifts[k]` on, or
    digit k of a byte b in base 3, which is (b * 3**k % 256) * 3 // 256.
    """

    field: str
    width: int
    group: int = 0  # bytes; 0 for all
    first: int = 0  # byte of the field
    nbytes: int = 0  # of the field; 0 for all from the first on
    shifts: tuple[int, ...] = ()  # empty for all pieces of a byte
    digits: int = 0  # of a byte in base 3; 0 for bits


class Number(NamedTuple):
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
    many = tuple((plane,) if isinstance(plane, Bits) else plane for plane in planes)
    return Number(many, zero, signed, table)


class Scale(NamedTuple):
    """The floats of a field, each for an equal part of a block, times the `codes` of smaller parts;
    minus that where it is `negative`."""

    field: str
    codes: Number | None = None
    negative: bool = False


class Pieces(NamedTuple):
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


class BlockType(NamedTuple):
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
                (f.name, FIELD_FORMATS[f.dtype], *([f.length] if f.length > 1 else []))
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
        raise InvalidArgument(f"block type {self.name} has no field {name!r}")

    def pieces(self, plane: tuple[Bits, ...]) -> list[Pieces]:
        """Where the numbers of a plane have their bits, in order."""
        found: list[Pieces] = []
        for bits in plane:
            field, offset = self.field(bits.field)
            nbytes = bits.nbytes or field.nbytes - bits.first
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

    def n_numbers(self, number: Number) -> int:
        """How many of these numbers a block has."""
        return self.pieces(number.planes[0])[-1].stop

    def n_scales(self, scale: Scale) -> int:
        """Parts of a block that have a scale each."""
        return self.n_numbers(scale.codes) if scale.codes else self.field(scale.field)[0].length

    def check(self) -> None:
        """Refuse a description that does not add up."""
        self._check("number", self.number, {self.length})
        divisors = {n for n in range(1, self.length + 1) if self.length % n == 0}
        for scale in self.scales:
            if scale.codes:
                self._check(f"codes of {scale.field}", scale.codes, divisors)
            if (
                self.n_scales(scale) not in divisors
                or self.length % self.field(scale.field)[0].length
            ):
                raise InvalidArgument(
                    f"block type {self.name}: {self.length} elements are not equal parts for "
                    f"{self.n_scales(scale)} scales of field {scale.field}"
                )

    def _check(self, what: str, of: Number, counts: set[int]) -> None:
        """Planes have as many pieces as there are numbers, and bits that a byte holds."""
        found = [self.pieces(plane)[-1].stop for plane in of.planes]
        wrong = ""
        if len({*found}) > 1 or not counts.issuperset(found):
            wrong = f"planes have {found} pieces in a block of {self.length}"
        elif of.bits > 8:
            wrong = f"{of.bits} bits; 8 are the most"
        elif of.table and len(of.table) != 2**of.bits:
            wrong = f"a table of {len(of.table)} for {of.bits} bits"
        elif any(p.nbytes % p.group for plane in of.planes for p in self.pieces(plane)):
            wrong = "bytes that are not whole groups"
        if wrong:
            raise InvalidArgument(f"block type {self.name}, {what}: {wrong}")


#: What codes of 4 bits stand for: those of float4_e2m1fn, and those of iq4_nl and iq4_xs.
E2M1 = (0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6)
IQ4 = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)

_D, _M = Field("d", "float16"), Field("m", "float16")
_QH = Field("qh", "uint32")


def _bytes(name: str, count: int) -> Field:
    return Field(name, "uint8", count)


#: A nibble of each number, of every 16 bytes the low ones first; a word has bit 4 of 32 numbers.
_NIBBLES = Bits("qs", 4, group=16)
_BIT_4 = Bits("qh", 1, group=1)
#: Nibbles of every 32 bytes; and two bits of each number, of which 128 share 32 bytes.
_NIBBLES_OF_32 = Bits("qs", 4, group=32)
_PAIRS = Bits("qs", 2, group=32)


def _six_bits(low: tuple[Bits, Bits], high: int) -> Number:
    """Eight numbers in 12 bytes: four nibbles and four others, and the upper halves of four bytes
    from `high` on, of which all lower pairs of bits come first."""
    return number(low, Bits("scales", 2, first=high, nbytes=4, shifts=(4, 6)))


def _four_nibbles(first: int, shift: int) -> Bits:
    return Bits("scales", 4, first=first, nbytes=4, shifts=(shift,))


_K_SCALE = Scale("d", _six_bits((_four_nibbles(0, 0), _four_nibbles(8, 0)), high=0))
_K_LEAST = Scale("m", _six_bits((_four_nibbles(4, 0), _four_nibbles(8, 4)), high=4), negative=True)

_TYPES = (
    BlockType(
        "q4_0",
        gguf=2,
        length=32,
        fields=(_D, _bytes("qs", 16)),
        number=number(_NIBBLES, zero=8),
        scale=Scale("d"),
    ),
    BlockType(
        "q4_1",
        gguf=3,
        length=32,
        fields=(_D, _M, _bytes("qs", 16)),
        number=number(_NIBBLES),
        scale=Scale("d"),
        least=Scale("m"),
    ),
    BlockType(
        "q5_0",
        gguf=6,
        length=32,
        fields=(_D, _QH, _bytes("qs", 16)),
        number=number(_NIBBLES, _BIT_4, zero=16),
        scale=Scale("d"),
    ),
    BlockType(
        "q5_1",
        gguf=7,
        length=32,
        fields=(_D, _M, _QH, _bytes("qs", 16)),
        number=number(_NIBBLES, _BIT_4),
        scale=Scale("d"),
        least=Scale("m"),
    ),
    BlockType(
        "q8_0",
        gguf=8,
        length=32,
        fields=(_D, _bytes("qs", 32)),
        number=number(Bits("qs", 8), signed=True),
        scale=Scale("d"),
    ),
    BlockType(
        "q2_k",
        gguf=10,
        length=256,
        fields=(_bytes("scales", 16), _bytes("qs", 64), _D, _M),
        number=number(_PAIRS),
        scale=Scale("d", number(Bits("scales", 4, shifts=(0,)))),
        least=Scale("m", number(Bits("scales", 4, shifts=(4,))), negative=True),
    ),
    BlockType(
        "q3_k",
        gguf=11,
        length=256,
        fields=(_bytes("hmask", 32), _bytes("qs", 64), _bytes("scales", 12), _D),
        number=number(_PAIRS, Bits("hmask", 1), zero=4),
        scale=Scale("d", number(Bits("scales", 4, nbytes=8), Bits("scales", 2, first=8), zero=32)),
    ),
    BlockType(
        "q4_k",
        gguf=12,
        length=256,
        fields=(_D, _M, _bytes("scales", 12), _bytes("qs", 128)),
        number=number(_NIBBLES_OF_32),
        scale=_K_SCALE,
        least=_K_LEAST,
    ),
    BlockType(
        "q5_k",
        gguf=13,
        length=256,
        fields=(_D, _M, _bytes("scales", 12), _bytes("qh", 32), _bytes("qs", 128)),
        number=number(_NIBBLES_OF_32, Bits("qh", 1)),
        scale=_K_SCALE,
        least=_K_LEAST,
    ),
    BlockType(
        "q6_k",
        gguf=14,
        length=256,
        fields=(_bytes("ql", 128), _bytes("qh", 64), _bytes("scales", 16), _D),
        number=number(Bits("ql", 4, group=64), Bits("qh", 2, group=32), zero=32),
        scale=Scale("d", number(Bits("scales", 8), signed=True)),
    ),
    BlockType(
        "iq4_nl",
        gguf=20,
        length=32,
        fields=(_D, _bytes("qs", 16)),
        number=number(_NIBBLES, table=IQ4),
        scale=Scale("d"),
    ),
    BlockType(
        "iq4_xs",
        gguf=23,
        length=256,
        fields=(_D, Field("scales_h", "uint16"), _bytes("scales_l", 4), _bytes("qs", 128)),
        number=number(_NIBBLES, table=IQ4),
        scale=Scale(
            "d", number(Bits("scales_l", 4, group=1), Bits("scales_h", 2, group=1), zero=32)
        ),
    ),
    BlockType(
        "tq1_0",
        gguf=34,
        length=256,
        fields=(_bytes("qs", 48), _bytes("qh", 4), _D),
        number=number(
            (
                Bits("qs", 2, nbytes=32, digits=5),
                Bits("qs", 2, first=32, digits=5),
                Bits("qh", 2, digits=4),
            ),
            zero=1,
        ),
        scale=Scale("d"),
    ),
    BlockType(
        "tq2_0",
        gguf=35,
        length=256,
        fields=(_bytes("qs", 64), _D),
        number=number(_PAIRS, zero=1),
        scale=Scale("d"),
    ),
    BlockType(
        "mxfp4",
        gguf=39,
        length=32,
        fields=(Field("d", "float8_e8m0fnu"), _bytes("qs", 16)),
        number=number(_NIBBLES, table=E2M1),
        scale=Scale("d"),
    ),
    BlockType(
        "nvfp4",
        gguf=40,
        length=64,
        fields=(Field("d", "float8_e4m3fn", 4), _bytes("qs", 32)),
        number=number(Bits("qs", 4, group=8), table=E2M1),
        scale=Scale("d"),
    ),
)

BLOCK_TYPES = {block.name: block for block in _TYPES}
