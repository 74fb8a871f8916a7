"""Kernels that take elements narrower than a byte apart, and put them together.

Such elements are arguments as plain bytes. They are dealt with in groups: the fewest whole bytes
that hold whole elements, and the bytes of these elements, seen as one word each:

    packed   b a          4 bits each; the first element, a, at the low end
    word     .b .a        8 bits each

    packed   dddddd cccc|cc bbbb|bb aaaaaa      6 bits each: 3 bytes of 4 elements

All elements of a word become what they are held as at once, each within its byte; where the last
group is not full, they are read and written one by one instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.built import Built
from arenite.codegen.kernels.values import index_expr
from arenite.dtype import UINT8, UINT16, UINT32, DType, Kind
from arenite.ir.dim import Dim, ceildiv, product
from arenite.ir.ops.narrow import SMALL_FLOATS, SmallFloat
from arenite.schedule.kernel import Kernel

#: Groups in one tile.
TILE_GROUPS = 16_384

_GROUP = ir.Name("group")
#: Where bytes or elements are, and whether they are, where that is not certain.
_Places: TypeAlias = list[tuple[ir.Expr, ir.Expr | None]]
#: The elements of a group as one word, by how many there are.
_WORDS = {2: UINT16, 4: UINT32}


def _in_group(dtype: DType) -> tuple[int, int]:
    """How many elements a group has, and how many bytes."""
    return (8 // dtype.bits, 1) if 8 % dtype.bits == 0 else (4, dtype.bits // 2)


def build_packing(kernel: Kernel) -> Built:
    node = kernel.stages[0].node
    is_pack = node.op == "pack"
    narrow = node if is_pack else node.inputs[0]
    dtype, count = narrow.dtype, product(narrow.shape)
    n, _ = _in_group(dtype)
    groups = ceildiv(count, n)
    first = ir.Name("tile") * TILE_GROUPS
    last = ir.Binary("min", first + TILE_GROUPS, index_expr(groups))
    is_whole = groups * n == count
    group = (_pack if is_pack else _unpack)(dtype, is_whole)
    body: ir.Block = (ir.For("group", first, last, group, vector=True),)
    if not is_whole:
        full = index_expr(count // n)
        tail = (_pack if is_pack else _unpack)(dtype, False, count)
        body = (
            ir.For("group", first, ir.Binary("min", last, full), group, vector=True),
            ir.For("group", ir.Binary("max", first, full), last, tail),
        )
    wide = _WORDS[n] if is_whole else UINT8
    read, written = (wide, UINT8) if is_pack else (UINT8, wide)
    arrays = (ir.ArrayArg("in0", read, "in"), ir.ArrayArg("out0", written, "out"))
    return Built.of(kernel.name, arrays, [count], ceildiv(groups, TILE_GROUPS), body)


def _places(n: int, end: Dim | None) -> _Places:
    """Where the n elements, or bytes, of a group are, and whether they are, where all of them may
    end before."""
    places = [_GROUP * n + k for k in range(n)]
    return [(place, None if end is None else place < index_expr(end)) for place in places]


def _nbytes(dtype: DType, count: Dim | None) -> Dim | None:
    return None if count is None else ceildiv(count * dtype.bits, 8)


def _unpack(dtype: DType, is_whole: bool, count: Dim | None = None) -> ir.Block:
    """One group; `is_whole`: to a word, else to bytes, where there may be no more than `count`."""
    (n, nbytes), bits = _in_group(dtype), dtype.bits
    lets = _Lets()
    packed = lets.joined("in0", _places(nbytes, _nbytes(dtype, count)), _WORDS[n])
    codes = packed.masked(0, (1 << bits) - 1)
    for k in range(1, n):
        codes |= packed.left(k * (8 - bits)).masked(k, (1 << bits) - 1)
    held = _held(lets.named(codes), dtype, lets)
    if is_whole:
        return (*lets.statements, ir.Store("out0", _GROUP, held.expr))
    return lets.stored("out0", _places(n, count), held)


def _pack(dtype: DType, is_whole: bool, count: Dim | None = None) -> ir.Block:
    """One group; `is_whole`: of a word, else of bytes, of which there may be no more than
    `count`."""
    (n, nbytes), bits = _in_group(dtype), dtype.bits
    lets = _Lets()
    if is_whole:
        held = lets.named(_Word(ir.Load("in0", _GROUP, _WORDS[n])))
    else:
        held = lets.joined("in0", _places(n, count), _WORDS[n])
    codes = lets.named(_codes(held, dtype, lets))
    packed = codes.masked(0, (1 << bits) - 1)
    for k in range(1, n):
        packed |= codes.masked(k, (1 << bits) - 1).right(k * (8 - bits))
    places = _places(nbytes, _nbytes(dtype, count))
    return lets.stored("out0", places, packed)


def _on_bytes(op: str) -> Callable[[_Word, _Word | int], _Word]:
    def combined(word: _Word, other: _Word | int) -> _Word:
        right = other.expr if isinstance(other, _Word) else word._each(other)
        return _Word(ir.Binary(op, word.expr, right))

    return combined


@dataclass(frozen=True, slots=True)
class _Word:
    """A word of bytes that are computed with side by side. Numbers stand for that number in each
    byte; what is computed stays within its byte."""

    expr: ir.Expr

    def _each(self, number: int) -> ir.Const:
        dtype = self.expr.dtype
        return ir.Const(number * (((1 << dtype.bits) - 1) // 255), dtype)

    __and__, __or__, __xor__ = _on_bytes("and"), _on_bytes("or"), _on_bytes("xor")
    __add__, __sub__ = _on_bytes("add"), _on_bytes("sub")

    def masked(self, byte: int, mask: int) -> _Word:
        """Some bits of one byte, all others 0."""
        return _Word(ir.Binary("and", self.expr, ir.Const(mask << 8 * byte, self.expr.dtype)))

    def times(self, number: int) -> _Word:
        """The bytes, each times a number."""
        return _Word(ir.Binary("mul", self.expr, ir.Const(number, self.expr.dtype)))

    def left(self, by: int) -> _Word:
        return self._shifted("shift_left", by)

    def right(self, by: int) -> _Word:
        return self._shifted("shift_right", by)

    def _shifted(self, op: str, by: int) -> _Word:
        return _Word(ir.Binary(op, self.expr, ir.Const(by, self.expr.dtype))) if by else self


class _Lets:
    """Statements that name words, so that each is computed once."""

    def __init__(self) -> None:
        self.statements: list[ir.Stmt] = []

    def named(self, word: _Word) -> _Word:
        name = f"w{len(self.statements)}"
        self.statements.append(ir.Let(name, word.expr))
        return _Word(ir.Name(name, word.expr.dtype))

    def joined(self, array: str, places: _Places, wide: DType) -> _Word:
        """Bytes of an array as one word, the first at the low end."""
        words = [
            _Word(ir.Cast(ir.Load(array, place, UINT8, exists), wide)).left(8 * k)
            for k, (place, exists) in enumerate(places)
        ]
        for word in words[1:]:
            words[0] |= word
        return self.named(words[0])

    def stored(self, array: str, places: _Places, word: _Word) -> ir.Block:
        """All statements, and those that put the bytes of a word into an array."""
        word = self.named(word)
        stores = [
            ir.Store(array, place, ir.Cast(word.right(8 * k).expr, UINT8), exists)
            for k, (place, exists) in enumerate(places)
        ]
        return (*self.statements, *stores)

    def is_number(self, word: _Word, number: int) -> _Word:
        """1 in each byte that is some number, else 0."""
        differs = word ^ number
        for by in (1, 2, 4):
            differs = self.named(differs | differs.right(by))
        return self.named((differs & 1) ^ 1)


def _held(codes: _Word, dtype: DType, lets: _Lets) -> _Word:
    """Bytes that hold the elements of some codes.

    A float8_e4m3fn counts in eighths what a float4_e2m1fn counts in halves, from another exponent
    on: code c from 1.0 on is 0x30 + 4c there; 0.5, which is below the normal numbers, is 0x30.
    """
    if dtype.kind is Kind.UNSIGNED:
        return codes
    if dtype.kind is Kind.SIGNED:
        sign = 1 << dtype.bits - 1
        return codes | (codes & sign).times(256 // sign - 2)
    if dtype.bits == 6:
        return _held_of_six_bits(codes, SMALL_FLOATS[dtype], lets)
    magnitude = codes & 7
    is_normal = (codes.right(1) | codes.right(2)) & 1
    is_number = (is_normal | codes) & 1
    below_normal = is_number ^ is_normal
    code = is_number.times(0x30) + magnitude.left(2) - below_normal.left(2)
    return code | (codes & 8).left(4)


def _codes(held: _Word, dtype: DType, lets: _Lets) -> _Word:
    """The codes of elements that bytes hold."""
    if dtype.kind is not Kind.FLOAT:
        return held & (1 << dtype.bits) - 1
    if dtype.bits == 6:
        return _codes_of_six_bits(held, SMALL_FLOATS[dtype], lets)
    is_number = (held.right(5) | held.right(6)) & 1
    above = (held & 0x7F) - is_number.times(0x30)
    is_normal = (above.right(3) | above.right(4)) & 1
    code = above.right(2) + (is_number ^ is_normal)
    return code | (held & 0x80).right(4)


def _held_of_six_bits(codes: _Word, small: SmallFloat, lets: _Lets) -> _Word:
    """As if all were normal, then less what those below are held lower."""
    magnitude = lets.named(codes & 0x1F)
    held = magnitude.left(small.held_shift) + small.held_offset
    for number, one in enumerate(small.held_below_normal):
        lower = (number << small.held_shift) + small.held_offset - one
        held = lets.named(held - lets.is_number(magnitude, number).times(lower))
    return held | (codes & 0x20).left(2)


def _codes_of_six_bits(held: _Word, small: SmallFloat, lets: _Lets) -> _Word:
    """Those of normal numbers, with those below them by themselves."""
    magnitude = lets.named(held & 0x7F)
    below = code = lets.named(_Word(ir.Const(0, held.expr.dtype)))
    for number, one in enumerate(small.held_below_normal):
        is_one = lets.is_number(magnitude, one)
        below, code = lets.named(below + is_one), lets.named(code + is_one.times(number))
    # High enough that the offset is taken from its own byte.
    normal = (magnitude + below.left(7) - small.held_offset).right(small.held_shift)
    normal = normal & (below ^ 1).times(0x1F)
    return code | normal | (held & 0x80).right(2)


BUILDERS = {"pack": build_packing, "unpack": build_packing}
