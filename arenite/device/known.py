"""Host memory that others know the address of, and whose storage it is.

In: storages when their bytes are handed out or borrowed. Out: the storage that an address lies in,
so that an array that comes back, by whatever way, is known as the bytes that it is, and hazards
between it and its buffer are seen. What must hold: a storage is found as long as it lives, and no
longer.
"""

from __future__ import annotations

import weakref
from bisect import bisect_right, insort
from typing import TYPE_CHECKING

from arenite import locks

if TYPE_CHECKING:
    from arenite.device.storage import Storage

#: Storages before an address that are looked at. Memory that is ours does not overlap; only arrays
#: of others that were borrowed in pieces, the inner before the outer, lie inside each other.
LOOKED_AT = 16


class KnownMemory:
    """Storages by address."""

    def __init__(self) -> None:
        self._lock = locks.reentrant()
        self._starts: list[int] = []
        self._by_start: dict[int, weakref.ref[Storage]] = {}
        self._n_sweep = 64  # how many there are when those that have gone are looked for

    def add(self, storage: Storage) -> None:
        """Know a storage that has its memory. One at the same address that is longer stays."""
        raw = storage.raw
        assert raw is not None
        if raw.address is None or not raw.nbytes:
            return
        with self._lock:
            there = self._at(raw.address)
            if there is not None and there.nbytes >= raw.nbytes:
                return
            if raw.address not in self._by_start:
                insort(self._starts, raw.address)
            self._by_start[raw.address] = weakref.ref(storage)
            if len(self._starts) > self._n_sweep:
                self._sweep()

    def find(self, address: int, nbytes: int) -> Storage | None:
        """The storage that all of these bytes belong to."""
        if not nbytes:
            return None
        with self._lock:
            behind = bisect_right(self._starts, address)
            for start in reversed(self._starts[max(behind - LOOKED_AT, 0) : behind]):
                storage = self._at(start)
                if storage is not None and address + nbytes <= start + storage.nbytes:
                    return storage
        return None

    def _at(self, start: int) -> Storage | None:
        found = self._by_start.get(start)
        return None if found is None else found()

    def _sweep(self) -> None:
        for start, ref in list(self._by_start.items()):
            if ref() is None:
                del self._by_start[start]
        self._starts = sorted(self._by_start)
        self._n_sweep = max(64, 2 * len(self._starts))


KNOWN = KnownMemory()
