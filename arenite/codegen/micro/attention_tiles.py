"""The register tiles of attention, each a function.

Numbers that are known when the code is made are constants in it. A dot of a query and a key is the
same whichever tile makes it: strand k sums the products k, k + strands, ... in this order, and the
strands are added up from the first on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from arenite.codegen.access import load_contiguous, store_contiguous
from arenite.codegen.convert import register_type
from arenite.codegen.micro.dots import FOLDED
from arenite.codegen.micro.tile import Dot, KLoop, Tile, load_wide, moved, multiply, summed
from arenite.codegen.numeric import fma
from arenite.codegen.tile import quarter
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
        step = _known(b, "step", self.step)
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
        """Sums of every so-manieth product from here on, row by row."""
        nbytes = self.dtype.bits // 8
        line, step = _known(b, "line", self.line), _known(b, "step", self.step)
        strides = step * self.strands, self.panel * nbytes * self.strands
        sums = multiply(
            b,
            Tile(self.rows, self.columns, self.lanes),
            Dot(self.dtype, self.dtype, self.dtype),
            k,
            queries,
            lambda row: line * row,
            lambda column: column * self.lanes * nbytes,
            [KLoop(b.constant(count, I64), *strides)],
            [None] * self.columns,
        )
        return [one for row in sums for one in row]


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
        line, step = _known(b, "line", self.line), _known(b, "step", self.step)
        sums = multiply(
            b,
            Tile(self.rows, self.columns, self.lanes),
            Dot(self.dtype, self.dtype, self.dtype),
            "%v",
            "%weights",
            lambda row: line * row,
            lambda column: column * vector,
            [KLoop(Vec(b, "%count", I64), step, panel)],
            [None] * self.columns,
        )
        t = register_type(self.dtype, self.lanes)
        factors = [
            load_contiguous(b, b.offset("%factor", column * vector), t, None)
            for column in range(self.columns)
        ]
        for row, own in enumerate(sums):
            for column, total in enumerate(own):
                where = b.offset("%results", row * panel + column * vector)
                joined = fma(load_contiguous(b, where, t, None), factors[column], total)
                store_contiguous(b, where, joined, None)
        return "ptr %v, ptr %weights, ptr %results, ptr %factor, i64 %count, i64 %line, i64 %step"


@dataclass(frozen=True, slots=True)
class DotTile:
    """Dots of some queries with DOT_KEYS keys, or with `rest` of them; a lane is a strand.

    Queries lie one after the other at `q`, keys `line` bytes apart at `k`; the scores of a query
    go to `scores`, those of the next `row` elements further. Where `width` is not 0 later keys are
    asked for, and at `v` the values, so wide, that are read next: rows of one head lie too far
    apart for a machine to see by itself what comes.
    """

    rows: int
    strands: int
    dtype: DType
    k_dtype: DType
    depth: int
    line: int | None  # bytes
    row: int
    v_line: int | None  # bytes
    width: int

    @property
    def name(self) -> str:
        shape = f"{self.rows}x{self.strands}_{self.dtype}_{self.k_dtype}"
        rest = (self.depth, self.line, self.row, self.v_line, self.width)
        return f"dots{shape}_{'_'.join(map(str, rest))}".replace("-", "m")

    def emit(self, b: Builder) -> str:
        size = self.dtype.bits // 8
        line = _known(b, "line", self.line)
        last = Vec(b, "%rest", I64) - 1
        v_line = _known(b, "v_line", self.v_line)
        for first in range(0, DOT_KEYS, FOLDED):
            for key in range(first, first + FOLDED if self.width else 0):
                self._ask_for(b, moved(b, "%k", line * (key + AHEAD_KEYS)), self.depth)
                self._ask_for(b, moved(b, "%v", v_line * key), self.width)
            # Past the last key the last one is taken again; what it gives is not looked at.
            places = [
                b.intrinsic("smin", b.constant(first + k, I64), last) * line for k in range(FOLDED)
            ]
            sums = self._sums(b, places)
            for row in range(self.rows):
                total = _added_up(sums[row * FOLDED : (row + 1) * FOLDED])
                where = b.offset("%scores", (row * self.row + first) * size)
                store_contiguous(b, where, total, None)
        return "ptr %q, ptr %k, ptr %v, ptr %scores, i64 %rest, i64 %line, i64 %v_line"

    def _sums(self, b: Builder, places: list[Vec]) -> list[Vec]:
        """The strands of each query with the keys at these places."""
        size, k_size = self.dtype.bits // 8, self.k_dtype.bits // 8

        def step(q: str, k: str, sums: list[Vec], mask: Vec | None = None) -> list[Vec]:
            keys = [
                load_wide(b, moved(b, k, at), self.k_dtype, self.dtype, self.strands, mask)
                for at in places
            ]
            made: list[Vec] = []
            for row in range(self.rows):
                at = b.offset(q, row * self.depth * size)
                query = load_wide(b, at, self.dtype, self.dtype, self.strands, mask)
                for key in keys:
                    made.append(fma(query, key, sums[len(made)]))
            return made

        zero = b.constant(0, register_type(self.dtype, self.strands))
        sums = [zero] * (self.rows * len(places))
        count, rest = divmod(self.depth, self.strands)
        if count:
            strides = self.strands * size, self.strands * k_size
            sums = summed(b, [KLoop(b.constant(count, I64), *strides)], "%q", "%k", sums, step)
        if rest:
            whole = self.depth - rest
            mask = b.iota(VType("i", self.dtype.bits, self.strands)).lt(rest)
            sums = step(b.offset("%q", whole * size), b.offset("%k", whole * k_size), sums, mask)
        return sums

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


def _added_up(strands: list[Vec]) -> Vec:
    """FOLDED vectors of strands become one, of the sum of each."""
    b, lanes = strands[0].builder, strands[0].type.lanes
    turned = quarter(strands)
    first, *others = (
        b.shuffle(one, None, range(at, at + FOLDED))
        for at in range(0, lanes, FOLDED)
        for one in turned
    )
    for one in others:
        first = first + one
    return first


def _known(b: Builder, name: str, value: int | None) -> Vec | int:
    return Vec(b, f"%{name}", I64) if value is None else value
