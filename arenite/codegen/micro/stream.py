"""Streams: few rows of A, and rows of B read from end to end, some of them side by side.

    sums[row][column] += a[row][k] * b[k][column]        for some k at a time, for all columns

The sums of a stretch of columns lie on the stack. Every row of B is read in order, as memory likes
it; a register tile would jump from row to row and wait for each.
"""

from __future__ import annotations

from collections.abc import Sequence

from arenite.codegen.convert import register_type
from arenite.codegen.micro.tile import Dot, load_wide, moved
from arenite.codegen.numeric import fma
from arenite.codegen.target import Target
from arenite.codegen.vector import Builder, Vec


def rows_at_once(target: Target, rows: int) -> int:
    """Rows of B read side by side with so many rows of A, whose numbers all stay in registers."""
    kept = target.n_vector_registers * 3 // 4
    return max(1, min(6, kept // rows))


class Stretch:
    """Some rows of B beside some rows of A: `step` adds their products to one vector of sums."""

    def __init__(
        self,
        b: Builder,
        lanes: int,
        dot: Dot,
        numbers: Sequence[Sequence[str]],
        rows: Sequence[str],
    ) -> None:
        self.b, self.lanes, self.dot = b, lanes, dot
        self.rows = rows  # addresses of rows of B
        #: By row of A, then by row of B.
        self.numbers = [[self._number(address) for address in own] for own in numbers]

    def _number(self, address: str) -> Vec:
        value = load_wide(self.b, address, self.dot.a, self.dot.sum, 1, None)
        return self.b.broadcast(value, self.lanes)

    def step(self, sums_at: Sequence[str], column: Vec, mask: Vec | None) -> None:
        """Sums grow by the vector at `column`; they lie at these addresses, one a row of A."""
        b, dot = self.b, self.dot
        t = register_type(dot.sum, self.lanes)
        vectors = [
            load_wide(
                b, moved(b, row, column * (dot.b.bits // 8)), dot.b, dot.sum, self.lanes, mask
            )
            for row in self.rows
        ]
        for row, place in enumerate(sums_at):
            where = moved(b, place, column * (dot.sum.bits // 8))
            total = b.emit(f"load {t}, ptr {where}, align 4", t)
            for k, vector in enumerate(vectors):
                total = fma(self.numbers[row][k], vector, total)
            b.emit_void(f"store {t} {total.text}, ptr {where}, align 4")
