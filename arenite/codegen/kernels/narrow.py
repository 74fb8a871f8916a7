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
from arenite.ir.dim import ceildiv, product, variables
from arenite.ir.node import Node
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
    is_whole = narrow.nbytes * (8 // narrow.dtype.bits) == product(narrow.shape)
    wide = _WORDS[8 // narrow.dtype.bits] if is_whole else uint8
    if is_pack:
        body = (_pack_words if is_whole else _pack_elements)(narrow, wide)
        arrays = (ir.ArrayArg("in0", wide, "in"), ir.ArrayArg("out0", uint8, "out"))
    else:
        body = (_unpack_words if is_whole else _unpack_elements)(narrow, wide)
        arrays = (ir.ArrayArg("in0", uint8, "in"), ir.ArrayArg("out0", wide, "out"))
    first = ir.Name("tile") * TILE_NBYTES
    last = ir.Binary("min", first + TILE_NBYTES, index_expr(narrow.nbytes))
    tiles = ceildiv(narrow.nbytes, TILE_NBYTES)
    sizes = {var.name for dim in narrow.shape for var in variables(dim)}
    loops = ir.LoopKernel(
        kernel.name,
        arrays,
        tuple(sorted(sizes)),
        index_expr(tiles),
        "tile",
        (ir.For("byte", first, last, body, vector=True),),
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


def _unpack_words(narrow: Node, wide: DType) -> ir.Block:
    bits = narrow.dtype.bits
    value = ir.Cast(ir.Load("in0", _BYTE, uint8), wide)
    parts = [
        _masked(_shifted(value, "shift_left", k * (8 - bits)), (1 << bits) - 1 << 8 * k)
        for k in range(8 // bits)
    ]
    return (ir.Store("out0", _BYTE, _joined(parts)),)


def _pack_words(narrow: Node, wide: DType) -> ir.Block:
    bits = narrow.dtype.bits
    word = ir.Load("in0", _BYTE, wide)
    parts = [
        _masked(_shifted(word, "shift_right", k * (8 - bits)), (1 << bits) - 1 << bits * k)
        for k in range(8 // bits)
    ]
    return (ir.Store("out0", _BYTE, ir.Cast(_joined(parts), uint8)),)


def _elements(narrow: Node) -> list[tuple[ir.Expr, ir.Expr]]:
    """The places of the elements of a byte, and whether there is one."""
    n = 8 // narrow.dtype.bits
    count = index_expr(product(narrow.shape))
    places = [_BYTE * n + k for k in range(n)]
    return [(place, place < count) for place in places]


def _unpack_elements(narrow: Node, wide: DType) -> ir.Block:
    bits = narrow.dtype.bits
    stores: list[ir.Stmt] = [ir.Let("packed", ir.Load("in0", _BYTE, uint8))]
    for k, (place, exists) in enumerate(_elements(narrow)):
        shifted = _shifted(ir.Name("packed", uint8), "shift_right", bits * k)
        stores.append(ir.Store("out0", place, _masked(shifted, (1 << bits) - 1), exists))
    return tuple(stores)


def _pack_elements(narrow: Node, wide: DType) -> ir.Block:
    bits = narrow.dtype.bits
    parts = []
    for k, (place, exists) in enumerate(_elements(narrow)):
        code = _masked(ir.Load("in0", place, uint8, exists), (1 << bits) - 1)
        parts.append(_shifted(code, "shift_left", bits * k))
    return (ir.Store("out0", _BYTE, _joined(parts)),)
