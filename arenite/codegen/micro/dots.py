"""Row dots: sums of products of rows of A and rows of B that both lie along K.

A vector runs along K; every pair of a row of A and a row of B has a vector of partial sums, which
become one number at the end, in a fixed order. Nothing is copied or transposed, so this is the form
for few rows of A, where each element of B is used a few times only.
"""

from __future__ import annotations

from collections.abc import Sequence

from arenite.codegen.convert import register_type
from arenite.codegen.micro.tile import Dot, load_wide, moved
from arenite.codegen.numeric import fma
from arenite.codegen.target import Target
from arenite.codegen.vector import I64, Builder, Vec, VType

#: Sums that become one vector together.
FOLDED = 4


def shape_of(target: Target, rows: int) -> int:
    """Rows of B taken at once with so many rows of A: a multiple of FOLDED."""
    return 2 * FOLDED if rows <= 2 and target.n_vector_registers >= 32 else FOLDED


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
) -> list[Vec]:
    """For each row of A, the sums with all rows of B, as vectors of FOLDED numbers, in order."""
    n_sums = len(a_rows) * len(b_rows)
    zero = b.constant(0, register_type(dot.sum, lanes))
    n_turns = depth.shr(lanes.bit_length() - 1, signed=False)
    whole = n_turns << (lanes.bit_length() - 1)

    def step(at: Vec, sums: Sequence[Vec], mask: Vec | None) -> list[Vec]:
        vectors = [_load(b, row, at, dot, lanes, mask, is_a=False) for row in b_rows]
        made: list[Vec] = []
        for row in a_rows:
            own = _load(b, row, at, dot, lanes, mask, is_a=True)
            for vector in vectors:
                made.append(fma(own, vector, sums[len(made)]))
        return made

    front, head = b.block, b.new_block("k")
    b.block = head
    at = Vec(b, b.new_name(), I64)
    sums = [Vec(b, b.new_name(), zero.type) for _ in range(n_sums)]
    made = step(at, sums, None)
    after = at + lanes
    again = after.lt(whole)
    summed = b.new_block("summed")
    head.end = f"br i1 {again.text}, label %{head.name}, label %{summed.name}"
    b.set_phi(head, at.text, [(b.constant(0, I64), front), (after, head)])
    for phi, last in zip(sums, made, strict=True):
        b.set_phi(head, phi.text, [(zero, front), (last, head)])
    b.block = front
    has_turns = n_turns.ne(0)
    front.end = f"br i1 {has_turns.text}, label %{head.name}, label %{summed.name}"
    b.block = summed
    sums = [b.phi(summed, [(zero, front), (last, head)]) for last in made]
    rest = depth - whole
    t = VType("i", dot.sum.bits, lanes)
    mask = b.iota(t).lt(b.broadcast(rest.convert("trunc", t.scalar), lanes))
    sums = b.if_any(rest.ne(0), lambda: step(whole, sums, mask), sums)
    folded = [_halved(total) for total in sums]
    return [_four(folded[k : k + FOLDED]) for k in range(0, n_sums, FOLDED)]


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


def _four(vectors: Sequence[Vec]) -> Vec:
    """Four vectors of four lanes become one of their sums."""
    b = vectors[0].builder
    w, x, y, z = vectors

    def pairs(low: Vec, high: Vec) -> Vec:
        return b.shuffle(low, high, (0, 4, 2, 6)) + b.shuffle(low, high, (1, 5, 3, 7))

    near, far = pairs(w, x), pairs(y, z)
    return b.shuffle(near, far, (0, 1, 4, 5)) + b.shuffle(near, far, (2, 3, 6, 7))
