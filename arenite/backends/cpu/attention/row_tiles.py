"""The register tiles of attention beside few queries, each a function.

Keys and values come from memory. What is read later is asked for all along, a line every few
cycles, and then again: of many requests at once most are forgotten, and where rows of one head lie
apart no machine sees by itself what comes next.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from arenite.backends.cpu.attention.tiles import known
from arenite.backends.cpu.gemm.row_dots import FOLDED, halved
from arenite.backends.cpu.gemm.tile import KLoop, load_wide, moved, prefetch, summed
from arenite.backends.cpu.lowering.access import load_contiguous, store_contiguous
from arenite.backends.cpu.lowering.arithmetic import unary
from arenite.backends.cpu.lowering.convert import register_type
from arenite.backends.cpu.lowering.numeric import fma
from arenite.backends.cpu.lowering.tile import quarter
from arenite.backends.cpu.lowering.vector import I64, Builder, Vec, VType
from arenite.backends.cpu.passes.attention import SOME_KEYS
from arenite.dtype import DType

#: Vectors of a key in one turn of a dot, at the most.
STEPS = 8
LINE_NBYTES = 64


@dataclass(frozen=True, slots=True)
class DotTile:
    """Dots of some queries with SOME_KEYS keys, or with `rest` of them; a lane is a strand.

    Queries lie one after the other at `q`, keys `line` bytes apart at `k`; the scores of a query
    go to `scores`, those of the next `row` elements further. If it `asks`, rows that are read later
    are asked for: as long as the keys and as far apart, at `ahead` and at `soon`.
    """

    rows: int
    strands: int
    dtype: DType
    k_dtype: DType
    depth: int
    line: int | None  # bytes
    row: int
    asks: bool

    @property
    def name(self) -> str:
        shape = f"{self.rows}x{self.strands}_{self.dtype}_{self.k_dtype}"
        rest = (self.depth, self.line, self.row, int(self.asks))
        return f"dots{shape}_{'_'.join(map(str, rest))}".replace("-", "m")

    def emit(self, b: Builder) -> str:
        line, last = known(b, "line", self.line), Vec(b, "%rest", I64) - 1
        far, near = (_distance(b, "%k", at) for at in ("%ahead", "%soon"))
        size = self.dtype.bits // 8

        def turn(first: Vec) -> None:
            # Past the last key the last one is taken again; what it gives is not looked at.
            keys = [b.intrinsic("smin", first + k, last) * line for k in range(FOLDED)]
            later = [((first + k) * line + far, (first + k) * line + near) for k in range(FOLDED)]
            sums = self._sums(b, keys, later if self.asks else [])
            scores = moved(b, "%scores", first * size)
            for row in range(self.rows):
                total = _added_up(sums[row * FOLDED : (row + 1) * FOLDED])
                store_contiguous(b, b.offset(scores, row * self.row * size), total, None)

        _turns(b, SOME_KEYS, FOLDED, turn)
        return "ptr %q, ptr %k, ptr %scores, ptr %ahead, ptr %soon, i64 %rest, i64 %line"

    def _sums(self, b: Builder, keys: list[Vec], later: list[tuple[Vec, Vec]]) -> list[Vec]:
        """The strands of each query with the keys at these places; rows at later ones are asked
        for one by one between the steps."""
        size, nbytes = self.dtype.bits // 8, self.strands * self.k_dtype.bits // 8
        steps_a_line = max(1, LINE_NBYTES // nbytes)

        def step(number: int, q: str, k: str, sums: list[Vec], mask: Vec | None) -> list[Vec]:
            in_line = number % steps_a_line
            for row, places in enumerate(later):
                if row * steps_a_line // FOLDED == in_line:
                    for at in places:
                        prefetch(b, b.offset(moved(b, k, at), -in_line * nbytes))
            vectors = [
                load_wide(b, moved(b, k, at), self.k_dtype, self.dtype, self.strands, mask)
                for at in keys
            ]
            made: list[Vec] = []
            for row in range(self.rows):
                where = b.offset(q, row * self.depth * size)
                query = load_wide(b, where, self.dtype, self.dtype, self.strands, mask)
                for vector in vectors:
                    made.append(fma(query, vector, sums[len(made)]))
            return made

        def steps(q: str, k: str, sums: list[Vec], count: int = STEPS) -> list[Vec]:
            for n in range(count):
                at = b.offset(q, n * self.strands * size), b.offset(k, n * nbytes)
                sums = step(n, *at, sums, None)
            return sums

        zero = b.constant(0, register_type(self.dtype, self.strands))
        sums = [zero] * (self.rows * FOLDED)
        count, n_masked = divmod(self.depth, self.strands)
        n_turns, n_last = divmod(count, STEPS)
        if n_turns:
            strides = STEPS * self.strands * size, STEPS * nbytes
            loop = KLoop(b.constant(n_turns, I64), *strides)
            sums = summed(b, [loop], "%q", "%k", sums, steps)
        done = n_turns * STEPS
        q, k = b.offset("%q", done * self.strands * size), b.offset("%k", done * nbytes)
        sums = steps(q, k, sums, n_last)
        if n_masked:
            mask = b.iota(VType("i", self.dtype.bits, self.strands)).lt(n_masked)
            q, k = b.offset("%q", count * self.strands * size), b.offset("%k", count * nbytes)
            sums = step(n_last, q, k, sums, mask)
        return sums


@dataclass(frozen=True, slots=True)
class WeighTile:
    """Scores of some queries become weights beside the highest score so far; their sums.

    Scores of a query lie at `scores`, those of the next `row` elements further; of each `turns`
    times two vectors. `highest` and `total` are what was found before, and become what is found
    now; `factor` is by how much earlier sums shrink. Where `has_scales`, weights are kept times the
    scales of their keys. Every other vector goes to one sum; the upper half of what these have is
    added to the lower until one number is left.
    """

    rows: int
    lanes: int
    dtype: DType
    row: int
    has_scales: bool

    @property
    def name(self) -> str:
        rest = f"{self.row}_{int(self.has_scales)}"
        return f"weigh{self.rows}x{self.lanes}_{self.dtype}_{rest}"

    def emit(self, b: Builder) -> str:
        size = self.dtype.bits // 8
        old = [self._number(b, "%highest", row) for row in range(self.rows)]
        top = self._tops(b, old)
        is_none = [one.eq(float("-inf")) for one in top]
        subtracted = [none.select(0.0, one) for none, one in zip(is_none, top, strict=True)]
        fresh = self._weights(b, [b.broadcast(one, self.lanes) for one in subtracted])
        for row in range(self.rows):
            factor = unary("exp2", old[row] - subtracted[row], self.dtype)
            total = self._number(b, "%total", row) * factor + fresh[row]
            for name, value in (("highest", top[row]), ("total", total), ("factor", factor)):
                store_contiguous(b, b.offset(f"%{name}", row * size), value, None)
        return "ptr %scores, ptr %highest, ptr %total, ptr %factor, ptr %scales, i64 %turns"

    def _number(self, b: Builder, first: str, row: int) -> Vec:
        t = register_type(self.dtype, 1)
        return load_contiguous(b, b.offset(first, row * self.dtype.bits // 8), t, None)

    def _vectors(self, b: Builder, first: str) -> list[tuple[str, Vec]]:
        """Two vectors of each row, and where they are."""
        size, t = self.dtype.bits // 8, register_type(self.dtype, self.lanes)
        places = [
            b.offset(first, (row * self.row + half * self.lanes) * size)
            for row in range(self.rows)
            for half in range(2)
        ]
        return [(place, load_contiguous(b, place, t, None)) for place in places]

    def _loop(self, b: Builder) -> KLoop:
        nbytes = 2 * self.lanes * self.dtype.bits // 8
        return KLoop(Vec(b, "%turns", I64), nbytes, nbytes)

    def _tops(self, b: Builder, old: list[Vec]) -> list[Vec]:
        # NaN need not be the greatest: its weight is NaN, and so the sum.
        def step(scores: str, _: str, tops: list[Vec]) -> list[Vec]:
            pairs = zip(self._vectors(b, scores), tops, strict=True)
            return [one.gt(top).select(one, top) for (_, one), top in pairs]

        lowest = b.constant(float("-inf"), register_type(self.dtype, self.lanes))
        tops = summed(b, [self._loop(b)], "%scores", "%scores", [lowest] * 2 * self.rows, step)
        found = [_halves_joined(pair, _greater) for pair in _pairs(tops)]
        return [_greater(one, before) for one, before in zip(found, old, strict=True)]

    def _weights(self, b: Builder, subtracted: list[Vec]) -> list[Vec]:
        """The sum of each row; weights take the place of scores."""
        t = register_type(self.dtype, self.lanes)
        nbytes = self.lanes * self.dtype.bits // 8

        def step(scores: str, scales: str, sums: list[Vec]) -> list[Vec]:
            made: list[Vec] = []
            for k, (place, score) in enumerate(self._vectors(b, scores)):
                weight = unary("exp2", score - subtracted[k // 2], self.dtype)
                made.append(sums[k] + weight)
                if self.has_scales:
                    at = b.offset(scales, k % 2 * nbytes)
                    weight = weight * load_contiguous(b, at, t, None)
                store_contiguous(b, place, weight, None)
            return made

        start = [b.constant(0, t)] * 2 * self.rows
        sums = summed(b, [self._loop(b)], "%scores", "%scales", start, step)
        return [_halves_joined(pair, lambda x, y: x + y) for pair in _pairs(sums)]


@dataclass(frozen=True, slots=True)
class RowTile:
    """Weights of some queries times values, added to sums.

    Weights lie `weight_row` elements from query to query, sums `sum_row`; values `line` bytes from
    key to key. Of the columns `width` lanes are there. If it `asks`, rows that are read later are
    asked for: as far apart, at `ahead` and at `soon`.
    """

    rows: int
    columns: int
    lanes: int
    dtype: DType
    v_dtype: DType
    width: int
    line: int | None  # bytes
    weight_row: int
    sum_row: int
    asks: bool

    @property
    def name(self) -> str:
        shape = f"{self.rows}x{self.columns}x{self.lanes}_{self.dtype}_{self.v_dtype}"
        rest = (min(self.width, self.columns * self.lanes), self.line)
        kept = (self.weight_row, self.sum_row, int(self.asks))
        return f"rows{shape}_{'_'.join(map(str, rest + kept))}".replace("-", "m")

    def emit(self, b: Builder) -> str:
        size, v_size = self.dtype.bits // 8, self.v_dtype.bits // 8
        t = register_type(self.dtype, self.lanes)
        masks = [self._mask(b, column) for column in range(self.columns)]
        places = [
            b.offset("%sums", (row * self.sum_row + column * self.lanes) * size)
            for row in range(self.rows)
            for column in range(self.columns)
        ]
        later = [_distance(b, "%v", at) for at in ("%ahead", "%soon")]

        def step(weights: str, v: str, sums: list[Vec]) -> list[Vec]:
            values: list[Vec] = []
            for offset in range(0, self.width * v_size if self.asks else 0, LINE_NBYTES):
                for further in later:
                    prefetch(b, b.offset(moved(b, v, further), offset))
            for column, mask in enumerate(masks):
                at = b.offset(v, column * self.lanes * v_size)
                values.append(load_wide(b, at, self.v_dtype, self.dtype, self.lanes, mask))
            made: list[Vec] = []
            for row in range(self.rows):
                at = b.offset(weights, row * self.weight_row * size)
                weight = b.broadcast(load_contiguous(b, at, t.scalar, None), self.lanes)
                for value in values:
                    made.append(fma(weight, value, sums[len(made)]))
            return made

        loop = KLoop(Vec(b, "%count", I64), size, known(b, "line", self.line))
        start = [load_contiguous(b, at, t, None) for at in places]
        sums = summed(b, [loop], "%weights", "%v", start, step)
        for at, total in zip(places, sums, strict=True):
            store_contiguous(b, at, total, None)
        return "ptr %weights, ptr %v, ptr %sums, ptr %ahead, ptr %soon, i64 %count, i64 %line"

    def _mask(self, b: Builder, column: int) -> Vec | None:
        left = self.width - column * self.lanes
        if left >= self.lanes:
            return None
        t = VType("i", self.dtype.bits, self.lanes)
        return b.iota(t).lt(left)


@dataclass(frozen=True, slots=True)
class TouchTile:
    """Reads `count` rows for nothing: what is asked for may be forgotten, what is read is there."""

    nbytes: int
    line: int | None  # bytes

    @property
    def name(self) -> str:
        return f"touch{self.nbytes}_{self.line}".replace("-", "m")

    def emit(self, b: Builder) -> str:
        def step(_: str, row: str, sums: list[Vec]) -> list[Vec]:
            for offset in range(0, self.nbytes, LINE_NBYTES):
                b.emit_void(f"{b.new_name()} = load volatile i8, ptr {b.offset(row, offset)}")
            return sums

        loop = KLoop(Vec(b, "%count", I64), 0, known(b, "line", self.line))
        summed(b, [loop], "%row", "%row", [], step)
        return "ptr %row, i64 %count, i64 %line"


@dataclass(frozen=True, slots=True)
class JoinTile:
    """Results of a query times its factor, plus the sums of a block of keys: so many vectors."""

    columns: int
    lanes: int
    dtype: DType

    @property
    def name(self) -> str:
        return f"join{self.columns}x{self.lanes}_{self.dtype}"

    def emit(self, b: Builder) -> str:
        nbytes = self.lanes * self.dtype.bits // 8
        t = register_type(self.dtype, self.lanes)
        factor = b.broadcast(load_contiguous(b, "%factor", t.scalar, None), self.lanes)
        for column in range(self.columns):
            result, total = (
                load_contiguous(b, b.offset(at, column * nbytes), t, None)
                for at in ("%results", "%sums")
            )
            joined = fma(result, factor, total)
            store_contiguous(b, b.offset("%results", column * nbytes), joined, None)
        return "ptr %results, ptr %sums, ptr %factor"


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


def _distance(b: Builder, first: str, second: str) -> Vec:
    """Bytes from one address to another."""
    start, end = (b.emit(f"ptrtoint ptr {at} to i64", I64) for at in (first, second))
    return end - start


def _turns(b: Builder, count: int, step: int, turn: Callable[[Vec], None]) -> None:
    """Turns from 0 to a count, so far apart."""
    front, head = b.block, b.new_block("turn")
    front.end = f"br label %{head.name}"
    b.block = head
    at = Vec(b, b.new_name(), I64)
    turn(at)
    after = at + step
    latch, done = b.block, b.new_block("done")
    latch.end = f"br i1 {after.lt(count).text}, label %{head.name}, label %{done.name}"
    b.set_phi(head, at.text, [(b.constant(0, I64), front), (after, latch)])
    b.block = done


def _pairs(vectors: list[Vec]) -> list[tuple[Vec, Vec]]:
    return list(zip(vectors[::2], vectors[1::2], strict=True))


def _greater(x: Vec, y: Vec) -> Vec:
    return x.gt(y).select(x, y)


def _halves_joined(pair: tuple[Vec, Vec], join: Callable[[Vec, Vec], Vec]) -> Vec:
    """Two vectors become one, its upper half goes to the lower, until one number is left."""
    x = halved(join(*pair), join, 2)
    return x if x.type.lanes == 1 else join(x.builder.lane(x, 0), x.builder.lane(x, 1))
