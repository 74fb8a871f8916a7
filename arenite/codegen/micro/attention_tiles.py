"""The register tiles of attention, each a function.

Numbers that are known when the code is made are constants in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from arenite.codegen.access import load_contiguous, store_contiguous
from arenite.codegen.convert import register_type
from arenite.codegen.micro.dots import FOLDED, fold, row_dots
from arenite.codegen.micro.tile import Dot, KLoop, Tile, moved, multiply
from arenite.codegen.numeric import fma
from arenite.codegen.vector import I64, Builder, Vec, VType
from arenite.dtype import DType

#: Keys of one call of a DotTile, and how many keys later those lie that it asks for.
DOT_KEYS = 16
AHEAD_KEYS = 3 * DOT_KEYS
LINE_NBYTES = 64


class Function(Protocol):
    """What a program can call; equal names are equal functions."""

    @property
    def name(self) -> str: ...

    def emit(self, b: Builder) -> str:
        """Fills the builder but for the return; the parameters."""


@dataclass(frozen=True, slots=True)
class PanelTile:
    """Rows of A times a panel, whose columns are queries.

    `a` points at numbers, rows `line` bytes apart and K `step` bytes; `b` and `c` at panels. The
    sums are stored to `c`, or added to what is there times the factor of each lane.
    """

    rows: int
    columns: int
    lanes: int
    panel: int  # lanes from row to row of a panel
    dtype: DType
    depth: int | None
    line: int | None  # bytes
    step: int | None
    adds: bool  # to what `c` holds, times the factor

    @property
    def name(self) -> str:
        known = [str(part) for part in (self.depth, self.line, self.step)]
        shape = f"{self.rows}x{self.columns}x{self.lanes}of{self.panel}_{self.dtype}"
        return f"{'mix' if self.adds else 'scores'}{shape}_{'_'.join(known)}".replace("-", "m")

    def emit(self, b: Builder) -> str:
        tile = Tile(self.rows, self.columns, self.lanes)
        nbytes = self.dtype.bits // 8
        vector = self.lanes * nbytes
        panel = self.panel * nbytes
        line = _known(b, "line", self.line)
        step = _known(b, "step", self.step)
        depth = Vec(b, "%depth", I64) if self.depth is None else b.constant(self.depth, I64)
        sums = multiply(
            b,
            tile,
            Dot(self.dtype, self.dtype, self.dtype),
            "%a",
            "%b",
            lambda row: line * row,
            lambda column: column * vector,
            [KLoop(depth, step, panel)],
            [None] * self.columns,
        )
        t = register_type(self.dtype, self.lanes)
        factors = [
            load_contiguous(b, b.offset("%factor", column * vector), t, None)
            for column in range(self.columns if self.adds else 0)
        ]
        for row, own in enumerate(sums):
            for column, total in enumerate(own):
                where = b.offset("%c", row * panel + column * vector)
                if self.adds:
                    total = fma(load_contiguous(b, where, t, None), factors[column], total)
                store_contiguous(b, where, total, None)
        return "ptr %a, ptr %b, ptr %c, ptr %factor, i64 %depth, i64 %line, i64 %step"


@dataclass(frozen=True, slots=True)
class DotTile:
    """Dots of some queries with DOT_KEYS keys, or with `rest` of them.

    Queries lie one after the other at `q`, keys `line` bytes apart at `k`; the scores of a query
    go to `scores`, those of the next `row` elements further. Where `width` is not 0 later keys are
    asked for, and at `v` the values, so wide, that are read next: rows of one head lie too far
    apart for a machine to see by itself what comes.
    """

    rows: int
    lanes: int
    dtype: DType
    k_dtype: DType
    depth: int
    line: int | None  # bytes
    row: int
    v_line: int | None  # bytes
    width: int

    @property
    def name(self) -> str:
        shape = f"{self.rows}x{self.lanes}_{self.dtype}_{self.k_dtype}"
        rest = (self.depth, self.line, self.row, self.v_line, self.width)
        return f"dots{shape}_{'_'.join(map(str, rest))}".replace("-", "m")

    def emit(self, b: Builder) -> str:
        size = self.dtype.bits // 8
        line = _known(b, "line", self.line)
        last = Vec(b, "%rest", I64) - 1
        queries = [b.offset("%q", row * self.depth * size) for row in range(self.rows)]
        dot = Dot(self.dtype, self.k_dtype, self.dtype)
        depth = b.constant(self.depth, I64)
        v_line = _known(b, "v_line", self.v_line)
        for first in range(0, DOT_KEYS, FOLDED):
            for key in range(first, first + FOLDED if self.width else 0):
                self._ask_for(b, moved(b, "%k", line * (key + AHEAD_KEYS)), self.depth)
                self._ask_for(b, moved(b, "%v", v_line * key), self.width)
            # Past the last key the last one is taken again; what it gives is not looked at.
            places = [
                b.intrinsic("smin", b.constant(first + k, I64), last) * line for k in range(FOLDED)
            ]
            keys = [moved(b, "%k", place) for place in places]
            sums = row_dots(b, self.lanes, dot, queries, keys, depth, 1)
            for row in range(self.rows):
                total = fold(sums[row * FOLDED : (row + 1) * FOLDED])
                where = b.offset("%scores", (row * self.row + first) * size)
                store_contiguous(b, where, total, None)
        return "ptr %q, ptr %k, ptr %v, ptr %scores, i64 %rest, i64 %line, i64 %v_line"

    def _ask_for(self, b: Builder, at: str, width: int) -> None:
        """Have a row brought near."""
        b.declarations.add("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        for offset in range(0, width * self.k_dtype.bits // 8, LINE_NBYTES):
            where = b.offset(at, offset)
            b.emit_void(f"call void @llvm.prefetch.p0(ptr {where}, i32 0, i32 2, i32 1)")


@dataclass(frozen=True, slots=True)
class RowTile:
    """Weights of some queries times values, added to results times the factor of each query.

    Weights lie `weight_row` elements from query to query, results `result_row`; values `line`
    bytes from key to key. Of the columns `width` lanes are there.
    """

    rows: int
    columns: int
    lanes: int
    dtype: DType
    v_dtype: DType
    width: int
    line: int | None  # bytes
    weight_row: int
    result_row: int

    @property
    def name(self) -> str:
        shape = f"{self.rows}x{self.columns}x{self.lanes}_{self.dtype}_{self.v_dtype}"
        rest = (min(self.width, self.columns * self.lanes), self.line)
        kept = (self.weight_row, self.result_row)
        return f"rows{shape}_{'_'.join(map(str, rest + kept))}".replace("-", "m")

    def emit(self, b: Builder) -> str:
        size, v_size = self.dtype.bits // 8, self.v_dtype.bits // 8
        sums = multiply(
            b,
            Tile(self.rows, self.columns, self.lanes),
            Dot(self.dtype, self.v_dtype, self.dtype),
            "%weights",
            "%v",
            lambda row: row * self.weight_row * size,
            lambda column: column * self.lanes * v_size,
            [KLoop(Vec(b, "%count", I64), size, _known(b, "line", self.line))],
            [self._mask(b, column) for column in range(self.columns)],
        )
        t = register_type(self.dtype, self.lanes)
        for row, own in enumerate(sums):
            factor = load_contiguous(b, b.offset("%factor", row * size), t.scalar, None)
            factors = b.broadcast(factor, self.lanes)
            for column, total in enumerate(own):
                where = b.offset("%results", (row * self.result_row + column * self.lanes) * size)
                joined = fma(load_contiguous(b, where, t, None), factors, total)
                store_contiguous(b, where, joined, None)
        return "ptr %weights, ptr %v, ptr %results, ptr %factor, i64 %count, i64 %line"

    def _mask(self, b: Builder, column: int) -> Vec | None:
        left = self.width - column * self.lanes
        if left >= self.lanes:
            return None
        t = VType("i", self.dtype.bits, self.lanes)
        return b.iota(t).lt(left)


def _known(b: Builder, name: str, value: int | None) -> Vec | int:
    return Vec(b, f"%{name}", I64) if value is None else value
