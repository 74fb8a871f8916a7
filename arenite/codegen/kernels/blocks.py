"""Kernels that read blocks as they are in a file: dequantised values, and rows of them; and that
join their fields.

Blocks are arguments as plain bytes. One tile does some rows of the result.
"""

from __future__ import annotations

from collections.abc import Callable

from arenite.codegen import loop_ir as ir
from arenite.codegen.block_elements import BlockReader
from arenite.codegen.kernels.built import Built
from arenite.codegen.kernels.special import _OUT_OF_RANGE, _ROW, RowKernel, _within
from arenite.codegen.kernels.values import loop
from arenite.dtype import BY_NAME, UINT8
from arenite.dtype.blocks import block_type
from arenite.ir import Dim, Node, bounds, product
from arenite.schedule.kernel import Kernel

#: The row of a matrix that an index names.
AT = ir.Name("at")


def dequantise(draft: RowKernel) -> Built:
    [w] = draft.node.inputs
    return draft.finish(w.shape[0], w.shape[1], _row_of_blocks(draft, w, _ROW))


def rows_of_blocks(draft: RowKernel) -> Built:
    w, indices = draft.node.inputs
    return taken_rows(draft, indices, w.shape[0], _row_of_blocks(draft, w, AT))


def _row_of_blocks(draft: RowKernel, w: Node, row: ir.Expr) -> ir.Block:
    """Row `row` of the result: a row of the blocks, dequantised."""
    count = bounds(w.shape[1])[1] // w.dtype.block_length
    return (loop("block", count, *block_of_row(draft, w, row, _ROW), vector=False),)


def block_of_row(draft: RowKernel, w: Node, row: ir.Expr, result_row: ir.Expr) -> ir.Block:
    """Block `block` of a row, dequantised to that of the result."""
    length, depth = w.dtype.block_length, bounds(w.shape[1])[1]
    block, lane = ir.Name("block"), ir.Name("lane")
    at = row * w.dtype.nbytes((depth,)) + block * w.dtype.block_nbytes
    reader = BlockReader(w.dtype, draft.names[w], at)
    runs: list[ir.Stmt] = []
    for first, count in reader.runs():
        place = result_row * depth + (block * length + first) + lane
        store = ir.Store("out0", place, reader.element(first, lane, count))
        runs.append(loop("lane", count, store))
    return tuple(runs)


def join_blocks(draft: RowKernel) -> Built:
    """Row `row` of the result: block by block the bytes of its fields."""
    dtype = draft.node.dtype
    rows, depth = draft.node.shape
    count = bounds(depth)[1] // dtype.block_length
    block, k = ir.Name("block"), ir.Name("k")
    at = (_ROW * count + block) * dtype.block_nbytes
    stores: list[ir.Stmt] = []
    for node, field in zip(draft.node.inputs, block_type(dtype).fields.values(), strict=True):
        own = ir.Load(draft.names[node], (_ROW * count + block) * field.length + k, node.dtype)
        whole = BY_NAME[f"uint{8 * field.item_nbytes}"]
        raw = own if node.dtype == whole else ir.Bitcast(own, whole)
        place = at + field.offset + k * field.item_nbytes
        parts = [
            ir.Store("out0", place + byte, ir.Cast(raw >> 8 * byte if byte else raw, UINT8))
            for byte in range(field.item_nbytes)
        ]
        stores.append(loop("k", field.length, *parts, vector=field.item_nbytes == 1))
    return draft.finish(rows, depth, (loop("block", count, *stores, vector=False),))


def taken_rows(draft: RowKernel, indices: Node, n_rows: Dim, body: ir.Block) -> Built:
    """`body` makes a row of the result of row `AT`, which an index names."""
    taken = taken_index(draft.index(indices, _ROW), n_rows)
    return draft.finish(product(indices.shape), draft.node.shape[-1], (*taken, *body))


def taken_index(value: ir.Expr, size: Dim) -> ir.Block:
    """An index that data gives, as `AT`; the first where it lies outside, which is an error."""
    index, inside = ir.Name("index"), ir.Name("inside", ir.BOOL)
    return (
        ir.Let("index", value),
        ir.Let("inside", _within(index, size)),
        ir.Require(inside, _OUT_OF_RANGE),
        ir.Let("at", ir.Select(inside, index, ir.index(0))),
    )


def build_blocks(kernel: Kernel) -> Built:
    draft = RowKernel(kernel)
    return _BUILDERS[draft.node.op](draft)


_BUILDERS: dict[str, Callable[[RowKernel], Built]] = {
    "join_blocks": join_blocks,
    "dequantise": dequantise,
    "rows_of_blocks": rows_of_blocks,
}

BUILDERS = dict.fromkeys(_BUILDERS, build_blocks)
