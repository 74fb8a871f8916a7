"""Concatenation that is written to memory: one loop for each part, so no element is chosen.

Seen as [before, along * after], a row of the result is the rows of its parts, one behind the
other. What a part is made of is computed on the spot, like everywhere.
"""

from __future__ import annotations

from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.build import KernelBuilder
from arenite.codegen.kernels.built import Built
from arenite.codegen.kernels.loops import loop_var
from arenite.codegen.kernels.values import Scope, index_expr
from arenite.ir.dim import Dim, bounds, ceildiv, product
from arenite.ir.ops.access import is_affine, linear, reshaped_index
from arenite.schedule.kernel import Kernel

#: Elements in one tile.
TILE_POINTS = 16_384


def build_concat(kernel: Kernel) -> Built | None:
    """A kernel of one stage, or None."""
    return Concat(kernel).build() if len(kernel.stages) == 1 else None


class Concat(KernelBuilder):
    """A kernel whose only stage is a concat."""

    def build(self) -> Built:
        node = self.kernel.stages[0].node
        axis = node.attr("axis")
        before, after = product(node.shape[:axis]), product(node.shape[axis + 1 :])
        length = node.shape[axis] * after
        row, at = loop_var("row", before), loop_var("at", length)
        starts: list[Dim] = []
        start: Dim = 0
        for part in node.inputs:
            starts.append(start)
            start = start + part.shape[axis] * after
        indices = [
            reshaped_index((row, at - begin), (before, part.shape[axis] * after), part.shape)
            for part, begin in zip(node.inputs, starts, strict=True)
        ]
        for part, index in zip(node.inputs, indices, strict=True):
            dims = (linear(index, part.shape),) if part in self.names else index
            if not all(is_affine(dim, (at,)) for dim in dims):
                return super().build()  # a part that is no plain run of elements in a row
        tile = ir.Name("tile")
        chunks = ceildiv(length, TILE_POINTS)
        rows = max(1, TILE_POINTS // max(1, bounds(length)[1]))
        first = tile // index_expr(chunks) * rows
        low = tile % index_expr(chunks) * TILE_POINTS
        high = low + TILE_POINTS
        loops: list[ir.Stmt] = []
        for part, begin, index in zip(node.inputs, starts, indices, strict=True):
            scope = Scope()
            value = self.values.at(part, index, scope)
            place = index_expr(row * length + at)
            scope.statements.append(ir.Store("out0", place, value))
            end = begin + part.shape[axis] * after
            from_ = ir.Binary("max", low, index_expr(begin))
            to = ir.Binary("min", high, index_expr(end))
            loops.append(ir.For("at", from_, to, scope.block, vector=True))
        last = ir.Binary("min", first + rows, index_expr(before))
        return self.loop_kernel(
            ceildiv(before, rows) * chunks, (ir.For("row", first, last, tuple(loops)),)
        )


BUILDERS = {"concat": build_concat}
