"""BytesKernel: a product or a convolution of bytes as a micro-kernel; its functions and its driver.

It is a ConvKernel whose K loops walk words of four bytes; a product is a convolution of one tap
whose pixels are rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from arenite.codegen import loop_ir as ir
from arenite.codegen.micro.bytes_tile import multiply_bytes
from arenite.codegen.micro.conv_kernel import ConvDriver, ConvFunction, ConvKernel
from arenite.codegen.micro.tile import KLoop, Tile
from arenite.codegen.printer import kernel_text
from arenite.codegen.scope import SCALAR
from arenite.codegen.vector import Builder
from arenite.ir.ops.byte_products import WORD
from arenite.ir.ops.convolution import PANEL


@dataclass(frozen=True, slots=True)
class BytesKernel(ConvKernel):
    rest: int  # bytes of A behind its last whole word; then there is one loop at the most


@kernel_text.register
def _(kernel: BytesKernel) -> str:
    """The loops, below how they are made."""
    text: str = kernel_text.dispatch(ConvKernel)(kernel)
    return f"// words of {WORD} bytes, and {kernel.rest} bytes\n{text}"


class BytesFunction(ConvFunction):
    """A register tile of bytes."""

    def __init__(self, builder: Builder, kernel: BytesKernel) -> None:
        super().__init__(builder, kernel)
        self.bytes_left = kernel.rest

    def tile(self, rows: int, columns: int, is_masked: bool) -> None:
        product, conv, lanes = self.product, self.conv, self.product.lanes
        loops = [
            KLoop(
                self.value(taps.count, SCALAR),
                self.nbytes(taps.step, product.a),
                taps.panel_step,
            )
            for taps in conv.loops
            if taps.count != ir.index(0)
        ]
        line = self.nbytes(product.a.line, product.a)

        def column_offset(column: int) -> int:
            panel, lane = divmod(column * lanes, PANEL)
            return panel * conv.panel + lane * WORD

        sums = multiply_bytes(
            self.builder,
            Tile(rows, columns, lanes),
            lambda row: line * row,
            column_offset,
            loops,
            self.bytes_left,
        )
        masks = [self._mask(column * lanes) if is_masked else None for column in range(columns)]
        self.finish(sums, masks)


class BytesDriver(ConvDriver):
    """The function of a BytesKernel."""

    def __init__(self, builder: Builder, kernel: BytesKernel) -> None:
        super().__init__(builder, kernel)
        self.of_bytes = kernel

    def new_function(self, builder: Builder) -> BytesFunction:
        return BytesFunction(builder, self.of_bytes)
