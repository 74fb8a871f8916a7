"""A matmul_packed of the schedule becomes a micro-kernel, or plain loops where a target lacks FMA.

Rows of runs and panels are values in memory. How they are cut depends on shapes alone. What a
product computes, element by element, is loops over memory: the meaning of the micro-kernel, and
what runs where a target has no register tiles.
"""

from __future__ import annotations

from arenite.backends.cpu.blocks.kernel import Blocks
from arenite.backends.cpu.blocks.panels import PanelReader
from arenite.backends.cpu.gemm.blocking import LATER_ROWS, MOST_TILES, TILE_WORK, Cut
from arenite.backends.cpu.gemm.build import NO_COLUMN, NO_ROW, SHORT_OPS, Factor, ProductAxes
from arenite.backends.cpu.gemm.choices import packed_ways
from arenite.backends.cpu.gemm.kernel import (
    FIRST_COLUMN,
    FIRST_ROW,
    LAST_COLUMN,
    LAST_ROW,
    SUM,
    MicroKernel,
    Operand,
    Product,
    in_blocks,
)
from arenite.backends.cpu.gemm.rows import any_heights, even_heights
from arenite.backends.cpu.gemm.sum_epilogue import epilogue_of, epilogue_ops
from arenite.backends.cpu.gemm.tile import lanes_of
from arenite.backends.cpu.ops.block_forms import BLOCK, LANES, PANEL, STEP, form_of
from arenite.backends.cpu.ops.blocks import RUN_WORDS, SCALE_WORD, depth_of
from arenite.backends.cpu.target import Target
from arenite.codegen import loop_ir as ir
from arenite.codegen.block_elements import as_float, number
from arenite.codegen.kernels.build import KernelBuilder
from arenite.codegen.kernels.built import Built
from arenite.codegen.kernels.values import index_expr
from arenite.dtype import FLOAT32, INT32, DType
from arenite.ir.dim import Dim, bounds, ceildiv, maximum, substitute
from arenite.ir.ops.access import coefficient, linear, space_vars
from arenite.schedule.kernel import Kernel, Role

_BLOCK, _STEP = ir.Name("_run"), ir.Name("_step")
_ACC, _WHOLE, _RUN_SUM = "_acc", "_whole", "_run_sum"


def tile_body(made: Product, weights: DType, depth: int) -> ir.Block:
    """What a tile of the kernel computes."""
    columns = columns_of_row(made, weights, depth)
    return in_blocks(made, (ir.For(made.row, FIRST_ROW, LAST_ROW, (columns,)),))


def columns_of_row(made: Product, weights: DType, depth: int) -> ir.Stmt:
    """What a block computes for one row."""
    element = _Element(made, weights, depth)
    sums: ir.Block = (
        ir.Accumulator(_ACC, ir.Const(0.0, FLOAT32)),
        ir.For(_BLOCK.name, ir.index(0), ir.index(depth // BLOCK), element.block()),
        ir.Let(SUM, ir.Name(_ACC, FLOAT32)),
        *made.epilogue,
    )
    return ir.For(made.column, FIRST_COLUMN, LAST_COLUMN, sums, vector=True)


class _Element:
    """One element of the product: what each block adds to it."""

    def __init__(self, made: Product, weights: DType, depth: int) -> None:
        self.made, self.form = made, form_of(weights)
        self.weights = PanelReader(
            self.form, depth, made.b.array, made.b.base, ir.Name(made.column), _BLOCK
        )

    def block(self) -> ir.Block:
        form, made = self.form, []
        for part in range(form.parts):
            names = [f"{name}{part}" for name in (_WHOLE, _RUN_SUM)]
            whole, total = (ir.Name(name, INT32) for name in names)
            groups = form.part // STEP
            steps: list[ir.Stmt] = []
            for group in range(part * groups, (part + 1) * groups):
                x = self._signed_byte(self._word(group))
                w = ir.Binary("sub", self.weights.number(group, _STEP), number(form.zero))
                steps.append(ir.Accumulate(whole.name, "add", ir.Binary("mul", x, w)))
                steps.append(ir.Accumulate(total.name, "add", x))
            made += [
                ir.Accumulator(whole.name, number(0)),
                ir.Accumulator(total.name, number(0)),
                ir.For(_STEP.name, ir.index(0), ir.index(STEP), tuple(steps)),
            ]
            run = ir.Bitcast(self._word(SCALE_WORD), FLOAT32)
            scale, *least = self.weights.scales(part)
            scaled = ir.Binary("mul", as_float(whole), ir.Binary("mul", scale, run))
            made.append(ir.Accumulate(_ACC, "add", scaled))
            for value in least:
                sum_of_run = ir.Binary("mul", run, as_float(total))
                made.append(ir.Accumulate(_ACC, "add", ir.Binary("mul", value, sum_of_run)))
        return tuple(made)

    def _word(self, at: int) -> ir.Expr:
        place = self.made.a.at(ir.Name(self.made.row), ir.index(0))
        return ir.Load(self.made.a.array, place + _BLOCK * RUN_WORDS + at, INT32)

    def _signed_byte(self, word: ir.Expr) -> ir.Expr:
        up = ir.Cast(_STEP * -8 + 24, INT32)
        high = ir.Binary("shift_left", word, up)
        return ir.Binary("shift_right", high, number(24))


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
