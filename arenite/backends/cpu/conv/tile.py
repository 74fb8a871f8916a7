"""The register tiles of a convolution: whole ones, runs of them, and strips that lack taps.

Runs of register tiles, one below the other, whose epilogues come late: beside the next sums.

    sums of the first tile, kept
    for tile after it
        for step of K            a row of the tile before is finished, while there are any; sums
        keep the sums
    rows of the last tile, finished

Products take two of the four vector pipes of a core, most of an epilogue fits the others too; but
a core does not look so far ahead that it would do both at once by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

from arenite.backends.cpu.conv.kernel import Conv, Ends, Taps
from arenite.backends.cpu.conv.strips import Strip
from arenite.backends.cpu.gemm.epilogue import Epilogue
from arenite.backends.cpu.gemm.functions import TileFunction
from arenite.backends.cpu.gemm.partial_sums import Blocks, blocks_of
from arenite.backends.cpu.gemm.prefetch import (
    Beside,
    prefetch_epilogue,
    prefetch_panels,
    prefetch_rows,
)
from arenite.backends.cpu.gemm.tile import (
    KLoop,
    Step,
    Summing,
    Tile,
    load_wide,
    moved,
    multiply,
    summed,
    tile_step,
)
from arenite.backends.cpu.lowering.numeric import fma
from arenite.backends.cpu.lowering.scope import SCALAR, Level, arrays_stored
from arenite.backends.cpu.lowering.vector import I64, Vec
from arenite.backends.cpu.ops.channels_last import PANEL
from arenite.codegen import loop_ir as ir


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


#: As a Step, for some rows.
RowsStep: TypeAlias = Callable[[str, str, list[Vec], Sequence[int]], list[Vec]]
#: Taps along one axis of a window, where their number is not known.
USUAL_TAPS = 3


class ConvTile:
    """A register tile of a convolution."""

    def __init__(self, function: TileFunction, conv: Conv) -> None:
        self.function = function
        self.builder = function.builder
        self.product = function.product
        self.dot = function.dot
        self.epilogue = Epilogue(function)
        self.conv = conv

    def tile(self, rows: int, columns: int, is_masked: bool) -> None:
        product, shape = self.product, self._shape(rows, columns, is_masked)
        prefetch_epilogue(self.function, rows, columns, self._depth())
        line = self.function.nbytes(product.a.line, product.a)
        sums = multiply(
            self.builder,
            shape,
            self.dot,
            line,
            self._column_offset,
            k_loops(self.function, self.conv.loops),
            beside=self._prefetch(rows, columns),
            start=self._start(shape, is_masked),
            summing=self._in_blocks(shape, len(self.conv.loops)),
        )
        self.epilogue.finish(sums, self._masks(shape, is_masked))

    def _prefetch(self, rows: int, columns: int) -> Beside | None:
        """What steps of a tile ask for: the rows below it, or the weights beside it."""
        product, depth = self.product, self._depth()
        rows_below = prefetch_rows(self.function, rows, depth)
        of_rows = self.conv.group_rows
        is_one_run = len(self.conv.loops) == 1 and self.conv.loops[0].step == ir.index(1)
        are_few = rows <= product.gemv_up_to or of_rows < 2 * rows
        if rows_below is not None or depth is None or not is_one_run or are_few:
            return rows_below
        n_panels = -(-columns * product.lanes // PANEL)
        nbytes = n_panels * self.conv.panel * (product.b.dtype.bits // 8)
        return prefetch_panels(self.function, nbytes, of_rows, rows, depth)

    def _in_blocks(self, shape: Tile, n_loops: int) -> Summing | None:
        """How a tile sums in the first K loops; taps that are counted later are as many as is
        usual."""
        counts = [
            int(taps.count.value) if isinstance(taps.count, ir.Const) else USUAL_TAPS
            for taps in self.conv.loops
        ]
        blocks = blocks_of(self.product.sum_dtype, counts)
        if blocks is None or n_loops == 0:
            return None
        if blocks.loop >= n_loops:
            blocks = Blocks(n_loops - 1, 1)
        return self.function.in_such_blocks(shape, blocks)

    def run(self, rows: int, columns: int, is_masked: bool) -> None:
        """A run of tiles."""
        shape, depth, [loop] = (
            self._shape(rows, columns, is_masked),
            self._depth(),
            k_loops(self.function, self.conv.loops),
        )
        assert depth is not None
        masks, start = self._masks(shape, is_masked), self._start(shape, is_masked)
        sums = Sums(shape, masks, start, loop, depth, self._step(shape))
        late_run(self.function, self.epilogue, sums)

    def _step(self, shape: Tile) -> Step:
        """What a tile does in a step of K."""
        line = self.function.nbytes(self.product.a.line, self.product.a)
        return tile_step(self.builder, shape, self.dot, line, self._column_offset)

    def strip(self, strip: Strip, ends: Ends, columns: int, is_masked: bool) -> None:
        """A tile of which some rows lack some taps: the taps of a line one after the other."""
        b, product = self.builder, self.product
        shape = self._shape(strip.pixels, columns, is_masked)
        prefetch_epilogue(self.function, strip.pixels, columns, self._depth())
        a_size, b_size = product.a.dtype.bits // 8, product.b.dtype.bits // 8
        step = self._rows_step(shape)

        def taps(a_at: str, b_at: str, sums: list[Vec]) -> list[Vec]:
            for first, count, rows in taps_of_rows(strip, ends):
                loops = [
                    KLoop(b.constant(n, I64), far * a_size, further * b_size)
                    for n, far, further in self._tap_loops(ends, count)
                ]
                a_here = b.offset(a_at, first * ends.tap * a_size)
                b_here = b.offset(b_at, first * ends.depth * PANEL * b_size)

                def some(a_at: str, b_at: str, sums: list[Vec], rows: Any = rows) -> list[Vec]:
                    return step(a_at, b_at, sums, rows)

                sums = summed(b, loops, a_here, b_here, sums, some)
            return sums

        start = self._start(shape, is_masked)
        summing = self._in_blocks(shape, ends.n_around)
        around = k_loops(self.function, self.conv.loops)[: ends.n_around]
        sums = (summing or summed)(b, around, "%a", "%b", start, taps, None)
        self.epilogue.finish(sums, self._masks(shape, is_masked))

    def _rows_step(self, shape: Tile) -> RowsStep:
        """What a tile of which some rows lack taps does in a step of K."""
        b, product, dot = self.builder, self.product, self.dot
        line = self.function.nbytes(product.a.line, product.a)

        def step(a_at: str, b_at: str, sums: list[Vec], rows: Sequence[int]) -> list[Vec]:
            new_sums = list(sums)
            vectors = [
                load_wide(
                    b, b.offset(b_at, self._column_offset(column)), dot.b, dot.sum, lanes, None
                )
                for column, lanes in enumerate(shape.widths)
            ]
            for row in rows:
                number = load_wide(b, moved(b, a_at, line * row), dot.a, dot.sum, 1, None)
                for at, vector in enumerate(vectors, row * shape.columns):
                    spread = b.broadcast(number, vector.type.lanes)
                    new_sums[at] = fma(spread, vector, new_sums[at])
            return new_sums

        return step

    def _tap_loops(self, ends: Ends, count: int) -> list[tuple[int, int, int]]:
        """Loops over so many taps and their channels: how often, and steps of input and panels."""
        if ends.channel == 1 and ends.tap == ends.depth:
            return [(count * ends.depth, 1, PANEL)]
        taps = (count, ends.tap, PANEL * ends.depth)
        channels = (ends.depth, ends.channel, PANEL)
        return [taps, channels] if ends.depth >= count else [channels, taps]

    def _start(self, shape: Tile, is_masked: bool) -> list[Vec]:
        """What the sums of a tile begin with."""
        masks = self._masks(shape, is_masked)
        return self.epilogue.sums_start(self.conv.start, shape.widths, masks) * shape.rows

    def _shape(self, rows: int, columns: int, is_masked: bool) -> Tile:
        """A tile; if it is masked, its last columns are the last there are."""
        last_lanes = self.conv.last_lanes if is_masked else 0
        return Tile(rows, columns, self.product.lanes, last_lanes)

    def _masks(self, shape: Tile, is_masked: bool) -> list[Vec | None]:
        """Which lanes of the columns are there; None where all are."""
        lanes, widths, n_columns = shape.lanes, shape.widths, self.product.n_columns
        if not is_masked or not isinstance(n_columns, ir.Const):
            return self.function.masks(shape.columns, is_masked)
        *whole, last = widths
        is_whole = int(n_columns.value) % lanes == last
        return [
            *[None] * len(whole),
            None if is_whole else self.function.mask(len(whole) * lanes, last),
        ]

    def _depth(self) -> int | None:
        """Steps of K, where their number is known."""
        counts = [taps.count for taps in self.conv.loops]
        known = [int(count.value) for count in counts if isinstance(count, ir.Const)]
        return prod(known) if len(known) == len(counts) else None

    def _column_offset(self, column: int) -> int:
        panel, lane = divmod(column * self.product.lanes, PANEL)
        return (panel * self.conv.panel + lane) * (self.product.b.dtype.bits // 8)


def k_loops(function: TileFunction, loops: Sequence[Taps]) -> list[KLoop]:
    """K loops over taps and channels, with their steps in bytes."""
    a, b_size = function.product.a, function.product.b.dtype.bits // 8
    return [
        KLoop(
            function.lowering.value(taps.count, SCALAR),
            function.nbytes(taps.step, a),
            taps.panel_step * b_size,
        )
        for taps in loops
    ]


def taps_of_rows(strip: Strip, ends: Ends) -> list[tuple[int, int, tuple[int, ...]]]:
    """Taps of a line that the same rows have: the first, how many, the rows."""
    runs: list[tuple[int, int, tuple[int, ...]]] = []
    for tap in range(ends.taps):
        rows = tuple(row for row in range(strip.pixels) if (row, tap) not in strip.outside)
        if runs and runs[-1][2] == rows:
            first, count, _ = runs.pop()
            runs.append((first, count + 1, rows))
        else:
            runs.append((tap, 1, rows))
    return [run for run in runs if run[2]]
