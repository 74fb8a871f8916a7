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

from dataclasses import dataclass, replace

from arenite.codegen import loop_ir as ir
from arenite.codegen.micro.driver import _REST, Driver, _Emit
from arenite.codegen.micro.functions import TileFunction
from arenite.codegen.micro.kernel import MicroKernel
from arenite.codegen.micro.tile import KLoop, Tile, moved, multiply
from arenite.codegen.printer import expression_text, kernel_text, loop_text
from arenite.codegen.scope import SCALAR
from arenite.codegen.vector import Builder
from arenite.ir.ops.convolution import PANEL

#: The lines of a tile.
FIRST_LINE, LAST_LINE = ir.Name("first_line"), ir.Name("last_line")


@dataclass(frozen=True, slots=True)
class Taps:
    """A loop over part of K: how often it runs, and how far the input and the panels move."""

    count: ir.Expr
    step: ir.Expr  # elements of the input
    panel_step: int  # elements of a panel


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
    head = [
        f"// register tiles: {shape}, epilogue {'short' if product.is_short else 'long'}, "
        f"K loops {loops}, panels of {conv.panel} at {expression_text(conv.panels_at)}",
        f"// rows of {product.a.array} ({product.a.dtype}) at {expression_text(product.a.base)}, "
        f"{expression_text(product.a.line)} apart, depth {expression_text(product.depth)}",
    ]
    placed = loop_text(replace(kernel, body=(*product.place, *conv.copied, *conv.on_line)))
    return "\n".join([*head, placed, loop_text(kernel)])


class ConvFunction(TileFunction):
    """A register tile of a convolution."""

    def __init__(self, builder: Builder, kernel: ConvKernel) -> None:
        super().__init__(builder, kernel)
        self.conv = kernel.conv

    def tile(self, rows: int, columns: int, is_masked: bool) -> None:
        product, conv, lanes = self.product, self.conv, self.product.lanes
        size = product.b.dtype.bits // 8
        loops = [
            KLoop(
                self.value(taps.count, SCALAR),
                self.nbytes(taps.step, product.a),
                taps.panel_step * size,
            )
            for taps in conv.loops
        ]
        line = self.nbytes(product.a.line, product.a)

        def column_offset(column: int) -> int:
            panel, lane = divmod(column * lanes, PANEL)
            return (panel * conv.panel + lane) * size

        sums = multiply(
            self.builder,
            Tile(rows, columns, lanes),
            self.dot,
            "%a",
            "%b",
            lambda row: line * row,
            column_offset,
            loops,
            [None] * columns,
        )
        masks = [self._mask(column * lanes) if is_masked else None for column in range(columns)]
        self.finish(sums, masks)


class ConvDriver(Driver):
    """The function of a ConvKernel."""

    def __init__(self, builder: Builder, kernel: ConvKernel) -> None:
        super().__init__(builder, kernel)
        self.convolution = kernel

    def _panels(self) -> ir.Block:
        """The copy, and all groups of columns."""
        copied = self.convolution.conv.copied
        return (_Emit(lambda: self.block(copied)), *super()._panels())

    def _panel(self, count: ir.Expr, columns: int, is_masked: bool) -> ir.Block:
        """One group of columns: for every line of the block its tiles."""
        conv = self.convolution.conv
        body = (*conv.on_line, _Emit(lambda: self._line(columns, is_masked)))
        return (ir.For(conv.line, FIRST_LINE, LAST_LINE, body),)

    def _line(self, columns: int, is_masked: bool) -> None:
        product = self.product
        size = product.b.dtype.bits // 8
        start = self.value(self.convolution.conv.panels_at, SCALAR) * size
        columns_at = moved(self.builder, self.pointers[product.b.array], start)

        def build(rows: int) -> str:
            name = f"tile{rows}x{columns}{'m' if is_masked else ''}"
            return self._function(name, lambda f: f.tile(rows, columns, is_masked))

        self._rows(product.heights, build, columns_at, self.value(_REST, SCALAR))

    def new_function(self, builder: Builder) -> ConvFunction:
        return ConvFunction(builder, self.convolution)
