"""Greedy placement: blocks one after another, each into a gap between those already placed.

Blocks whose lifetimes overlap are neighbours; a block goes to the lowest gap that its placed
neighbours leave. Where all blocks live at once, as weights do, these are the gaps that are left in
the whole region, and neighbours need no list. Where a problem has too many pairs of neighbours to
list, the sweep places blocks in the order of their birth, as an allocator would that sees them come
and go: memory and time then grow with the number of blocks alone.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from arenite.errors import InvalidArgument
from arenite.memory.blocks import Block
from arenite.memory.values import align_up

#: Pairs of neighbours that are listed at the most, about 100 MB of lists.
MAX_PAIRS = 6_000_000

UNPLACED = -1
Span = tuple[int, int]


@dataclass(eq=False)
class Problem:
    """The blocks of a region as columns."""

    sizes: list[int]
    alignments: list[int]
    starts: list[int]
    ends: list[int]
    pins: list[int | None]
    max_pairs: int = MAX_PAIRS

    @classmethod
    def of(cls, blocks: Sequence[Block], max_pairs: int = MAX_PAIRS) -> Problem:
        return cls(
            [block.nbytes for block in blocks],
            [block.alignment for block in blocks],
            [block.start for block in blocks],
            [block.end for block in blocks],
            [block.pin for block in blocks],
            max_pairs,
        )

    @cached_property
    def n_pairs(self) -> int:
        """How many pairs of blocks are neighbours."""
        return count_pairs(self.starts, self.ends)

    @cached_property
    def n_live(self) -> int:
        """How many blocks live at all."""
        return sum(start < end for start, end in zip(self.starts, self.ends, strict=True))

    @property
    def is_crowd(self) -> bool:
        """Whether all blocks that live at all are neighbours of each other."""
        return self.n_pairs == self.n_live * (self.n_live - 1) // 2

    @cached_property
    def neighbours(self) -> list[list[int]] | None:
        """Those of each block; None where there are too many."""
        return list_neighbours(self.starts, self.ends) if self.is_listed else None

    @property
    def is_listed(self) -> bool:
        """Whether neighbours are few enough to be listed."""
        return self.n_pairs <= self.max_pairs

    def __len__(self) -> int:
        return len(self.sizes)


def count_pairs(starts: list[int], ends: list[int]) -> int:
    """How many pairs of lifetimes overlap, without listing them."""
    alive = [(s, e) for s, e in zip(starts, ends, strict=True) if s < e]
    births = np.sort(np.array([s for s, _ in alive], dtype=np.int64))
    deaths = np.sort(np.array([e for _, e in alive], dtype=np.int64))
    # Born before the i-th birth in order: i others; of these, those dead by then don't count.
    dead_by_birth = np.searchsorted(deaths, births, side="right")
    return int((np.arange(len(alive)) - dead_by_birth).sum())


def list_neighbours(starts: list[int], ends: list[int]) -> list[list[int]]:
    neighbours: list[list[int]] = [[] for _ in starts]
    alive: list[int] = []
    for i in sorted(range(len(starts)), key=starts.__getitem__):
        start = starts[i]
        if start >= ends[i]:
            continue
        alive = [j for j in alive if ends[j] > start]
        neighbours[i].extend(alive)
        for j in alive:
            neighbours[j].append(i)
        alive.append(i)
    return neighbours


class Layout:
    """Where the blocks of a problem lie while they are being placed."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.spans: list[Span | None] = [None] * len(problem)
        self.work = 0  # neighbours looked at so far: the measure of effort
        self._gaps: _Gaps | None = None  # where all blocks are neighbours
        self._place_pins()

    def _place_pins(self) -> None:
        for i, pin in enumerate(self.problem.pins):
            if pin is not None:
                self.spans[i] = (pin, pin + self.problem.sizes[i])

    def place_lowest(self, i: int) -> int:
        """Place block i in the lowest gap that holds it; its new top."""
        problem = self.problem
        size, alignment = problem.sizes[i], problem.alignments[i]
        if self._gaps is None:
            base = self._lowest_between(i, size, alignment)
        else:
            is_live = problem.starts[i] < problem.ends[i]
            self.work += problem.n_live if is_live else 1
            base = self._gaps.take(size, alignment) if is_live else 0
        self.spans[i] = (base, base + size)
        return base + size

    def _lowest_between(self, i: int, size: int, alignment: int) -> int:
        """The lowest offset that the placed neighbours of block i leave to it."""
        problem, spans = self.problem, self.spans
        assert problem.neighbours is not None
        near = problem.neighbours[i]
        self.work += len(near) + 1
        taken = [span for j in near if (span := spans[j]) is not None]
        taken.sort()
        base = 0
        for low, high in taken:
            if low - base >= size:
                break
            if high > base:
                base = -(-high // alignment) * alignment
        return base

    def place_all(self, order: Sequence[int], limit: int) -> int:
        """Place the unpinned blocks in this order; the peak, or `limit` once that is reached."""
        problem, spans, pins = self.problem, self.spans, self.problem.pins
        for i in order:
            if pins[i] is None:
                spans[i] = None
        if problem.is_crowd:
            live = zip(spans, problem.starts, problem.ends, strict=True)
            self._gaps = _Gaps([span for span, start, end in live if span and start < end])
        peak = self.peak_nbytes
        for i in order:
            if pins[i] is None:
                top = self.place_lowest(i)
                if top > peak:
                    if top >= limit:
                        return limit
                    peak = top
        return peak

    @property
    def peak_nbytes(self) -> int:
        return max((span[1] for span in self.spans if span is not None), default=0)

    @property
    def offsets(self) -> list[int]:
        """Of a layout in which every block has its place."""
        return [span[0] for span in self.spans if span is not None]


class _Gaps:
    """What is free between spans that are taken for good, from the lowest on; the last has no
    end."""

    def __init__(self, taken: Iterable[Span]) -> None:
        self._gaps: list[tuple[int, int | None]] = []
        top = 0
        for low, high in sorted(span for span in taken if span[0] < span[1]):
            if low > top:
                self._gaps.append((top, low))
            top = max(top, high)
        self._gaps.append((top, None))

    def take(self, size: int, alignment: int) -> int:
        """The lowest free offset for so many bytes, which are taken then."""
        if size == 0:
            return 0
        for k, (low, high) in enumerate(self._gaps):
            base = align_up(low, alignment)
            if high is None or base + size <= high:
                left: list[tuple[int, int | None]] = [(low, base)] if low < base else []
                left += [(base + size, high)] if high is None or base + size < high else []
                self._gaps[k : k + 1] = left
                return base
        raise AssertionError("the last gap has no end")


def check_pins(problem: Problem, names: Sequence[object]) -> None:
    """InvalidArgument when two pinned blocks share bytes while both live."""
    pinned = [
        (problem.starts[i], problem.ends[i], pin, pin + problem.sizes[i], names[i])
        for i, pin in enumerate(problem.pins)
        if pin is not None and problem.sizes[i] and problem.starts[i] < problem.ends[i]
    ]
    alive: list[tuple[int, int, int, int, object]] = []
    for box in sorted(pinned, key=lambda b: b[:4]):
        start, _, low, high, name = box
        alive = [other for other in alive if other[1] > start]
        for _, _, other_low, other_high, other_name in alive:
            if low < other_high and other_low < high:
                raise InvalidArgument(
                    f"values {other_name!r} and {name!r} are pinned to bytes that overlap, and "
                    f"both live at tick {start}"
                )
        alive.append(box)


def sweep(problem: Problem) -> list[int]:
    """Offsets by a pass over time: a block takes the tightest free gap when it is born.

    Pinned blocks are set aside: everything else is placed above the highest of them.
    """
    pinned = zip(problem.pins, problem.sizes, strict=True)
    floor = max((pin + size for pin, size in pinned if pin is not None), default=0)
    offsets = [UNPLACED] * len(problem)
    free = _FreeGaps(floor)
    dying: list[tuple[int, int]] = []
    for i in sorted(range(len(problem)), key=problem.starts.__getitem__):
        pin = problem.pins[i]
        if pin is not None:
            offsets[i] = pin
            continue
        while dying and dying[0][0] <= problem.starts[i]:
            j = heapq.heappop(dying)[1]
            free.give_back(offsets[j], offsets[j] + problem.sizes[j])
        offsets[i] = free.take(problem.sizes[i], problem.alignments[i])
        heapq.heappush(dying, (problem.ends[i], i))
    return offsets


class _FreeGaps:
    """Free bytes below `top`, by size and by either end; everything above `top` is free."""

    def __init__(self, floor: int) -> None:
        self.top = floor
        self.by_size: list[tuple[int, int]] = []  # (size, low), sorted
        self.high_of: dict[int, int] = {}
        self.low_of: dict[int, int] = {}

    def take(self, size: int, alignment: int) -> int:
        if size == 0:
            return 0
        for k in range(bisect_left(self.by_size, (size, 0)), len(self.by_size)):
            gap, low = self.by_size[k]
            base = align_up(low, alignment)
            if base + size <= low + gap:
                self._remove(low, low + gap)
                self.give_back(low, base)
                self.give_back(base + size, low + gap)
                return base
        base = align_up(self.top, alignment)
        low, self.top = self.top, base + size
        self.give_back(low, base)
        return base

    def give_back(self, low: int, high: int) -> None:
        if low == high:
            return
        if low in self.low_of:
            below = self.low_of[low]
            self._remove(below, low)
            low = below
        if high in self.high_of:
            above = self.high_of[high]
            self._remove(high, above)
            high = above
        self.high_of[low], self.low_of[high] = high, low
        insort(self.by_size, (high - low, low))

    def _remove(self, low: int, high: int) -> None:
        del self.high_of[low], self.low_of[high]
        del self.by_size[bisect_left(self.by_size, (high - low, low))]
