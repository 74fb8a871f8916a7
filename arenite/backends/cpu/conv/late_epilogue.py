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

from arenite.backends.cpu.gemm.functions import TileFunction
from arenite.backends.cpu.gemm.prefetch import ask_ahead
from arenite.backends.cpu.gemm.tile import KLoop, Step, Tile, moved, summed
from arenite.backends.cpu.lowering.partials import Phase
from arenite.backends.cpu.lowering.scope import Level, arrays_stored
from arenite.backends.cpu.lowering.vector import I64, Vec


@dataclass(frozen=True, slots=True)
class Late:
    """Rows of the tiles of a run, and the heights of what may be left behind it: one tile."""

    rows: int
    rest: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Sums:
    """How the sums of a tile are made, in one loop of as many steps as it has rows or more."""

    tile: Tile
    masks: Sequence[Vec | None]
    start: list[Vec]
    loop: KLoop
    n_steps: int
    step: Step


class LateFunction(TileFunction):
    """A run of tiles, under construction."""

    def late_run(self, sums: Sums) -> None:
        """As many tiles as `depth` says."""
        b, product, tile = self.builder, self.product, sums.tile
        first, count, rows = self.row, self.depth, tile.rows
        kept = self._stack(rows * tile.columns * product.lanes)
        down = self.nbytes(product.a.line, product.a) * rows
        ask_ahead(self, rows, tile.columns, sums.n_steps)
        self._keep_all(kept, summed(b, [sums.loop], "%a", "%b", sums.start, sums.step))

        def turn(_: Phase, number: Vec) -> None:
            above = first + (number - 1) * rows
            self.row = first + number * rows
            ask_ahead(self, rows, tile.columns, sums.n_steps)
            self._keep_all(kept, self._beside(sums, moved(b, "%a", number * down), kept, above))

        self.counted_loop(b.constant(1, I64), count, [Phase(1, 1)], product.epilogue, turn)
        self.row = first + (count - 1) * rows
        self._finish_rows(kept, rows, tile.columns, sums.masks, tile.last_lanes)

    def _beside(self, sums: Sums, a_at: str, kept: str, above: Vec) -> list[Vec]:
        """The sums of a tile, beside which the kept ones are finished: rows from `above` on."""
        b, tile, loop = self.builder, sums.tile, sums.loop
        nbytes = tile.columns * tile.lanes * self.product.sum_dtype.bits // 8

        def step(a_at: str, b_at: str, before: list[Vec]) -> list[Vec]:
            *totals, row = before
            start = moved(b, kept, row * nbytes)
            self.finish_row(start, above + row, tile.widths, sums.masks)
            return [*sums.step(a_at, b_at, totals), row + 1]

        def steps(count: int) -> list[KLoop]:
            return [KLoop(b.constant(count, I64), loop.a_step, loop.b_step)]

        # What the epilogue has that does not change in the loop comes in front of it.
        around = self.scope.levels[-1]
        around.cursor = b.block
        self.scope.push(Level("loop", arrays_stored(self.product.epilogue)))
        begun = [*sums.start, b.constant(0, I64)]
        *totals, _ = summed(b, steps(tile.rows), a_at, "%b", begun, step)
        self.scope.pop()
        around.cursor = None
        left = sums.n_steps - tile.rows
        if left == 0:
            return totals
        a_at, b_at = (
            moved(b, place, far * tile.rows)
            for place, far in ((a_at, loop.a_step), ("%b", loop.b_step))
        )
        return summed(b, steps(left), a_at, b_at, totals, sums.step)

    def _keep_all(self, kept: str, sums: list[Vec]) -> None:
        for at, total in enumerate(sums):
            self._keep(kept, at * self.product.lanes, total)
