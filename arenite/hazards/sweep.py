"""The race in one pass over a sequence of launches, found by a sweep over addresses.

In come launches, edges and barriers; out comes the smallest pair of launches that conflict and are
not ordered, or none. At any address some launches are at work, here at the dotted line launches
1, 3 and 6 writing and 2 and 4 reading:

    launch 1   wwwww:wwww          must be ordered
    launch 2      rr:rrrrrrr       writes that follow each other:  1-3, 3-6
    launch 3     www:ww            each read and the write before: 1-2, 3-4
    launch 4       r:rrrr          each read and the write after:  2-3, 4-6
    launch 6  wwwwww:w
                    :   -> addresses

Neighbours are enough. Two writes at this address have a chain of neighbouring writes between them,
and a read with any other write goes through the write next to it; being ordered is transitive.
They are also needed, since neighbours themselves conflict. New neighbours are asked for where a
range starts, all reads between two writes at once; where one ends, those it stood between are
already ordered through it. So demands are as many as the ranges, not as their pairs. An undeclared
launch must come after everything before it, and each later launch after the last undeclared one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from arenite.hazards.ranges import Launch, Role

_DEMAND_NBYTES = 128 << 20  # demands are answered and dropped when they take more than this

_FEW_READS = 32  # up to so many, reads between two writes are asked for one by one

Pair = tuple[int, int]


class _Demands:
    """What must be ordered in one sequence of launches, asked in bulk.

    Sets of launches are ints with one bit a position. The launches in `pairs[x]` and `before[x]`
    must all be ancestors of x, those in `after[x]` all descendants; `second` is the earliest
    launch known to lack an ancestor.
    """

    def __init__(self, n: int, edges: Iterable[Pair], barriers: Iterable[int]) -> None:
        self.n = n
        self.barriers = sorted({0, n, *barriers})
        self.predecessors: list[list[int]] = [[] for _ in range(n)]
        self.successors: list[list[int]] = [[] for _ in range(n)]
        for a, b in edges:
            self.predecessors[b].append(a)
            self.successors[a].append(b)
        self.pairs: dict[int, set[int]] = {}
        self.before: dict[int, int] = {}
        self.after: dict[int, int] = {}
        self.nbytes = 0
        self.second: int | None = None

    def ask_pair(self, first: int, second: int) -> None:
        self.pairs.setdefault(second, set()).add(first)
        self.nbytes += 64

    def ask_before(self, position: int, launches: int) -> None:
        self.before[position] = self.before.get(position, 0) | launches
        self.nbytes += position >> 3

    def ask_after(self, position: int, launches: int) -> None:
        self.after[position] = self.after.get(position, 0) | launches
        self.nbytes += self.n >> 3

    def answer(self) -> None:
        """Check what was asked so far, and forget it."""
        missing = [] if self.second is None else [self.second]
        for position, ancestors in self._reach(range(self.n), self.predecessors, -1):
            if self._lacks(position, ancestors):
                missing.append(position)
                break
        if self.after:
            for position, heirs in self._reach(range(self.n - 1, -1, -1), self.successors, 1):
                unmet = self.after.get(position, 0) & ~heirs
                if unmet:
                    missing.append((unmet & -unmet).bit_length() - 1)
        self.second = min(missing, default=None)
        self.pairs.clear()
        self.before.clear()
        self.after.clear()
        self.nbytes = 0

    def _lacks(self, position: int, ancestors: int) -> bool:
        if self.before.get(position, 0) & ~ancestors:
            return True
        firsts = self.pairs.get(position)
        if firsts is None:
            return False
        # One shift of the large set, then small ones: most pairs are near each other.
        low = min(firsts)
        near = ancestors >> low
        return any(not near >> (first - low) & 1 for first in firsts)

    def _reach(
        self, positions: range, links: list[list[int]], side: int
    ) -> Iterator[tuple[int, int]]:
        """Each launch with all it is ordered after (side -1) or before (side 1)."""
        waiting = [0] * self.n  # launches that still need the set of this one
        for position in chain.from_iterable(links):
            waiting[position] += 1
        held: dict[int, int] = {}
        everything = (1 << self.n) - 1
        barrier, beyond = -1, 0
        for position in positions:
            at = bisect_right(self.barriers, position) - (side < 0)
            if self.barriers[at] != barrier:
                # One object for all launches between two barriers.
                barrier = self.barriers[at]
                below = (1 << barrier) - 1
                beyond = below if side < 0 else everything & ~below
            reached = beyond
            for linked in links[position]:
                reached |= held[linked] | 1 << linked
                waiting[linked] -= 1
                if not waiting[linked]:
                    del held[linked]
            if waiting[position]:
                held[position] = reached
            yield position, reached

    def ancestors(self, position: int) -> set[int]:
        """The ancestors of one launch."""
        found = set(range(self.barriers[bisect_right(self.barriers, position) - 1]))
        to_do = [position]
        while to_do:
            new = [p for p in self.predecessors[to_do.pop()] if p not in found]
            found.update(new)
            to_do.extend(new)
        return found


def smallest_race(
    launches: Sequence[Launch], edges: Iterable[Pair], barriers: Iterable[int]
) -> Pair | None:
    """The race with the smallest (second, first) in one pass over a sequence."""
    demands = _Demands(len(launches), edges, barriers)
    accesses: dict[int, list[tuple[int, int, int, Role]]] = {}
    undeclared: int | None = None
    for position, launch in enumerate(launches):
        if undeclared is not None:
            demands.ask_pair(undeclared, position)
        if launch.ranges is None:
            demands.ask_before(position, (1 << position) - 1)
            undeclared = position
        for touched in launch.ranges or ():
            if touched.start < touched.end:
                accesses.setdefault(touched.storage_id, []).append(
                    (touched.start, touched.end, position, touched.role)
                )
    for of_storage in accesses.values():
        _sweep(of_storage, demands)
    demands.answer()
    second = demands.second
    if second is None:
        return None
    # A chain of neighbours ends at `second`, so it is the smallest; the smallest `first` need not
    # be a neighbour, but with `second` known, looking at all is cheap.
    ancestors = demands.ancestors(second)
    first = next(
        position
        for position in range(second)
        if position not in ancestors and launches[position].conflicts_with(launches[second])
    )
    return first, second


def _sweep(accesses: list[tuple[int, int, int, Role]], demands: _Demands) -> None:
    """Ask for all neighbours in one storage, address by address."""
    events = []
    for start, end, position, role in accesses:
        # At one address ends come first: ranges that touch share no byte.
        events.append((end, False, position, role is Role.WRITE))
        events.append((start, True, position, role is Role.WRITE))
    events.sort()
    writes: list[int] = []  # launches writing at this address, rising
    reads = _Readers()
    for _, enters, position, is_write in events:
        if demands.nbytes > _DEMAND_NBYTES:
            demands.answer()
        if not enters:
            if is_write:
                del writes[bisect_left(writes, position)]
            else:
                reads.leave(position)
            continue
        earlier = bisect_left(writes, position) - 1
        later = bisect_right(writes, position)
        low = writes[earlier] if earlier >= 0 else None
        high = writes[later] if later < len(writes) else None
        if is_write:
            writes.insert(later, position)
            _ask_between(low, position, reads, demands)
            _ask_between(position, high, reads, demands)
        else:
            reads.enter(position)
            if low is not None:
                demands.ask_pair(low, position)
            if high is not None:
                demands.ask_pair(position, high)


def _ask_between(low: int | None, high: int | None, reads: _Readers, demands: _Demands) -> None:
    """Order two neighbouring writes (None = there is none) and the reads between them."""
    if low is not None and high is not None:
        demands.ask_pair(low, high)
    positions = reads.positions
    i = 0 if low is None else bisect_right(positions, low)
    j = len(positions) if high is None else bisect_left(positions, high)
    if j - i <= _FEW_READS:
        for position in positions[i:j]:
            if low is not None:
                demands.ask_pair(low, position)
            if high is not None:
                demands.ask_pair(position, high)
        return
    between = reads.as_bits()
    if low is not None:
        between = between >> (low + 1) << (low + 1)
    if high is not None:
        between &= (1 << high) - 1
        demands.ask_before(high, between)
    if low is not None:
        demands.ask_after(low, between)


class _Readers:
    """The launches reading at one address, in rising order; one that says so twice is in twice."""

    def __init__(self) -> None:
        self.positions: list[int] = []
        self._bits = 0
        self._changed: list[int] = []  # positions whose bit is to be flipped

    def enter(self, position: int) -> None:
        i = bisect_left(self.positions, position)
        if self.positions[i : i + 1] != [position]:
            self._changed.append(position)
        self.positions.insert(i, position)

    def leave(self, position: int) -> None:
        i = bisect_left(self.positions, position)
        del self.positions[i]
        if self.positions[i : i + 1] != [position]:
            self._changed.append(position)

    def as_bits(self) -> int:
        """One bit a position; made when asked for, since few sweeps ever ask."""
        for position in self._changed:
            self._bits ^= 1 << position
        self._changed.clear()
        return self._bits
