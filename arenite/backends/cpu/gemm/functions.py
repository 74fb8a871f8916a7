"""The functions of a micro-kernel that hold register tiles, each with the epilogue behind it.

A function computes one tile of the product and stores what the epilogue makes of it:

    void tile(ptr window, ptr a, ptr b, i64 depth, i64 row, i64 column, i64 rest, i64 batch...)

`a` and `b` point at the first row and the first column; `row` and `column` say which these are in
the product, for the epilogue; `rest` is how many columns there are. They are never inlined, which
keeps the register allocator's problem small.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from arenite.backends.cpu.compiling.llvm import FUNCTION_ATTRIBUTES
from arenite.backends.cpu.gemm.kernel import SUM, MicroKernel, Operand
from arenite.backends.cpu.gemm.partial_sums import Blocks, blocks_of, summed_in_blocks
from arenite.backends.cpu.gemm.tile import Dot, KLoop, Summing, Tile, moved, multiply
from arenite.backends.cpu.gemm.widened_rows import Widened, chunk_of
from arenite.backends.cpu.lowering.arguments import bind_arguments
from arenite.backends.cpu.lowering.convert import register_type
from arenite.backends.cpu.lowering.evaluate import VectorMode
from arenite.backends.cpu.lowering.partials import Phase
from arenite.backends.cpu.lowering.scope import SCALAR, Binding, Level
from arenite.backends.cpu.lowering.tile import Tiles
from arenite.backends.cpu.lowering.vector import I64, Builder, Vec, VType
from arenite.codegen import loop_ir as ir

FIXED_ARGUMENTS = ("depth", "row", "column", "rest")


def arguments_text(kernel: MicroKernel) -> str:
    """The parameters of a function."""
    numbers = (*FIXED_ARGUMENTS, *(f"batch_{name}" for name in kernel.product.batch))
    return ", ".join(["ptr %window", "ptr %a", "ptr %b", *(f"i64 %{name}" for name in numbers)])


class Kept(Tiles):
    """Loops whose expressions may be made while they are emitted.

    What is emitted already is found again by the identity of its expression, so none may go away
    and leave its identity to another.
    """

    def __init__(self, builder: Builder, kernel: MicroKernel) -> None:
        super().__init__(builder, kernel)
        self._kept: dict[int, ir.Expr | ir.Block] = {}

    def value(self, expr: ir.Expr, part: int) -> Vec:
        self._kept[id(expr)] = expr
        return super().value(expr, part)

    def block(self, block: ir.Block) -> None:
        self._kept[id(block)] = block
        super().block(block)


class TileFunction(Kept):
    """One function under construction."""

    def __init__(self, builder: Builder, kernel: MicroKernel) -> None:
        super().__init__(builder, kernel)
        self.product = kernel.product
        bind_arguments(self)
        for name in self.product.batch:
            value = Vec(builder, f"%batch_{name}", I64)
            self.scope.bind(name, Binding(ir.INT64, 0, values={SCALAR: value}))
        self.depth, self.row, self.column, self.rest = (
            Vec(builder, f"%{name}", I64) for name in FIXED_ARGUMENTS
        )
        self.dot = Dot(self.product.a.dtype, self.product.b.dtype, self.product.sum_dtype)

    def nbytes(self, elements: ir.Expr, operand: Operand) -> Vec | int:
        """A distance in elements as bytes."""
        size = operand.dtype.bits // 8
        if isinstance(elements, ir.Const):
            return int(elements.value) * size
        return self.value(elements, SCALAR) * size

    def tile(self, rows: int, columns: int, is_masked: bool) -> None:
        """A tile; of its columns only the first `rest` are there if it is masked."""
        product = self.product
        lanes = product.lanes
        masks = [self._mask(column * lanes) if is_masked else None for column in range(columns)]
        line = self.nbytes(product.a.line, product.a)
        b_size = product.b.dtype.bits // 8
        if product.copies_b:
            b_step: Vec | int = product.width * product.sum_dtype.bits // 8
            b_size = product.sum_dtype.bits // 8
            dot = Dot(self.dot.a, self.dot.sum, self.dot.sum)
        else:
            b_step, dot = self.nbytes(product.b.step, product.b), self.dot
        loops = [KLoop(self.depth, self.nbytes(product.a.step, product.a), b_step)]
        inside = None
        depth = int(product.depth.value) if isinstance(product.depth, ir.Const) else None
        counts = [depth]
        chunk = chunk_of(dot, depth) if product.a.step == ir.index(1) else None
        if depth is not None and chunk is not None:
            place = self._stack(rows * chunk, "%wide")
            wide = Widened(self.builder, dot, line, place, rows, depth, chunk)
            loops, inside, dot, line = wide.loops(b_step), wide.inside, wide.dot, wide.line
            counts = [depth // chunk, chunk]
        tile = Tile(rows, columns, lanes)
        sums = multiply(
            self.builder,
            tile,
            dot,
            "%a",
            "%b",
            lambda row: line * row,
            lambda column: column * lanes * b_size,
            loops,
            [None] * columns if product.copies_b else masks,
            inside=inside,
            summing=self.in_blocks(tile, counts),
        )
        self.finish(sums, masks)

    def in_blocks(self, tile: Tile, counts: Sequence[int | None]) -> Summing | None:
        """How a tile sums in K loops that run so often, or unknown times; None: in one go."""
        blocks = blocks_of(self.product.sum_dtype, counts)
        return None if blocks is None else self.in_such_blocks(tile, blocks)

    def in_such_blocks(self, tile: Tile, blocks: Blocks) -> Summing:
        n_sums = tile.rows * sum(tile.widths)
        kept_at = self._stack(2 * n_sums if blocks.loop else n_sums, "%totals")
        return partial(summed_in_blocks, blocks=blocks, kept_at=kept_at)

    def begun(
        self, start: ir.Expr | None, widths: Sequence[int], masks: Sequence[Vec | None]
    ) -> list[Vec]:
        """What the sums of a row begin with: columns of so many lanes, zeros if it is None."""
        b, made = self.builder, list[Vec]()
        for column, (lanes, mask) in enumerate(zip(widths, masks, strict=True)):

            def one(lanes: int = lanes) -> None:
                assert start is not None
                made.append(b.broadcast(self.value(start, 0), lanes))

            if start is None:
                made.append(b.constant(0, register_type(self.product.sum_dtype, lanes)))
            else:
                self._in_column(self._column(column), mask, one, lanes)
        return made

    def finish(self, sums: Sequence[Sequence[Vec]], masks: Sequence[Vec | None]) -> None:
        """What a tile does with its sums, by row and column; masks are those of the columns."""
        if self.product.is_short:
            self._finish_registers(sums, masks)
            return
        rows, columns, lanes = len(sums), len(masks), self.product.lanes
        slot = self._stack(rows * columns * lanes)
        for row, own in enumerate(sums):
            for column, total in enumerate(own):
                self._keep(slot, (row * columns + column) * lanes, total)
        self._finish_rows(slot, rows, columns, masks, sums[0][-1].type.lanes)

    def _mask(self, first: int, lanes: int = 0) -> Vec:
        """Which lanes of the column that begins at `first` are among the first `rest`."""
        return self._mask_of(self.rest - first, lanes)

    def _mask_of(self, count: Vec, lanes: int = 0) -> Vec:
        """The first `count` lanes; none if it is negative."""
        b, lanes = self.builder, lanes or self.product.lanes
        t = VType("i", self.product.sum_dtype.bits, lanes)
        return b.iota(t).lt(b.broadcast(count.convert("trunc", t.scalar), lanes))

    def _stack(self, count: int, name: str = "%kept") -> str:
        """Room for so many sums."""
        t = register_type(self.product.sum_dtype, 1)
        self.builder.allocas[name] = f"{name} = alloca [{count} x {t}], align 64"
        return name

    def _keep(self, slot: str, at: int, total: Vec) -> None:
        """Store a vector; it may lie behind another, at a multiple of its own length."""
        size = self.product.sum_dtype.bits // 8
        where = self.builder.offset(slot, at * size)
        align = total.type.lanes * size
        self.builder.emit_void(f"store {total.type} {total.text}, ptr {where}, align {align}")

    def _finish_registers(self, sums: Sequence[Sequence[Vec]], masks: Sequence[Vec | None]) -> None:
        """The epilogue on the sums themselves, row by row; or first what it loads for each row,
        then the stores: loads wait for stores before them whose addresses end alike, as those of
        rows 4 KiB apart do."""
        *lets, last = self.product.epilogue
        parts: list[Callable[[], None]] = [lambda: self.block(self.product.epilogue)]
        if self._loads_rows(lets) and isinstance(last, ir.Store):
            parts = [partial(self._ready, tuple(lets), last), lambda: self.block((last,))]
        for column, mask in enumerate(masks):
            totals = [row[column] for row in sums]

            def rows(totals: Sequence[Vec] = totals) -> None:
                levels = [Level("loop") for _ in totals]
                for part in parts:
                    for row, (level, total) in enumerate(zip(levels, totals, strict=True)):
                        self.scope.push(level)
                        self._bind_sum(self.row + row, total)
                        part()
                        self.scope.pop()

            self._in_column(self._column(column), mask, rows, totals[0].type.lanes)
        self.builder.block.end = "ret void"

    def _finish_rows(
        self,
        slot: str,
        rows: int,
        columns: int,
        masks: Sequence[Vec | None],
        last_lanes: int = 0,
    ) -> None:
        """The epilogue in a loop over the rows of sums that were kept."""
        b, product, lanes = self.builder, self.product, self.product.lanes
        widths = Tile(rows, columns, lanes, last_lanes).widths
        nbytes = columns * lanes * product.sum_dtype.bits // 8

        def turn(_: Phase, row: Vec) -> None:
            self.finish_row(moved(b, slot, row * nbytes), self.row + row, widths, masks)

        zero, count = b.constant(0, I64), b.constant(rows, I64)
        self.counted_loop(zero, count, [Phase(1, 1)], product.epilogue, turn)
        b.block.end = "ret void"

    def finish_row(
        self, start: str, row: Vec, widths: Sequence[int], masks: Sequence[Vec | None]
    ) -> None:
        """The epilogue of a row whose sums were kept: columns of so many lanes."""
        b, product = self.builder, self.product
        size = product.sum_dtype.bits // 8
        for column, (width, mask) in enumerate(zip(widths, masks, strict=True)):

            def one(column: int = column, width: int = width) -> None:
                where = b.offset(start, column * product.lanes * size)
                t = register_type(product.sum_dtype, width)
                total = b.emit(f"load {t}, ptr {where}, align {width * size}", t)
                self._finish(row, total)

            self._in_column(self._column(column), mask, one, width)

    def _column(self, number: int) -> Vec:
        """Where a column of the tile begins in the product."""
        return self.column + number * self.product.lanes

    def _in_column(
        self, first: Vec, mask: Vec | None, inside: Callable[[], None], lanes: int = 0
    ) -> None:
        """What `inside` emits, with the vector variable beginning at `first`."""
        product = self.product
        self.scope.push(Level("loop"))
        binding = Binding(ir.INT64, self.scope.depth, True, values={SCALAR: first})
        self.scope.bind(product.column, binding)
        masks = {} if mask is None else {0: mask}
        self.vector = VectorMode(product.column, lanes or product.lanes, 1, masks)
        inside()
        self.vector = None
        self.scope.pop()

    def _finish(self, row: Vec, total: Vec) -> None:
        self._bind_sum(row, total)
        self.block(self.product.epilogue)

    def _bind_sum(self, row: Vec, total: Vec) -> None:
        depth, dtype = self.scope.depth, self.product.sum_dtype
        self.scope.bind(self.product.row, Binding(ir.INT64, depth, values={SCALAR: row}))
        self.scope.bind(SUM, Binding(dtype, depth, True, values={0: total}))

    def _loads_rows(self, lets: Sequence[ir.Stmt]) -> bool:
        """Whether these are all names for values, and some of them differ from row to row."""
        row = ir.Name(self.product.row)
        return all(isinstance(stmt, ir.Let) for stmt in lets) and any(
            isinstance(expr, ir.Load) and row in ir.walk(expr.index)
            for stmt in lets
            for expr in ir.walk(*ir.expressions(stmt))
        )

    def _ready(self, lets: ir.Block, store: ir.Store) -> None:
        """What a store will store."""
        self.block(lets)
        self.lanes(store.value, 0)


def function_text(builder: Builder, kernel: MicroKernel, name: str) -> str:
    return (
        f"define internal fastcc void @{name}({arguments_text(kernel)}) noinline "
        f"{FUNCTION_ATTRIBUTES} {{\n{builder.body_text()}\n}}\n"
    )
