"""Rows whose last pass walks columns first, so that what all rows share stays in the first cache.

A norm over long rows ends with a pass that reads its weights anew for each row, from the second
cache. Here a tile of rows is reduced first, row by row, and what its rows come to (means, scales)
is kept in scratch; then

    for block of columns
        for row in tile
            out = (x - mean[row]) * scale[row] * weight + bias      of the block

Every element is computed as in the plain order, to the same bits.
"""

from __future__ import annotations

from arenite.backends.cpu.target import Target
from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.build import KernelBuilder, Pass
from arenite.codegen.kernels.built import Built, Scratch
from arenite.codegen.kernels.values import Scope, index_expr
from arenite.ir.dim import bounds, ceildiv, substitute, variables
from arenite.ir.node import Node
from arenite.schedule.kernel import Kernel, Role

#: Columns in a block at the least.
FEWEST = 256
#: Of a cache line: rows of two tiles, which two threads may run, share none.
LINE_NBYTES = 64


class Columns(KernelBuilder):
    """A kernel that reduces rows, with a last pass over blocks of columns."""

    def __init__(self, kernel: Kernel, target: Target) -> None:
        super().__init__(kernel)
        self.l1d_nbytes = target.l1d_nbytes
        *self.first, self.last = self._passes() if kernel.axes else [Pass([], [])]

    @property
    def are_worth_it(self) -> bool:
        """Whether several rows read the same columns last, and more than the first cache holds."""
        vector = self.nest.vector
        if not self.first or vector is None or self.nest.reduced != (vector,):
            return False
        if self.last.after or any(stage.role is not Role.ROW for stage in self.last.walked):
            return False
        if self.nest.tile_rows < 2 or bounds(self.nest.n_rows)[1] < 2:
            return False
        shared, own, written = self._column_nbytes()
        n_columns = bounds(vector.size)[1]
        if n_columns * (shared + own + written) <= self.l1d_nbytes:
            return False
        # Rows come from the second cache once more then, in place of what they share; long ones
        # do so anyway.
        return shared > own or (shared > 0 and n_columns * own >= self.l1d_nbytes)

    def _column_nbytes(self) -> tuple[int, int, int]:
        """Bytes of one column that the last pass reads for all rows alike, reads for each row, and
        writes."""
        vector = self.nest.vector
        assert vector is not None
        rows = {n for n in (*self.stores, *self.kept) if self.made[n] is Role.ROW}
        ready = rows | {node for node, role in self.made.items() if role is not Role.ROW}
        walked = [stage.node for stage in self.last.walked]
        again = {n for node in walked for n in self._below(node) if n in rows and n not in walked}
        shared, own, written = 0, sum(node.dtype.bits // 8 for node in again), 0
        for node, place in dict.fromkeys(self._accesses(self.last.walked, ready)):
            at = substitute(place, self.nest.position)
            if node in self.made:
                written += node.dtype.bits // 8
            elif node is not None and vector.var in variables(at):
                is_own = any(axis.var in variables(at) for axis in self.nest.rows)
                own += node.dtype.bits // 8 if is_own else 0
                shared += 0 if is_own else node.dtype.bits // 8
        return shared, own, written

    def build(self) -> Built:
        loops, vector = self.nest, self.nest.vector
        assert vector is not None
        tile = ir.Name("tile")
        begin = tile * loops.tile_rows
        end = ir.Binary("min", begin + loops.tile_rows, index_expr(loops.n_rows))
        scratch = tuple(Scratch(n.dtype, loops.n_tiles * self._room(n)) for n in self._row_values())
        reducing, last = Scope(), Scope()
        for scope in (reducing, last):
            self._name_rows(scope)
        self._walk_all(self.first, reducing)
        for k, node in enumerate(self._row_values()):
            at = tile * self._room(node) + (ir.Name("row") - begin)
            value = reducing.known[node, self.outer_point, None]
            reducing.statements.append(ir.Store(f"scratch{k}", at, value))
            name = self.values.fresh()
            last.statements.append(ir.Let(name, ir.Load(f"scratch{k}", at, node.dtype)))
            last.known[node, self.outer_point, None] = ir.Name(name, node.dtype)
        columns = max(FEWEST, self.l1d_nbytes // 2 // sum(self._column_nbytes()) // 64 * 64)
        self._walk(self.last, last, (ir.Name("block"), columns))
        blocks = index_expr(ceildiv(vector.size, columns))
        rows = ir.For("row", begin, end, last.block)
        return self.loop_kernel(
            loops.n_tiles,
            (
                ir.For("row", begin, end, reducing.block),
                ir.For("block", ir.index(0), blocks, (rows,)),
            ),
            scratch,
        )

    def _row_values(self) -> list[Node]:
        """What the last pass needs of each row."""
        below = dict.fromkeys(n for s in self.last.walked for n in self._below(s.node))
        return [n for n in below if self.made.get(n, Role.ROW) is not Role.ROW]

    def _room(self, node: Node) -> int:
        """Elements that the row values of one tile take: whole lines."""
        line = LINE_NBYTES * 8 // node.dtype.bits
        return -(-self.nest.tile_rows // line) * line
