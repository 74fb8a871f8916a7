"""The function a launch of a convolution calls, one of channels last.

for tile                                            (image, block of lines, chunk of channels)
    copy the block's input lines to scratch         where they need zeros around or lie badly
    for group of columns, for line                  which taps are inside
        for pixels of the line: a register tile
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from arenite.backends.cpu.bytes.tile import BytesTile
from arenite.backends.cpu.conv.kernel import FIRST_LINE, LAST_LINE, Conv, Late
from arenite.backends.cpu.conv.strips import Strip
from arenite.backends.cpu.conv.tile import ConvTile
from arenite.backends.cpu.gemm.driver import GROUP_REST, GROUP_START, Driver, Emit
from arenite.backends.cpu.gemm.functions import TileFunction
from arenite.backends.cpu.gemm.kernel import FIRST_ROW, LAST_ROW, MicroKernel
from arenite.backends.cpu.gemm.tile import moved
from arenite.backends.cpu.lowering.scope import Level
from arenite.backends.cpu.lowering.vector import I64, Builder, Vec
from arenite.codegen import loop_ir as ir


class ConvDriver(Driver):
    """The function of a convolution."""

    def __init__(self, builder: Builder, kernel: MicroKernel) -> None:
        super().__init__(builder, kernel)
        assert isinstance(kernel.details, Conv)
        self.conv = kernel.details

    def convolution(self, function: TileFunction) -> ConvTile:
        is_bytes = self.conv.bytes_left is not None
        return BytesTile(function, self.conv) if is_bytes else ConvTile(function, self.conv)

    def tile(self, function: TileFunction, rows: int, columns: int, is_masked: bool) -> None:
        self.convolution(function).tile(rows, columns, is_masked)

    def panel_group(self, columns: int, heights: Sequence[int]) -> ir.Block:
        """A group of columns, with the outputs behind it."""
        group, outputs = super().panel_group(columns, heights), self.conv.outputs
        return (*group, Emit(lambda: self.lowering.block(outputs))) if outputs else group

    def panels(self) -> ir.Block:
        """The copy, and all groups of columns."""
        copied = self.conv.copied
        return (Emit(lambda: self.lowering.block(copied)), *super().panels())

    def panel(
        self, count: ir.Expr, columns: int, heights: Sequence[int], is_masked: bool
    ) -> ir.Block:
        """One group of columns: for every line of the block its tiles."""
        conv = self.conv
        body = (*conv.on_line, Emit(lambda: self._line(columns, heights, is_masked)))
        return (ir.For(conv.line, FIRST_LINE, LAST_LINE, body),)

    def _line(self, columns: int, heights: Sequence[int], is_masked: bool) -> None:
        product = self.product
        size = product.b.dtype.bits // 8
        start = self.number(self.conv.panels_at) * size
        columns_at = moved(self.builder, self.lowering.pointers[product.b.array], start)

        def build(rows: int) -> str:
            return self.tile_function(rows, columns, is_masked)

        ends = self.conv.ends
        late = self.conv.late
        if late is not None:
            self._run(late, columns, is_masked, build, columns_at)
            return
        if ends is None:
            self.rows(heights, build, columns_at, self.number(GROUP_REST))
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

        name = self.function(
            f"run{late.rows}x{columns}{'m' if is_masked else ''}",
            lambda f: self.convolution(f).run(late.rows, columns, is_masked),
        )
        numbers = [FIRST_ROW, LAST_ROW, GROUP_START, GROUP_REST, *map(ir.Name, product.batch)]
        first, last, column, rest, *batch = (self.number(expr) for expr in numbers)
        n_tiles = self.number((LAST_ROW - FIRST_ROW) // late.rows)
        a_at = self.address(product.a, first)
        given = (n_tiles, first, column, rest, *batch)
        b.when(n_tiles.gt(0), lambda: self.call(name, a_at, columns_at, given))
        if not late.rest:
            return
        self.number(product.depth)  # here, where it is known in both branches
        left = first + n_tiles * late.rows
        self.lowering.scope.push(Level("branch"))
        b.when(left.lt(last), lambda: self.rows(late.rest, build, columns_at, rest, left))
        self.lowering.scope.pop()

    def _end(self, strip: Strip, columns: int, is_masked: bool) -> str:
        ends = self.conv.ends
        assert ends is not None
        return self.function(
            f"{strip.name}x{columns}{'m' if is_masked else ''}",
            lambda f: self.convolution(f).strip(strip, ends, columns, is_masked),
        )

    def _strip(self, strip: Strip, name: str, columns_at: str) -> None:
        """Calls the function of a strip, as often as there are some."""
        b, product = self.builder, self.product
        numbers = [product.depth, GROUP_START, GROUP_REST, *map(ir.Name, product.batch)]
        depth, column, rest, *batch = (self.number(expr) for expr in numbers)
        base = self.address(product.a, b.constant(0, I64))
        line = self.number(product.a.line) * (product.a.dtype.bits // 8)

        def turn(row: Vec) -> None:
            numbers = (depth, row, column, rest, *batch)
            self.call(name, moved(b, base, row * line), columns_at, numbers)

        self.lowering.steps(strip.first, strip.end, strip.pixels, turn)
