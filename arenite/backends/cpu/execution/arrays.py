"""Arrays at the border of native code: where they lie, and new ones for results.

A call of some µs cannot afford to ask NumPy for an address the long way, nor the system for memory
each time. `address_of` reads the one word of the array object that holds it. `Results` hands out
memory that it takes back when the last array over it is gone: memory for one result of each output
at the most, which is what the plan counts for it. What comes back beside that goes to the system.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from functools import partial

import numpy as np

from arenite.device import Buffer
from arenite.device.cpu import CpuAllocator
from arenite.dtype import UINT8, Array, DType

#: Results from this size on are kept and handed out again: their pages are there already.
KEPT_FROM_NBYTES = 64 * 1024

#: Memory for results; it pools nothing, so that what is not kept here is the system's.
_MEMORY = CpuAllocator(pool_cap_nbytes=0)


def _slow_address_of(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _address_reader() -> Callable[[Array], int]:
    """An array object begins with Python's own head, then its address; where that holds, the word
    is read directly: a tenth of the time."""
    offset = object.__basicsize__
    word = ctypes.c_int64.from_address

    def quick(array: Array) -> int:
        return word(id(array) + offset).value

    probes: list[Array] = [np.empty(3, np.float32), np.empty((2, 5), np.int8)[1:, 2:], np.empty(0)]
    agrees = all(quick(probe) == _slow_address_of(probe) for probe in probes)
    return quick if agrees else _slow_address_of


address_of = _address_reader()


class Results:
    """New arrays of one dtype, each the caller's own as long as an array over its bytes exists."""

    __slots__ = (
        "__weakref__", "_come_back", "_dtype", "_element", "_is_kept", "_keeps", "_lent", "_shape",
        "_spare", "numpy_dtype",
    )  # fmt: skip

    def __init__(self, dtype: DType) -> None:
        #: Elements narrower than a byte are handed out as the bytes they are packed in.
        self._element = dtype if dtype.bits < 8 else None
        self._dtype = UINT8 if dtype.bits < 8 else dtype
        self.numpy_dtype = self._dtype.to_numpy()
        self._shape: tuple[int, ...] | None = None
        self._is_kept = False
        self._keeps = True
        self._spare: memoryview | None = None  # keeps the memory
        #: What callers have, by the array that all others over the same bytes refer to, watched.
        self._lent: dict[int, tuple[weakref.ref[Array], memoryview]] = {}
        self._come_back = _receiver(weakref.ref(self))

    def new(self, shape: tuple[int, ...]) -> Array:
        if self._element is not None:
            shape = (self._element.nbytes(shape),)
        if shape != self._shape:
            self._shape = shape
            self._is_kept = self._dtype.nbytes(shape) >= KEPT_FROM_NBYTES
            self.clear()
        if not self._is_kept:
            return np.empty(shape, self.numpy_dtype)
        memory, self._spare = self._spare, None
        if memory is None:
            memory = Buffer.allocate(_MEMORY, self._dtype, shape).as_host_bytes_mut()
        # NumPy lets every view refer to this array, as the first that has no array below it.
        owner = np.frombuffer(memory, self.numpy_dtype)
        watched = weakref.ref(owner, self._come_back)
        self._lent[id(watched)] = (watched, memory)
        return owner.reshape(shape)

    def receive(self, gone: weakref.ref[Array]) -> None:
        """The last array over some memory is gone."""
        lent = self._lent.pop(id(gone), None)
        if lent is not None and self._keeps and self._spare is None:
            _, self._spare = lent

    def maker(self, shape: tuple[int, ...]) -> Callable[[], Array]:
        """What makes new arrays of a shape, in as few steps as can be."""
        if self._element is None and self._dtype.nbytes(shape) < KEPT_FROM_NBYTES:
            return partial(np.empty, shape, self.numpy_dtype)
        return partial(self.new, shape)

    @property
    def kept_nbytes(self) -> int:
        """What is kept for the next result, and nobody sees."""
        spare = self._spare
        return 0 if spare is None else spare.nbytes

    def keep(self, keeps: bool) -> None:
        """Whether memory that comes back is kept for the next result."""
        self._keeps = keeps
        if not keeps:
            self._spare = None

    def clear(self) -> None:
        """Keep nothing, nor what is given back later; what callers have stays theirs."""
        self._lent.clear()
        self._spare = None


def _receiver(place: weakref.ref[Results]) -> Callable[[weakref.ref[Array]], None]:
    """What hears of arrays that are gone, and keeps nobody alive."""

    def receive(gone: weakref.ref[Array]) -> None:
        results = place()
        if results is not None:
            results.receive(gone)

    return receive
