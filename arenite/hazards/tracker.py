"""The launches that may still be running, and whether a new one conflicts with them.

In come the ranges of launches one after the other; out comes whether the next one has to wait.
After an ordering point (a barrier, a wait for everything) nothing is open any more: `reset()`.

    tracker = HazardTracker()
    for launch in launches:
        if tracker.check(launch.ranges):
            barrier()
            tracker.reset()
        tracker.add(launch.ranges)

Must hold: `check` is true exactly when some open launch conflicts with the new one. Per storage and
role the open bytes are kept as disjoint intervals in rising order, so a range is looked up by
bisection and overlapping or touching ranges take one entry however many launches made them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator

from arenite.hazards.ranges import BufferRange, Role, check_ranges


class _Intervals:
    """Disjoint half-open intervals that do not touch, in rising order."""

    __slots__ = ("ends", "starts")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []

    def overlapping(self, start: int, end: int) -> slice:
        """Where the intervals lie that share at least one byte with [start, end)."""
        first = bisect_right(self.ends, start)
        return slice(first, max(first, bisect_left(self.starts, end)))

    def add(self, start: int, end: int) -> None:
        # Touching intervals join too: they are one stretch of open bytes.
        first, stop = bisect_left(self.ends, start), bisect_right(self.starts, end)
        if first < stop:
            start, end = min(start, self.starts[first]), max(end, self.ends[stop - 1])
        self.starts[first:stop] = [start]
        self.ends[first:stop] = [end]


class HazardTracker:
    """The open ranges since the last ordering point, and what conflicts with them."""

    def __init__(self) -> None:
        self._intervals: dict[Role, dict[int, _Intervals]] = {}
        self._n_launches = 0
        self._n_undeclared = 0
        self.reset()

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
        if self._n_undeclared:
            return True
        for touched in ranges:
            for _role, _intervals, found in self._overlaps(touched):
                if found.start < found.stop:
                    return True
        return False

    def add(self, ranges: Collection[BufferRange] | None) -> None:
        """Open a launch: from now on, what conflicts with it has to wait."""
        if ranges is None:
            self._n_launches += 1
            self._n_undeclared += 1
            return
        check_ranges(ranges)
        self._n_launches += 1
        for touched in ranges:
            if not touched.is_empty:
                by_storage = self._intervals[touched.role]
                by_storage.setdefault(touched.storage_id, _Intervals()).add(
                    touched.start, touched.end
                )

    def reset(self) -> None:
        """Everything so far has finished."""
        self._intervals = {Role.READ: {}, Role.WRITE: {}}
        self._n_launches = 0
        self._n_undeclared = 0

    def conflicts(self, ranges: Collection[BufferRange] | None) -> tuple[BufferRange, ...]:
        """The open ranges a launch with these ranges conflicts with, by storage, start and role.

        Open ranges of one role that overlap or touch are one. An open undeclared launch has no
        range to name; `n_undeclared` tells of it.
        """
        if ranges is None:
            return tuple(self.open_ranges())
        check_ranges(ranges)
        found = {
            BufferRange(touched.storage_id, start, end, role)
            for touched in ranges
            for role, intervals, where in self._overlaps(touched)
            for start, end in zip(intervals.starts[where], intervals.ends[where], strict=True)
        }
        return tuple(sorted(found, key=_place))

    def open_ranges(self) -> list[BufferRange]:
        """All open bytes, by storage, start and role."""
        ranges = [
            BufferRange(storage_id, start, end, role)
            for role, by_storage in self._intervals.items()
            for storage_id, intervals in by_storage.items()
            for start, end in zip(intervals.starts, intervals.ends, strict=True)
        ]
        return sorted(ranges, key=_place)

    def _overlaps(self, touched: BufferRange) -> Iterator[tuple[Role, _Intervals, slice]]:
        """The open intervals of each role that `touched` may not run beside."""
        if touched.is_empty:
            return
        for role in (Role.WRITE, Role.READ) if touched.role is Role.WRITE else (Role.WRITE,):
            intervals = self._intervals[role].get(touched.storage_id)
            if intervals is not None:
                yield role, intervals, intervals.overlapping(touched.start, touched.end)

    def __repr__(self) -> str:
        undeclared = f", {self._n_undeclared} undeclared" if self._n_undeclared else ""
        ranges = ", ".join(repr(touched) for touched in self.open_ranges())
        return f"<HazardTracker: {self._n_launches} open{undeclared}: {ranges or 'no bytes'}>"


def _place(touched: BufferRange) -> tuple[int, int, str]:
    return touched.storage_id, touched.start, touched.role.value
