"""A matmul_packed of the schedule becomes a micro-kernel, or plain loops where a target lacks FMA.

Rows of runs and panels are values in memory. How they are cut depends on shapes alone.
"""

from __future__ import annotations

from arenite.backends.cpu.blocks.kernel import Blocks
from arenite.backends.cpu.blocks.meaning import tile_body
from arenite.backends.cpu.gemm.blocking import LATER_ROWS, MOST_TILES, TILE_WORK, Cut
from arenite.backends.cpu.gemm.build import NO_COLUMN, NO_ROW, SHORT_OPS, Factor, ProductAxes
from arenite.backends.cpu.gemm.choices import packed_ways
from arenite.backends.cpu.gemm.kernel import MicroKernel, Operand, Product
from arenite.backends.cpu.gemm.rows import any_heights, even_heights
from arenite.backends.cpu.gemm.sum_epilogue import epilogue_of, epilogue_ops
from arenite.backends.cpu.gemm.tile import lanes_of
from arenite.backends.cpu.ops.block_forms import LANES, PANEL, form_of
from arenite.backends.cpu.ops.blocks import RUN_WORDS, depth_of
from arenite.backends.cpu.target import Target
from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.build import KernelBuilder
from arenite.codegen.kernels.built import Built
from arenite.codegen.kernels.values import index_expr
from arenite.dtype import FLOAT32
from arenite.ir.dim import Dim, bounds, ceildiv, maximum, substitute
from arenite.ir.ops.access import coefficient, linear, space_vars
from arenite.schedule.kernel import Kernel, Role

#: What reading a weight counts as, in multiplications of bytes.
WEIGHT_WORK = 4
#: Rows of a tile at the most.
TALLEST = 8
#: Registers that hold no sums: weights, a run's numbers, scales.
OTHER_REGISTERS = 6
#: Weights that a tile of one row reads at the least; of two rows half of that, and so on. Where a
#: thread begins, memory and the other threads make it wait for as long as 32 KiB take.
FEW_NBYTES = 128 << 10


def build_packed(kernel: Kernel, target: Target, choice: str = "") -> Built:
    """The kernel as register tiles or plain loops."""
    return _PackedBuilder(kernel).built(target, choice)


class _PackedBuilder(KernelBuilder):
    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self.node = next(s.node for s in kernel.stages if s.role is Role.REDUCE)
        x, self.panels = self.node.inputs
        self.weights = self.node.attr("dtype")
        self.n_deep = depth_of(x)
        runs, _ = self.reduction(self.node).factors(space_vars(kernel.space))
        position = substitute(linear(runs.index, x.shape), self.nest.position)
        self.a = Factor(x, position)
        moving = [axis for axis in self.nest.outer if coefficient(position, axis.var) != 0]
        still = [axis for axis in self.nest.outer if axis not in moving]
        self.row = moving[-1] if moving else NO_ROW
        self.column = still[0] if still else NO_COLUMN
        batch = [axis for axis in moving if axis is not self.row]
        reduced = self.nest.reduced
        self.axes = ProductAxes(self.row, self.column, batch, reduced[0] if reduced else None)

    def built(self, target: Target, choice: str = "") -> Built:
        axes, batch = self.axes, self.axes.n_batch
        usual = self._cut(batch, target)
        ways = packed_ways(usual, self.row.size, self.column.size, batch)
        shape = ways.get(choice, usual)
        blocks, place = axes.place(shape)
        together = self._together(blocks, shape)
        one = ir.index(1)
        made = Product(
            a=axes.operand(self.names[self.a.node], self.a, self.a.along(self.row), 1),
            b=Operand(self.names[self.panels], self.panels.dtype, ir.index(0), one, one),
            sum_dtype=FLOAT32,
            row=self.row.var.name,
            column=self.column.var.name,
            batch=tuple(axis.var.name for axis in axes.batch),
            depth=ir.index(self.n_deep),
            n_columns=index_expr(self.column.size),
            blocks=index_expr(blocks),
            blocks_a_tile=together,
            place=place,
            lanes=shape.lanes,
            columns=shape.columns,
            heights=shape.heights,
            epilogue=epilogue_of(self, self.node, FLOAT32),
            is_short=epilogue_ops(self) <= SHORT_OPS,
        )
        tiles = ceildiv(blocks, together)
        plain = self.loop_kernel(tiles, tile_body(made, self.weights, self.n_deep))
        if not target.has_fma:
            return plain
        loops = plain.loops
        kernel = MicroKernel(*loops.parts, made, Blocks(self.weights, self.n_deep))
        return Built(kernel, tiles, choices=tuple(ways))

    def _together(self, blocks: Dim, shape: Cut) -> Dim:
        """Blocks of a tile: of few rows so many that it reads enough weights, which lie side by
        side, where that leaves an even number of tiles."""
        n_panels = -(-shape.block_columns // PANEL)
        nbytes = n_panels * form_of(self.weights).panel_nbytes(self.n_deep)
        least, wanted = bounds(blocks)[0], max(1, FEW_NBYTES // nbytes)
        n_tiles = 2 * max(1, least // (2 * wanted))
        most = min(-(-least // n_tiles), wanted + wanted // 2)
        return maximum(most // maximum(self.row.size, 1), 1)

    def _cut(self, batch: Dim, target: Target) -> Cut:
        """Blocks whose runs stay in the second cache, and chunks of columns of enough work."""
        lanes = lanes_of(target, FLOAT32)
        n_rows, n_columns = bounds(self.row.size)[1], bounds(self.column.size)[1]
        if lanes == LANES:
            columns = PANEL // LANES if n_columns > LANES else 1
        else:
            # Few registers: one vector beside many rows; of one row whole panels, read in order.
            columns = PANEL // lanes if self.row.size == 1 else 1
        fits = (target.n_vector_registers - OTHER_REGISTERS) // (2 * columns)
        tallest = max(1, min(fits, TALLEST))
        kept = target.l2_nbytes // 2 // (self.n_deep // 32 * RUN_WORDS * 4)
        most = max(tallest, kept // tallest * tallest)
        if not isinstance(self.row.size, int):
            most = min(most, LATER_ROWS)
        n_row_blocks = max(1, -(-n_rows // most))
        block_rows = max(1, -(-n_rows // n_row_blocks))
        width = columns * lanes
        groups = -(-n_columns // width)
        others = max(1, bounds(batch)[1]) * n_row_blocks
        work = (block_rows + WEIGHT_WORK) * n_columns * self.n_deep
        wanted = max(1, min(work // TILE_WORK, -(-MOST_TILES // others)))
        if work * 2 > TILE_WORK and others == 1:
            wanted = max(2, wanted)
        chunk = -(-groups // min(wanted, groups))
        return Cut(lanes, columns, self._heights(block_rows, tallest), block_rows, chunk * width)

    def _heights(self, block_rows: int, tallest: int) -> tuple[int, ...]:
        if isinstance(self.row.size, int):
            return even_heights([block_rows, self.row.size % block_rows], tallest)
        return any_heights(tallest)


BUILDERS = {"matmul_packed": build_packed}
