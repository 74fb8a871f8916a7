"""Rows of a value that are computed where they are written: keys and values of a language model.

written over the old value     a point for each element of the rows
written beside it              a point for each element: of the rows, or as it was
"""

from __future__ import annotations

from arenite.backends.webgpu.map import Map
from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.build import Access
from arenite.codegen.kernels.built import Built
from arenite.codegen.kernels.loops import loop_var
from arenite.codegen.kernels.values import Scope, cast, index_expr
from arenite.errors import IndexOutOfRange
from arenite.ir.dim import Dim, product
from arenite.ir.node import Node
from arenite.ir.ops.access import Index, linear
from arenite.schedule.kernel import Kernel


def build_update(kernel: Kernel) -> Built:
    """The loops of an update that computes its rows."""
    return _Update(kernel).build()


class _Update(Map):
    def _parts(self, node: Node, index: Index, found: list[Access]) -> list[tuple[Node, Index]]:
        if node is not self.node:
            return super()._parts(node, index, found)
        data, rows, _ = node.inputs
        return [(rows, index)] if self.kernel.overwrites else [(data, index)]

    @property
    def node(self) -> Node:
        return self.kernel.stages[0].node

    def build(self) -> Built:
        data, rows, start = self.node.inputs
        axis = self.node.attr("axis")
        size, count = data.shape[axis], rows.shape[axis]
        scope = Scope()
        given = ir.Load(self.names[start], ir.index(0), start.dtype)
        at = scope.let("at", cast(given, ir.INT64))
        inside = scope.let("inside", (at >= 0) & (at <= index_expr(size - count)))
        scope.statements.append(ir.Require(inside, ir.index(IndexOutOfRange.code)))
        self._name_rows(scope, self.nest.axes)
        if self.kernel.overwrites:
            behind = product(data.shape[axis + 1 :])
            place = index_expr(linear(self.point, data.shape)) + at * index_expr(behind)
            value = self.values.at(rows, self.point, scope)
            scope.statements.append(ir.Store("out0", place, value, inside))
        else:
            self._whole(scope, at, axis, count)
        points: Dim = product([one.size for one in self.nest.axes])
        return self.in_stretches("row", points, scope.block)

    def _whole(self, scope: Scope, at: ir.Expr, axis: int, count: Dim) -> None:
        """An element of the result: of the rows where it is one of them."""
        data, rows, _ = self.node.inputs
        place = index_expr(linear(self.point, data.shape))
        behind = scope.let("behind", index_expr(self.point[axis]) - at)
        is_new = scope.let("is_new", (behind >= 0) & (behind < index_expr(count)))
        near = loop_var("near", count)
        scope.let(near.name, ir.Select(is_new, behind, ir.index(0)))
        index = tuple(near if k == axis else one for k, one in enumerate(self.point))
        old = ir.Load(self.names[data], place, data.dtype)
        new = self.values.at(rows, index, scope, is_new)
        scope.statements.append(ir.Store("out0", place, ir.Select(is_new, new, old)))
