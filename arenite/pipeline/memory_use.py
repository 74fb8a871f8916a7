"""What a program that is cut holds between its segments, counted: arrays, and arenas.

In: arrays as they come and go, arenas as they are opened. Out: how many bytes are there now and
were at most; DoesNotFit, with what fills it, before a budget is overstepped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from arenite.dtype import Array
from arenite.errors import DoesNotFit, ShapeMismatch

#: What tells the name of a value.
Name: TypeAlias = Callable[[], str]

#: Values named in a message; the exception carries all of them.
NAMED_VALUES = 8


class MemoryUse:
    """Bytes of arrays that segments made, and of what they were given. `lent_nbytes` is that of
    arguments and states; `lend` adds to it."""

    def __init__(self, budget: int | None, arenas: Callable[[], int], lent_nbytes: int = 0) -> None:
        self.budget = budget
        self.nbytes = 0
        self.lent_nbytes = lent_nbytes
        self.peak_nbytes = 0
        self._arenas = arenas  # bytes of all that are open
        self._arenas_nbytes = 0  # as they were last counted
        self._count: dict[int, int] = {}
        #: Keeps them, and so their ids; a name is made when it is told.
        self._arrays: dict[int, tuple[Name | None, Array]] = {}

    def lend(self, array: Array) -> None:
        """An array that is not ours."""
        if id(array) not in self._count:
            self.lent_nbytes += array.nbytes
        self._count[id(array)] = 1
        self._arrays[id(array)] = (None, array)
        self._note_peak()

    def add(self, array: Array, name: Name | None) -> None:
        """An array that lives now; one without a name lies in an array that was lent."""
        key = id(array)
        self._count[key] = self._count.get(key, 0) + 1
        if key not in self._arrays:
            self._arrays[key] = (name, array)
            self.nbytes += _nbytes(array) if name else 0
        self._note_peak()

    def drop(self, array: Array) -> None:
        key = id(array)
        self._count[key] -= 1
        if not self._count[key]:
            del self._count[key]
            name, _ = self._arrays.pop(key)
            self.nbytes -= _nbytes(array) if name else 0

    def fits(self, nbytes: int) -> bool:
        """Whether so many more bytes are within the budget."""
        return self.budget is None or self._used_nbytes() + nbytes <= self.budget

    def count_arenas(self) -> None:
        """Look at the arenas anew: a segment has run."""
        self._arenas_nbytes = self._arenas()
        self._note_peak()

    def _note_peak(self) -> None:
        used = self.nbytes + self.lent_nbytes + self._arenas_nbytes
        self.peak_nbytes = max(self.peak_nbytes, used)

    def _used_nbytes(self) -> int:
        self.count_arenas()
        return self.nbytes + self.lent_nbytes + self._arenas_nbytes

    def need(self, nbytes: int, what: str) -> None:
        """DoesNotFit, unless so many more bytes are within the budget."""
        if self.fits(nbytes):
            return
        assert self.budget is not None
        live = self._live()
        named = ", ".join(f"{name} ({size})" for name, size in live[:NAMED_VALUES])
        if len(live) > NAMED_VALUES:
            named += f" and {len(live) - NAMED_VALUES} more"
        total = self._used_nbytes() + nbytes
        raise DoesNotFit(
            f"{what} takes {nbytes} bytes more, {total} in all, and the budget is {self.budget}. "
            f"Arguments and states take {self.lent_nbytes}; between segments are held: "
            f"{named or 'nothing'}",
            capacity=self.budget,
            lower_bound=self.nbytes + self.lent_nbytes,
            smallest_known=total,
            peak_tick=0,
            live=live,
        )

    def _live(self) -> tuple[tuple[str, int], ...]:
        """Names and bytes of what is held, largest first."""
        live = [(name(), _nbytes(array)) for name, array in self._arrays.values() if name]
        return tuple(sorted(live, key=lambda one: -one[1]))


class Rows:
    """Rows of all iterations of a loop, in an array with room for twice as many when it is full;
    at first in `target`, an array that was lent, where they go into that."""

    def __init__(self, memory: MemoryUse, name: str, target: Array | None = None) -> None:
        self._memory = memory
        self._name = name
        self._target = target
        self._room: Array | None = None
        self._n = 0

    def extend(self, rows: Array) -> None:
        """Add some, which are of one shape with all others."""
        room = self._room
        if room is not None and room.shape[1:] != rows.shape[1:]:
            raise ShapeMismatch(
                f"{self._name} have the shape {room.shape[1:]}, and that of iteration {self._n} "
                f"has {rows.shape[1:]}: what is stacked is of one shape"
            )
        end = self._n + len(rows)
        if room is None and self._fits_target(rows):
            room = self._room = self._target
        if room is None or end > len(room):
            n = max(8, 2 * self._n, end)
            nbytes = n * (rows[:1].nbytes if len(rows) else 0)
            self._memory.need(nbytes, f"room for {n} {self._name}")
            larger = np.empty((n, *rows.shape[1:]), rows.dtype)
            self._memory.add(larger, lambda: self._name)
            if room is not None:
                larger[: self._n] = room[: self._n]
                self._memory.drop(room)
            room = self._room = larger
        room[self._n : end] = rows
        self._n = end

    def _fits_target(self, rows: Array) -> bool:
        """Whether the first rows go into the array that was lent, which is held then."""
        target = self._target
        if target is None or len(rows) > len(target) or target.shape[1:] != rows.shape[1:]:
            return False
        self._memory.add(target, None)
        return True

    def take(self) -> Array | None:
        """The rows, which are no longer held here."""
        room, self._room = self._room, None
        if room is None:
            return None
        rows = room
        if self._n < len(room):
            rows = room[: self._n].copy() if 2 * self._n < len(room) else room[: self._n]
        self._memory.drop(room)
        return rows


def _nbytes(array: Array) -> int:
    """What an array keeps: all of what it is a view of."""
    base = array.base
    return base.nbytes if isinstance(base, np.ndarray) else array.nbytes
