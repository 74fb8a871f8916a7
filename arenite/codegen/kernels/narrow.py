"""Kernels that take elements narrower than a byte apart, and put them together.

Such elements are arguments as plain bytes. A byte and the 2 or 4 bytes of its elements, seen as
one word, lie at the same index, so both sides of a loop are contiguous:

    byte     b a          4 bits each; the first element, a, at the low end
    word     .b .a        8 bits each

Where the last byte is not full, elements are read and written one by one instead.
"""

from __future__ import annotations

from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.built import Built
from arenite.codegen.kernels.values import index_expr
from arenite.dtype import BY_NAME, DType, uint8
from arenite.ir.dim import Dim, ceildiv, product
from arenite.schedule.kernel import Kernel

#: Bytes of packed elements in one tile.
TILE_NBYTES = 16_384

_BYTE = ir.Name("byte")
#: The elements of a byte as one word, by how many there are.
_WORDS = {2: BY_NAME["uint16"], 4: BY_NAME["uint32"], 8: BY_NAME["uint64"]}


def is_packing(kernel: Kernel) -> bool:
    return kernel.stages[0].node.op in ("pack", "unpack")


def build_packing(kernel: Kernel) -> Built:
    node = kernel.stages[0].node
    is_pack = node.op == "pack"
    narrow = node if is_pack else node.inputs[0]
    bits, count, nbytes = narrow.dtype.bits, product(narrow.shape), narrow.nbytes
    first = ir.Name("tile") * TILE_NBYTES
    last = ir.Binary("min", first + TILE_NBYTES, index_expr(nbytes))
    wide = uint8
    if nbytes * (8 // bits) == count:
        wide = _WORDS[8 // bits]
        word = (_pack_word if is_pack else _unpack_word)(bits, wide)
        body: ir.Block = (ir.For("byte", first, last, word, vector=True),)
    else:
        full = index_expr(count // (8 // bits))  # bytes with no bit unused
        one_by_one = _pack_elements if is_pack else _unpack_elements
        body = (
            ir.For("byte", first, ir.Binary("min", last, full), one_by_one(bits), vector=True),
            ir.For("byte", ir.Binary("max", first, full), last, one_by_one(bits, count)),
        )
    read, written = (wide, uint8) if is_pack else (uint8, wide)
    arrays = (ir.ArrayArg("in0", read, "in"), ir.ArrayArg("out0", written, "out"))
    tiles = ceildiv(nbytes, TILE_NBYTES)
    sizes = {part.name for part in ir.walk(index_expr(count)) if isinstance(part, ir.Name)}
    loops = ir.LoopKernel(
        kernel.name, arrays, tuple(sorted(sizes)), index_expr(tiles), "tile", body
    )
    return Built(loops, tiles)


def _shifted(value: ir.Expr, op: str, by: int) -> ir.Expr:
    return ir.Binary(op, value, ir.Const(by, value.dtype)) if by else value


def _masked(value: ir.Expr, mask: int) -> ir.Expr:
    return ir.Binary("and", value, ir.Const(mask, value.dtype))


def _joined(parts: list[ir.Expr]) -> ir.Expr:
    whole = parts[0]
    for part in parts[1:]:
        whole = ir.Binary("or", whole, part)
    return whole


def _unpack_word(bits: int, wide: DType) -> ir.Block:
    value = ir.Cast(ir.Load("in0", _BYTE, uint8), wide)
    parts = [
        _masked(_shifted(value, "shift_left", k * (8 - bits)), (1 << bits) - 1 << 8 * k)
        for k in range(8 // bits)
    ]
    return (ir.Store("out0", _BYTE, _joined(parts)),)


def _pack_word(bits: int, wide: DType) -> ir.Block:
    word = ir.Load("in0", _BYTE, wide)
    parts = [
        _masked(_shifted(word, "shift_right", k * (8 - bits)), (1 << bits) - 1 << bits * k)
        for k in range(8 // bits)
    ]
    return (ir.Store("out0", _BYTE, ir.Cast(_joined(parts), uint8)),)


def _places(bits: int, count: Dim | None) -> list[tuple[ir.Expr, ir.Expr | None]]:
    """Where the elements of a byte are, and whether they are, where `count` may end before."""
    places = [_BYTE * (8 // bits) + k for k in range(8 // bits)]
    return [(place, None if count is None else place < index_expr(count)) for place in places]


def _unpack_elements(bits: int, count: Dim | None = None) -> ir.Block:
    stores: list[ir.Stmt] = [ir.Let("packed", ir.Load("in0", _BYTE, uint8))]
    for k, (place, exists) in enumerate(_places(bits, count)):
        shifted = _shifted(ir.Name("packed", uint8), "shift_right", bits * k)
        stores.append(ir.Store("out0", place, _masked(shifted, (1 << bits) - 1), exists))
    return tuple(stores)


def _pack_elements(bits: int, count: Dim | None = None) -> ir.Block:
    parts = []
    for k, (place, exists) in enumerate(_places(bits, count)):
        code = _masked(ir.Load("in0", place, uint8, exists), (1 << bits) - 1)
        parts.append(_shifted(code, "shift_left", bits * k))
    return (ir.Store("out0", _BYTE, _joined(parts)),)
