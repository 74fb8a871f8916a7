"""Elements of block-quantised values as loop-IR expressions over the bytes of a block.

Derived from the description of a type (`dtype.block_types`). Neighbouring elements are read as
lanes of a loop: which bytes, bits and scales they have is known when code is made, so expressions
differ between runs of elements and hold no tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from arenite.codegen import loop_ir as ir
from arenite.dtype import BY_NAME, FLOAT32, INT32, UINT8, DType
from arenite.dtype.block_types import BlockType, Number, Pieces, Scale
from arenite.dtype.blocks import block_type

_UNSIGNED = {bits: BY_NAME[f"uint{bits}"] for bits in (8, 16, 32)}

#: Elements that are read as one run, at most.
RUN = 16


def number(value: int) -> ir.Expr:
    return ir.Const(value, INT32)


def bits(value: ir.Expr, shift: int, count: int) -> ir.Expr:
    """So many bits of an int32."""
    return (value >> shift if shift else value) & (1 << count) - 1


def above(value: ir.Expr, shift: int) -> ir.Expr:
    return value << shift if shift else value


def as_float(value: ir.Expr) -> ir.Expr:
    return ir.Cast(value, FLOAT32)


def float_at(array: str, at: ir.Expr, dtype: DType) -> ir.Expr:
    """The float whose first byte is at `at`, in an array of bytes."""
    whole = _UNSIGNED[dtype.bits]
    made: ir.Expr = ir.Cast(ir.Load(array, at, UINT8), whole)
    for byte in range(1, dtype.bits // 8):
        made = made | (ir.Cast(ir.Load(array, at + byte, UINT8), whole) << 8 * byte)
    return ir.Bitcast(made, dtype)


def looked_up(whole: ir.Expr, values: tuple[float, ...], dtype: DType) -> ir.Expr:
    """What an index of a table stands for: choices by its bits."""
    found: list[ir.Expr] = [ir.Const(value, dtype) for value in values]
    for bit in range(len(values).bit_length() - 1):
        is_set = ir.Binary("ne", bits(whole, bit, 1), number(0))
        found = [
            ir.Select(is_set, odd, even) for even, odd in zip(found[::2], found[1::2], strict=True)
        ]
    return found[0]


@dataclass(frozen=True, slots=True)
class BlockReader:
    """One block that begins at byte `at` of an array of bytes."""

    dtype: DType
    array: str
    at: ir.Expr

    @property
    def block(self) -> BlockType:
        return block_type(self.dtype)

    def runs(self) -> Iterator[tuple[int, int]]:
        """All elements, cut into runs that `element` reads: the first of each and how many."""
        pieces = [p for plane in self.block.number.planes for p in self.block.pieces(plane)]
        parts = [self.block.length // self.block.n_scales(scale) for scale in self.block.scales]
        first, count = 0, RUN
        while first < self.block.length:
            is_one_run = all(_is_readable(p, first, count) for p in pieces)
            if is_one_run and all(part % count == 0 for part in parts):
                yield first, count
                first, count = first + count, RUN
            else:
                count //= 2

    def element(self, first: int, lane: ir.Expr, count: int) -> ir.Expr:
        """Element first + lane, FLOAT32, of a run of `count`."""
        whole = self.number(first, lane, count)
        scale, *least = (self._scale(scale, first) for scale in self.block.scales)
        value = scale * _meant(self.block.number, whole)
        return value + least[0] if least else value

    def number(self, first: int, lane: ir.Expr, count: int) -> ir.Expr:
        """The whole number of an element, or its index of the table, before its zero is taken off;
        int32."""
        return self._unsigned(self.block.number, first, lane, count)

    def float_of(self, scale: Scale, element: int) -> ir.Expr:
        """The float in a block that an element is scaled by, in its own dtype."""
        field = self.block.fields[scale.field]
        before = element * field.length // self.block.length * field.item_nbytes
        return float_at(self.array, self.at + field.offset + before, BY_NAME[field.dtype])

    def code(self, codes: Number, element: int) -> ir.Expr:
        """The whole number that scales an element's part, before its zero is taken off; int32."""
        part = element * self.block.n_numbers(codes) // self.block.length
        return self._unsigned(codes, part, ir.index(0), 1)

    def _scale(self, scale: Scale, element: int) -> ir.Expr:
        """What the part of an element is multiplied with, or what is added to it; FLOAT32."""
        made = as_float(self.float_of(scale, element))
        if scale.codes:
            made = made * _meant(scale.codes, self.code(scale.codes, element))
        return -made if scale.negative else made

    def _unsigned(self, of: Number, first: int, lane: ir.Expr, count: int) -> ir.Expr:
        made, below = None, 0
        for plane in of.planes:
            [pieces] = [p for p in self.block.pieces(plane) if p.start <= first < p.stop]
            own = above(self._piece(pieces, first - pieces.start, lane, count), below)
            made = own if made is None else made | own
            below += plane[0].width
        assert made is not None
        return made ^ of.bias if of.signed else made

    def _piece(self, pieces: Pieces, first: int, lane: ir.Expr, count: int) -> ir.Expr:
        own = pieces.bits
        if own.group == 1 and count > 1:
            return self._bits_of_word(pieces, first, lane, count)
        cycle, within = divmod(first, own.group * own.a_byte)
        piece, byte = divmod(within, own.group)
        value = self._byte(pieces.offset + cycle * own.group + byte + lane)
        if not own.digits:
            return bits(value, own.shifts[piece], own.width)
        last = bits(value * 3**piece, 0, 8)
        return bits(last * 3, 8, own.width)

    def _bits_of_word(self, pieces: Pieces, first: int, lane: ir.Expr, count: int) -> ir.Expr:
        """Numbers one after the other, in up to 32 bits."""
        width = pieces.bits.width
        begin, shift = divmod(first * width, 8)
        word = number(0)
        for k in range(-(-(shift + count * width) // 8)):
            byte = self._byte(ir.index(pieces.offset + begin + k))
            word = word | above(byte, 8 * k) if k else byte
        up = ir.Cast(lane * width + shift, INT32)
        return bits(word >> up, 0, width)

    def _byte(self, offset: ir.Expr) -> ir.Expr:
        return ir.Cast(ir.Load(self.array, self.at + offset, UINT8), INT32)


def _meant(of: Number, whole: ir.Expr) -> ir.Expr:
    """What a number stands for, FLOAT32."""
    if of.table:
        return looked_up(whole, of.table, FLOAT32)
    return as_float(whole - of.bias if of.bias else whole)


def _is_readable(pieces: Pieces, first: int, count: int) -> bool:
    """Whether a run lies in one piece of neighbouring bytes, or in one word."""
    own, within = pieces.bits, first - pieces.start
    if not pieces.start <= first < pieces.stop or count == 1:
        return True
    if own.group > 1:
        return within // own.group == (within + count - 1) // own.group
    is_whole = not own.digits and own.a_byte * own.width == 8
    is_inside = first + count <= pieces.stop
    return is_whole and is_inside and within * own.width % 8 + count * own.width <= 32
