"""BytesKernel: a product or a convolution of bytes as a micro-kernel; its functions and its driver.

It is a ConvKernel whose K loops walk words of four bytes; a product is a convolution of one tap
whose pixels are rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from arenite.codegen import loop_ir as ir
from arenite.codegen.micro.bytes_tile import multiply_bytes
from arenite.codegen.micro.conv_kernel import ConvDriver, ConvFunction, ConvKernel
from arenite.codegen.micro.tile import Tile
from arenite.codegen.printer import kernel_text
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
        product, lanes = self.product, self.product.lanes
        line = self.nbytes(product.a.line, product.a)
        sums = multiply_bytes(
            self.builder,
            Tile(rows, columns, lanes),
            lambda row: line * row,
            self._column_offset,
            [] if product.depth == ir.index(0) else self._loops(),
            self.bytes_left,
        )
        masks = [self._mask(column * lanes) if is_masked else None for column in range(columns)]
        self.finish(sums, masks)

    def _column_offset(self, column: int) -> int:
        panel, lane = divmod(column * self.product.lanes, PANEL)
        return panel * self.conv.panel + lane * WORD


class BytesDriver(ConvDriver):
    """The function of a BytesKernel."""

    def __init__(self, builder: Builder, kernel: BytesKernel) -> None:
        super().__init__(builder, kernel)
        self.of_bytes = kernel

    def new_function(self, builder: Builder) -> BytesFunction:
        return BytesFunction(builder, self.of_bytes)
