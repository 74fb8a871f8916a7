"""ConvKernel: a convolution with channels last as a micro-kernel; its functions and its driver.

A convolution is a product whose rows are the pixels of an output line and whose columns are output
channels. Beside what a product says, `Taps` say how K is walked: over the taps that lie inside the
image, which may be fewer at its edges, and over the input channels. Weights lie in panels.

    for tile                                            (image, block of lines, chunk of channels)
        copy the block's input lines to scratch         where they need zeros around or lie badly
        for group of columns, for line                  which taps are inside
            for pixels of the line: a register tile
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod

from arenite.backends.cpu.conv.late_epilogue import Late, LateFunction, Sums
from arenite.backends.cpu.conv.strips import Strip
from arenite.backends.cpu.gemm.driver import GROUP_REST, GROUP_START, Driver, Emit
from arenite.backends.cpu.gemm.functions import TileFunction
from arenite.backends.cpu.gemm.kernel import FIRST_ROW, LAST_ROW, MicroKernel
from arenite.backends.cpu.gemm.partial_sums import Blocks, blocks_of
from arenite.backends.cpu.gemm.prefetch import ask_ahead, rows_ahead
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
from arenite.backends.cpu.lowering.partials import Phase
from arenite.backends.cpu.lowering.scope import SCALAR, Level
from arenite.backends.cpu.lowering.vector import I64, Builder, Vec
from arenite.backends.cpu.ops.channels_last import PANEL
from arenite.codegen import loop_ir as ir
from arenite.codegen.printer import expression_text, kernel_text, loop_text

#: Taps along one axis of a window, where their number is not known.
USUAL_TAPS = 3
#: The lines of a tile.
FIRST_LINE, LAST_LINE = ir.Name("first_line"), ir.Name("last_line")


@dataclass(frozen=True, slots=True)
class Taps:
    """A loop over part of K: how often it runs, and how far the input and the panels move."""

    count: ir.Expr
    step: ir.Expr  # elements of the input
    panel_step: int  # elements of a panel


@dataclass(frozen=True, slots=True)
class Ends:
    """A line read in place, whose strips leave out the taps outside: what K loops run around the
    taps of a line, and how far it is from one of these to the next."""

    strips: tuple[Strip, ...]
    n_around: int
    taps: int
    tap: int  # elements of the input
    depth: int
    channel: int  # elements of the input from one to the next


@dataclass(frozen=True, slots=True)
class Conv:
    """`loops` outermost first; `line` is the variable of the lines and `on_line` names, for one of
    them, the taps inside; `panels_at` is where the first of a group's columns begins."""

    loops: tuple[Taps, ...]
    panel: int  # elements from panel to panel
    panels_at: ir.Expr
    line: str
    on_line: ir.Block
    copied: ir.Block  # what a block begins with
    ends: Ends | None = None
    last_lanes: int = 0  # of the last vector of columns, if fewer than of others
    start: ir.Expr | None = None  # what sums begin with, if not with zero; the same for all rows
    late: Late | None = None


@dataclass(frozen=True, slots=True)
class ConvKernel(MicroKernel):
    conv: Conv


@kernel_text.register
def _(kernel: ConvKernel) -> str:
    """The loops, below how they are made."""
    product, conv = kernel.product, kernel.conv
    loops = "; ".join(
        f"{expression_text(t.count)} x ({expression_text(t.step)}, {t.panel_step})"
        for t in conv.loops
    )
    shape = f"{product.columns} x {product.lanes} lanes, heights {product.heights}"
    if product.few_heights:
        few = f"{product.few_columns // product.lanes} x {product.lanes} lanes"
        shape += f"; up to {product.few_up_to} rows {few}, heights {product.few_heights}"
    head = [
        f"// register tiles: {shape}, epilogue {'short' if product.is_short else 'long'}, "
        f"K loops {loops}, panels of {conv.panel} at {expression_text(conv.panels_at)}",
        f"// rows of {product.a.array} ({product.a.dtype}) at {expression_text(product.a.base)}, "
        f"{expression_text(product.a.line)} apart, depth {expression_text(product.depth)}",
        f"// sums begin with {'zero' if conv.start is None else expression_text(conv.start)}",
    ]
    if conv.late is not None:
        head.append(f"// in runs of {conv.late.rows} rows, then {conv.late.rest}")
    if product.joined is not None:
        head.append(f"// tiles of {product.joined.length} rows, several of them as one")
    if conv.last_lanes:
        head.append(f"// {conv.last_lanes} lanes of the last columns")
    if conv.ends is not None:
        cut = (f"{s.count} {s.name} from {s.first}" for s in conv.ends.strips)
        head.append(f"// {', '.join(cut)}, {conv.ends}")
    placed = loop_text(replace(kernel, body=(*product.place, *conv.copied, *conv.on_line)))
    return "\n".join([*head, placed, loop_text(kernel)])


class ConvFunction(LateFunction):
    """A register tile of a convolution."""

    def __init__(self, builder: Builder, kernel: ConvKernel) -> None:
        super().__init__(builder, kernel)
        self.conv = kernel.conv

    def tile(self, rows: int, columns: int, is_masked: bool) -> None:
        product, shape = self.product, self._shape(rows, columns, is_masked)
        ask_ahead(self, rows, columns, self._depth())
        line = self.nbytes(product.a.line, product.a)
        sums = multiply(
            self.builder,
            shape,
            self.dot,
            "%a",
            "%b",
            lambda row: line * row,
            self._column_offset,
            self._loops(),
            [None] * columns,
            rows_ahead(self, rows, self._depth()),
            start=self._begun(shape, is_masked),
            summing=self._in_blocks(shape, len(self.conv.loops)),
        )
        self.finish(sums, self._masks(shape, is_masked))

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
        return self.in_such_blocks(shape, blocks)

    def run(self, rows: int, columns: int, is_masked: bool) -> None:
        """A run of tiles."""
        shape, depth, [loop] = self._shape(rows, columns, is_masked), self._depth(), self._loops()
        assert depth is not None
        masks, start = self._masks(shape, is_masked), self._begun(shape, is_masked)
        self.late_run(Sums(shape, masks, start, loop, depth, self._step(shape)))

    def _step(self, shape: Tile) -> Step:
        """What a tile does in a step of K."""
        line = self.nbytes(self.product.a.line, self.product.a)
        masks = [None] * shape.columns
        return tile_step(
            self.builder, shape, self.dot, lambda row: line * row, self._column_offset, masks
        )

    def strip(self, strip: Strip, ends: Ends, columns: int, is_masked: bool) -> None:
        """A tile of which some rows lack some taps: the taps of a line one after the other."""
        b, product, dot = self.builder, self.product, self.dot
        shape = self._shape(strip.pixels, columns, is_masked)
        ask_ahead(self, strip.pixels, columns, self._depth())
        line = self.nbytes(product.a.line, product.a)
        a_size, b_size = product.a.dtype.bits // 8, product.b.dtype.bits // 8

        def step(rows: Sequence[int], a_at: str, b_at: str, sums: list[Vec]) -> list[Vec]:
            made = list(sums)
            vectors = [
                load_wide(
                    b, b.offset(b_at, self._column_offset(column)), dot.b, dot.sum, lanes, None
                )
                for column, lanes in enumerate(shape.widths)
            ]
            for row in rows:
                number = load_wide(b, moved(b, a_at, line * row), dot.a, dot.sum, 1, None)
                for at, vector in enumerate(vectors, row * columns):
                    spread = b.broadcast(number, vector.type.lanes)
                    made[at] = fma(spread, vector, made[at])
            return made

        def taps(a_at: str, b_at: str, sums: list[Vec]) -> list[Vec]:
            for first, count, rows in taps_of_rows(strip, ends):
                loops = [
                    KLoop(b.constant(n, I64), far * a_size, further * b_size)
                    for n, far, further in _tap_loops(ends, count)
                ]
                a_here = b.offset(a_at, first * ends.tap * a_size)
                b_here = b.offset(b_at, first * ends.depth * PANEL * b_size)
                sums = summed(b, loops, a_here, b_here, sums, partial(step, rows))
            return sums

        start = self._begun(shape, is_masked)
        summing = self._in_blocks(shape, ends.n_around)
        around = self._loops()[: ends.n_around]
        flat = (summing or summed)(b, around, "%a", "%b", start, taps, None)
        sums = [flat[row * columns : (row + 1) * columns] for row in range(strip.pixels)]
        self.finish(sums, self._masks(shape, is_masked))

    def _begun(self, shape: Tile, is_masked: bool) -> list[Vec]:
        """What the sums of a tile begin with."""
        masks = self._masks(shape, is_masked)
        return self.begun(self.conv.start, shape.widths, masks) * shape.rows

    def _shape(self, rows: int, columns: int, is_masked: bool) -> Tile:
        """A tile; if it is masked, its last columns are the last there are."""
        last_lanes = self.conv.last_lanes if is_masked else 0
        return Tile(rows, columns, self.product.lanes, last_lanes)

    def _masks(self, shape: Tile, is_masked: bool) -> list[Vec | None]:
        """Which lanes of the columns are there; None where all are."""
        lanes, widths, n_columns = shape.lanes, shape.widths, self.product.n_columns
        if not is_masked:
            return [None] * shape.columns
        if not isinstance(n_columns, ir.Const):
            return [self._mask(column * lanes) for column in range(shape.columns)]
        *whole, last = widths
        is_whole = int(n_columns.value) % lanes == last
        return [*[None] * len(whole), None if is_whole else self._mask(len(whole) * lanes, last)]

    def _depth(self) -> int | None:
        """Steps of K, where their number is known."""
        counts = [taps.count for taps in self.conv.loops]
        known = [int(count.value) for count in counts if isinstance(count, ir.Const)]
        return prod(known) if len(known) == len(counts) else None

    def _column_offset(self, column: int) -> int:
        panel, lane = divmod(column * self.product.lanes, PANEL)
        return (panel * self.conv.panel + lane) * (self.product.b.dtype.bits // 8)

    def _loops(self) -> list[KLoop]:
        size = self.product.b.dtype.bits // 8
        return [
            KLoop(
                self.value(taps.count, SCALAR),
                self.nbytes(taps.step, self.product.a),
                taps.panel_step * size,
            )
            for taps in self.conv.loops
        ]


def _tap_loops(ends: Ends, count: int) -> list[tuple[int, int, int]]:
    """Loops over so many taps and their channels: how often, and steps of input and panels."""
    if ends.channel == 1 and ends.tap == ends.depth:
        return [(count * ends.depth, 1, PANEL)]
    taps = (count, ends.tap, PANEL * ends.depth)
    channels = (ends.depth, ends.channel, PANEL)
    return [taps, channels] if ends.depth >= count else [channels, taps]


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


class ConvDriver(Driver):
    """The function of a ConvKernel."""

    def __init__(self, builder: Builder, kernel: ConvKernel) -> None:
        super().__init__(builder, kernel)
        self.convolution = kernel

    def _panels(self) -> ir.Block:
        """The copy, and all groups of columns."""
        copied = self.convolution.conv.copied
        return (Emit(lambda: self.block(copied)), *super()._panels())

    def _panel(
        self, count: ir.Expr, columns: int, heights: Sequence[int], is_masked: bool
    ) -> ir.Block:
        """One group of columns: for every line of the block its tiles."""
        conv = self.convolution.conv
        body = (*conv.on_line, Emit(lambda: self._line(columns, heights, is_masked)))
        return (ir.For(conv.line, FIRST_LINE, LAST_LINE, body),)

    def _line(self, columns: int, heights: Sequence[int], is_masked: bool) -> None:
        product = self.product
        size = product.b.dtype.bits // 8
        start = self.value(self.convolution.conv.panels_at, SCALAR) * size
        columns_at = moved(self.builder, self.pointers[product.b.array], start)

        def build(rows: int) -> str:
            name = f"tile{rows}x{columns}{'m' if is_masked else ''}"
            return self._function(name, lambda f: f.tile(rows, columns, is_masked))

        ends = self.convolution.conv.ends
        late = self.convolution.conv.late
        if late is not None:
            self._run(late, columns, is_masked, build, columns_at)
            return
        if ends is None:
            self._rows(heights, build, columns_at, self.value(GROUP_REST, SCALAR))
            return
        for strip in ends.strips:
            name = (
                build(strip.pixels) if not strip.outside else self._end(strip, columns, is_masked)
            )
            self._strip(strip, name, columns_at)

    def _run(
        self,
        late: Late,
        columns: int,
        is_masked: bool,
        build: Callable[[int], str],
        columns_at: str,
    ) -> None:
        """A run of as many tiles as there are, and a tile of what is left."""
        b, product = self.builder, self.product

        def fill(function: TileFunction) -> None:
            assert isinstance(function, ConvFunction)
            function.run(late.rows, columns, is_masked)

        name = self._function(f"run{late.rows}x{columns}{'m' if is_masked else ''}", fill)
        numbers = [FIRST_ROW, LAST_ROW, GROUP_START, GROUP_REST, *map(ir.Name, product.batch)]
        first, last, column, rest, *batch = (self.value(number, SCALAR) for number in numbers)
        n_tiles = self.value((LAST_ROW - FIRST_ROW) // late.rows, SCALAR)
        a_at = self._address(product.a, first)
        given = ", ".join(f"i64 {x.text}" for x in (n_tiles, first, column, rest, *batch))
        call = f"call fastcc void @{name}(ptr %window, ptr {a_at}, ptr {columns_at}, {given})"
        b.when(n_tiles.gt(0), lambda: b.emit_void(call))
        if not late.rest:
            return
        self.value(product.depth, SCALAR)  # here, where it is known in both branches
        left = first + n_tiles * late.rows
        self.scope.push(Level("branch"))
        b.when(left.lt(last), lambda: self._rows(late.rest, build, columns_at, rest, left))
        self.scope.pop()

    def _end(self, strip: Strip, columns: int, is_masked: bool) -> str:
        ends = self.convolution.conv.ends
        assert ends is not None

        def fill(function: TileFunction) -> None:
            assert isinstance(function, ConvFunction)
            function.strip(strip, ends, columns, is_masked)

        return self._function(f"{strip.name}x{columns}{'m' if is_masked else ''}", fill)

    def _strip(self, strip: Strip, name: str, columns_at: str) -> None:
        """Calls the function of a strip, as often as there are some."""
        b, product = self.builder, self.product
        numbers = [product.depth, GROUP_START, GROUP_REST, *map(ir.Name, product.batch)]
        depth, column, rest, *batch = (self.value(number, SCALAR) for number in numbers)
        base = self._address(product.a, b.constant(0, I64))
        line = self.value(product.a.line, SCALAR) * (product.a.dtype.bits // 8)

        def turn(_: Phase, row: Vec) -> None:
            given = ", ".join(f"i64 {x.text}" for x in (depth, row, column, rest, *batch))
            b.emit_void(
                f"call fastcc void @{name}(ptr %window, ptr {moved(b, base, row * line)}, "
                f"ptr {columns_at}, {given})"
            )

        first, last = b.constant(strip.first, I64), b.constant(strip.end, I64)
        self.counted_loop(first, last, [Phase(1, strip.pixels)], (), turn)

    def new_function(self, builder: Builder) -> ConvFunction:
        return ConvFunction(builder, self.convolution)
