"""Kernels that take elements narrower than a byte apart, and put them together.

Such elements are arguments as plain bytes. A byte and the 2 or 4 bytes of its elements, seen as
one word, lie at the same index, so both sides of a loop are contiguous:

    byte     b a          4 bits each; the first element, a, at the low end
    word     .b .a        8 bits each

All elements of a word become what they are held as at once, each within its byte. Where the last
byte is not full, elements are read and written one by one instead.
"""

from __future__ import annotations

from dataclasses import dataclass

from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.built import Built
from arenite.codegen.kernels.values import index_expr
from arenite.dtype import BY_NAME, DType, Kind, uint8
from arenite.ir.dim import Dim, ceildiv, product
from arenite.schedule.kernel import Kernel

#: Bytes of packed elements in one tile.
TILE_NBYTES = 16_384

_BYTE = ir.Name("byte")
#: The elements of a byte as one word, by how many there are.
_WORDS = {2: BY_NAME["uint16"], 4: BY_NAME["uint32"]}


def is_packing(kernel: Kernel) -> bool:
    return kernel.stages[0].node.op in ("pack", "unpack")


def build_packing(kernel: Kernel) -> Built:
    node = kernel.stages[0].node
    is_pack = node.op == "pack"
    narrow = node if is_pack else node.inputs[0]
    dtype, count, nbytes = narrow.dtype, product(narrow.shape), narrow.nbytes
    n = 8 // dtype.bits
    first = ir.Name("tile") * TILE_NBYTES
    last = ir.Binary("min", first + TILE_NBYTES, index_expr(nbytes))
    wide = uint8
    if nbytes * n == count:
        wide = _WORDS[n]
        word = (_pack_word if is_pack else _unpack_word)(dtype, wide)
        body: ir.Block = (ir.For("byte", first, last, word, vector=True),)
    else:
        full = index_expr(count // n)  # bytes with no bit unused
        one_by_one = _pack_elements if is_pack else _unpack_elements
        body = (
            ir.For("byte", first, ir.Binary("min", last, full), one_by_one(dtype), vector=True),
            ir.For("byte", ir.Binary("max", first, full), last, one_by_one(dtype, count)),
        )
    read, written = (wide, uint8) if is_pack else (uint8, wide)
    arrays = (ir.ArrayArg("in0", read, "in"), ir.ArrayArg("out0", written, "out"))
    tiles = ceildiv(nbytes, TILE_NBYTES)
    sizes = {part.name for part in ir.walk(index_expr(count)) if isinstance(part, ir.Name)}
    loops = ir.LoopKernel(
        kernel.name, arrays, tuple(sorted(sizes)), index_expr(tiles), "tile", body
    )
    return Built(loops, tiles)


def _unpack_word(dtype: DType, wide: DType) -> ir.Block:
    bits = dtype.bits
    value = _Word(ir.Cast(ir.Load("in0", _BYTE, uint8), wide))
    codes = value.masked(0, (1 << bits) - 1)
    for k in range(1, 8 // bits):
        codes |= value.left(k * (8 - bits)).masked(k, (1 << bits) - 1)
    return (ir.Store("out0", _BYTE, _held(codes, dtype).expr),)


def _pack_word(dtype: DType, wide: DType) -> ir.Block:
    bits = dtype.bits
    codes = _codes(_Word(ir.Load("in0", _BYTE, wide)), dtype)
    packed = codes
    for k in range(1, 8 // bits):
        packed |= codes.right(k * (8 - bits))
    return (ir.Store("out0", _BYTE, ir.Cast(packed.expr, uint8)),)


def _places(dtype: DType, count: Dim | None) -> list[tuple[ir.Expr, ir.Expr | None]]:
    """Where the elements of a byte are, and whether they are, where `count` may end before."""
    n = 8 // dtype.bits
    places = [_BYTE * n + k for k in range(n)]
    return [(place, None if count is None else place < index_expr(count)) for place in places]


def _unpack_elements(dtype: DType, count: Dim | None = None) -> ir.Block:
    stores: list[ir.Stmt] = [ir.Let("packed", ir.Load("in0", _BYTE, uint8))]
    packed = _Word(ir.Name("packed", uint8))
    for k, (place, exists) in enumerate(_places(dtype, count)):
        code = packed.right(dtype.bits * k) & (1 << dtype.bits) - 1
        stores.append(ir.Store("out0", place, _held(code, dtype).expr, exists))
    return tuple(stores)


def _pack_elements(dtype: DType, count: Dim | None = None) -> ir.Block:
    packed = _Word(ir.Const(0, uint8))
    for k, (place, exists) in enumerate(_places(dtype, count)):
        code = _codes(_Word(ir.Load("in0", place, uint8, exists)), dtype)
        packed |= code.left(dtype.bits * k)
    return (ir.Store("out0", _BYTE, packed.expr),)


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
