"""DepthwiseKernel: a convolution of every channel by itself; its functions and its driver.

A vector is a run of channels. A function computes some pixels of a line for one vector: taps along
the line are unrolled, so that each element is loaded once and feeds every pixel that it is a tap
of; taps of other axes are loops over those inside the image.

    for group of channels, for line       channels outside: a vector's weights stay where they are
        for strip of the line             pixels of which the same taps are inside, some at a time

At the ends of a line taps are outside; which ones is known when the code is made.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from arenite.codegen import loop_ir as ir
from arenite.codegen.convert import register_type
from arenite.codegen.micro.conv_kernel import FIRST_LINE, LAST_LINE, Taps
from arenite.codegen.micro.driver import _REST, _START, Driver, _Emit
from arenite.codegen.micro.functions import TileFunction
from arenite.codegen.micro.kernel import MicroKernel
from arenite.codegen.micro.tile import KLoop, load_wide, moved, summed
from arenite.codegen.numeric import fma
from arenite.codegen.partials import Phase
from arenite.codegen.printer import expression_text, kernel_text, loop_text
from arenite.codegen.scope import SCALAR
from arenite.codegen.vector import I64, Builder, Vec


@dataclass(frozen=True, slots=True)
class Strip:
    """`count` times `pixels` from `first` on; (pixel, tap) in `outside` are not there."""

    first: int
    pixels: int
    count: int
    outside: frozenset[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Depthwise:
    """How a line is cut, and how its taps lie: steps of the input and weights in elements."""

    strips: tuple[Strip, ...]
    loops: tuple[Taps, ...]  # taps of other axes, outermost first
    taps: int  # along the line
    stride: int  # taps from a pixel's first to the next pixel's, counted in steps of the input
    dilation: int
    pixel: int  # elements from pixel to pixel of the input
    weight_step: int  # elements from tap to tap
    weights_at: ir.Expr
    line: str
    on_line: ir.Block


@dataclass(frozen=True, slots=True)
class DepthwiseKernel(MicroKernel):
    depthwise: Depthwise


@kernel_text.register
def _(kernel: DepthwiseKernel) -> str:
    """The loops, below how they are made."""
    product, own = kernel.product, kernel.depthwise
    strips = "; ".join(
        f"{s.count} x {s.pixels} from {s.first} without {sorted(s.outside)}" for s in own.strips
    )
    loops = "; ".join(
        f"{expression_text(t.count)} x ({expression_text(t.step)}, {t.panel_step})"
        for t in own.loops
    )
    head = [
        f"// strips of {product.lanes} channels: {strips}; epilogue "
        f"{'short' if product.is_short else 'long'}",
        f"// {own.taps} taps {own.dilation} apart, stride {own.stride}, pixels {own.pixel} apart, "
        f"weights {own.weight_step}, at {expression_text(own.weights_at)}; loops {loops}",
        f"// {product.a.array} ({product.a.dtype}) at {expression_text(product.a.base)}",
    ]
    placed = loop_text(replace(kernel, body=(*product.place, *own.on_line)))
    return "\n".join([*head, placed, loop_text(kernel)])


class StripFunction(TileFunction):
    """Some pixels of a line, for one vector of channels."""

    def __init__(self, builder: Builder, kernel: DepthwiseKernel) -> None:
        super().__init__(builder, kernel)
        self.depthwise = kernel.depthwise

    def strip(self, strip: Strip, is_masked: bool) -> None:
        b, product, own = self.builder, self.product, self.depthwise
        lanes, dot = product.lanes, self.dot
        mask = self._mask(0) if is_masked else None
        a_size, b_size = product.a.dtype.bits // 8, product.b.dtype.bits // 8
        uses = _uses(own, strip)

        def step(a_at: str, b_at: str, sums: list[Vec]) -> list[Vec]:
            made = list(sums)
            weights = [
                load_wide(
                    b, b.offset(b_at, tap * own.weight_step * b_size), dot.b, dot.sum, lanes, mask
                )
                for tap in range(own.taps)
            ]
            for at, users in uses.items():
                place = b.offset(a_at, at * own.pixel * a_size)
                value = load_wide(b, place, dot.a, dot.sum, lanes, mask)
                for pixel, tap in users:
                    made[pixel] = fma(value, weights[tap], made[pixel])
            return made

        loops = [
            KLoop(
                self.value(taps.count, SCALAR),
                self.nbytes(taps.step, product.a),
                taps.panel_step * b_size,
            )
            for taps in own.loops
        ]
        zero = b.constant(0, register_type(dot.sum, lanes))
        sums = summed(b, loops, "%a", "%b", [zero] * strip.pixels, step)
        self.finish([[total] for total in sums], [mask])


def _uses(own: Depthwise, strip: Strip) -> dict[int, list[tuple[int, int]]]:
    """For each element of the line that is read: the pixels and taps it is for."""
    uses: dict[int, list[tuple[int, int]]] = {}
    for pixel in range(strip.pixels):
        for tap in range(own.taps):
            if (pixel, tap) not in strip.outside:
                at = pixel * own.stride + tap * own.dilation
                uses.setdefault(at, []).append((pixel, tap))
    return dict(sorted(uses.items()))


class DepthwiseDriver(Driver):
    """The function of a DepthwiseKernel."""

    def __init__(self, builder: Builder, kernel: DepthwiseKernel) -> None:
        super().__init__(builder, kernel)
        self.kernel_here = kernel

    def new_function(self, builder: Builder) -> StripFunction:
        return StripFunction(builder, self.kernel_here)

    def _panel(self, count: ir.Expr, columns: int, is_masked: bool) -> ir.Block:
        """One vector of channels: for every line of the block its strips."""
        own = self.kernel_here.depthwise
        body = (*own.on_line, _Emit(lambda: self._line(is_masked)))
        return (ir.For(own.line, FIRST_LINE, LAST_LINE, body),)

    def _line(self, is_masked: bool) -> None:
        b, product, own = self.builder, self.product, self.kernel_here.depthwise
        size = product.b.dtype.bits // 8
        start = self.value(own.weights_at, SCALAR) * size
        weights = moved(b, self.pointers[product.b.array], start)
        zero = b.constant(0, I64)
        base = self._address(product.a, zero)
        column, rest = self.value(_START, SCALAR), self.value(_REST, SCALAR)
        batch = [self.value(ir.Name(name), SCALAR) for name in product.batch]
        nbytes = own.stride * own.pixel * (product.a.dtype.bits // 8)

        def call(name: str, row: Vec) -> None:
            numbers = ", ".join(f"i64 {x.text}" for x in (zero, row, column, rest, *batch))
            place = moved(b, base, row * nbytes)
            b.emit_void(
                f"call fastcc void @{name}(ptr %window, ptr {place}, ptr {weights}, {numbers})"
            )

        for strip in own.strips:
            name = self._strip_function(strip, is_masked)
            first = b.constant(strip.first, I64)
            last = b.constant(strip.first + strip.count * strip.pixels, I64)

            def turn(_: Phase, row: Vec, name: str = name) -> None:
                call(name, row)

            self.counted_loop(first, last, [Phase(1, strip.pixels)], (), turn)

    def _strip_function(self, strip: Strip, is_masked: bool) -> str:
        """The function for a strip; those that differ only in where they begin share it."""
        outside = "_".join(f"{pixel}.{tap}" for pixel, tap in sorted(strip.outside))
        suffix = f"strip{strip.pixels}{'m' if is_masked else ''}" + (
            f"_{outside}" if outside else ""
        )

        def fill(function: TileFunction) -> None:
            assert isinstance(function, StripFunction)
            function.strip(strip, is_masked)

        return self._function(suffix, fill)
