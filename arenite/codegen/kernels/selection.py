"""Where the first few of a line in order stand: picked one after the other, without a sort."""

from __future__ import annotations

from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.built import Built, Scratch
from arenite.codegen.kernels.picking import AT, K, Picking
from arenite.codegen.kernels.sort import MAX_TILES, TILE_POINTS, sort_key
from arenite.codegen.kernels.special import RowKernel
from arenite.codegen.kernels.values import UINT32, index_expr, loop
from arenite.ir.dim import bounds, ceildiv, maximum, product
from arenite.schedule.kernel import Kernel


def build_select(kernel: Kernel) -> Built:
    draft, node = RowKernel(kernel), kernel.stages[0].node
    [x] = node.inputs
    lines, size, count = product(x.shape[:-1]), x.shape[-1], node.shape[-1]
    picking = Picking(size, "scratch0")
    at_least = max(1, TILE_POINTS // max(1, bounds(size)[1]))
    tile_lines = maximum(ceildiv(lines, MAX_TILES), at_least)
    scratch = Scratch(UINT32, ceildiv(lines, tile_lines) * picking.length)
    row = ir.Name("row")
    element = draft.load(x, row * index_expr(size) + K)
    # What comes last may have a key of 0, and no other one has 1.
    key = ir.Binary("max", sort_key(element, not node.attr("descending")), ir.Const(1, UINT32))
    store = ir.Store("out0", row * index_expr(count) + ir.Name("step"), AT)
    picked = loop("step", count, *picking.picked((store,), ()), vector=False)
    body = (*picking.filled(key), picked)
    return draft.in_tiles(lines, tile_lines, body, scratch=(scratch,))


BUILDERS = {"select": build_select}
