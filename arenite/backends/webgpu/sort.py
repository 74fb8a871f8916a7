"""Sorting: a thread an element counts those that come before it, and puts it at that place.

All elements of a line are compared with each other, which is a product's worth of work and runs as
one: no step waits for another, nothing is kept in between, and equal elements keep their order
because of those the ones in front are counted. Lines beyond `MOST` are the CPU's, which merges.
"""

from __future__ import annotations

from dataclasses import replace

from arenite.codegen import loop_ir as ir
from arenite.codegen.groups import grouped
from arenite.codegen.kernels.built import Built
from arenite.codegen.kernels.sort import sort_key
from arenite.codegen.kernels.special import RowKernel, three_axes
from arenite.codegen.kernels.values import check_dtype, index_expr
from arenite.errors import NotCompiled
from arenite.ir.dim import bounds, ceildiv
from arenite.schedule.kernel import Kernel

#: Elements of a line, at the most.
MOST = 2**16
THREADS = 256


def build_sort(kernel: Kernel) -> Built:
    """The loops of sort and argsort."""
    draft, node = RowKernel(kernel), kernel.stages[0].node
    [x] = node.inputs
    check_dtype(x)
    before, size, after = three_axes(x.shape, node.attr("axis"))
    if bounds(size)[1] > MOST:
        raise NotCompiled(f"{node.op} of lines of more than {MOST} elements is not done on WebGPU")
    points, n, behind = before * size * after, index_expr(size), index_expr(after)
    point, k, j = ir.Name("point"), ir.Name("k"), ir.Name("j")

    def element(place: ir.Expr) -> ir.Expr:
        return draft.load(x, ir.Name("first") + place * behind)

    mine = sort_key(element(k), node.attr("descending"))
    other = sort_key(element(j), node.attr("descending"))
    own, one = ir.Name("mine", mine.dtype), ir.Name("other", mine.dtype)
    is_before = ir.Binary("lt", one, own) | (ir.Binary("eq", one, own) & (j < k))
    count = ir.Accumulate("rank", "add", ir.Cast(is_before, ir.INT32))
    at = ir.Name("first") + ir.Cast(ir.Name("rank", ir.INT32), ir.INT64) * behind
    body: ir.Block = (
        ir.Let("k", point // behind % n),
        ir.Let("first", point // (behind * n) * n * behind + point % behind),
        ir.Let("mine", mine),
        ir.Accumulator("rank", ir.Const(0, ir.INT32)),
        ir.For("j", ir.index(0), n, (ir.Let("other", other), count)),
        ir.Store("out0", at, k if node.op == "argsort" else element(k)),
    )
    first = ir.Name("tile") * THREADS
    last = ir.Binary("min", first + THREADS, index_expr(points))
    built = draft.built(
        ceildiv(points, THREADS), (ir.For("point", first, last, body, vector=True),)
    )
    return replace(built, loops=grouped(built.loops, THREADS))
