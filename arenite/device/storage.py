"""Storage: the allocation that a Buffer and all its views share.

In: an allocator and a request, or borrowed memory. Out: one RawBuffer, made at the first call of
`ensure` and by exactly one thread; arrays over its bytes. What must hold: the memory goes back
exactly once, after the last Buffer, view, array, memoryview or DLPack consumer has let go:

    array ──► HostSpan ──► Storage ──► token   (its death is what frees the RawBuffer)
    Buffer ──────────────────┘

Host memory that others know the address of, and whose storage it is.

In: storages when their bytes are handed out or borrowed. Out: the storage that an address lies in,
so that an array that comes back, by whatever way, is known as the bytes that it is, and hazards
between it and its buffer are seen. What must hold: a storage is found as long as it lives, and no
longer.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from arenite import locks
from arenite.device.allocator import Allocator, BufferOptions
from arenite.device.cpu import CPU
from arenite.device.host import host_address
from arenite.device.raw import BorrowedMemory, RawBuffer

if TYPE_CHECKING:
    from numpy.typing import NDArray


#: Storages before an address that are looked at. Memory that is ours does not overlap; only arrays
#: of others that were borrowed in pieces, the inner before the outer, lie inside each other.
LOOKED_AT = 16


class KnownMemory:
    """Storages by address."""

    def __init__(self) -> None:
        self._lock = locks.reentrant()
        self._starts: list[int] = []  # in order once one is looked for
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
                self._starts.append(raw.address)
            self._by_start[raw.address] = weakref.ref(storage)
            if len(self._starts) > self._n_sweep:
                self._sweep()

    def find(self, address: int, nbytes: int) -> Storage | None:
        """The storage that all of these bytes belong to."""
        from bisect import bisect_right

        if not nbytes:
            return None
        with self._lock:
            self._starts.sort()  # of what is in order but for the last it takes a look at each
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
        self._starts = list(self._by_start)
        self._n_sweep = max(64, 2 * len(self._starts))


KNOWN = KnownMemory()


_storage_ids = itertools.count(1)


class Storage:
    """At most one allocation; `id` is never reused."""

    __slots__ = (
        *("__weakref__", "_is_known", "_lock", "_made"),
        *("allocator", "id", "nbytes", "options", "raw"),
    )

    def __init__(self, allocator: Allocator, nbytes: int, options: BufferOptions) -> None:
        self.allocator = allocator
        self.nbytes = nbytes
        self.options = options
        self.id = next(_storage_ids)
        self.raw: RawBuffer | None = None
        self._is_known = False
        self._lock = locks.reentrant()
        #: The memory and what frees it, under one key: only the first that is put there stays.
        self._made: dict[None, tuple[RawBuffer, NDArray[np.uint8] | None]] = {}

    @classmethod
    def at(
        cls,
        address: int,
        nbytes: int,
        owner: object = None,
        release: Callable[[], object] | None = None,
    ) -> tuple[Storage, int]:
        """The storage of some host memory, and where in it that begins. Memory that is known is of
        the storage that it is known for; else it is borrowed from its owner, and `release` called
        once when the storage goes."""
        known = KNOWN.find(address, nbytes)
        if known is not None and known.raw is not None and known.raw.address is not None:
            if release is not None:
                release()
            return known, address - known.raw.address
        storage = cls(CPU, nbytes, BufferOptions())
        storage.raw = raw = BorrowedMemory(nbytes, address, True, False, owner)
        storage._made[None] = (raw, None if release is None else _calling_at_end(release))
        storage.make_known()
        return storage, 0

    def ensure(self) -> RawBuffer:
        """The memory, allocated now where it is not yet, once however many threads ask."""
        if self.raw is None:
            with self._lock:
                if self.raw is None:
                    raw = self.allocator.allocate(self.nbytes, self.options)
                    token = _calling_at_end(self.allocator.free, raw)
                    # A signal handler on this thread may have been here meanwhile: then its memory
                    # is the storage's, and the token frees what was made in vain.
                    self.raw, _ = self._made.setdefault(None, (raw, token))
        return self.raw

    def host_array(self, offset: int, nbytes: int, writable: bool) -> NDArray[np.uint8]:
        """The bytes as an array that keeps this storage; only a writable one can be written,
        whatever is done to its flags."""
        assert self.raw is not None
        self.make_known()
        address = host_address(self.raw, offset, nbytes)
        return np.asarray(cast(Any, HostSpan(self, address, nbytes, not writable)))

    def make_known(self) -> None:
        """Have the memory recognised when it comes back: its address is handed out."""
        if not self._is_known:
            KNOWN.add(self)
            self._is_known = True


def _calling_at_end(function: Callable[..., object], *arguments: object) -> NDArray[np.uint8]:
    """Something whose end calls the function."""
    # The storage itself would be the natural thing to watch. But where it is part of a garbage
    # cycle, the collector calls such finalisers before the cycle's `__del__` methods, which
    # may still use the bytes. NumPy arrays the collector does not see: one goes when the last
    # reference goes, and not earlier.
    token = np.empty(0, np.uint8)
    weakref.finalize(token, function, *arguments).atexit = False
    return token


class HostSpan:
    """What exported arrays rest on (`array.base`): an address, and the storage it belongs to."""

    __slots__ = ("__array_interface__", "_storage")

    def __init__(self, storage: Storage, address: int, nbytes: int, read_only: bool) -> None:
        self._storage = storage
        self.__array_interface__ = {
            "version": 3,
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, read_only),
        }
