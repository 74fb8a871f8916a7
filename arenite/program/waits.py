"""Waits: whom each launch waits for, so that no two run into each other; and which are known.

Where a bind moves values, the waits of an earlier one serve again if values share bytes only where
they did then: every conflict there is was one before and is ordered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from arenite.memory.flat import Arrays
from arenite.program.places import NOWHERE, Numbers, Places
from arenite.program.skeleton import Skeleton
from arenite.program.table import Flag, LaunchTable, aligned_copy
from arenite.records import NamedTuple

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from arenite.hazards import Edge, Launch

#: Pairs of values up to which a new plan is compared with known ones.
MAX_COMPARED = 4_000_000
#: How many sets of waits found while running are kept beside those of the file.
MAX_KEPT = 4


class Waits(NamedTuple):
    """For each launch how many sync words it waits for; these, launch by launch; and which launches
    of worker 0 must say that they are done. `overlaps` are the pairs of values that share bytes
    where they hold, a bit a pair."""

    counts: NDArray[np.uint16]
    syncs: NDArray[np.uint32]
    signals: NDArray[np.bool_]
    overlaps: NDArray[np.uint8] = np.zeros(0, np.uint8)

    def cover(self, overlaps: NDArray[np.uint8]) -> bool:
        """Whether they serve where these pairs share bytes."""
        return not bool((overlaps & ~self.overlaps).any())

    def table(self, skeleton: Skeleton) -> LaunchTable:
        """The table with these waits."""
        entries, ticks = aligned_copy(skeleton.entries), skeleton.ticks
        counts = self.counts.astype(np.int64)
        entries["wait_count"][ticks] = counts
        entries["wait_start"][ticks] = np.where(counts > 0, np.cumsum(counts) - counts, 0)
        entries["flags"][ticks[self.signals]] = Flag.SIGNALS
        return LaunchTable(
            entries,
            skeleton.instructions,
            aligned_copy(self.syncs),
            skeleton.n_syncs,
            skeleton.n_registers,
        )


def no_waits(skeleton: Skeleton) -> Waits:
    n = len(skeleton.ticks)
    return Waits(np.zeros(n, np.uint16), np.zeros(0, np.uint32), np.zeros(n, np.bool_))


def found_waits(skeleton: Skeleton, hazards: Sequence[Launch]) -> Waits:
    """The waits for every hazard that workers could run into."""
    from arenite.hazards import order

    n = len(skeleton.ticks)
    is_shared = skeleton.is_shared.tolist()
    sync_of = skeleton.entries["sync"][skeleton.ticks].tolist()
    counts, signals = np.zeros(n, np.uint16), np.zeros(n, np.bool_)
    syncs: list[int] = []
    blocks = skeleton.blocks.reshape(-1, 2).tolist()
    for first, stop in blocks:
        if any(is_shared[first:stop]):
            for before, after in _pairs(first, order(hazards[first:stop]), is_shared):
                counts[after] += 1
                syncs.append(sync_of[before])
                signals[before] |= not is_shared[before]
    return Waits(counts, np.array(syncs, np.uint32), signals)


def _pairs(
    first: int, edges: Iterable[Edge], is_shared: Sequence[bool]
) -> Iterable[tuple[int, int]]:
    """Those that a worker could run into, by the launch that waits."""
    for edge in edges:
        before, after = first + edge.before, first + edge.after
        if is_shared[before] or is_shared[after]:  # else worker 0 runs both, in this order
            yield before, after


def overlapping(places: Places, moving: Numbers) -> NDArray[np.uint8] | None:
    """Which two values of a block share bytes, a bit a pair; None where there are too many."""
    n_blocks, width = moving.shape
    if n_blocks * width * width > MAX_COMPARED:
        return None
    # A value of no bytes shares none, wherever it is said to lie.
    nbytes = np.where(moving == NOWHERE, 0, places.nbytes[moving])
    first = np.where(nbytes > 0, places.offset[moving], np.iinfo(np.int64).max)
    last = np.where(nbytes > 0, first + nbytes, first)
    before = first[:, :, None] < last[:, None, :]
    return np.packbits(before & before.transpose(0, 2, 1))


def moving_values(
    skeleton: Skeleton, touched: Sequence[Sequence[int]], moves: Sequence[bool]
) -> Numbers:
    """The values that move, of each block that is open to all workers, as rows of one width;
    `touched` are those of each launch. Only values of one block can be in one another's way."""
    rows = [
        sorted({value for k in range(first, stop) for value in touched[k] if moves[value]})
        for first, stop in skeleton.blocks.reshape(-1, 2).tolist()
        if skeleton.is_shared[first:stop].any()
    ]
    made = np.full((len(rows), max(map(len, rows), default=0)), NOWHERE)
    for row, values in zip(made, rows, strict=True):
        row[: len(values)] = values
    return made


class WaitBook:
    """The waits of a program, found anew only where no known ones serve."""

    def __init__(
        self,
        skeleton: Skeleton,
        moving: Numbers,
        known: Sequence[Waits] = (),
        max_kept: int = MAX_KEPT,
    ) -> None:
        """`moving` are the values of each block whose bytes differ from bind to bind; of what is
        found beside the known waits, `max_kept` stay."""
        self._skeleton = skeleton
        self._moving = moving
        self.known = list(known)
        self._n_given = len(self.known)
        self._max_kept = max_kept

    def obtain(self, places: Places, hazards: Callable[[], Sequence[Launch]]) -> Waits:
        """The waits for these places; `hazards` says what launches touch there."""
        if not self._skeleton.is_shared.any():  # one worker keeps the order by itself
            return no_waits(self._skeleton)
        overlaps = overlapping(places, self._moving)
        if overlaps is not None:
            for one in self.known:
                if one.cover(overlaps):
                    return one
        waits = found_waits(self._skeleton, hazards())
        if overlaps is not None:
            if len(self.known) >= self._n_given + self._max_kept:
                del self.known[self._n_given]
            self.known.append(waits._replace(overlaps=overlaps))
        return waits


def waits_to_arrays(known: Sequence[Waits], prefix: str) -> Arrays:
    """As arrays, under names that begin with `prefix`."""
    return {
        f"{prefix}{k}.{name}": column
        for k, one in enumerate(known)
        for name, column in one._asdict().items()
    }


def waits_from_arrays(
    arrays: Arrays, prefix: str, n: int, skeleton: Skeleton, n_pairs: int
) -> list[Waits]:
    """Read back `n` of them; ValueError where they do not fit the table."""
    known = []
    for k in range(n):
        waits = Waits(*(arrays[f"{prefix}{k}.{name}"] for name in Waits._fields))
        counts, syncs, signals, overlaps = waits
        n_launches = len(skeleton.ticks)
        if not len(counts) == len(signals) == n_launches or int(counts.sum()) != len(syncs):
            raise ValueError("waits of other launches")
        if len(syncs) and int(syncs.max()) >= skeleton.n_syncs:
            raise ValueError("a wait for a sync word there is not")
        if len(overlaps) != -(-n_pairs // 8):
            raise ValueError("waits for other values")
        known.append(waits)
    return known
