"""The register tiles of a product or a convolution of bytes, whose K loops walk words of four.

A product is a convolution of one tap whose pixels are rows.
"""

from __future__ import annotations

from arenite.backends.cpu.bytes.tile import WordTile
from arenite.backends.cpu.conv.kernel import Ends
from arenite.backends.cpu.conv.tile import ConvTile, RowsStep, k_loops
from arenite.backends.cpu.gemm.prefetch import prefetch_epilogue
from arenite.backends.cpu.gemm.tile import Step, Tile
from arenite.backends.cpu.ops.byte_products import INT8, WORD
from arenite.backends.cpu.ops.channels_last import PANEL
from arenite.codegen import loop_ir as ir


class BytesTile(ConvTile):
    """A register tile of bytes."""

    def tile(self, rows: int, columns: int, is_masked: bool) -> None:
        loops = [] if self.product.depth == ir.index(0) else k_loops(self.function, self.conv.loops)
        prefetch_epilogue(self.function, rows, columns, self._depth())
        words = self._word_tile(self._shape(rows, columns, is_masked))
        sums = words.multiply(loops, self.conv.bytes_left or 0, self._start(words.tile, is_masked))
        self.epilogue.finish(sums, self._masks(words.tile, is_masked))

    def _step(self, shape: Tile) -> Step:
        return self._word_tile(shape).step

    def _rows_step(self, shape: Tile) -> RowsStep:
        return self._word_tile(shape).step

    def _tap_loops(self, ends: Ends, count: int) -> list[tuple[int, int, int]]:
        word = (WORD, PANEL * WORD)
        if ends.tap == ends.depth:
            return [(count * ends.depth // WORD, *word)]
        return [(count, ends.tap, PANEL * ends.depth), (ends.depth // WORD, *word)]

    def _word_tile(self, shape: Tile) -> WordTile:
        line = self.function.nbytes(self.product.a.line, self.product.a)
        is_signed = self.product.a.dtype == INT8
        return WordTile(self.builder, shape, line, self._column_offset, is_signed)

    def _column_offset(self, column: int) -> int:
        panel, lane = divmod(column * self.product.lanes, PANEL)
        return panel * self.conv.panel + lane * WORD
