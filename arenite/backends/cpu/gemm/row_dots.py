"""Row dots: sums of products of rows of A and rows of B that both lie along K.

A vector runs along K; every pair of a row of A and a row of B has a vector of partial sums, which
become one number at the end, in a fixed order. Nothing is copied or transposed, so this is the form
for few rows of A, where each element of B is used a few times only.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence

from arenite.backends.cpu.gemm.tile import Dot, load_wide, moved, prefetch
from arenite.backends.cpu.lowering.convert import register_type
from arenite.backends.cpu.lowering.numeric import fma
from arenite.backends.cpu.lowering.vector import I64, Builder, Vec, VType
from arenite.backends.cpu.target import Target
from arenite.dtype import DType

#: Sums that become one vector together.
FOLDED = 4
#: Rows of B side by side where no cache holds them: memory is slow to answer, but to many at once.
FAR_ROWS = 8
LINE_BITS = 512
#: Vectors of a row of B in one turn, where it is read from end to end.
LONG_TURN = 8
#: Sums of one dot with a row that is kept.
KEPT_SUMS = 2


def shape_of(
    target: Target, rows: int, dot: Dot, lanes: int, depth: int | None, is_far: bool
) -> tuple[int, int]:
    """Rows of B walked together with so many rows of A, and vectors of each in one turn.

    `is_far` where no cache holds B. One row of A is read again for each of B: where it leaves
    little room in the first cache, several rows of B share it.
    """
    if rows > 1:
        return FOLDED, 1
    a_line = 1 if lanes * dot.b.bits >= LINE_BITS else 2
    side_by_side = min(FAR_ROWS, lanes), a_line
    if is_plain(dot):
        return side_by_side if is_far else (1, LONG_TURN)
    # Narrower numbers come from memory fastest in order, whether it is near or far.
    is_long = depth is not None and depth * dot.sum.bits // 8 > target.l1d_nbytes // 2
    return side_by_side if is_long else (1, LONG_TURN)


def is_plain(dot: Dot) -> bool:
    """Whether all is of one type."""
    return dot.a == dot.b == dot.sum


def is_kept(target: Target, rows: int, depth: int | None, lanes: int) -> bool:
    """Whether rows of A are one that fits half the registers, and can stay there."""
    return rows == 1 and depth is not None and depth <= target.n_vector_registers // 2 * lanes


def most_rows(target: Target) -> int:
    """Rows of A whose sums fit the registers, beside FOLDED vectors of B and one of A."""
    return (target.n_vector_registers - FOLDED - 1) // FOLDED


def row_dots(
    b: Builder,
    lanes: int,
    dot: Dot,
    a_rows: Sequence[str],
    b_rows: Sequence[str],
    depth: Vec,
    unroll: int,
    ahead: Vec | int | None = None,
    known: int | None = None,
    in_lines: bool = False,
) -> list[Vec]:
    """For each row of A, and in it each row of B: FOLDED numbers that add up to their dot.

    `known` is the depth where that is a number, which leaves out what cannot be left. What lies
    `ahead` bytes behind what is read of B is asked for. One row of B may be read `in_lines` if its
    numbers lie at multiples of their size.
    """
    n_sums = len(a_rows) * len(b_rows)
    zero = b.constant(0, register_type(dot.sum, lanes))
    lines = _Lines(b, b_rows[0], lanes) if in_lines else None
    turn_nbytes = unroll * lanes * dot.b.bits // 8

    def step(at: Vec, sums: Sequence[Vec], vectors: Sequence[Vec], mask: Vec | None) -> list[Vec]:
        new_sums: list[Vec] = []
        for row in a_rows:
            own = _load(b, row, at, dot.a, dot.sum, lanes, mask)
            for vector in vectors:
                new_sums.append(fma(own, vector, sums[len(new_sums)]))
        return new_sums

    def loads(at: Vec, mask: Vec | None) -> list[Vec]:
        return [_load(b, row, at, dot.b, dot.sum, lanes, mask) for row in b_rows]

    def turn(at: Vec, carried: Sequence[Vec]) -> list[Vec]:
        """Vectors at `at` and behind it, as many as there are sets of sums; then the line read."""
        if ahead is not None:
            for row in b_rows:
                read_at = moved(b, row, at * (dot.b.bits // 8))
                for line_at in range(0, turn_nbytes, LINE_BITS // 8):
                    prefetch(b, b.offset(moved(b, read_at, ahead), line_at))
        split = len(carried) if lines is None else len(carried) - 1
        line, new_sums = carried[-1], []
        for k in range(0, split, n_sums):
            place = at + k // n_sums * lanes
            if lines is None:
                vectors = loads(place, None)
            else:
                vector, line = lines.vector(place, line)
                vectors = [vector]
            new_sums += step(place, carried[k : k + n_sums], vectors, None)
        return new_sums if lines is None else [*new_sums, line]

    long = depth & -(lanes * unroll)
    start = [zero] * (n_sums * unroll) + ([] if lines is None else [lines.first])
    carried = _counted(b, b.constant(0, I64), long, lanes * unroll, start, turn)
    sums, before = carried[: n_sums * unroll], carried[n_sums * unroll :]
    while len(sums) > n_sums:
        near, far, others = sums[:n_sums], sums[n_sums : 2 * n_sums], sums[2 * n_sums :]
        sums = [x + y for x, y in zip(near, far, strict=True)] + others
    whole = depth & -lanes
    if unroll > 1 and (known is None or known % (lanes * unroll) >= lanes):
        sums = _counted(b, long, whole, lanes, [*sums, *before], turn)[:n_sums]
    if known is None or known % lanes:
        rest = depth - whole
        t = VType("i", dot.sum.bits, lanes)
        mask = b.iota(t).lt(b.broadcast(rest.convert("trunc", t.scalar), lanes))
        sums = b.if_any(rest.ne(0), lambda: step(whole, sums, loads(whole, mask), mask), sums)
    return [halved(total) for total in sums[:n_sums]]


class KeptRow:
    """A row of A in registers, for dots with one row of B after the other."""

    def __init__(self, b: Builder, lanes: int, dot: Dot, row: str, depth: int) -> None:
        self.b, self.lanes, self.dot = b, lanes, dot
        t = VType("i", dot.sum.bits, lanes)
        rest = depth % lanes
        part = b.iota(t).lt(rest) if rest else None
        starts = range(0, depth, lanes)
        #: Where each vector begins, and the lanes of it that are there.
        self.places = [(b.constant(k, I64), part if k + lanes > depth else None) for k in starts]
        self.vectors = [self._vector(row, dot.a, at, mask) for at, mask in self.places]

    def _vector(self, row: str, dtype: DType, at: Vec, mask: Vec | None) -> Vec:
        return _load(self.b, row, at, dtype, self.dot.sum, self.lanes, mask)

    def dot_with(self, row: str) -> Vec:
        """FOLDED numbers that add up to the dot with a row of B."""
        sums: list[Vec] = []
        for k, (own, (at, mask)) in enumerate(zip(self.vectors, self.places, strict=True)):
            vector = self._vector(row, self.dot.b, at, mask)
            if k < KEPT_SUMS:
                sums.append(own * vector)
            else:
                sums[k % KEPT_SUMS] = fma(own, vector, sums[k % KEPT_SUMS])
        total = sums[0]
        for one in sums[1:]:
            total = total + one
        return halved(total)


def has_lines(target: Target, dot: Dot) -> bool:
    """Whether vectors can be put together of two cache lines by one instruction."""
    return is_plain(dot) and dot.sum.bits == 32 and target.is_x86 and target.vector_bits == 512


class _Lines:
    """A row of float32 read by whole cache lines, wherever it begins.

        lines      | . . . a b c d e | f g h i j k l m | ...
        vectors          | a b c d e   f g h | i j k ...

    A vector across two lines is read in two parts each time; a line is read once. A line is only
    read if an element of it is wanted.
    """

    def __init__(self, b: Builder, row: str, lanes: int) -> None:
        self.b = b
        self.type = VType("f", 32, lanes)
        nbytes = lanes * 4
        address = b.emit(f"ptrtoint ptr {row} to i64", I64)
        before = address & (nbytes - 1)
        after = b.constant(0, I64) - before & (nbytes - 1)
        #: The line the row begins in, and the address of the one that ends its first vector.
        self.first = self._line(moved(b, row, b.constant(0, I64) - before))
        self.next_at = moved(b, row, after)
        skipped = (before.eq(0).select(nbytes, before)).shr(2, signed=False)
        picks = VType("i", 32, lanes)
        first = b.broadcast(skipped.convert("trunc", picks.scalar), lanes)
        self.picks = b.iota(picks) + first

    def _line(self, pointer: str) -> Vec:
        return self.b.load(self.type, pointer, 64)

    def vector(self, at: Vec, line: Vec) -> tuple[Vec, Vec]:
        """The vector that begins at `at`, made of the line before and the one it ends in, too."""
        after = self._line(moved(self.b, self.next_at, at << 2))
        name = "llvm.x86.avx512.vpermi2var.ps.512"
        return self.b.call(name, self.type, line, self.picks, after), after


def _counted(
    b: Builder,
    start: Vec,
    stop: Vec,
    step: int,
    first: Sequence[Vec],
    turn: Callable[[Vec, Sequence[Vec]], list[Vec]],
) -> list[Vec]:
    """Turns from `start` to `stop`, which is a whole number of steps away; the sums after them."""
    may_enter = start.lt(stop)
    front, head = b.block, b.new_block("k")
    b.block = head
    at = Vec(b, b.new_name(), I64)
    sums = [Vec(b, b.new_name(), value.type) for value in first]
    new_sums = turn(at, sums)
    after = at + step
    again = after.lt(stop)
    done = b.new_block("summed")
    head.end = f"br i1 {again.text}, label %{head.name}, label %{done.name}"
    front.end = f"br i1 {may_enter.text}, label %{head.name}, label %{done.name}"
    b.set_phi(head, at.text, [(start, front), (after, head)])
    for phi, before, last in zip(sums, first, new_sums, strict=True):
        b.set_phi(head, phi.text, [(before, front), (last, head)])
    b.block = done
    return [
        b.phi(done, [(before, front), (last, head)])
        for before, last in zip(first, new_sums, strict=True)
    ]


def _load(
    b: Builder, row: str, at: Vec, dtype: DType, wide: DType, lanes: int, mask: Vec | None
) -> Vec:
    offset = at << ((dtype.bits // 8).bit_length() - 1)
    return load_wide(b, moved(b, row, offset), dtype, wide, lanes, mask)


def halved(x: Vec, join: Callable[[Vec, Vec], Vec] = operator.add, lanes: int = FOLDED) -> Vec:
    """Lanes joined pairwise, the far halves with the near ones, until so many are left."""
    while x.type.lanes > lanes:
        half = x.type.lanes // 2
        low, high = (x.builder.shuffle(x, None, range(at, at + half)) for at in (0, half))
        x = join(low, high)
    return x


def fold(vectors: Sequence[Vec]) -> Vec:
    """Four vectors of four lanes become one, of the sum of each."""
    b = vectors[0].builder
    w, x, y, z = vectors

    def pairs(low: Vec, high: Vec) -> Vec:
        return b.shuffle(low, high, (0, 4, 2, 6)) + b.shuffle(low, high, (1, 5, 3, 7))

    near, far = pairs(w, x), pairs(y, z)
    return b.shuffle(near, far, (0, 1, 4, 5)) + b.shuffle(near, far, (2, 3, 6, 7))
