"""Rows of a value that are computed where they are written: keys and values of a language model.

written over the old value     a point for each element of the rows; of narrow ones, where they fill
                               words, for each word: elements one by one are stored by atomics, and
                               everything around them is read so
written beside it              a point for each element: of the rows, or as it was
"""

from __future__ import annotations

from dataclasses import replace

from arenite.backends.webgpu.map import Map, word_of
from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.build import Access
from arenite.codegen.kernels.built import Built
from arenite.codegen.kernels.loops import loop_var
from arenite.codegen.kernels.values import UINT32, Scope, cast, index_expr
from arenite.errors import IndexOutOfRange
from arenite.ir.dim import Dim, bounds, ceildiv, product
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
        if self._fills_words:
            return self._in_words(scope, at, inside)
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

    @property
    def _fills_words(self) -> bool:
        """Whether rows are written over narrow elements, and no word has some of another row."""
        data, last = self.node.inputs[0], self.node.shape[-1]
        is_inner = self.node.attr("axis") < data.ndim - 1
        is_even = isinstance(last, int) and last % (32 // data.dtype.bits) == 0
        return bool(self.kernel.overwrites) and data.dtype.bits < 32 and is_inner and is_even

    def _in_words(self, scope: Scope, at: ir.Expr, inside: ir.Expr) -> Built:
        data, rows, _ = self.node.inputs
        per_word = 32 // data.dtype.bits
        *outer, last = data.shape[self.node.attr("axis") + 1 :]
        behind = product([*outer, bounds(last)[1] // per_word])
        points: Dim = product([one.size for one in self.nest.axes])
        indices = [self._row_at(k, per_word, points, scope) for k in range(per_word)]
        values = [self.values.at(rows, index, scope) for index in indices]
        near = index_expr(linear(indices[0], data.shape)) // per_word
        place = near + at * index_expr(behind)
        word = word_of(values, data.dtype.bits)
        scope.statements.append(ir.Store("out0", place, word, inside))
        built = self.in_stretches("word", ceildiv(points, per_word), scope.block)
        arrays = tuple(
            replace(one, dtype=UINT32) if one.name == "out0" else one for one in built.loops.arrays
        )
        return replace(built, loops=replace(built.loops, arrays=arrays))

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
