"""Experts: rows of runs, each times panels that a number chooses; and plain loops for floats.

Positions are places in `order`, where choices of one matrix follow each other. A block is some
positions and some columns; for each matrix that is chosen there

    for group of columns                a panel is read once for all of its rows
        for some rows                   a register tile; rows lie where `order` says

Which rows share a tile changes nothing about their sums.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from arenite.backends.cpu.blocks.build import OTHER_REGISTERS, TALLEST, WEIGHT_WORK, columns_of_row
from arenite.backends.cpu.blocks.kernel import Blocks, BlocksTile, panel_address
from arenite.backends.cpu.gemm.blocking import MOST_TILES, TILE_WORK
from arenite.backends.cpu.gemm.driver import Driver
from arenite.backends.cpu.gemm.epilogue import Epilogue
from arenite.backends.cpu.gemm.functions import TileFunction
from arenite.backends.cpu.gemm.kernel import (
    BLOCK,
    FIRST_COLUMN,
    FIRST_ROW,
    LAST_COLUMN,
    LAST_ROW,
    SUM,
    Details,
    MicroKernel,
    Operand,
    Product,
    in_blocks,
)
from arenite.backends.cpu.gemm.tile import lanes_of
from arenite.backends.cpu.lowering.vector import I64, Builder, Vec
from arenite.backends.cpu.ops.block_forms import LANES, PANEL
from arenite.backends.cpu.ops.blocks import RUN_WORDS, depth_of
from arenite.backends.cpu.target import Target
from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.built import Built
from arenite.codegen.kernels.special import _OUT_OF_RANGE, _ROW, RowKernel, _within
from arenite.codegen.kernels.values import index_expr
from arenite.dtype import FLOAT32
from arenite.ir.dim import Dim, ceildiv, product
from arenite.schedule.kernel import Kernel

#: Positions of a block.
BLOCK_ROWS = 32
#: Columns of floats that a tile of plain loops takes at a time.
FLOAT_COLUMNS = 16

_FIRST, _LAST = ir.Name("_first_position"), ir.Name("_last_position")
_POSITION, _CHOSEN, _EXPERT = ir.Name("_position"), ir.Name("_chosen"), ir.Name("_expert")
_CHOICE, _COLUMN = ir.Name("_choice"), ir.Name("_column")


@dataclass(frozen=True, slots=True)
class Experts(Details):
    blocks: Blocks
    order: str
    chosen: str
    n_experts: int
    choices: int  # of each row of runs

    def text(self, kernel: MicroKernel) -> str:
        return self.blocks.text(kernel)

    def choice_at(self, position: ir.Expr) -> ir.Expr:
        """Which choice stands at a position."""
        return ir.Load(self.order, position, ir.INT64)

    def chosen_at(self, position: ir.Expr) -> ir.Expr:
        return ir.Load(self.chosen, self.choice_at(position), ir.INT64)

    def named(self, position: ir.Expr) -> ir.Block:
        """What is chosen at a position, and a matrix that exists."""
        is_there = ir.Name("_is_there", ir.BOOL)
        return (
            ir.Let(_CHOSEN.name, self.chosen_at(position)),
            ir.Let(is_there.name, _within(_CHOSEN, self.n_experts)),
            ir.Require(is_there, _OUT_OF_RANGE),
            ir.Let(_EXPERT.name, ir.Select(is_there, _CHOSEN, ir.index(0))),
        )

    def each_run(self, body: ir.Block) -> ir.Block:
        """The body for FIRST_ROW up to LAST_ROW: positions of a block that choose the same."""
        other, count = ir.Name("_other"), ir.Name("_count")
        before = ir.Binary("max", _POSITION - 1, ir.index(0))
        is_new = ir.Binary("ne", self.chosen_at(before), self.chosen_at(_POSITION))
        is_first = ir.Binary("eq", _POSITION, _FIRST)
        is_same = ir.Binary("eq", self.chosen_at(other), _CHOSEN)
        is_counted = ir.Select(is_same, ir.index(1), ir.index(0))
        run: ir.Block = (
            *self.named(_POSITION),
            ir.Accumulator(count.name, ir.index(0)),
            ir.For(other.name, _POSITION, _LAST, (ir.Accumulate(count.name, "add", is_counted),)),
            ir.Let(FIRST_ROW.name, _POSITION),
            ir.Let(LAST_ROW.name, _POSITION + count),
            *body,
        )
        return (ir.For(_POSITION.name, _FIRST, _LAST, (ir.If(is_first | is_new, run),)),)


class ExpertsTile(BlocksTile):
    """A register tile whose rows are choices; its row is the position of the first."""

    def __init__(self, function: TileFunction, experts: Experts) -> None:
        super().__init__(function, experts.blocks)
        self.experts = experts
        self.epilogue = Epilogue(function, self._choice)

    def _choice(self, position: Vec) -> Vec:
        b = self.builder
        order = self.function.lowering.pointers[self.experts.order]
        at = b.emit_pointer(f"getelementptr i64, ptr {order}, i64 {position.text}")
        return b.emit(f"load i64, ptr {at}, align 8", I64)

    def _row_offsets(self, rows: int) -> list[Vec | int]:
        """Rows of runs, in bytes from the first of all."""
        choices, nbytes = self.experts.choices, self.blocks.depth // 32 * RUN_WORDS * 4
        offsets: list[Vec | int] = []
        for row in range(rows):
            choice = self._choice(self.function.row + row)
            own = choice.divide(self.builder.constant(choices, I64), signed=False)
            offsets.append(own * nbytes)
        return offsets


class ExpertsDriver(Driver):
    """The function of a product with weights that numbers choose."""

    def __init__(self, builder: Builder, kernel: MicroKernel) -> None:
        super().__init__(builder, kernel)
        assert isinstance(kernel.details, Experts)
        self.experts = kernel.details

    def run(self) -> None:
        self.each_tile(in_blocks(self.product, self.experts.each_run(self.panels())))
        self.builder.block.end = "ret void"

    def tile(self, function: TileFunction, rows: int, columns: int, is_masked: bool) -> None:
        ExpertsTile(function, self.experts).tile(rows, columns, is_masked)

    def address(self, operand: Operand, line: Vec) -> str:
        """Of runs the first of all: a tile finds its own."""
        if operand is self.product.a:
            return self.lowering.pointers[operand.array]
        return panel_address(self, self.experts.blocks, line)


def build_experts(kernel: Kernel, target: Target, choice: str = "") -> Built:
    draft = RowKernel(kernel)
    return _BUILDERS[draft.node.op](draft, target)


def _of_blocks(draft: RowKernel, target: Target) -> Built:
    node = draft.node
    runs, panels, order, chosen = node.inputs
    depth, n_columns, weights = depth_of(runs), node.attr("columns"), node.attr("dtype")
    n_experts, n_panels, panel_nbytes = (int(size) for size in panels.shape)  # type: ignore[arg-type]
    choices = node.attr("choices")
    lanes = lanes_of(target, FLOAT32)
    columns = PANEL // LANES if lanes == LANES and n_columns > LANES else 1
    fits = (target.n_vector_registers - OTHER_REGISTERS) // (2 * columns)
    tallest = max(1, min(fits, TALLEST))
    chunk = _chunk(choices, n_columns, depth)
    n_chunks = -(-n_columns // chunk)
    blocks = ceildiv(chosen.shape[0], BLOCK_ROWS) * n_chunks
    words = depth // 32 * RUN_WORDS
    one = ir.index(1)
    store = ir.Store("out0", _CHOICE * n_columns + _COLUMN, ir.Name(SUM, FLOAT32))
    made = Product(
        a=Operand(draft.names[runs], runs.dtype, _CHOICE // choices * words, ir.index(0), one),
        b=Operand(draft.names[panels], panels.dtype, _EXPERT * (n_panels * panel_nbytes), one, one),
        sum_dtype=FLOAT32,
        row=_CHOICE.name,
        column=_COLUMN.name,
        batch=(),
        depth=ir.index(depth),
        n_columns=ir.index(n_columns),
        blocks=index_expr(blocks),
        place=_place(chosen.shape[0], n_chunks, chunk, n_columns),
        lanes=lanes,
        columns=columns,
        heights=tuple(range(tallest, 0, -1)),
        epilogue=(store,),
        is_short=True,
    )
    loops = draft.in_tiles(blocks, 1, ()).loops
    experts = Experts(
        Blocks(weights, depth), draft.names[order], draft.names[chosen], n_experts, choices
    )
    row: ir.Block = (
        *experts.named(_POSITION),
        ir.Let(_CHOICE.name, experts.choice_at(_POSITION)),
        columns_of_row(made, weights, depth),
    )
    body = in_blocks(made, (ir.For(_POSITION.name, _FIRST, _LAST, row),))
    loops = replace(loops, body=body)
    return Built(MicroKernel(*loops.parts, made, experts) if target.has_fma else loops, blocks)


def _chunk(choices: int, n_columns: int, depth: int) -> int:
    """Columns of a block: enough work where one row alone chooses, in whole panels."""
    work = choices * (1 + WEIGHT_WORK) * depth * PANEL
    n_panels = -(-n_columns // PANEL)
    fewest = max(1, -(-n_panels // MOST_TILES))
    return PANEL * min(max(TILE_WORK // work, fewest), n_panels)


def _place(n_positions: Dim, n_chunks: int, chunk: int, n_columns: int) -> ir.Block:
    """A block's number taken apart: positions, and columns, which vary fastest."""
    first = BLOCK // n_chunks * BLOCK_ROWS
    column = BLOCK % n_chunks * chunk
    return (
        ir.Let(_FIRST.name, first),
        ir.Let(_LAST.name, ir.Binary("min", _FIRST + BLOCK_ROWS, index_expr(n_positions))),
        ir.Let(FIRST_COLUMN.name, column),
        ir.Let(LAST_COLUMN.name, ir.Binary("min", FIRST_COLUMN + chunk, ir.index(n_columns))),
    )


def _of_floats(draft: RowKernel, target: Target) -> Built:
    """Row `row` of the work is some columns of one choice."""
    x, w, chosen = draft.node.inputs
    n_experts, n_columns, depth = (int(size) for size in w.shape)  # type: ignore[arg-type]
    n_parts = -(-n_columns // FLOAT_COLUMNS)
    choice, column, k = _ROW // n_parts, ir.Name("column"), ir.Name("k")
    is_there, total = ir.Name("is_there", ir.BOOL), ir.Name("total", FLOAT32)
    row = choice if x.ndim == chosen.ndim + 1 else choice // index_expr(chosen.shape[1])
    line = (ir.Name("expert") * n_columns + column) * depth
    weight: ir.Expr = draft.load(w, line + k)
    if w.dtype != FLOAT32:
        weight = ir.Cast(weight, FLOAT32)
    term = ir.Binary("mul", draft.load(x, row * depth + k), weight)
    sums: ir.Block = (
        ir.Accumulator("total", ir.Const(0.0, FLOAT32)),
        ir.For(
            "k",
            ir.index(0),
            ir.index(depth),
            (ir.Accumulate("total", "add", term),),
            vector=True,
        ),
        ir.Store("out0", choice * n_columns + column, total),
    )
    first = _ROW % n_parts * FLOAT_COLUMNS
    last = ir.Binary("min", first + FLOAT_COLUMNS, ir.index(n_columns))
    body: ir.Block = (
        ir.Let("chosen", draft.load(chosen, choice)),
        ir.Let("is_there", _within(ir.Name("chosen"), n_experts)),
        ir.Require(is_there, _OUT_OF_RANGE),
        ir.Let("expert", ir.Select(is_there, ir.Name("chosen"), ir.index(0))),
        ir.For("column", first, last, sums),
    )
    return draft.finish(product(chosen.shape) * n_parts, FLOAT_COLUMNS * depth, body)


_BUILDERS: dict[str, Callable[[RowKernel, Target], Built]] = {
    "matmul_packed_experts": _of_blocks,
    "matmul_experts": _of_floats,
}

BUILDERS = dict.fromkeys(_BUILDERS, build_experts)
