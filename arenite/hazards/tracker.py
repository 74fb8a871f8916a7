"""The launches that may still be running, and which of them a new one has to wait for.

In come the ranges of launches one after the other; out comes whether the next one has to wait, or
for whom. After an ordering point (a barrier, a wait for everything) nothing is open any more:

    tracker = HazardTracker()
    for launch in launches:
        if tracker.check(launch.ranges):
            barrier()
            tracker.reset()
        tracker.add(launch.ranges)

A program without barriers waits for single launches: `order` opens all of them and takes the edges
that `add` gives.

    position   0 writes A     1 reads A     2 reads A     3 writes A
    conflicts  0-1, 0-2, 0-3, 1-3, 2-3
    edges      0 -> 1 (RAW), 0 -> 2 (RAW), 1 -> 3 (WAR), 2 -> 3 (WAR)

Must hold: `check` is true exactly when some open launch conflicts with the new one; two open
launches that conflict are joined by a path of edges, and no edge is implied by others. That makes
the edges exactly the transitive reduction of the conflict order, of which there is only one.

Each byte remembers its last writer and its readers since (`segments`). An undeclared launch comes
after everything before it and before everything after it, so no byte need remember anything across
it. Time is near-linear in the number of ranges, memory in the number of launches the bytes still
remember, as long as these mostly agree on what was ordered before them long ago.

Which of the launches that bytes remember a new launch has to wait for, and why.

In comes what a launch touches; out come the edges that no others imply. The launches that its bytes
remember (`segments`) are looked at from the latest down: one that is an ancestor of a later one is
implied. All reads of a launch come before its writes, so that working in place is no conflict with
itself.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from arenite.hazards.history import CUT_EVERY, Seen, Span, Spans
from arenite.hazards.ranges import BufferRange, HazardKind, Launch, Role, check_ranges
from arenite.hazards.segments import ByteMap, Page


def order(launches: Iterable[Launch]) -> tuple[Edge, ...]:
    """The fewest edges that keep every two conflicting launches in the order given, sorted by
    `after` and then `before`."""
    tracker = HazardTracker()
    return tuple(edge for launch in launches for edge in tracker.add(launch.ranges))


class HazardTracker:
    """The open ranges since the last ordering point, and what conflicts with them."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Everything so far has finished."""
        self._maps: defaultdict[int, ByteMap] = defaultdict(ByteMap)
        self._shared: dict[int, int] = {}  # ancestors long past, for launches that agree on them
        self._ends: set[int] = set()  # launches that nothing is ordered after yet
        self._undeclared = -1  # the last undeclared launch
        self._opened: list[BufferRange] = []
        self._n_launches = 0
        self._n_undeclared = 0

    @property
    def n_launches(self) -> int:
        """How many launches are open, undeclared ones and those that touch nothing too."""
        return self._n_launches

    @property
    def n_undeclared(self) -> int:
        """How many open launches are undeclared; while there is one, everything conflicts."""
        return self._n_undeclared

    def check(self, ranges: Collection[BufferRange] | None) -> bool:
        """Whether a launch with these ranges conflicts with an open one."""
        if ranges is None:
            return self._n_launches > 0
        check_ranges(ranges)
        return self._n_undeclared > 0 or any(
            self._maps[touched.storage_id].is_open(touched)
            for touched in ranges
            if touched.storage_id in self._maps and not touched.is_empty
        )

    def add(self, ranges: Collection[BufferRange] | None) -> tuple[Edge, ...]:
        """Open a launch: from now on, what conflicts with it has to wait.

        Gives the edges that it needs: from launches that are open, by their positions since the
        last ordering point, and none that others imply.
        """
        if ranges is not None:
            check_ranges(ranges)
        position = self._n_launches
        self._n_launches += 1
        if position % CUT_EVERY == 0:
            self._shared.clear()
        if ranges is None:
            edges = [undeclared_edge(before, position) for before in sorted(self._ends)]
            self._maps.clear()
            self._ends = {position}
            self._undeclared = position
            self._n_undeclared += 1
            return tuple(edges)
        self._opened += ranges
        seen = Seen(position, spans_of(ranges, Role.READ), spans_of(ranges, Role.WRITE))
        floor = self._undeclared + 1
        befores = latest_first(candidates(seen, self._maps, floor), seen, floor, self._shared)
        edges = [edge_of(before, seen) for before in reversed(befores)]
        if not edges and self._undeclared >= 0:
            edges.append(undeclared_edge(self._undeclared, position))
        self._ends.difference_update(edge.before for edge in edges)
        self._ends.add(position)
        return tuple(edges)

    def conflicts(self, ranges: Collection[BufferRange] | None) -> tuple[BufferRange, ...]:
        """The open ranges a launch with these ranges conflicts with, by storage, start and role.

        Open ranges of one role that overlap or touch are one. An open undeclared launch has no
        range to name; `n_undeclared` tells of it.
        """
        opened = self.open_ranges()
        if ranges is None:
            return tuple(opened)
        check_ranges(ranges)
        return tuple(one for one in opened if any(map(one.conflicts_with, ranges)))

    def open_ranges(self) -> list[BufferRange]:
        """All open bytes, by storage, start and role."""
        return sorted(
            (BufferRange(*span, role) for role in Role for span in spans_of(self._opened, role)),
            key=lambda one: (one.storage_id, one.start, one.role.value),
        )

    def __repr__(self) -> str:
        undeclared = f", {self._n_undeclared} undeclared" if self._n_undeclared else ""
        ranges = ", ".join(repr(touched) for touched in self.open_ranges())
        return f"<HazardTracker: {self._n_launches} open{undeclared}: {ranges or 'no bytes'}>"


@dataclass(frozen=True, slots=True)
class Edge:
    """Launch `before` must have finished when launch `after` starts, for this reason.

    A pair may have many hazards; this is its first one: reads of `after` are looked at before its
    writes, then by storage and address. A byte that `before` both read and wrote counts as
    written. Storage and bytes are `None` when one of the two is undeclared.
    """

    before: int
    after: int
    kind: HazardKind
    storage_id: int | None
    start: int | None
    end: int | None

    @property
    def pair(self) -> tuple[int, int]:
        """(before, after)"""
        return self.before, self.after


def spans_of(ranges: Iterable[BufferRange], role: Role) -> Spans:
    """The bytes of one role, each once, in rising order."""
    spans = [(r.storage_id, r.start, r.end) for r in ranges if r.role is role and r.start < r.end]
    if len(spans) < 2:
        return spans
    spans.sort()
    merged = spans[:1]
    for span in spans[1:]:
        storage_id, start, end = merged[-1]
        if span[0] == storage_id and span[1] <= end:
            if span[2] > end:
                merged[-1] = (storage_id, start, span[2])
        else:
            merged.append(span)
    return merged


def candidates(seen: Seen, maps: defaultdict[int, ByteMap], floor: int) -> dict[int, Seen]:
    """The launches the bytes of `seen` remember; from now on they remember it."""
    found: dict[int, Seen] = {}
    wide: list[Page] = []
    for storage_id, start, end in seen.reads:
        maps[storage_id].read(start, end, seen, found, wide)
    if wide:
        _look_through(wide, floor, found)
    for storage_id, start, end in seen.writes:
        maps[storage_id].write(start, end, seen, found)
    found.pop(seen.position, None)
    return found


def _look_through(pages: list[Page], floor: int, found: dict[int, Seen]) -> None:
    """Add the writers in these pages, but for those that another writer found is ordered after.

    Pages with late writers first: with the ancestors of the latest ones known, most other pages
    have nothing to add, and are not opened.
    """
    pages = sorted(pages, key=lambda page: page.latest, reverse=True)
    stop = pages[0].latest + 1
    bits = missing = 0  # missing: one bit a position for what floor and bits leave out
    for page in pages:
        if page.latest < floor:
            return
        if bits and not page.has_writer_among(missing):
            continue
        newest: Seen | None = None
        for writer in set(page.writers):
            if writer is not None and writer.position >= floor:
                found[writer.position] = writer
                if newest is None or newest.position < writer.position:
                    newest = writer
        if newest is not None:
            floor, bits = _join(floor, bits, newest)
            missing = (((1 << (stop - floor)) - 1) ^ bits) << floor


def latest_first(
    found: dict[int, Seen], seen: Seen, floor: int, shared: dict[int, int]
) -> list[Seen]:
    """Those found that no later one is ordered after; with them, the ancestors of `seen`."""
    kept: list[Seen] = []
    bits = 0
    for position in sorted(found, reverse=True):
        if position < floor:
            break
        if not bits >> (position - floor) & 1:
            before = found[position]
            kept.append(before)
            floor, bits = _join(floor, bits, before)
            bits |= 1 << (position - floor)
    if bits & 1:
        ones = (~bits & (bits + 1)).bit_length() - 1
        floor, bits = floor + ones, bits >> ones
    seen.set_ancestors(floor, bits, shared)
    return kept


def _join(floor: int, bits: int, seen: Seen) -> tuple[int, int]:
    """A set of launches given as floor and bits, with the ancestors of `seen` added."""
    seen_floor, seen_bits = seen.ancestors()
    if seen_floor > floor:
        return seen_floor, bits >> (seen_floor - floor) | seen_bits
    return floor, bits | seen_bits >> (floor - seen_floor)


def undeclared_edge(before: int, after: int) -> Edge:
    return Edge(before, after, HazardKind.UNDECLARED, None, None, None)


def edge_of(before: Seen, after: Seen) -> Edge:
    """The edge with its reason; the two are known to conflict."""
    first = _first_overlap(after.reads, before.writes)
    if first is not None:
        return Edge(before.position, after.position, HazardKind.RAW, *first)
    # Bytes that `before` read and wrote count as written.
    write = _first_overlap(after.writes, before.writes)
    read = _first_overlap(after.writes, before.reads)
    if read is None or (write is not None and write[:2] <= read[:2]):
        assert write is not None
        return Edge(before.position, after.position, HazardKind.WAW, *write)
    return Edge(before.position, after.position, HazardKind.WAR, *read)


def _first_overlap(one: Spans, other: Spans) -> Span | None:
    """The lowest bytes in both."""
    if len(one) > len(other):
        one, other = other, one
    for span in one:
        storage_id, start, end = span
        if len(other) > 8:  # below that, looking at all of them is quicker
            i = bisect_right(other, span)
            near = other[max(i - 1, 0) : i + 1]
        else:
            near = other
        for their_id, low, high in near:
            if storage_id == their_id and low < end and start < high:
                return storage_id, low if low > start else start, high if high < end else end
    return None
