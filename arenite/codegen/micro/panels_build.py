"""A matmul_panels of the schedule becomes a ConvKernel: a convolution of one tap, rows as pixels.

Where the number of rows is known only later, it is cut into tiles of some heights; few rows are
done in lower tiles of more columns, for a sum waits for the one before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from arenite.codegen.kernels.built import Built
from arenite.codegen.micro.conv_build import NOT_FEW, ConvBuilder, Few, Panels
from arenite.codegen.micro.conv_cut import ConvCut, ConvSizes
from arenite.codegen.micro.conv_sides import Side, plain_sides
from arenite.codegen.micro.tile import most_rows
from arenite.codegen.target import Target
from arenite.ir.dim import Var, bounds
from arenite.ir.ops.convolution import PANEL
from arenite.schedule.kernel import Kernel, Role

#: Rows that are few, at the most, and heights of tiles that all larger numbers are cut into.
FEW_ROWS = 4
HEIGHTS = (11, 9, 8, 7, 6, 5)


def build_panels(kernel: Kernel, target: Target, choice: str = "") -> Built | None:
    """The kernel as a ConvKernel, or None if it is not one that register tiles fit."""
    node = next(stage.node for stage in kernel.stages if stage.role is Role.REDUCE)
    if node.op != "matmul_panels" or not target.has_fma:
        return None
    n_panels, depth, _ = (bounds(size)[1] for size in node.inputs[1].shape)
    weights = Panels(1, n_panels, (), depth, depth, node.attr("columns"))
    builder = _PanelsBuilder(kernel, node, weights)
    return builder.built(target, choice) if builder.fits else None


class _PanelsBuilder(ConvBuilder):
    def _sides(self, variables: Sequence[Var], taps: Sequence[int]) -> list[Side]:
        return plain_sides(self.node, variables)

    def _cut(self, sizes: ConvSizes, target: Target) -> ConvCut:
        usual = super()._cut(sizes, target)
        few = self._few(usual, target)
        return replace(usual, heights=later_heights(usual.heights[0])) if few.up_to else usual

    def _few(self, cut: ConvCut, target: Target) -> Few:
        if isinstance(self.line.places, int) or cut.heights[0] <= FEW_ROWS:
            return NOT_FEW
        n_vectors = cut.block_channels // cut.lanes
        columns = [
            columns
            for columns in range(cut.columns, n_vectors + 1)
            if n_vectors % columns == 0
            and (columns * cut.lanes % PANEL == 0 or columns == n_vectors)
            and most_rows(target, columns) >= FEW_ROWS
        ]
        if not columns:
            return NOT_FEW
        return Few(FEW_ROWS, columns[-1] * cut.lanes, tuple(range(FEW_ROWS, 0, -1)))


def later_heights(tallest: int) -> tuple[int, ...]:
    """Heights that all numbers of more than FEW_ROWS rows are cut into, tallest first."""
    if tallest > HEIGHTS[0]:
        return (tallest, *HEIGHTS)
    return tuple(range(tallest, min(FEW_ROWS + 1, (tallest + 1) // 2) - 1, -1))
