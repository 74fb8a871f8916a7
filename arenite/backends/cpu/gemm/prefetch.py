"""What a tile will touch in far memory is asked for before its sums are made.

A tile reads and writes a few lines of the cache in each of many rows, which no hardware foresees:
those of a residual, those of its results, which are read before they are written, and, where all
columns are in one tile, so that every row is read once, the rows of the next tile; and the weights
of the next group of columns. Asked for before or in the K loops, they are there when these end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

from arenite.backends.cpu.gemm.functions import TileFunction
from arenite.backends.cpu.gemm.tile import moved, prefetch
from arenite.backends.cpu.lowering.scope import Level
from arenite.backends.cpu.lowering.vector import I64, Builder
from arenite.codegen import loop_ir as ir

#: Bytes of a line of the cache.
LINE_NBYTES = 64
#: Products of a sum up to which stores wait for their lines.
SHORT_SUM = 24
#: Bits behind the point of a share of panels.
FACTOR_BITS = 8

#: What a step of K does beside its sums, from where it is in A.
Beside: TypeAlias = Callable[[str], None]


def prefetch_epilogue(
    function: TileFunction, n_rows: int, n_columns: int, depth: int | None, first_row: int = 0
) -> None:
    """Prefetches of what the epilogue of a tile will load and store, or of the rows from another
    one on.

    Stores at the end of short sums are asked for as such. What has more time is asked for as if it
    were read: so it comes to the second cache, and much more of it at a time. Zen 4 has few
    requests for writing under way, and what comes to the first cache so early is not there any more
    in its turn.
    """
    b, product, lowering = function.builder, function.product, function.lowering
    is_soon = depth is not None and depth <= SHORT_SUM and first_row == 0
    touched = [*_touched(function)]
    for row in range(first_row, first_row + n_rows if touched else 0):
        lowering.scope.push(Level("loop"))
        lowering.bind(product.row, function.row + row)
        lowering.bind(product.column, function.column)
        for array, index, is_written in touched:
            start = lowering.pointer(array, index)
            nbytes = n_columns * product.lanes * function.kernel.array(array).dtype.bits // 8
            prefetch_lines(b, start, nbytes, is_written and is_soon)
        lowering.scope.pop()


def prefetch_rows(function: TileFunction, n_rows: int, depth: int | None) -> Beside | None:
    """Prefetches of the rows behind those of a tile, some in each step of K, if every row is read
    once and they lie one behind the other; a burst of them would wait for its own first ones."""
    b, product = function.builder, function.product
    a, columns = product.a, product.n_columns
    is_once = isinstance(columns, ir.Const) and columns.value <= product.width
    if depth is None or not is_once or a.line != ir.index(depth):
        return None
    size = a.dtype.bits // 8
    start = b.emit("ptrtoint ptr %a to i64", I64)
    behind = b.offset("%a", n_rows * depth * size)

    def beside(a_at: str) -> None:
        gone = b.emit(f"ptrtoint ptr {a_at} to i64", I64) - start
        prefetch_lines(b, moved(b, behind, gone * n_rows), n_rows * size, False)

    return beside


class Share(NamedTuple):
    """What a step of K asks for: lines from `factor` / 2^FACTOR_BITS bytes a byte of A on."""

    factor: int
    n_lines: int


def share_of_panels(panels_nbytes: int, of_rows: int, n_rows: int, depth: int, size: int) -> Share:
    """The share of a step in a tile of `n_rows`, so that the tiles of `of_rows` ask for all."""
    step_nbytes = panels_nbytes * n_rows / (of_rows * depth)
    factor = round(step_nbytes / size * (1 << FACTOR_BITS))
    return Share(factor, max(1, round(step_nbytes / LINE_NBYTES)))


def prefetch_panels(
    function: TileFunction, panels_nbytes: int, of_rows: int, n_rows: int, depth: int
) -> Beside:
    """Prefetches of the weights behind those of a tile, some in each step of K.

    The first tile below a group of columns would wait for its weights, which come from far, while
    the others find them near: asked for beside the sums of the group before, they are there.
    """
    b = function.builder
    share = share_of_panels(panels_nbytes, of_rows, n_rows, depth, function.dot.a.bits // 8)
    rows = b.constant(of_rows, I64)
    above = function.row.divide(rows, signed=False) * of_rows
    begin = ((function.row - above) * panels_nbytes).divide(rows, signed=False)
    behind = moved(b, b.offset("%b", panels_nbytes), begin)
    start = b.emit("ptrtoint ptr %a to i64", I64)

    def beside(a_at: str) -> None:
        gone = b.emit(f"ptrtoint ptr {a_at} to i64", I64) - start
        first = moved(b, behind, (gone * share.factor).shr(FACTOR_BITS, signed=False))
        prefetch_lines(b, first, share.n_lines * LINE_NBYTES, False)

    return beside


def prefetch_lines(b: Builder, first: str, nbytes: int, is_written: bool) -> None:
    for offset in range(0, nbytes, LINE_NBYTES):
        prefetch(b, b.offset(first, offset), is_written=is_written)


def _touched(function: TileFunction) -> Iterator[tuple[str, ir.Expr, bool]]:
    """Arrays whose elements differ from row to row: where, and whether they are written."""
    for stmt in function.product.epilogue:
        if isinstance(stmt, ir.Store) and _is_of_row(function, stmt.index):
            yield stmt.array, stmt.index, True
        for expr in ir.walk(*ir.expressions(stmt)):
            if isinstance(expr, ir.Load) and _is_of_row(function, expr.index):
                yield expr.array, expr.index, False


def _is_of_row(function: TileFunction, index: ir.Expr) -> bool:
    """Whether an index depends on the row, and else on what is known before the epilogue."""
    product = function.product
    known = {product.row, product.column, *product.batch, *function.kernel.sizes}
    parts = list(ir.walk(index))
    names = {part.name for part in parts if isinstance(part, ir.Name)}
    is_plain = not any(isinstance(part, ir.Load) for part in parts)
    return is_plain and product.row in names and names <= known
