"""Where an arena that can't be bound at once is cut into buffers.

A value lies in the buffer in whose stretch it begins, as far behind that buffer's beginning as the
plan has it. Two values that share bytes in the plan, one after another, may then lie in two
buffers: nothing but memory is lost. What is another name for the bytes of a value stays with it.

    plan       [ a ][   b   ][ c ]            cut where c begins: nothing reaches over it
               [ d    ][  e      ]            else a buffer is as long as its last value reaches
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arenite.memory import MemoryPlan
from arenite.memory.columns import NO_ROW, SlotColumns
from arenite.memory.values import ARENA_REGIONS, REGIONS

Numbers = NDArray[np.int64]


class Stretch(NamedTuple):
    """Bytes of the arena that are one buffer: values that begin from `begin` on are in it, up to
    the beginning of the next; the last of them ends at `end`."""

    begin: int
    end: int

    @property
    def nbytes(self) -> int:
        return self.end - self.begin


def stretches(plan: MemoryPlan, largest: int) -> list[Stretch]:
    """The buffers of an arena, of at most so many bytes each where values let them: one that is
    longer has a value, with what shares its bytes, that is too large."""
    if plan.peak_nbytes <= largest:
        return [Stretch(0, plan.peak_nbytes)]
    begins, ends, owners = _values(plan)
    found: list[Stretch] = []
    begin = 0
    while begin < plan.peak_nbytes:
        stop = _stop(begins, ends, owners, begin, largest)
        inside = (begins >= begin) & (begins < stop)
        if not inside.any():
            break
        found.append(Stretch(begin, int(ends[inside].max())))
        begin = stop
    return found


def _values(plan: MemoryPlan) -> tuple[Numbers, Numbers, Numbers]:
    """Where values begin and end, and where those begin whose bytes they are."""
    columns = SlotColumns.of(plan.slots)
    rows = np.flatnonzero(np.isin(columns.region, [REGIONS.index(one) for one in ARENA_REGIONS]))
    owner = np.where(columns.alias_of == NO_ROW, np.arange(len(columns.offset)), columns.alias_of)
    while (owner[owner] != owner).any():
        owner = owner[owner]
    begins = columns.offset[rows]
    return begins, begins + columns.capacity[rows], columns.offset[owner[rows]]


def _stop(begins: Numbers, ends: Numbers, owners: Numbers, begin: int, largest: int) -> int:
    """Where the stretch from `begin` ends: as late as it can, if possible where no value reaches
    over."""
    too_far = begins[(begins >= begin) & (ends - begin > largest)]
    if not len(too_far):
        return int(ends.max())
    latest = int(too_far.min())
    candidates = np.unique(begins[(begins > begin) & (begins <= latest)])[::-1]
    first, last = np.minimum(begins, owners), np.maximum(begins, owners)
    allowed = [int(at) for at in candidates if not ((first < at) & (at <= last)).any()]
    clean = [at for at in allowed if not ((begins < at) & (ends > at)).any()]
    if not allowed:  # too large, whatever is done: up to the next place where it can be cut
        later = np.unique(begins[begins > latest])
        free = [int(at) for at in later if not ((first < at) & (at <= last)).any()]
        return free[0] if free else int(ends.max())
    return clean[0] if clean else allowed[0]
