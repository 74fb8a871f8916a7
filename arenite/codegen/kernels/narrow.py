"""Kernels that take elements narrower than a byte apart, and put them together.

Such elements are arguments as plain bytes. They are dealt with in groups: the fewest whole bytes
that hold whole elements, and the bytes of these elements, seen as one word each:

    packed   b a          4 bits each; the first element, a, at the low end
    word     .b .a        8 bits each

    packed   dddddd cccc|cc bbbb|bb aaaaaa      6 bits each: 3 bytes of 4 elements

All elements of a word become what they are held as at once, each within its byte; where the last
group is not full, and where elements are 6 bits, they are read and written one by one instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.built import Built
from arenite.codegen.kernels.values import index_expr
from arenite.dtype import BY_NAME, DType, Kind, uint8
from arenite.ir.dim import Dim, ceildiv, product
from arenite.ir.ops.narrow import SMALL_FLOATS
from arenite.schedule.kernel import Kernel

#: Groups in one tile.
TILE_GROUPS = 16_384

_GROUP = ir.Name("group")
#: The elements of a group as one word, by how many there are.
_WORDS = {2: BY_NAME["uint16"], 4: BY_NAME["uint32"]}


def is_packing(kernel: Kernel) -> bool:
    return kernel.stages[0].node.op in ("pack", "unpack")


def _in_group(dtype: DType) -> tuple[int, int]:
    """How many elements a group has, and how many bytes."""
    return (8 // dtype.bits, 1) if 8 % dtype.bits == 0 else (4, dtype.bits // 2)


def build_packing(kernel: Kernel) -> Built:
    node = kernel.stages[0].node
    is_pack = node.op == "pack"
    narrow = node if is_pack else node.inputs[0]
    dtype, count = narrow.dtype, product(narrow.shape)
    n, nbytes = _in_group(dtype)
    groups = ceildiv(count, n)
    first = ir.Name("tile") * TILE_GROUPS
    last = ir.Binary("min", first + TILE_GROUPS, index_expr(groups))
    wide = uint8
    if groups * n == count and nbytes == 1:
        wide = _WORDS[n]
        word = (_pack_word if is_pack else _unpack_word)(dtype, wide)
        body: ir.Block = (ir.For("group", first, last, word, vector=True),)
    else:
        full = index_expr(count // n)
        one_by_one = _pack_elements if is_pack else _unpack_elements
        body = (
            ir.For("group", first, ir.Binary("min", last, full), one_by_one(dtype), vector=True),
            ir.For("group", ir.Binary("max", first, full), last, one_by_one(dtype, count)),
        )
    read, written = (wide, uint8) if is_pack else (uint8, wide)
    arrays = (ir.ArrayArg("in0", read, "in"), ir.ArrayArg("out0", written, "out"))
    tiles = ceildiv(groups, TILE_GROUPS)
    sizes = {part.name for part in ir.walk(index_expr(count)) if isinstance(part, ir.Name)}
    loops = ir.LoopKernel(
        kernel.name, arrays, tuple(sorted(sizes)), index_expr(tiles), "tile", body
    )
    return Built(loops, tiles)


def _unpack_word(dtype: DType, wide: DType) -> ir.Block:
    bits = dtype.bits
    value = _Word(ir.Cast(ir.Load("in0", _GROUP, uint8), wide))
    codes = value.masked(0, (1 << bits) - 1)
    for k in range(1, 8 // bits):
        codes |= value.left(k * (8 - bits)).masked(k, (1 << bits) - 1)
    return (ir.Store("out0", _GROUP, _held(codes, dtype).expr),)


def _pack_word(dtype: DType, wide: DType) -> ir.Block:
    bits = dtype.bits
    codes = _codes(_Word(ir.Load("in0", _GROUP, wide)), dtype)
    packed = codes
    for k in range(1, 8 // bits):
        packed |= codes.right(k * (8 - bits))
    return (ir.Store("out0", _GROUP, ir.Cast(packed.expr, uint8)),)


#: Where something is, and whether it is there, if it may not be.
_Place: TypeAlias = tuple[ir.Expr, ir.Expr | None]


def _places(n: int, end: Dim | None) -> list[_Place]:
    """Where the n elements, or bytes, of a group are, and whether they are, where all of them may
    end before."""
    places = [_GROUP * n + k for k in range(n)]
    return [(place, None if end is None else place < index_expr(end)) for place in places]


def _group_places(dtype: DType, count: Dim | None) -> tuple[list[_Place], list[_Place]]:
    """Those of the elements and of the bytes."""
    n, nbytes = _in_group(dtype)
    used = None if count is None else ceildiv(count * dtype.bits, 8)
    return _places(n, count), _places(nbytes, used)


def _unpack_elements(dtype: DType, count: Dim | None = None) -> ir.Block:
    places, bytes_at = _group_places(dtype, count)
    bits, mask = dtype.bits, (1 << dtype.bits) - 1
    statements: list[ir.Stmt] = [
        ir.Let(f"packed{k}", ir.Load("in0", place, uint8, exists))
        for k, (place, exists) in enumerate(bytes_at)
    ]
    packed = [_Word(ir.Name(f"packed{k}", uint8)) for k in range(len(bytes_at))]
    for k, (place, exists) in enumerate(places):
        byte, at = divmod(bits * k, 8)
        code = packed[byte].right(at)
        if at + bits > 8:
            code |= packed[byte + 1].left(8 - at)
        statements += [ir.Let(f"code{k}", (code & mask).expr)]
        held = _element_held(_Word(ir.Name(f"code{k}", uint8)), dtype)
        statements.append(ir.Store("out0", place, held.expr, exists))
    return tuple(statements)


def _pack_elements(dtype: DType, count: Dim | None = None) -> ir.Block:
    places, bytes_at = _group_places(dtype, count)
    packed = [_Word(ir.Const(0, uint8)) for _ in bytes_at]
    statements: list[ir.Stmt] = []
    for k, (place, exists) in enumerate(places):
        held = ir.Let(f"held{k}", ir.Load("in0", place, uint8, exists))
        code = _element_code(_Word(ir.Name(f"held{k}", uint8)), dtype)
        statements += [held, ir.Let(f"code{k}", code.expr)]
        code = _Word(ir.Name(f"code{k}", uint8))
        byte, at = divmod(dtype.bits * k, 8)
        packed[byte] |= code.left(at)
        if at + dtype.bits > 8:
            packed[byte + 1] |= code.right(8 - at)
    for word, (place, exists) in zip(packed, bytes_at, strict=True):
        statements.append(ir.Store("out0", place, word.expr, exists))
    return tuple(statements)


@dataclass(frozen=True, slots=True)
class _Word:
    """A word of bytes that are computed with side by side. Numbers stand for that number in each
    byte; what is computed stays within its byte."""

    expr: ir.Expr

    def _each(self, number: int) -> ir.Const:
        dtype = self.expr.dtype
        return ir.Const(number * (((1 << dtype.bits) - 1) // 255), dtype)

    def _with(self, op: str, other: _Word | int) -> _Word:
        right = other.expr if isinstance(other, _Word) else self._each(other)
        return _Word(ir.Binary(op, self.expr, right))

    def __and__(self, number: int) -> _Word:
        return self._with("and", number)

    def __or__(self, other: _Word) -> _Word:
        return self._with("or", other)

    def __xor__(self, other: _Word) -> _Word:
        return self._with("xor", other)

    def __add__(self, other: _Word) -> _Word:
        return self._with("add", other)

    def __sub__(self, other: _Word) -> _Word:
        return self._with("sub", other)

    def masked(self, byte: int, mask: int) -> _Word:
        """Some bits of one byte, all others 0."""
        return _Word(ir.Binary("and", self.expr, ir.Const(mask << 8 * byte, self.expr.dtype)))

    def times(self, number: int) -> _Word:
        """The bytes, each times a number."""
        return _Word(ir.Binary("mul", self.expr, ir.Const(number, self.expr.dtype)))

    def where(self, number: int, one: int, other: _Word) -> _Word:
        """`one` where a single byte is some number, else what `other` has."""
        is_number = ir.Binary("eq", self.expr, self._each(number))
        return _Word(ir.Select(is_number, self._each(one), other.expr))

    def left(self, by: int) -> _Word:
        return self._shifted("shift_left", by)

    def right(self, by: int) -> _Word:
        return self._shifted("shift_right", by)

    def _shifted(self, op: str, by: int) -> _Word:
        return _Word(ir.Binary(op, self.expr, ir.Const(by, self.expr.dtype))) if by else self


def _held(codes: _Word, dtype: DType) -> _Word:
    """Bytes that hold the elements of some codes.

    A float8_e4m3fn counts in eighths what a float4_e2m1fn counts in halves, from another exponent
    on: code c from 1.0 on is 0x30 + 4c there; 0.5, which is below the normal numbers, is 0x30.
    """
    if dtype.kind is Kind.UNSIGNED:
        return codes
    if dtype.kind is Kind.SIGNED:
        sign = 1 << dtype.bits - 1
        return codes | (codes & sign).times(256 // sign - 2)
    magnitude = codes & 7
    is_normal = (codes.right(1) | codes.right(2)) & 1
    is_number = (is_normal | codes) & 1
    below_normal = is_number ^ is_normal
    code = is_number.times(0x30) + magnitude.left(2) - below_normal.left(2)
    return code | (codes & 8).left(4)


def _codes(held: _Word, dtype: DType) -> _Word:
    """The codes of elements that bytes hold."""
    if dtype.kind is not Kind.FLOAT:
        return held & (1 << dtype.bits) - 1
    is_number = (held.right(5) | held.right(6)) & 1
    above = (held & 0x7F) - is_number.times(0x30)
    is_normal = (above.right(3) | above.right(4)) & 1
    code = above.right(2) + (is_number ^ is_normal)
    return code | (held & 0x80).right(4)


def _element_held(code: _Word, dtype: DType) -> _Word:
    """The byte that holds an element of some code."""
    if dtype.bits != 6:
        return _held(code, dtype)
    small = SMALL_FLOATS[dtype]
    magnitude = code & 0x1F
    held = magnitude.left(small.held_shift) + _Word(ir.Const(small.held_offset, uint8))
    for number, one in enumerate(small.held_below_normal):
        held = magnitude.where(number, one, held)
    return held | (code & 0x20).left(2)


def _element_code(held: _Word, dtype: DType) -> _Word:
    """The code of an element that a byte holds."""
    if dtype.bits != 6:
        return _codes(held, dtype)
    small = SMALL_FLOATS[dtype]
    magnitude = held & 0x7F
    code = (magnitude - _Word(ir.Const(small.held_offset, uint8))).right(small.held_shift)
    for number, one in enumerate(small.held_below_normal):
        code = magnitude.where(one, number, code)
    return code | (held & 0x80).right(2)
