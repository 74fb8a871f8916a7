"""Partial sums: K in blocks, each summed from zero and then added to what came before.

    for block of K
        sums = 0;   for k in block: sums += a[k] * b[k]        in registers
        totals += sums                                          on the stack

A sum of n float32 numbers in one chain is off by about n roundings, in blocks by n / 256 + 256. The
totals are touched once a block, which costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import gcd, prod

from arenite.backends.cpu.gemm.tile import Inside, KLoop, Step, moved, pointer_phi, summed
from arenite.backends.cpu.lowering.vector import I64, Builder, Vec
from arenite.dtype import FLOAT32, DType

#: Steps of K in a block at the most and, if K can be cut evenly, at the least; steps up to which
#: one block is enough.
BLOCK = 256
LEAST_BLOCK = 128
ONE_BLOCK = 384


def block_length(depth: int | None) -> int:
    """Steps in a block of so many steps of K: the same however a product is cut, so that its bits
    are the same too. Even shares, of whole steps of 16, are what K can be sliced into as well."""
    if depth is None:
        return BLOCK
    shares = [n for n in range(LEAST_BLOCK, BLOCK + 1) if depth % n == 0]
    return max(shares, key=lambda n: (gcd(n, 16), n), default=BLOCK)


@dataclass(frozen=True, slots=True)
class Blocks:
    """Of so many turns of one of the K loops, by its number from outside."""

    loop: int
    turns: int


def blocks_of(total: DType, counts: Sequence[int | None]) -> Blocks | None:
    """How K loops that run so often, or unknown times, are cut; None where one chain will do."""
    known = [count or 1 for count in counts]
    if total != FLOAT32 or (None not in counts and prod(known) <= ONE_BLOCK):
        return None
    length = block_length(None if None in counts else prod(known))
    loop = next(k for k in range(len(counts)) if prod(known[k + 1 :]) <= length)
    return Blocks(loop, max(1, length // prod(known[loop + 1 :])))


def summed_in_blocks(
    b: Builder,
    k_loops: Sequence[KLoop],
    a_pointer: str,
    b_pointer: str,
    start: list[Vec],
    step: Step,
    inside: Inside | None,
    blocks: Blocks,
    kept_at: str,
) -> list[Vec]:
    """As `summed`, in such blocks; totals are kept at `kept_at`, behind each other."""
    if blocks.loop == 0:
        return _outer_blocks(b, k_loops, a_pointer, b_pointer, start, step, inside, blocks, kept_at)
    assert inside is None
    around, within = k_loops[: blocks.loop], k_loops[blocks.loop :]
    places = _places(b, kept_at, start)
    zeros = [b.constant(0, value.type) for value in start]
    room = b.offset(kept_at, sum(_nbytes(value) for value in start))

    def inner(a_at: str, b_at: str, _: list[Vec]) -> list[Vec]:
        sums = _outer_blocks(
            b, within, a_at, b_at, zeros, step, None, replace(blocks, loop=0), room
        )
        for value, place in zip(sums, places, strict=True):
            total = b.load(value.type, place, 4) + value
            b.store(total, place, 4)
        return []

    for value, place in zip(start, places, strict=True):
        b.store(value, place, 4)
    summed(b, around, a_pointer, b_pointer, [], inner)
    return [b.load(value.type, place, 4) for value, place in zip(start, places, strict=True)]


def _nbytes(value: Vec) -> int:
    return value.type.bits * value.type.lanes // 8


def _places(b: Builder, first: str, values: Sequence[Vec]) -> list[str]:
    """Where values lie behind each other."""
    ends = accumulate((_nbytes(value) for value in values), initial=0)
    return [b.offset(first, at) for at, _ in zip(ends, values, strict=False)]


def _outer_blocks(
    b: Builder,
    k_loops: Sequence[KLoop],
    a_pointer: str,
    b_pointer: str,
    start: list[Vec],
    step: Step,
    inside: Inside | None,
    blocks: Blocks,
    kept_at: str,
) -> list[Vec]:
    """Blocks of the outermost loop; the first begins with `start`."""
    outer, *inner = k_loops
    front, head = b.block, b.new_block("block")
    front.end = f"br label %{head.name}"
    b.block = head
    left = Vec(b, b.new_name(), I64)
    a_at, b_at = b.new_name(), b.new_name()
    zeros = [b.constant(0, value.type) for value in start]
    begun = [
        value if value.text == zero.text else Vec(b, b.new_name(), value.type)
        for value, zero in zip(start, zeros, strict=True)
    ]
    count = b.intrinsic("smin", left, b.constant(blocks.turns, I64))
    loops = [KLoop(count, outer.a_step, outer.b_step), *inner]
    sums = summed(b, loops, a_at, b_at, begun, step, inside)
    places = _places(b, kept_at, sums)
    first, last = b.block, b.new_block("all")
    adding = b.new_block("add")
    first.end = f"br i1 {left.eq(outer.count).text}, label %{last.name}, label %{adding.name}"
    b.block = adding
    added = [
        b.load(value.type, place, 4) + value for value, place in zip(sums, places, strict=True)
    ]
    adding.end = f"br label %{last.name}"
    b.block = last
    totals = [
        b.phi(last, [(alone, first), (both, adding)])
        for alone, both in zip(sums, added, strict=True)
    ]
    rest = left - count
    again, done = b.new_block("again"), b.new_block("summed")
    last.end = f"br i1 {rest.ne(0).text}, label %{again.name}, label %{done.name}"
    b.block = again
    for value, place in zip(totals, places, strict=True):
        b.store(value, place, 4)
    a_next, b_next = (
        moved(b, at, count * far) for at, far in ((a_at, outer.a_step), (b_at, outer.b_step))
    )
    again.end = f"br label %{head.name}"
    b.set_phi(head, left.text, [(outer.count, front), (rest, again)])
    for name, first_at, next_at in ((a_at, a_pointer, a_next), (b_at, b_pointer, b_next)):
        pointer_phi(head, name, (first_at, front), (next_at, again))
    for name_of, value, zero in zip(begun, start, zeros, strict=True):
        if name_of is not value:
            b.set_phi(head, name_of.text, [(value, front), (zero, again)])
    b.block = done
    return totals
