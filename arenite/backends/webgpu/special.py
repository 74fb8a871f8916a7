"""Indexing by data and the like, cut for groups of threads.

rows whose points wait for none of each other    all points counted through, as in a map
updates                                          a copy of the data as a map, and behind it:
    of rows                                      these points
    of elements, in order                        a thread an owner of some of the places, which
                                                 looks at all updates and makes its own
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from arenite.backends.webgpu.map import in_stretches
from arenite.codegen import loop_ir as ir
from arenite.codegen.groups import grouped
from arenite.codegen.kernels import special
from arenite.codegen.kernels.built import Built
from arenite.codegen.kernels.special import RowKernel, three_axes
from arenite.codegen.kernels.values import check_dtype, index_expr
from arenite.dtype import Kind
from arenite.ir.dim import Dim, bounds, maximum, product
from arenite.ir.node import Node
from arenite.schedule.kernel import Kernel

#: Of a group whose threads share a row.
ROW_THREADS = 64
#: Threads among which updates are dealt out, about.
OWNERS = 16_384

_ROW, _K, _V, _POINT = (ir.Name(name) for name in ("row", "k", "v", "point"))


class PointKernel(RowKernel):
    """Where a row is a loop over its points and no more, each point is a thread's; else a row is a
    group's."""

    def finish(self, rows: Dim, row_points: Dim, body: ir.Block, role: ir.Role = "out") -> Built:
        *ahead, every = body
        is_simple = all(isinstance(stmt, ir.Let | ir.Require) for stmt in ahead)
        count = index_expr(row_points)
        if not (is_simple and isinstance(every, ir.For) and every.vector and every.stop == count):
            built = self.in_tiles(rows, 1, body, role)
            return replace(built, loops=grouped(built.loops, ROW_THREADS))
        places = ir.Let("row", _POINT // count), ir.Let(every.var, _POINT % count)
        return self.of_points(rows * row_points, (*places, *ahead, *every.body), role)

    def of_points(self, count: Dim, block: ir.Block, role: ir.Role = "out") -> Built:
        """`block` for each `point`."""

        def built_of(tiles: Dim, body: ir.Block) -> Built:
            return self.built(tiles, body, role)

        return in_stretches(built_of, "point", count, block)

    def copy(self, data: Node, role: ir.Role = "out") -> Built:
        """All elements as they are: of complex numbers both parts."""
        n_parts = 2 if data.dtype.kind is Kind.COMPLEX else 1
        stored = ir.Store("out0", _POINT, self.load(data, _POINT))
        return self.of_points(product(data.shape) * n_parts, (stored,), role)

    def behind_copy(self, data: Node, then: Built, role: ir.Role) -> Built:
        """What is done to a copy of the data, by a dispatch behind it."""
        copied = self.copy(data, role)
        tiles = maximum(copied.tiles, then.tiles)
        first, second = (replace(one.loops, tiles=index_expr(tiles)) for one in (copied, then))
        assert isinstance(first, ir.GroupKernel)
        assert isinstance(second, ir.GroupKernel)
        return replace(copied, loops=replace(first, following=second), tiles=tiles)


def build_special(kernel: Kernel) -> Built:
    draft = PointKernel(kernel)
    return _BUILDERS.get(draft.node.op, special.built_by)(draft)


def _transfer(draft: PointKernel) -> Built:
    [data] = draft.node.inputs
    check_dtype(data)
    return draft.copy(data)


def _update_slice(draft: PointKernel) -> Built:
    made = special.updated_rows(draft)
    return made if draft.kernel.overwrites else draft.behind_copy(draft.node.inputs[0], made, "out")


def _scatter_elements(draft: PointKernel) -> Built:
    """Two updates of one place are one owner's, who makes them in order."""
    data, indices, _ = draft.node.inputs
    for value in (data, indices):
        check_dtype(value)
    axis = draft.node.attr("axis")
    before, size, after = three_axes(data.shape, axis)
    n_lines = max(1, bounds(before * after)[0])
    n_owners = max(1, min(OWNERS // n_lines, bounds(size)[1]))
    columns = index_expr(after)
    # An index that is none is nobody's: `inside` says so.
    place = ir.Binary("min", ir.Binary("max", ir.Name("at"), ir.index(0)), index_expr(size) - 1)
    number = ir.Cast(place, ir.INT32) % n_owners
    mine = ir.Binary("eq", number, ir.Cast(ir.Name("owner"), ir.INT32))
    own = ir.Let("own", ir.Name("inside", ir.BOOL) & mine)
    updates = special.scattered(draft, ir.Name("own", ir.BOOL), own)
    block = (
        ir.Let("v", _POINT % columns),
        ir.Let("owner", _POINT // columns % n_owners),
        ir.Let("row", _POINT // (columns * n_owners)),
        ir.For("k", ir.index(0), index_expr(indices.shape[axis]), updates),
    )
    made = draft.of_points(before * after * n_owners, block, "inout")
    return draft.behind_copy(data, made, "inout")


_BUILDERS: dict[str, Callable[[PointKernel], Built]] = {
    "transfer": _transfer,
    "update_slice": _update_slice,
    "scatter_elements": _scatter_elements,
}

BUILDERS = dict.fromkeys(special.BUILDERS, build_special)
