"""A matmul_panels of the schedule becomes a micro-kernel: a convolution of one tap, rows as pixels.

Where the number of rows is known only later, it is cut into tiles of some heights; few rows are
done in lower tiles of more columns, for a sum waits for the one before it.

A small product, as in the body of a loop, is cut into two halves of its rows: if what follows is
cut alike, a worker that has the same half each time reads no rows that another one has written.
"""

from __future__ import annotations

from dataclasses import replace

from arenite.backends.cpu.conv.build import NO_LOW_TILES, ConvBuilder, LowTiles, Panels
from arenite.backends.cpu.conv.cut import ConvCut, ConvSizes
from arenite.backends.cpu.gemm.kernel import FIRST_ROW, LAST_ROW, Joined
from arenite.backends.cpu.gemm.rows import even_heights
from arenite.backends.cpu.gemm.tile import most_rows
from arenite.backends.cpu.ops.channels_last import PANEL
from arenite.backends.cpu.target import Target
from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.built import Built
from arenite.ir.dim import Dim, bounds
from arenite.schedule.kernel import Kernel

#: Rows that are few, at the most, and heights of tiles that all larger numbers are cut into.
FEW_ROWS = 4
HEIGHTS = (9, 8, 7, 6, 5)
#: Rows and multiplications, some three microseconds, from which on a product is cut into halves.
HALVED_ROWS, HALVED_WORK = 4, 3 << 16


def build_panels(kernel: Kernel, target: Target, choice: str = "") -> Built | None:
    """The kernel as a micro-kernel, or None if it is not one that register tiles fit."""
    node = kernel.stages[0].node
    if not target.has_fma:
        return None
    n_panels, depth, _ = (bounds(size)[1] for size in node.inputs[1].shape)
    weights = Panels(1, n_panels, (), depth, depth, node.attr("columns"))
    builder = _PanelsBuilder(kernel, node, weights)
    return builder.built(target, choice) if builder.fits else None


class _PanelsBuilder(ConvBuilder):
    def _cut(self, sizes: ConvSizes, target: Target) -> ConvCut:
        usual = super()._cut(sizes, target)
        if self._low_tiles(usual, target).up_to:
            return replace(usual, heights=later_heights(usual.heights[0]))
        return self._halved(usual, sizes, target)

    def _halved(self, usual: ConvCut, sizes: ConvSizes, target: Target) -> ConvCut:
        """All rows as two tiles, where they are one and each can have the weights in its cache."""
        rows, elements = sizes.pixels, sizes.channels * sizes.depth
        if (
            not isinstance(rows, int)
            or rows < HALVED_ROWS
            or rows * elements < HALVED_WORK
            or elements * self.conv.w.dtype.bits // 8 > target.l2_nbytes // 2
            or self._n_tiles(usual) != 1
        ):
            return usual
        half = -(-rows // 2)
        tallest = min(most_rows(target, usual.columns), sizes.most_pixels)
        heights = even_heights([rows, half, rows - half], tallest)
        return replace(usual, heights=heights, block_pixels=half)

    def _n_tiles(self, cut: ConvCut) -> Dim:
        return self.conv.place(cut)[0]

    def _joined_rows(self, cut: ConvCut) -> Joined | None:
        rows, length = self.conv.line.places, cut.block_pixels
        if not (isinstance(rows, int) and isinstance(length, int)) or length >= rows:
            return None
        if self._n_tiles(cut) != 2:
            return None
        return Joined(FIRST_ROW.name, LAST_ROW.name, length, ir.index(rows))

    def _low_tiles(self, cut: ConvCut, target: Target) -> LowTiles:
        if isinstance(self.conv.line.places, int) or cut.heights[0] <= FEW_ROWS:
            return NO_LOW_TILES
        n_vectors = cut.block_channels // cut.lanes
        columns = [
            columns
            for columns in range(cut.columns, n_vectors + 1)
            if n_vectors % columns == 0
            and (columns * cut.lanes % PANEL == 0 or columns == n_vectors)
            and most_rows(target, columns) >= FEW_ROWS
        ]
        if not columns:
            return NO_LOW_TILES
        return LowTiles(FEW_ROWS, columns[-1] * cut.lanes, tuple(range(FEW_ROWS, 0, -1)))


def later_heights(tallest: int) -> tuple[int, ...]:
    """Heights that all numbers of more than FEW_ROWS rows are cut into, tallest first."""
    if tallest > HEIGHTS[0]:
        return (tallest, *HEIGHTS)
    return tuple(range(tallest, min(FEW_ROWS + 1, (tallest + 1) // 2) - 1, -1))


BUILDERS = {"matmul_panels": build_panels}
