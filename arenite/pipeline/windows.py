"""Windows: how long launches count as running, if nothing but data keeps them in order.

In: a program before it is known where anything lies. Out: for each launch a span of ticks such that
of two launches whose spans are apart, the one is over when the other begins: because of data, of
the order of worker 0, or of the end of a block. Values that live over such spans share bytes
without any wait for it.

    tick        3  4  5  6          4 and 5 read what 3 makes, 6 what they make; so 4 may still run
    3           ██                  when 5 does. It is enough that one of the two is taken to last:
    4              █████            the earlier until the other begins, or the later from where the
    5                 ██            other began. For all launches it is the same of the two,
    6                    ██         whichever takes fewer bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from itertools import pairwise

from arenite.hazards import order
from arenite.memory import MemoryPlan, ValueId
from arenite.memory.values import ARENA_REGIONS
from arenite.pipeline.steps import Lowered
from arenite.program.launch_hazards import ARENA, data_hazards, touched
from arenite.program.steps import StepKind

#: Launches before a position: all below a floor, and floor + k for each bit k.
_Earlier = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Block:
    """Launches [first, stop) of the program, the first of them at `tick`; who comes before whom."""

    first: int
    stop: int
    tick: int
    earlier: list[_Earlier]
    lasts: list[int]  # for each launch the last that is not ordered with it, or itself

    def is_before(self, one: int, other: int) -> bool:
        floor, bits = self.earlier[other]
        return one < floor or bool(bits >> (one - floor) & 1)


class Windows:
    """The order that data and worker 0 keep; where no launch is shared, that is the program's."""

    def __init__(self, program: Lowered, is_shared: Sequence[bool]) -> None:
        self._is_shared = is_shared
        self._begin_early = False
        self._targets: dict[ValueId, tuple[int, ...]] = {
            number: value.targets for number, value in enumerate(program.values) if value.targets
        }
        self._launches = program.launches
        self._names = [value.name for value in program.values]
        self._blocks = [
            self._block(first, stop, tick)
            for first, stop, tick in blocks_of(program)
            if any(is_shared[first:stop])
        ]
        self._block_at = {
            tick: block
            for block in self._blocks
            for tick in range(block.tick, block.tick + block.stop - block.first)
        }

    def _block(self, first: int, stop: int, tick: int) -> _Block:
        befores: list[list[int]] = [[] for _ in range(first, stop)]
        for edge in order(data_hazards(self._launches[first:stop], self._targets)):
            befores[edge.after].append(edge.before)
        alone = [k for k in range(stop - first) if not self._is_shared[first + k]]
        for one, other in pairwise(alone):
            befores[other].append(one)
        earlier = _closed(befores)
        n = stop - first
        afters: list[list[int]] = [[] for _ in befores]
        for k, some in enumerate(befores):
            for before in some:
                afters[n - 1 - before].append(n - 1 - k)
        later = _closed(afters)
        lasts = [n - 1 - floor for floor, _ in reversed(later)]
        return _Block(first, stop, tick, earlier, lasts)

    def of(self, tick: int) -> tuple[int, int]:
        """The first and the last tick of what stands at a tick."""
        block = self._block_at.get(tick)
        if block is None:
            return tick, tick
        if self._begin_early:
            floor, _ = block.earlier[tick - block.tick]
            return block.tick + floor, tick
        return tick, block.tick + block.lasts[tick - block.tick]

    def begun_early(self) -> Windows:
        """Where launches begin when the first that may run beside them has begun, and do not last
        until the last of these begins."""
        other = copy(self)
        other._begin_early = True
        return other

    def is_before(self, one: int, other: int) -> bool:
        """Whether what stands at a tick is over when what stands at another begins."""
        block = self._block_at.get(other)
        if block is None or block is not self._block_at.get(one):
            return one < other
        return block.is_before(one - block.tick, other - block.tick)

    def added_edges(self, plan: MemoryPlan) -> int:
        """How many launches wait for another only because values of the plan share bytes."""

        def span_of(value: ValueId) -> tuple[int, int, int]:
            slot = plan.slots[self._names[int(value)]]
            if slot.region in ARENA_REGIONS:
                return ARENA, slot.offset, slot.offset + slot.nbytes
            return 1 + int(value), 0, slot.nbytes

        added = 0
        for block in self._blocks:
            inside = self._launches[block.first : block.stop]
            edges = order(touched(inside, span_of, lambda value: self._targets.get(value, ())))
            added += sum(not block.is_before(edge.before, edge.after) for edge in edges)
        return added


def blocks_of(program: Lowered) -> list[tuple[int, int, int]]:
    """Launches that stand one behind the other: the first, the one behind the last, the tick."""
    blocks: list[tuple[int, int, int]] = []
    is_open = False
    for k, step in enumerate(program.steps, len(program.load)):
        if step.kind is StepKind.LAUNCH:
            if is_open:
                first, _, tick = blocks.pop()
                blocks.append((first, step.a + 1, tick))
            else:
                blocks.append((step.a, step.a + 1, k))
        is_open = step.kind is StepKind.LAUNCH
    return blocks


def _closed(befores: Sequence[Sequence[int]]) -> list[_Earlier]:
    """All that comes before each position, from what comes directly before it."""
    earlier: list[_Earlier] = []
    for some in befores:
        floor = bits = 0
        for before in some:
            other_floor, other = earlier[before]
            if other_floor > floor:
                floor, bits = other_floor, bits >> (other_floor - floor) | other
            else:
                bits |= other >> (floor - other_floor)
            if before >= floor:
                bits |= 1 << (before - floor)
        ones = (~bits & (bits + 1)).bit_length() - 1
        earlier.append((floor + ones, bits >> ones))
    return earlier
