"""Streams: few rows of A, and rows of B read from end to end, some of them side by side.

    sums[row][column] += a[row][k] * b[k][column]        for some k at a time, for all columns

The sums of a stretch of columns lie on the stack. Every row of B is read in order, as memory likes
it; a register tile would jump from row to row and wait for each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from arenite.backends.cpu.gemm.tile import Dot, load_wide, moved, prefetch
from arenite.backends.cpu.lowering.convert import register_type
from arenite.backends.cpu.lowering.numeric import fma
from arenite.backends.cpu.lowering.vector import Builder, Vec
from arenite.backends.cpu.target import Target
from arenite.dtype import DType

#: Rows of B read side by side: all may fall into one set of the first cache, which has eight
#: places, and one is for the sums. With one row of A fewer are as fast, and faster where they do
#: fall into one. Of a B that no cache holds, reading more at once counts for more.
MOST_ROWS = 6
MOST_ALIKE_ROWS = 4
MOST_FAR_ROWS = 8


def is_far(target: Target, sizes: Sequence[object], dtype: DType) -> bool:
    """Whether a B of these sizes is known to be more than a cache would keep."""
    known = [size for size in sizes if isinstance(size, int)]
    return len(known) == len(sizes) and prod(known) * dtype.bits // 8 > target.l3_nbytes // 2


def rows_at_once(target: Target, rows: int, is_far: bool, is_alike: bool) -> int:
    """Rows of B read side by side with so many rows of A, whose numbers all stay in registers;
    `is_far` where no cache holds B, `is_alike` where its rows share sets of the first cache."""
    kept = target.n_vector_registers * 3 // 4
    near = MOST_ALIKE_ROWS if is_alike and rows == 1 else MOST_ROWS
    return max(1, min(MOST_FAR_ROWS if is_far else near, kept // rows))


class Stretch:
    """Some numbers of A, by row of A, then by row of B, that a stretch of B is multiplied with.

    What lies `ahead` bytes behind what is read of a column of B is asked for: into the first cache,
    or where B `is_far` into the second.
    """

    def __init__(
        self,
        b: Builder,
        lanes: int,
        dot: Dot,
        numbers_at: Sequence[Sequence[str]],
        ahead: Callable[[Vec], Vec | int],
        is_far: bool,
    ) -> None:
        self.b, self.lanes, self.dot = b, lanes, dot
        self.ahead, self.is_far = ahead, is_far
        self.numbers = [[self._number(address) for address in own] for own in numbers_at]

    def _number(self, address: str) -> Vec:
        value = load_wide(self.b, address, self.dot.a, self.dot.sum, 1, None)
        return self.b.broadcast(value, self.lanes)

    def step(
        self, sums_at: Sequence[str], rows_at: Sequence[str], column: Vec, mask: Vec | None
    ) -> None:
        """The vectors at `column`: sums, one a row of A, grow by products with the rows of B."""
        b, dot = self.b, self.dot
        t = register_type(dot.sum, self.lanes)
        offset, size = column * (dot.b.bits // 8), dot.sum.bits // 8
        if mask is None:
            further = offset + self.ahead(column)
            for first in rows_at:
                prefetch(b, moved(b, first, further), is_near=not self.is_far)
        vectors = [
            load_wide(b, moved(b, row, offset), dot.b, dot.sum, self.lanes, mask) for row in rows_at
        ]
        for row, place in enumerate(sums_at):
            where = moved(b, place, column * size)
            total = b.load(t, where, size)
            for number, vector in zip(self.numbers[row], vectors, strict=True):
                total = fma(number, vector, total)
            b.store(total, where, size)
