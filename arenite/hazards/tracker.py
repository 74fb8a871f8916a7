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
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable

from arenite.hazards.history import CUT_EVERY, Seen
from arenite.hazards.ordering import (
    Edge,
    candidates,
    edge_of,
    latest_first,
    spans_of,
    undeclared_edge,
)
from arenite.hazards.ranges import BufferRange, Launch, Role, check_ranges
from arenite.hazards.segments import ByteMap


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
