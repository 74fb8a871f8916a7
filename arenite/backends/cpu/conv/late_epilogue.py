"""Runs of register tiles, one below the other, whose epilogues come late: beside the next sums.

    sums of the first tile, kept
    for tile after it
        for step of K            a row of the tile before is finished, while there are any; sums
        keep the sums
    rows of the last tile, finished

Products take two of the four vector pipes of a core, most of an epilogue fits the others too; but
a core does not look so far ahead that it would do both at once by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from arenite.backends.cpu.gemm.epilogue import Epilogue
from arenite.backends.cpu.gemm.functions import TileFunction
from arenite.backends.cpu.gemm.prefetch import prefetch_epilogue
from arenite.backends.cpu.gemm.tile import KLoop, Step, Tile, moved, summed
from arenite.backends.cpu.lowering.scope import Level, arrays_stored
from arenite.backends.cpu.lowering.vector import I64, Vec


@dataclass(frozen=True, slots=True)
class Sums:
    """How the sums of a tile are made, in one loop of as many steps as it has rows or more."""

    tile: Tile
    masks: Sequence[Vec | None]
    start: list[Vec]
    loop: KLoop
    n_steps: int
    step: Step


def late_run(function: TileFunction, epilogue: Epilogue, sums: Sums) -> None:
    """As many tiles as the function's `depth` says."""
    b, product, tile = function.builder, function.product, sums.tile
    first, count, rows = function.row, function.depth, tile.rows
    kept = function.stack(rows * tile.columns * product.lanes)
    down = function.nbytes(product.a.line, product.a) * rows

    def keep(totals: list[Vec]) -> None:
        for at, total in enumerate(totals):
            function.keep(kept, at * product.lanes, total)

    prefetch_epilogue(function, rows, tile.columns, sums.n_steps)
    keep(summed(b, [sums.loop], "%a", "%b", sums.start, sums.step))

    def turn(number: Vec) -> None:
        above = first + (number - 1) * rows
        function.row = first + number * rows
        prefetch_epilogue(function, rows, tile.columns, sums.n_steps)
        keep(_sums_beside(epilogue, sums, moved(b, "%a", number * down), kept, above))

    function.lowering.steps(1, count, 1, turn, product.epilogue)
    function.row = first + (count - 1) * rows
    epilogue.finish_rows(kept, tile, sums.masks)


def _sums_beside(epilogue: Epilogue, sums: Sums, a_at: str, kept: str, above: Vec) -> list[Vec]:
    """The sums of a tile, beside which the kept ones are finished: rows from `above` on."""
    b, product, scope = epilogue.builder, epilogue.product, epilogue.lowering.scope
    tile, loop = sums.tile, sums.loop
    nbytes = tile.columns * tile.lanes * product.sum_dtype.bits // 8

    def step(a_at: str, b_at: str, before: list[Vec]) -> list[Vec]:
        *totals, row = before
        start = moved(b, kept, row * nbytes)
        epilogue.finish_row(start, above + row, tile.widths, sums.masks)
        return [*sums.step(a_at, b_at, totals), row + 1]

    def steps(count: int) -> list[KLoop]:
        return [KLoop(b.constant(count, I64), loop.a_step, loop.b_step)]

    # What the epilogue has that does not change in the loop comes in front of it.
    around = scope.levels[-1]
    around.cursor = b.block
    scope.push(Level("loop", arrays_stored(product.epilogue)))
    start = [*sums.start, b.constant(0, I64)]
    *totals, _ = summed(b, steps(tile.rows), a_at, "%b", start, step)
    scope.pop()
    around.cursor = None
    left = sums.n_steps - tile.rows
    if left == 0:
        return totals
    a_at, b_at = (
        moved(b, place, far * tile.rows)
        for place, far in ((a_at, loop.a_step), ("%b", loop.b_step))
    )
    return summed(b, steps(left), a_at, b_at, totals, sums.step)
