"""BytesKernel: a product or a convolution of bytes as a micro-kernel; its functions and its driver.

It is a ConvKernel whose K loops walk words of four bytes; a product is a convolution of one tap
whose pixels are rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from arenite.backends.cpu.bytes.tile import WordTile
from arenite.backends.cpu.conv.kernel import (
    ConvDriver,
    ConvFunction,
    ConvKernel,
    Ends,
    taps_of_rows,
)
from arenite.backends.cpu.conv.strips import Strip
from arenite.backends.cpu.gemm.prefetch import ask_ahead
from arenite.backends.cpu.gemm.tile import KLoop, Step, Tile, summed
from arenite.backends.cpu.lowering.vector import I64, Builder, Vec
from arenite.backends.cpu.ops.byte_products import INT8, WORD
from arenite.backends.cpu.ops.channels_last import PANEL
from arenite.codegen import loop_ir as ir
from arenite.codegen.printer import kernel_text


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
        loops = [] if self.product.depth == ir.index(0) else self._loops()
        words = self._words(rows, columns, is_masked)
        sums = words.multiply(loops, self.bytes_left, self._begun(words.tile, is_masked))
        self._end(words, sums, is_masked)

    def strip(self, strip: Strip, ends: Ends, columns: int, is_masked: bool) -> None:
        b, words = self.builder, self._words(strip.pixels, columns, is_masked)

        def taps(a_at: str, b_at: str, sums: list[Vec]) -> list[Vec]:
            for first, count, rows in taps_of_rows(strip, ends):
                loops = [
                    KLoop(b.constant(n, I64), far, further)
                    for n, far, further in _word_loops(ends, count)
                ]
                a_here = b.offset(a_at, first * ends.tap)
                b_here = b.offset(b_at, first * ends.depth * PANEL)
                sums = summed(b, loops, a_here, b_here, sums, partial(words.step, rows=rows))
            return sums

        around = self._loops()[: ends.n_around]
        start = self._begun(words.tile, is_masked)
        self._end(words, summed(b, around, "%a", "%b", start, taps), is_masked)

    def _step(self, shape: Tile) -> Step:
        return self._word_tile(shape).step

    def _words(self, rows: int, columns: int, is_masked: bool) -> WordTile:
        ask_ahead(self, rows, columns, self._depth())
        return self._word_tile(self._shape(rows, columns, is_masked))

    def _word_tile(self, shape: Tile) -> WordTile:
        line = self.nbytes(self.product.a.line, self.product.a)
        is_signed = self.product.a.dtype == INT8
        return WordTile(self.builder, shape, lambda row: line * row, self._column_offset, is_signed)

    def _end(self, words: WordTile, sums: list[Vec], is_masked: bool) -> None:
        """The epilogue."""
        self.finish(words.by_row(sums), self._masks(words.tile, is_masked))

    def _column_offset(self, column: int) -> int:
        panel, lane = divmod(column * self.product.lanes, PANEL)
        return panel * self.conv.panel + lane * WORD


def _word_loops(ends: Ends, count: int) -> list[tuple[int, int, int]]:
    """Loops over so many taps and the words of their channels: how often, and both steps."""
    word = (WORD, PANEL * WORD)
    if ends.tap == ends.depth:
        return [(count * ends.depth // WORD, *word)]
    return [(count, ends.tap, PANEL * ends.depth), (ends.depth // WORD, *word)]


class BytesDriver(ConvDriver):
    """The function of a BytesKernel."""

    def __init__(self, builder: Builder, kernel: BytesKernel) -> None:
        super().__init__(builder, kernel)
        self.of_bytes = kernel

    def new_function(self, builder: Builder) -> BytesFunction:
        return BytesFunction(builder, self.of_bytes)
