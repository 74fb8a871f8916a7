"""What a tile does with its sums: the epilogue on the sums in registers, or on those it kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from arenite.backends.cpu.gemm.functions import TileFunction
from arenite.backends.cpu.gemm.kernel import SUM
from arenite.backends.cpu.gemm.tile import Tile, moved
from arenite.backends.cpu.lowering.convert import register_type
from arenite.backends.cpu.lowering.evaluate import VectorMode
from arenite.backends.cpu.lowering.scope import Binding, Level
from arenite.backends.cpu.lowering.vector import Vec
from arenite.codegen import loop_ir as ir


class Epilogue:
    """The end of a function; `row_of` tells from a row of the tile which of the product it is."""

    def __init__(self, function: TileFunction, row_of: Callable[[Vec], Vec] | None = None) -> None:
        self.function = function
        self.builder = function.builder
        self.lowering = function.lowering
        self.product = function.product
        self.row_of = row_of

    def sums_start(
        self, start: ir.Expr | None, widths: Sequence[int], masks: Sequence[Vec | None]
    ) -> list[Vec]:
        """What the sums of a row begin with: columns of so many lanes, zeros if it is None."""
        b, values = self.builder, list[Vec]()
        for column, (lanes, mask) in enumerate(zip(widths, masks, strict=True)):

            def value(lanes: int = lanes) -> None:
                assert start is not None
                values.append(b.broadcast(self.lowering.value(start, 0), lanes))

            if start is None:
                values.append(b.constant(0, register_type(self.product.sum_dtype, lanes)))
            else:
                self.in_column(self.function.column_start(column), mask, value, lanes)
        return values

    def finish(self, sums: Sequence[Vec], masks: Sequence[Vec | None]) -> None:
        """What a tile does with its sums, row by row; masks are those of the columns."""
        if self.product.is_short:
            self._finish_registers(sums, masks)
            return
        columns, lanes = len(masks), self.product.lanes
        slot = self.function.stack(len(sums) * lanes)
        for at, total in enumerate(sums):
            self.function.keep(slot, at * lanes, total)
        tile = Tile(len(sums) // columns, columns, lanes, sums[-1].type.lanes)
        self.finish_rows(slot, tile, masks)

    def _finish_registers(self, sums: Sequence[Vec], masks: Sequence[Vec | None]) -> None:
        """The epilogue on the sums themselves, row by row; or first what it loads for each row,
        then the stores: loads wait for stores before them whose addresses end alike, as those of
        rows 4 KiB apart do."""
        function, scope = self.function, self.lowering.scope
        *lets, last = self.product.epilogue
        parts: list[Callable[[], None]] = [lambda: self.lowering.block(self.product.epilogue)]
        if self._loads_rows(lets) and isinstance(last, ir.Store):
            parts = [
                partial(self._stored_value, tuple(lets), last),
                lambda: self.lowering.block((last,)),
            ]
        for column, mask in enumerate(masks):
            totals = sums[column :: len(masks)]

            def rows(totals: Sequence[Vec] = totals) -> None:
                levels = [Level("loop") for _ in totals]
                for part in parts:
                    for row, (level, total) in enumerate(zip(levels, totals, strict=True)):
                        scope.push(level)
                        self._bind_sum(function.row + row, total)
                        part()
                        scope.pop()

            self.in_column(function.column_start(column), mask, rows, totals[0].type.lanes)
        self.builder.block.end = "ret void"

    def finish_rows(self, slot: str, tile: Tile, masks: Sequence[Vec | None]) -> None:
        """The epilogue in a loop over the rows of sums that were kept."""
        b, product = self.builder, self.product
        nbytes = tile.columns * tile.lanes * product.sum_dtype.bits // 8

        def turn(row: Vec) -> None:
            start = moved(b, slot, row * nbytes)
            self.finish_row(start, self.function.row + row, tile.widths, masks)

        self.lowering.steps(0, tile.rows, 1, turn, product.epilogue)
        b.block.end = "ret void"

    def finish_row(
        self, start: str, row: Vec, widths: Sequence[int], masks: Sequence[Vec | None]
    ) -> None:
        """The epilogue of a row whose sums were kept: columns of so many lanes."""
        b, product = self.builder, self.product
        size = product.sum_dtype.bits // 8
        for column, (width, mask) in enumerate(zip(widths, masks, strict=True)):

            def finish(column: int = column, width: int = width) -> None:
                where = b.offset(start, column * product.lanes * size)
                t = register_type(product.sum_dtype, width)
                self.finish_sum(row, b.load(t, where, width * size))

            self.in_column(self.function.column_start(column), mask, finish, width)

    def in_column(
        self, first: Vec, mask: Vec | None, inside: Callable[[], None], lanes: int = 0
    ) -> None:
        """What `inside` emits, with the vector variable beginning at `first`."""
        lowering, product = self.lowering, self.product
        lowering.scope.push(Level("loop"))
        lowering.bind(product.column, first, varying=True)
        masks = {} if mask is None else {0: mask}
        lowering.vector = VectorMode(product.column, lanes or product.lanes, 1, masks)
        inside()
        lowering.vector = None
        lowering.scope.pop()

    def finish_sum(self, row: Vec, total: Vec) -> None:
        """The epilogue on a vector of sums of a row."""
        self._bind_sum(row, total)
        self.lowering.block(self.product.epilogue)

    def _bind_sum(self, row: Vec, total: Vec) -> None:
        scope = self.lowering.scope
        self.lowering.bind(self.product.row, row if self.row_of is None else self.row_of(row))
        binding = Binding(self.product.sum_dtype, scope.depth, True, values={0: total})
        scope.bind(SUM, binding)

    def _loads_rows(self, lets: Sequence[ir.Stmt]) -> bool:
        """Whether these are all names for values, and some of them differ from row to row."""
        row = ir.Name(self.product.row)
        return all(isinstance(stmt, ir.Let) for stmt in lets) and any(
            isinstance(expr, ir.Load) and row in ir.walk(expr.index)
            for stmt in lets
            for expr in ir.walk(*ir.expressions(stmt))
        )

    def _stored_value(self, lets: ir.Block, store: ir.Store) -> None:
        """What a store will store."""
        self.lowering.block(lets)
        self.lowering.lanes(store.value, 0)
