"""Depthwise: a convolution of every channel by itself as a micro-kernel; its tiles and its driver.

A vector is a run of channels. A function computes some pixels of a line for one vector: taps along
the line are unrolled, so that each element is loaded once and feeds every pixel that it is a tap
of; taps of other axes are loops over those inside the image.

    for group of channels, for line       channels outside: a vector's weights stay where they are
        for strip of the line             pixels of which the same taps are inside, some at a time

At the ends of a line taps are outside. Of a line whose length is known it is known which ones, and
the strips there leave them out; of others the pixels at the ends are done one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from arenite.backends.cpu.bytes.tile import add_pair, as_pair
from arenite.backends.cpu.conv.kernel import FIRST_LINE, LAST_LINE, Taps
from arenite.backends.cpu.conv.strips import Strip
from arenite.backends.cpu.conv.tile import k_loops
from arenite.backends.cpu.gemm.driver import GROUP_REST, GROUP_START, Driver, Emit
from arenite.backends.cpu.gemm.epilogue import Epilogue
from arenite.backends.cpu.gemm.functions import TileFunction
from arenite.backends.cpu.gemm.kernel import Details, MicroKernel
from arenite.backends.cpu.gemm.prefetch import LINE_NBYTES, prefetch_epilogue, prefetch_lines
from arenite.backends.cpu.gemm.tile import KLoop, load_wide, moved, summed
from arenite.backends.cpu.lowering.numeric import fma
from arenite.backends.cpu.lowering.partials import Phase
from arenite.backends.cpu.lowering.vector import I64, Builder, Vec
from arenite.codegen import loop_ir as ir
from arenite.codegen.printer import expression_text, loop_text
from arenite.dtype import INT8, INT32


@dataclass(frozen=True, slots=True)
class OpenLine:
    """A line of any length: pixels `first` to `last` have all taps inside; of pixel `pixel` those
    from `first_tap` on to before `last_tap` are."""

    pixel: str
    places: ir.Expr
    first: ir.Expr
    last: ir.Expr
    first_tap: ir.Expr
    last_tap: ir.Expr


@dataclass(frozen=True, slots=True)
class Depthwise(Details):
    """How a line is cut, and how its taps lie: steps of the input and weights in elements."""

    strips: tuple[Strip, ...] | OpenLine
    most: int  # pixels of a strip
    loops: tuple[Taps, ...]  # taps of other axes, outermost first
    taps: int  # along the line
    stride: int  # taps from a pixel's first to the next pixel's, counted in steps of the input
    dilation: int
    pixel: int  # elements from pixel to pixel of the input
    weight_step: int  # elements from tap to tap
    weights_at: ir.Expr
    line: str
    on_line: ir.Block
    #: Lines that a line is made of, and of these the last that no line before is made of: they are
    #: asked for ahead. 0 where the input is near.
    n_lines: int
    n_new_lines: int
    ahead: int  # pixels between a strip and the one that is asked for beside it
    last_lanes: int  # of the last vector of channels, if fewer than of others; else 0
    start: ir.Expr | None  # what sums begin with, if not with zero; the same for all pixels

    def text(self, kernel: MicroKernel) -> str:
        product = kernel.product
        strips = _strips_text(self)
        loops = "; ".join(map(str, self.loops))
        head = [
            f"// strips of {product.lanes} channels: {strips}; epilogue "
            f"{'short' if product.is_short else 'long'}",
            f"// {self.taps} taps {self.dilation} apart, stride {self.stride}, pixels {self.pixel} "
            f"apart, weights {self.weight_step}, at {expression_text(self.weights_at)}; "
            f"loops {loops}",
            f"// {product.a.array} ({product.a.dtype}) at {expression_text(product.a.base)}",
            f"// sums begin with {'zero' if self.start is None else expression_text(self.start)}",
        ]
        if self.last_lanes:
            head.append(f"// {self.last_lanes} lanes of the last channels")
        if self.n_new_lines:
            lines = f"the last {self.n_new_lines} lines"
            head.append(f"// asks for pixels of {lines} {self.ahead} ahead")
        placed = loop_text(replace(kernel, body=(*product.place, *self.on_line)))
        return "\n".join([*head, placed, loop_text(kernel)])


def _strips_text(own: Depthwise) -> str:
    if isinstance(own.strips, OpenLine):
        parts = (own.strips.first, own.strips.last, own.strips.first_tap, own.strips.last_tap)
        return f"of {own.most} pixels, {', '.join(map(expression_text, parts))}"
    return "; ".join(
        f"{s.count} x {s.pixels} from {s.first} without {sorted(s.outside)}" for s in own.strips
    )


class StripTile:
    """Some pixels of a line, for one vector of channels."""

    def __init__(self, function: TileFunction, depthwise: Depthwise) -> None:
        self.function = function
        self.builder = function.builder
        self.product = function.product
        self.dot = function.dot
        self.epilogue = Epilogue(function)
        self.depthwise = depthwise

    def strip(self, strip: Strip, is_masked: bool) -> None:
        b, product, own, dot = self.builder, self.product, self.depthwise, self.dot
        lanes, mask = self._lanes(is_masked)
        a_size, b_size = product.a.dtype.bits // 8, product.b.dtype.bits // 8
        uses = _uses(own, strip)
        in_pairs = b.target.is_x86 and dot.a == dot.b == INT8 and dot.sum == INT32
        add = add_pair if in_pairs else fma

        def step(a_at: str, b_at: str, sums: list[Vec]) -> list[Vec]:
            new_sums = list(sums)
            weights = [
                load_wide(
                    b, b.offset(b_at, tap * own.weight_step * b_size), dot.b, dot.sum, lanes, mask
                )
                for tap in range(own.taps)
            ]
            if in_pairs:
                weights = [as_pair(weight) for weight in weights]
            for at, users in uses.items():
                place = b.offset(a_at, at * own.pixel * a_size)
                value = load_wide(b, place, dot.a, dot.sum, lanes, mask)
                for pixel, tap in users:
                    new_sums[pixel] = add(value, weights[tap], new_sums[pixel])
            return new_sums

        if own.n_new_lines:
            self._prefetch(strip)
        start = self.epilogue.sums_start(own.start, [lanes], [mask]) * strip.pixels
        sums = summed(b, k_loops(self.function, own.loops), "%a", "%b", start, step)
        self.epilogue.finish(sums, [mask])

    def _prefetch(self, strip: Strip) -> None:
        """Prefetches for a strip some pixels behind this one: of its results and the lines of the
        input that no line before has read."""
        b, own, a = self.builder, self.depthwise, self.product.a
        [taps] = own.loops
        ahead = own.ahead
        prefetch_epilogue(self.function, strip.pixels, 1, own.taps, ahead)
        line, size = self.function.nbytes(taps.step, a), a.dtype.bits // 8
        for tap in range(own.n_lines - own.n_new_lines, own.n_lines):
            start = moved(b, "%a", line * tap)
            for pixel in range(ahead * own.stride, (ahead + strip.pixels) * own.stride):
                prefetch_lines(
                    b, b.offset(start, pixel * own.pixel * size), LINE_NBYTES, is_written=False
                )

    def end(self, is_masked: bool) -> None:
        """One pixel, of which `depth` taps are inside."""
        b, product, own, dot = self.builder, self.product, self.depthwise, self.dot
        lanes, mask = self._lanes(is_masked)
        a_size, b_size = product.a.dtype.bits // 8, product.b.dtype.bits // 8
        taps = KLoop(
            self.function.depth, own.dilation * own.pixel * a_size, own.weight_step * b_size
        )

        def step(a_at: str, b_at: str, sums: list[Vec]) -> list[Vec]:
            value = load_wide(b, a_at, dot.a, dot.sum, lanes, mask)
            return [fma(value, load_wide(b, b_at, dot.b, dot.sum, lanes, mask), sums[0])]

        start = self.epilogue.sums_start(own.start, [lanes], [mask])
        loops = [*k_loops(self.function, own.loops), taps]
        self.epilogue.finish(summed(b, loops, "%a", "%b", start, step), [mask])

    def _lanes(self, is_masked: bool) -> tuple[int, Vec | None]:
        """The lanes of a vector, which is the last if it is masked; None where all are there."""
        product = self.product
        if not is_masked:
            return product.lanes, None
        lanes = self.depthwise.last_lanes or product.lanes
        assert isinstance(product.n_columns, ir.Const)
        is_whole = int(product.n_columns.value) % product.lanes == lanes
        return lanes, None if is_whole else self.function.mask(0, lanes)


def _uses(own: Depthwise, strip: Strip) -> dict[int, list[tuple[int, int]]]:
    """For each element of the line that is read: the pixels and taps it is for."""
    uses: dict[int, list[tuple[int, int]]] = {}
    for pixel in range(strip.pixels):
        for tap in range(own.taps):
            if (pixel, tap) not in strip.outside:
                at = pixel * own.stride + tap * own.dilation
                uses.setdefault(at, []).append((pixel, tap))
    return dict(sorted(uses.items()))


#: The name of a function, the first pixel, and the first tap inside and how many there are.
Call: TypeAlias = Callable[[str, Vec, tuple[Vec, Vec] | None], None]


class DepthwiseDriver(Driver):
    """The function of a depthwise convolution."""

    def __init__(self, builder: Builder, kernel: MicroKernel) -> None:
        super().__init__(builder, kernel)
        assert isinstance(kernel.details, Depthwise)
        self.depthwise = kernel.details

    def panel(
        self, count: ir.Expr, columns: int, heights: Sequence[int], is_masked: bool
    ) -> ir.Block:
        """One vector of channels: for every line of the block its strips."""
        own = self.depthwise
        body = (*own.on_line, Emit(lambda: self._line(is_masked)))
        return (ir.For(own.line, FIRST_LINE, LAST_LINE, body),)

    def _line(self, is_masked: bool) -> None:
        """All strips of a line."""
        strips, call = self.depthwise.strips, self._caller()
        if isinstance(strips, OpenLine):
            self._open_line(strips, call, is_masked)
            return
        for strip in strips:
            name = self._strip_function(strip, is_masked)

            def turn(row: Vec, name: str = name) -> None:
                call(name, row, None)

            self.lowering.steps(strip.first, strip.end, strip.pixels, turn)

    def _open_line(self, line: OpenLine, call: Call, is_masked: bool) -> None:
        """Pixels at the ends one by one, those between in strips."""
        own = self.depthwise
        places, first, last = (self.number(x) for x in (line.places, line.first, line.last))
        ends = f"end{'m' if is_masked else ''}"

        def end(row: Vec) -> None:
            self.lowering.bind(line.pixel, row)
            first_tap, last_tap = (self.number(x) for x in (line.first_tap, line.last_tap))

            def inside() -> None:
                name = self.function(ends, lambda f: StripTile(f, own).end(is_masked))
                call(name, row, (first_tap, last_tap - first_tap))

            self.builder.when(first_tap.lt(last_tap), inside)
            nothing = Strip(0, 1, 1, frozenset((0, tap) for tap in range(own.taps)))
            none = self._strip_function(nothing, is_masked)
            self.builder.when(first_tap.ge(last_tap), lambda: call(none, row, None))

        def between(phase: Phase, row: Vec) -> None:
            strip = Strip(0, phase.parts, 1, frozenset())
            call(self._strip_function(strip, is_masked), row, None)

        self.lowering.steps(0, first, 1, end)
        phases = [Phase(1, own.most), Phase(1, 1)]
        self.lowering.counted_loop(first, last, phases, (), between)
        self.lowering.steps(last, places, 1, end)

    def _caller(self) -> Call:
        """Calls a function for a pixel and those after it; of the taps, from one on, so many."""
        b, product, own = self.builder, self.product, self.depthwise
        size = product.b.dtype.bits // 8
        start = self.number(own.weights_at) * size
        weights = moved(b, self.lowering.pointers[product.b.array], start)
        zero = b.constant(0, I64)
        base = self.address(product.a, zero)
        column, rest = self.number(GROUP_START), self.number(GROUP_REST)
        batch = [self.number(ir.Name(name)) for name in product.batch]
        nbytes = own.pixel * (product.a.dtype.bits // 8)

        def call(name: str, row: Vec, taps: tuple[Vec, Vec] | None) -> None:
            place, first, count = moved(b, base, row * (own.stride * nbytes)), weights, zero
            if taps is not None:
                tap, count = taps
                place = moved(b, place, tap * (own.dilation * nbytes))
                first = moved(b, weights, tap * (own.weight_step * size))
            self.call(name, place, first, (count, row, column, rest, *batch))

        return call

    def _strip_function(self, strip: Strip, is_masked: bool) -> str:
        suffix = f"{strip.name}{'m' if is_masked else ''}"
        return self.function(suffix, lambda f: StripTile(f, self.depthwise).strip(strip, is_masked))
