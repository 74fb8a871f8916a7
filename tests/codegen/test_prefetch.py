"""The weights of the next group of columns: the tiles of one ask for all of them, once, no more."""

from __future__ import annotations

import numpy as np
import pytest

from arenite.backends.cpu.gemm.prefetch import FACTOR_BITS, LINE_NBYTES, share_of_panels
from arenite.backends.cpu.gemm.rows import even_heights, next_heights

TALLEST = 14


@pytest.mark.parametrize("of_rows", [28, 49, 128, 168, 197, 1000])
@pytest.mark.parametrize(("depth", "n_panels"), [(64, 2), (147, 1), (768, 2), (3072, 4)])
def test_tiles_ask_for_all_of_the_next_panels(of_rows: int, depth: int, n_panels: int) -> None:
    size = 4
    nbytes = n_panels * 16 * depth * size
    heights = next_heights(even_heights([of_rows], TALLEST))
    asked, row = np.zeros(nbytes // LINE_NBYTES + 8, int), 0
    while row < of_rows:
        rows = heights[min(of_rows - row, len(heights) - 1)]
        share = share_of_panels(nbytes, of_rows, rows, depth, size)
        for k in range(depth):
            at = row * nbytes // of_rows + (k * size * share.factor >> FACTOR_BITS)
            asked[at // LINE_NBYTES :][: share.n_lines] += 1
        row += rows
    n_lines = nbytes // LINE_NBYTES
    assert np.count_nonzero(asked[:n_lines]) >= 0.97 * n_lines
    assert not asked[n_lines + 3 :].any()
    assert asked.sum() <= -(-of_rows // TALLEST) * 2 * depth * max(1, n_panels // 2)
