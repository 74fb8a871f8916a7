"""Storage: the allocation that a Buffer and all its views share.

In: an allocator and a request, or borrowed memory. Out: one RawBuffer, made at the first call of
`ensure` and by exactly one thread; arrays over its bytes. What must hold: the memory goes back
exactly once, after the last Buffer, view, array, memoryview or DLPack consumer has let go:

    array ──► HostSpan ──► Storage ──► token   (its death is what frees the RawBuffer)
    Buffer ──────────────────┘
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
from arenite.device.known import KNOWN
from arenite.device.raw import BorrowedMemory, RawBuffer

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
