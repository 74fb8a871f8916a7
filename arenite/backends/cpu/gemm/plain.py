"""Matmul and convolution: a block of accumulators in registers for each step of the inner loops.

                 vector axis: two vectors of columns
               ┌────────┬────────┐
    block axis │ acc 0  │        │   each step of the reduced axes loads the vectors once and
    12 rows    │ acc 1  │        │   one number a row, and feeds every accumulator
               │ ...    │        │
               └────────┴────────┘

The block axis is one along which the vectors do not change: rows of a matmul, output channels of a
convolution. What the last block has too many repeats its last row, to the same values, so no row
needs a mask.
"""

from __future__ import annotations

from arenite.backends.cpu.target import Target
from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.build import KernelBuilder
from arenite.codegen.kernels.built import Built
from arenite.codegen.kernels.loops import Axis
from arenite.codegen.kernels.values import Scope, index_expr
from arenite.ir.dim import Dim, LoopVar, Var, bounds, ceildiv, product, substitute
from arenite.ir.ops.access import coefficient, linear, space_vars
from arenite.schedule.kernel import Kernel, Role

#: Points of the space in one tile.
TILE_POINTS = 1_000_000
VECTORS = 2
COLUMNS = 256


def build_contraction(kernel: Kernel, target: Target, choice: str = "") -> Built | None:
    """The kernel in blocks, or None where there is no axis for them."""
    blocked = Contraction(kernel, target)
    is_blocked = blocked.block is not None and blocked.nest.vector_is_outer
    return blocked.build() if is_blocked else None


class Contraction(KernelBuilder):
    def __init__(self, kernel: Kernel, target: Target) -> None:
        super().__init__(kernel)
        self.block = self._block_axis()
        most = max(1, (target.n_vector_registers - 1 - VECTORS) // VECTORS)
        self.rows = _even_block(self.block.size, most) if self.block is not None else 1

    def _block_axis(self) -> Axis | None:
        """The last row axis along which the vectors loaded stay the same."""
        contraction = next(s.node for s in self.kernel.stages if s.role is Role.REDUCE)
        factors = self.reduction(contraction).factors(space_vars(self.kernel.space))
        positions = [substitute(linear(f.index, f.node.shape), self.nest.position) for f in factors]
        vector = self.nest.vector
        if vector is None:
            return None
        vectors = [p for p in positions if coefficient(p, vector.var) != 0]
        for axis in reversed(self.nest.rows):
            if all(coefficient(position, axis.var) == 0 for position in vectors):
                return axis
        return None

    def build(self) -> Built:
        block, vector = self.block, self.nest.vector
        assert block is not None
        assert vector is not None
        others = [axis for axis in self.nest.rows if axis is not block]
        n_blocks = ceildiv(block.size, self.rows)
        blocks = Axis(
            LoopVar(f"{block.var.name}b", 0, max(0, bounds(n_blocks)[1] - 1)), n_blocks, False
        )
        row_axes = [*others, blocks]
        n_rows = product([axis.size for axis in row_axes])
        depth = bounds(product([axis.size for axis in self.nest.reduced]))[1]
        columns = min(COLUMNS, bounds(vector.size)[1])
        tile_rows = max(1, TILE_POINTS // max(1, self.rows * columns * depth))
        n_chunks = ceildiv(vector.size, COLUMNS)
        tile = ir.Name("tile")
        first = tile // index_expr(n_chunks) * tile_rows
        last = ir.Binary("min", first + tile_rows, index_expr(n_rows))
        start = tile % index_expr(n_chunks) * COLUMNS
        stop = ir.Binary("min", start + COLUMNS, index_expr(vector.size))
        scope = Scope()
        self._name_rows(scope, row_axes)
        self._blocks(scope, blocks)
        rows = ir.For("row", first, last, scope.block)
        columns_loop = ir.For(vector.var.name, start, stop, (rows,), vector=True, unroll=VECTORS)
        return self.loop_kernel(ceildiv(n_rows, tile_rows) * n_chunks, (columns_loop,))

    def _blocks(self, scope: Scope, blocks: Axis) -> None:
        """All rows of one block: accumulators, the loops that feed them, the epilogues."""
        assert self.block is not None
        size = index_expr(self.block.size)
        scope.statements.append(ir.Let("first_row", ir.Name(blocks.var.name) * self.rows))
        is_even = self.block.size % self.rows == 0
        inner = Scope(scope)
        reduced = next(s.node for s in self.kernel.stages if s.role is Role.REDUCE)
        saved_position = dict(self.nest.position)
        variants: list[tuple[dict[Var, Dim], str]] = []
        for row in range(self.rows):
            var = LoopVar(f"{self.block.var.name}r{row}", self.block.var.low, self.block.var.high)
            at = ir.Name("first_row") + row
            if row and not is_even:
                at = ir.Binary("min", at, size - 1)
            scope.statements.append(ir.Let(var.name, at))
            swap: dict[Var, Dim] = {self.block.var: var}
            self._move_to(saved_position, swap)
            variants.append((swap, self.accumulate(reduced, scope, inner)))
        body = inner.block
        for axis in reversed(self.nest.reduced):
            body = (self._loop(axis, body),)
        scope.statements += body
        for swap, name in variants:
            self._move_to(saved_position, swap)
            self.finish(reduced, name, scope)
            self.scalars(scope)

    def _move_to(self, position: dict[Var, Dim], swap: dict[Var, Dim]) -> None:
        """Let every index use the variable of one row of the block."""
        for var, dim in position.items():
            self.nest.position[var] = substitute(dim, swap)
        self.outer_point = self.nest.map_index(self._outer_space())

    def _outer_space(self) -> tuple[Var, ...]:
        space = space_vars(self.kernel.space)
        return tuple(var for k, var in enumerate(space) if k not in self.kernel.axes)


def _even_block(size: Dim, most: int) -> int:
    """Rows in a block: at most `most`, and such that the fewest are computed twice."""
    if not isinstance(size, int):
        return max(1, min(most, bounds(size)[0]))
    choices = range(max(1, min(most, size)), 0, -1)
    return min(choices, key=lambda rows: (-(-size // rows) * rows * (1 + 1 / rows), -rows))
