"""Block types, described: where the bits of every number lie in a block, and what they stand for.

    x[i] = scale * (number[i] - zero) + least

`BLOCK_TYPES` is all that Arenite knows about them. Sizes, the GGUF reader's table, the reference
(`dtype.blocks`), expressions for kernels (`codegen.block_elements`) and the CPU's packed panels are
derived from it; to add a type, add an entry. docs/adding-a-block-type.md is the guide.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np

from arenite.errors import InvalidArgument
from arenite.records import NamedTuple

_FIELD = re.compile(r"\s*(?P<dtype>\w+)\s+(?P<name>\w+)(\[(?P<length>\d+)\])?\s*")


class Field(NamedTuple):
    name: str
    dtype: str
    length: int
    offset: int  # in a block, bytes

    @property
    def item_nbytes(self) -> int:
        return int(re.findall(r"\d+", self.dtype)[0]) // 8

    @property
    def nbytes(self) -> int:
        return self.item_nbytes * self.length


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

    @property
    def a_byte(self) -> int:
        """Pieces of a byte."""
        return self.digits or len(self.shifts)


class Pieces(NamedTuple):
    """Bits with nothing left out, at their place: of the numbers of a block from `start` on."""

    bits: Bits
    offset: int  # of the first byte, in a block
    start: int

    @property
    def stop(self) -> int:
        return self.start + self.bits.nbytes * self.bits.a_byte


class Number(NamedTuple):
    """Whole numbers: planes of bits, the lowest first, each of some Bits after each other.

    One stands for itself less `zero`, with a sign where it is `signed`, or for an entry of `table`.
    """

    planes: tuple[tuple[Bits, ...], ...]
    zero: int = 0
    signed: bool = False
    table: tuple[float, ...] = ()

    @property
    def widths(self) -> tuple[int, ...]:
        """Bits of each plane."""
        return tuple(plane[0].width for plane in self.planes)

    @property
    def bias(self) -> int:
        """What is taken off a number without its sign."""
        return 1 << sum(self.widths) - 1 if self.signed else self.zero


def number(*planes: Bits | tuple[Bits, ...], **meaning: Any) -> Number:
    many = ((plane,) if isinstance(plane, Bits) else plane for plane in planes)
    return Number(tuple(many), **meaning)


class Scale(NamedTuple):
    """The floats of a field, each for an equal part of a block, times the `codes` of smaller parts;
    minus that where it is `negative`."""

    field: str
    codes: Number | None = None
    negative: bool = False


class BlockType(NamedTuple):
    """A block of `length` elements. `struct` lists its fields, which follow each other without
    gaps, as C does: `dtype name[length]; ...`."""

    name: str
    gguf: int | None  # the number of the type in GGUF files
    length: int
    struct: str
    number: Number
    scale: Scale = Scale("d")
    least: Scale | None = None

    @property
    def fields(self) -> dict[str, Field]:
        return _fields(self.struct)

    @property
    def nbytes(self) -> int:
        return sum(field.nbytes for field in self.fields.values())

    @property
    def scales(self) -> tuple[Scale, ...]:
        """What numbers are multiplied with, then what is added, where something is."""
        return (self.scale, self.least) if self.least else (self.scale,)

    @property
    def layout(self) -> np.dtype[Any]:
        """One block as a NumPy record; multi-byte fields are little-endian."""
        kinds = {"float16": "f", "float32": "f"}
        return np.dtype(
            [
                (f.name, f"<{kinds.get(f.dtype, 'u')}{f.item_nbytes}", (f.length,) * (f.length > 1))
                for f in self.fields.values()
            ]
        )

    def pieces(self, plane: tuple[Bits, ...]) -> list[Pieces]:
        """Where the numbers of a plane have their bits, in order."""
        found: list[Pieces] = []
        for bits in plane:
            field = self.fields[bits.field]
            nbytes = bits.nbytes or field.nbytes - bits.first
            shifts = bits.shifts or tuple(range(0, 8, bits.width))
            own = bits._replace(nbytes=nbytes, group=bits.group or nbytes, shifts=shifts)
            found.append(Pieces(own, field.offset + bits.first, found[-1].stop if found else 0))
        return found

    def n_numbers(self, of: Number) -> int:
        return self.pieces(of.planes[0])[-1].stop

    def n_scales(self, scale: Scale) -> int:
        """Parts of a block that have a scale each."""
        return self.n_numbers(scale.codes) if scale.codes else self.fields[scale.field].length

    def check(self) -> None:
        """Refuse a description that does not add up."""
        numbers = {"numbers": self.number}
        numbers |= {f"codes of {s.field}": s.codes for s in self.scales if s.codes}
        named = [bits.field for of in numbers.values() for plane in of.planes for bits in plane]
        for name in (*named, *(scale.field for scale in self.scales)):
            if name not in self.fields:
                raise InvalidArgument(f"block type {self.name} has no field {name!r}")
        for what, of in numbers.items():
            counts = {self.pieces(plane)[-1].stop for plane in of.planes}
            pieces = [p.bits for plane in of.planes for p in self.pieces(plane)]
            wrong = {
                f"planes have {sorted(counts)} pieces": len(counts) > 1,
                f"{min(counts)} in a block of {self.length}": self.length % min(counts)
                or (of is self.number and counts != {self.length}),
                f"{sum(of.widths)} bits, where 8 are the most": sum(of.widths) > 8,
                f"a table of {len(of.table)}": len(of.table) not in (0, 2 ** sum(of.widths)),
                "bytes that are not whole groups": any(b.nbytes % b.group for b in pieces),
            }
            for reason in (reason for reason, is_so in wrong.items() if is_so):
                raise InvalidArgument(f"block type {self.name}, {what}: {reason}")
        for scale in self.scales:
            if self.length % self.fields[scale.field].length:
                raise InvalidArgument(
                    f"block type {self.name}: its {self.length} elements are not equal parts for "
                    f"the {self.fields[scale.field].length} floats of {scale.field}"
                )


@cache
def _fields(struct: str) -> dict[str, Field]:
    fields: dict[str, Field] = {}
    offset = 0
    for text in struct.split(";"):
        found = _FIELD.fullmatch(text)
        if found is None:
            raise InvalidArgument(f"{text!r} in {struct!r} is no field: dtype name[length]")
        field = Field(found["name"], found["dtype"], int(found["length"] or 1), offset)
        fields[field.name], offset = field, offset + field.nbytes
    return fields


#: What codes of 4 bits stand for: those of float4_e2m1fn, and those of iq4_nl and iq4_xs.
E2M1 = (0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6)
IQ4 = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)

#: A nibble of each number, of every 16 bytes the low ones first; a word has bit 4 of 32 numbers.
_NIBBLES = Bits("qs", 4, group=16)
_BIT_4 = Bits("qh", 1, group=1)
#: Nibbles of every 32 bytes; and two bits of each number, of which 128 share 32 bytes.
_NIBBLES_OF_32 = Bits("qs", 4, group=32)
_PAIRS = Bits("qs", 2, group=32)
#: Two neighbours in each byte, as ONNX's MatMulNBits has them.
_NEIGHBOURS = Bits("qs", 4, group=1)


def _six_bits(first: int, third_shift: int) -> Number:
    """Eight numbers in 12 bytes: low nibbles of four bytes, then nibbles of the last four; above
    these the upper halves of the first four, of which all lower pairs of bits come first."""
    low = Bits("scales", 4, first=first, nbytes=4, shifts=(0,))
    more = Bits("scales", 4, first=8, shifts=(third_shift,))
    return number((low, more), Bits("scales", 2, first=first, nbytes=4, shifts=(4, 6)))


_K_SCALE = Scale("d", _six_bits(0, 0))
_K_LEAST = Scale("m", _six_bits(4, 4), negative=True)
_TRITS = (
    Bits("qs", 2, nbytes=32, digits=5),
    Bits("qs", 2, first=32, digits=5),
    Bits("qh", 2, digits=4),
)

# fmt: off
_TYPES = (
    BlockType("q4_0", 2, 32, "float16 d; uint8 qs[16]", number(_NIBBLES, zero=8)),
    BlockType("q4_1", 3, 32, "float16 d; float16 m; uint8 qs[16]", number(_NIBBLES),
              least=Scale("m")),
    BlockType("q5_0", 6, 32, "float16 d; uint32 qh; uint8 qs[16]",
              number(_NIBBLES, _BIT_4, zero=16)),
    BlockType("q5_1", 7, 32, "float16 d; float16 m; uint32 qh; uint8 qs[16]",
              number(_NIBBLES, _BIT_4), least=Scale("m")),
    BlockType("q8_0", 8, 32, "float16 d; uint8 qs[32]", number(Bits("qs", 8), signed=True)),
    BlockType("q2_k", 10, 256, "uint8 scales[16]; uint8 qs[64]; float16 d; float16 m",
              number(_PAIRS),
              Scale("d", number(Bits("scales", 4, shifts=(0,)))),
              Scale("m", number(Bits("scales", 4, shifts=(4,))), negative=True)),
    BlockType("q3_k", 11, 256, "uint8 hmask[32]; uint8 qs[64]; uint8 scales[12]; float16 d",
              number(_PAIRS, Bits("hmask", 1), zero=4),
              Scale("d", number(Bits("scales", 4, nbytes=8), Bits("scales", 2, first=8), zero=32))),
    BlockType("q4_k", 12, 256, "float16 d; float16 m; uint8 scales[12]; uint8 qs[128]",
              number(_NIBBLES_OF_32), _K_SCALE, _K_LEAST),
    BlockType("q5_k", 13, 256,
              "float16 d; float16 m; uint8 scales[12]; uint8 qh[32]; uint8 qs[128]",
              number(_NIBBLES_OF_32, Bits("qh", 1)), _K_SCALE, _K_LEAST),
    BlockType("q6_k", 14, 256, "uint8 ql[128]; uint8 qh[64]; uint8 scales[16]; float16 d",
              number(Bits("ql", 4, group=64), Bits("qh", 2, group=32), zero=32),
              Scale("d", number(Bits("scales", 8), signed=True))),
    BlockType("iq4_nl", 20, 32, "float16 d; uint8 qs[16]", number(_NIBBLES, table=IQ4)),
    BlockType("iq4_xs", 23, 256, "float16 d; uint16 scales_h; uint8 scales_l[4]; uint8 qs[128]",
              number(_NIBBLES, table=IQ4),
              Scale("d", number(Bits("scales_l", 4, group=1), Bits("scales_h", 2, group=1),
                                zero=32))),
    BlockType("tq1_0", 34, 256, "uint8 qs[48]; uint8 qh[4]; float16 d", number(_TRITS, zero=1)),
    BlockType("tq2_0", 35, 256, "uint8 qs[64]; float16 d", number(_PAIRS, zero=1)),
    BlockType("mxfp4", 39, 32, "float8_e8m0fnu d; uint8 qs[16]", number(_NIBBLES, table=E2M1)),
    BlockType("nvfp4", 40, 64, "float8_e4m3fn d[4]; uint8 qs[32]",
              number(Bits("qs", 4, group=8), table=E2M1)),
    # Of ONNX files, where floats are apart from the numbers; `join_blocks` brings them together.
    BlockType("u4x32", None, 32, "float32 d; uint8 qs[16]", number(_NEIGHBOURS, zero=8)),
    BlockType("u4x32_least", None, 32, "float32 d; float32 m; uint8 qs[16]", number(_NEIGHBOURS),
              least=Scale("m")),
    BlockType("u4x128", None, 128, "float32 d; uint8 qs[64]", number(_NEIGHBOURS, zero=8)),
    BlockType("u4x128_least", None, 128, "float32 d; float32 m; uint8 qs[64]",
              number(_NEIGHBOURS), least=Scale("m")),
    BlockType("u8x32_least", None, 32, "float32 d; float32 m; uint8 qs[32]",
              number(Bits("qs", 8)), least=Scale("m")),
)
# fmt: on

BLOCK_TYPES = {block.name: block for block in _TYPES}
