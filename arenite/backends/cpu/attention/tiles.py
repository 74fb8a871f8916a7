"""The register tiles of attention beside panels of queries, each a function.

Numbers that are known when the code is made are constants in it. A dot of a query and a key is the
same whichever tile makes it: strand k sums the products k, k + strands, ... in this order, and the
strands are added up from the first on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from arenite.backends.cpu.gemm.tile import Dot, KLoop, Tile, moved, multiply, summed
from arenite.backends.cpu.lowering.access import load_contiguous, store_contiguous
from arenite.backends.cpu.lowering.convert import register_type
from arenite.backends.cpu.lowering.numeric import fma
from arenite.backends.cpu.lowering.vector import I64, Builder, Vec
from arenite.dtype import DType


class Function(Protocol):
    """What a program can call; equal names are equal functions."""

    @property
    def name(self) -> str: ...

    def emit(self, b: Builder) -> str:
        """Fills the builder but for the return; the parameters."""


@dataclass(frozen=True, slots=True)
class ScoreTile:
    """Dots of some keys with a panel, whose columns are queries.

    Keys lie at `k`, `line` bytes apart and their numbers `step` bytes; queries at `queries` and
    the dots at `scores` are panels. The strands of a dot are summed one after the other, which a
    DotTile has side by side. Where keys have scales these lie at `scales`.
    """

    rows: int
    columns: int
    lanes: int
    panel: int  # lanes from row to row of a panel
    dtype: DType
    depth: int
    line: int | None  # bytes
    step: int | None
    strands: int
    has_scales: bool

    @property
    def name(self) -> str:
        shape = f"{self.rows}x{self.columns}x{self.lanes}of{self.panel}_{self.dtype}"
        rest = (self.depth, self.line, self.step, self.strands, int(self.has_scales))
        return f"scores{shape}_{'_'.join(map(str, rest))}".replace("-", "m")

    def emit(self, b: Builder) -> str:
        nbytes = self.dtype.bits // 8
        panel = self.panel * nbytes
        step = known(b, "step", self.step)
        fewer, n_longer = divmod(self.depth, self.strands)
        sums = self._strand(b, "%k", "%queries", fewer + bool(n_longer))
        at = 1
        for end, count in ((n_longer, fewer + 1), (self.strands, fewer)):
            if at < end and count:

                def more(k: str, queries: str, sums: list[Vec], count: int = count) -> list[Vec]:
                    strand = self._strand(b, k, queries, count)
                    return [total + one for total, one in zip(sums, strand, strict=True)]

                loop = KLoop(b.constant(end - at, I64), step, panel)
                start = moved(b, "%k", step * at), b.offset("%queries", panel * at)
                sums = summed(b, [loop], *start, sums, more)
                at = end
        for row in range(self.rows):
            own = sums[row * self.columns : (row + 1) * self.columns]
            if self.has_scales:
                at_scale = b.offset("%scales", row * nbytes)
                scale = load_contiguous(b, at_scale, register_type(self.dtype, 1), None)
                own = [one * b.broadcast(scale, self.lanes) for one in own]
            for column, total in enumerate(own):
                where = b.offset("%scores", row * panel + column * self.lanes * nbytes)
                store_contiguous(b, where, total, None)
        return "ptr %k, ptr %queries, ptr %scores, ptr %scales, i64 %line, i64 %step"

    def _strand(self, b: Builder, k: str, queries: str, count: int) -> list[Vec]:
        """Sums of every n-th product from here on, row by row."""
        nbytes = self.dtype.bits // 8
        line, step = known(b, "line", self.line), known(b, "step", self.step)
        strides = step * self.strands, self.panel * nbytes * self.strands
        return multiply(
            b,
            Tile(self.rows, self.columns, self.lanes),
            Dot(self.dtype, self.dtype, self.dtype),
            line,
            lambda column: column * self.lanes * nbytes,
            [KLoop(b.constant(count, I64), *strides)],
            a_pointer=k,
            b_pointer=queries,
        )


@dataclass(frozen=True, slots=True)
class MixTile:
    """Values times a panel of weights, added to results times the factor of each lane.

    Values lie at `v`, `line` bytes along their width and `step` bytes from key to key; weights and
    results are panels.
    """

    rows: int
    columns: int
    lanes: int
    panel: int  # lanes from row to row of a panel
    dtype: DType
    line: int | None  # bytes
    step: int | None

    @property
    def name(self) -> str:
        shape = f"{self.rows}x{self.columns}x{self.lanes}of{self.panel}_{self.dtype}"
        return f"mix{shape}_{self.line}_{self.step}".replace("-", "m")

    def emit(self, b: Builder) -> str:
        nbytes = self.dtype.bits // 8
        vector, panel = self.lanes * nbytes, self.panel * nbytes
        line, step = known(b, "line", self.line), known(b, "step", self.step)
        sums = multiply(
            b,
            Tile(self.rows, self.columns, self.lanes),
            Dot(self.dtype, self.dtype, self.dtype),
            line,
            lambda column: column * vector,
            [KLoop(Vec(b, "%count", I64), step, panel)],
            a_pointer="%v",
            b_pointer="%weights",
        )
        t = register_type(self.dtype, self.lanes)
        factors = [
            load_contiguous(b, b.offset("%factor", column * vector), t, None)
            for column in range(self.columns)
        ]
        for at, total in enumerate(sums):
            row, column = divmod(at, self.columns)
            where = b.offset("%results", row * panel + column * vector)
            joined = fma(load_contiguous(b, where, t, None), factors[column], total)
            store_contiguous(b, where, joined, None)
        return "ptr %v, ptr %weights, ptr %results, ptr %factor, i64 %count, i64 %line, i64 %step"


def known(b: Builder, name: str, value: int | None) -> Vec | int:
    """A number that is a constant, or else a parameter."""
    return Vec(b, f"%{name}", I64) if value is None else value
