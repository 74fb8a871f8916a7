"""Row dots: sums of products of rows of A and rows of B that both lie along K.

A vector runs along K; every pair of a row of A and a row of B has a vector of partial sums, which
become one number at the end, in a fixed order. Nothing is copied or transposed, so this is the form
for few rows of A, where each element of B is used a few times only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from arenite.codegen.convert import register_type
from arenite.codegen.micro.tile import Dot, load_wide, moved
from arenite.codegen.numeric import fma
from arenite.codegen.target import Target
from arenite.codegen.vector import I64, Builder, Vec, VType

#: Sums that become one vector together.
FOLDED = 4


def shape_of(rows: int, dot: Dot) -> tuple[int, int]:
    """Rows of B walked together with so many rows of A, and vectors of each in one turn."""
    if rows > 1:
        return FOLDED, 1
    # With one, reading B strictly in order is what counts, or else converting A only once.
    return (1, 8) if dot.a == dot.sum else (FOLDED, 2)


def most_rows(target: Target) -> int:
    """Rows of A whose sums fit the registers, beside FOLDED vectors of B and one of A."""
    return (target.n_vector_registers - 2) // FOLDED - (1 if target.n_vector_registers > 16 else 0)


def row_dots(
    b: Builder,
    lanes: int,
    dot: Dot,
    a_rows: Sequence[str],
    b_rows: Sequence[str],
    depth: Vec,
    unroll: int,
) -> list[Vec]:
    """For each row of A, and in it each row of B: FOLDED numbers that add up to their dot."""
    n_sums = len(a_rows) * len(b_rows)
    zero = b.constant(0, register_type(dot.sum, lanes))

    def step(at: Vec, sums: Sequence[Vec], mask: Vec | None) -> list[Vec]:
        vectors = [_load(b, row, at, dot, lanes, mask, is_a=False) for row in b_rows]
        made: list[Vec] = []
        for row in a_rows:
            own = _load(b, row, at, dot, lanes, mask, is_a=True)
            for vector in vectors:
                made.append(fma(own, vector, sums[len(made)]))
        return made

    def turn(at: Vec, sums: Sequence[Vec]) -> list[Vec]:
        parts = [sums[k * n_sums : (k + 1) * n_sums] for k in range(unroll)]
        made = [step(at + k * lanes, part, None) for k, part in enumerate(parts)]
        return [total for part in made for total in part]

    long = depth & -(lanes * unroll)
    sums = _counted(b, b.constant(0, I64), long, lanes * unroll, [zero] * (n_sums * unroll), turn)
    while len(sums) > n_sums:
        sums = [x + y for x, y in zip(sums[:n_sums], sums[n_sums:], strict=False)] + sums[
            2 * n_sums :
        ]
    whole = depth & -lanes
    if unroll > 1:
        sums = _counted(b, long, whole, lanes, sums, lambda at, some: step(at, some, None))
    rest = depth - whole
    t = VType("i", dot.sum.bits, lanes)
    mask = b.iota(t).lt(b.broadcast(rest.convert("trunc", t.scalar), lanes))
    sums = b.if_any(rest.ne(0), lambda: step(whole, sums, mask), sums)
    return [_halved(total) for total in sums]


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
    made = turn(at, sums)
    after = at + step
    again = after.lt(stop)
    done = b.new_block("summed")
    head.end = f"br i1 {again.text}, label %{head.name}, label %{done.name}"
    front.end = f"br i1 {may_enter.text}, label %{head.name}, label %{done.name}"
    b.set_phi(head, at.text, [(start, front), (after, head)])
    for phi, before, last in zip(sums, first, made, strict=True):
        b.set_phi(head, phi.text, [(before, front), (last, head)])
    b.block = done
    return [
        b.phi(done, [(before, front), (last, head)])
        for before, last in zip(first, made, strict=True)
    ]


def _load(
    b: Builder, row: str, at: Vec, dot: Dot, lanes: int, mask: Vec | None, *, is_a: bool
) -> Vec:
    dtype = dot.a if is_a else dot.b
    offset = at << ((dtype.bits // 8).bit_length() - 1)
    return load_wide(b, moved(b, row, offset), dtype, dot.sum, lanes, mask)


def _halved(x: Vec) -> Vec:
    """Lanes added pairwise, the far halves to the near ones, until FOLDED are left."""
    while x.type.lanes > FOLDED:
        half = x.type.lanes // 2
        low = x.builder.shuffle(x, None, range(half))
        high = x.builder.shuffle(x, None, range(half, 2 * half))
        x = low + high
    return x


def fold(vectors: Sequence[Vec]) -> Vec:
    """Four vectors of four lanes become one, of the sum of each."""
    b = vectors[0].builder
    w, x, y, z = vectors

    def pairs(low: Vec, high: Vec) -> Vec:
        return b.shuffle(low, high, (0, 4, 2, 6)) + b.shuffle(low, high, (1, 5, 3, 7))

    near, far = pairs(w, x), pairs(y, z)
    return b.shuffle(near, far, (0, 1, 4, 5)) + b.shuffle(near, far, (2, 3, 6, 7))
