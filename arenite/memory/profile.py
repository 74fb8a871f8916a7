"""How many bytes are live at each tick: the lower bound of any placement.

Ticks are compressed to the instants at which a lifetime starts or ends, so that lifetimes over
2^60 ticks cost no more than short ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

IntArray = np.ndarray[Any, np.dtype[np.int64]]
Ints = Sequence[int] | IntArray


def are_first(ordered: IntArray) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Of numbers in order: whether each is the first of its like. `np.unique` would do, but imports
    NumPy's masked arrays too, which takes longer than all else a bind does."""
    found = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=found[1:])
    return found


class Lives:
    """When blocks live: their first instants and those behind their last, of all `ticks`."""

    __slots__ = ("born", "dead", "ticks")

    def __init__(self, ticks: IntArray, born: IntArray, dead: IntArray) -> None:
        self.ticks, self.born, self.dead = ticks, born, dead

    @classmethod
    def of(cls, starts: Ints, ends: Ints) -> Lives:
        births = np.asarray(starts, dtype=np.int64)
        deaths = np.asarray(ends, dtype=np.int64)
        # A value is also looked at one tick after its birth (see blocks.py), so that is an instant.
        ticks = np.sort(np.concatenate([births, births + 1, deaths]))
        ticks = ticks[are_first(ticks)]
        return cls(ticks, np.searchsorted(ticks, births), np.searchsorted(ticks, deaths))

    def profile(self, sizes: Ints) -> LiveProfile:
        """With these bytes; sums must stay below 2^63."""
        nbytes = np.asarray(sizes, dtype=np.int64)
        change = np.zeros(len(self.ticks), dtype=np.int64)
        np.add.at(change, self.born, nbytes)
        np.subtract.at(change, self.dead, nbytes)
        return LiveProfile(self.ticks, np.cumsum(change))


class LiveProfile:
    """`live[i]` bytes are live from tick `ticks[i]` until the next one."""

    __slots__ = ("live", "ticks")

    def __init__(self, ticks: IntArray, live: IntArray) -> None:
        self.ticks, self.live = ticks, live

    @classmethod
    def of(cls, starts: Ints, ends: Ints, sizes: Ints) -> LiveProfile:
        """From the lifetimes and bytes of all blocks."""
        return Lives.of(starts, ends).profile(sizes)

    @property
    def peak_nbytes(self) -> int:
        return int(self.live.max(initial=0))

    @property
    def peak_tick(self) -> int:
        """The first tick at which the most bytes are live."""
        return int(self.ticks[int(self.live.argmax())]) if len(self.ticks) else 0

    def peak_between(self, start: int, end: int) -> int:
        """The most bytes live at a tick of [start, end)."""
        return int(self.live[self._instants(start, end)].max(initial=0))

    def add(self, start: int, end: int, nbytes: int) -> None:
        """Count `nbytes` more over [start, end), both of them ticks of the profile."""
        self.live[self._instants(start, end)] += nbytes

    def _instants(self, start: int, end: int) -> slice:
        first, last = np.searchsorted(self.ticks, [start, end])
        return slice(int(first), int(last))
