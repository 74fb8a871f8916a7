"""Arrays at the border of native code: where they lie, and new ones for results.

A call of some µs cannot afford to ask NumPy for an address the long way, nor the system for memory
each time. `address_of` reads the one word of the array object that holds it; `Results` hands out
views of memory that it keeps, and takes memory up again once no view of it is left.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arenite import device
from arenite.device import Buffer
from arenite.dtype import DType, uint8

Array = NDArray[Any]

#: Results from this size on are kept and handed out again: their pages are there already.
KEPT_FROM_NBYTES = 64 * 1024
#: One result may still be held by the caller while the next is made.
MAX_KEPT = 2


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


class _Kept:
    """Memory for one result. NumPy lets every view refer to the array that owns the memory, so
    that array has more references than at first exactly while a view is about."""

    __slots__ = ("_array", "_n_references", "_owner")

    def __init__(self, array: Array) -> None:
        self._array = array
        self._owner = array.base if isinstance(array.base, np.ndarray) else array
        self._n_references = sys.getrefcount(self._owner)

    def is_free(self) -> bool:
        return sys.getrefcount(self._owner) == self._n_references

    def view(self) -> Array:
        return self._array.view()


class Results:
    """New arrays of one dtype, each the caller's own as long as a view of it exists."""

    __slots__ = ("_dtype", "_element", "_is_kept", "_kept", "_shape", "numpy_dtype")

    def __init__(self, dtype: DType) -> None:
        #: Elements narrower than a byte are handed out as the bytes they are packed in.
        self._element = dtype if dtype.bits < 8 else None
        self._dtype = uint8 if dtype.bits < 8 else dtype
        self.numpy_dtype = self._dtype.to_numpy()
        self._shape: tuple[int, ...] | None = None
        self._is_kept = False
        self._kept: list[_Kept] = []

    def new(self, shape: tuple[int, ...]) -> Array:
        if self._element is not None:
            shape = (self._element.nbytes(shape),)
        if shape != self._shape:
            self._shape = shape
            self._is_kept = self._dtype.nbytes(shape) >= KEPT_FROM_NBYTES
            self._kept.clear()
        if not self._is_kept:
            return np.empty(shape, self.numpy_dtype)
        for kept in self._kept:
            if kept.is_free():
                return kept.view()
        if len(self._kept) == MAX_KEPT:
            del self._kept[0]
        kept = _Kept(Buffer.allocate(device.get("cpu"), self._dtype, shape).as_array_mut())
        self._kept.append(kept)
        return kept.view()

    def maker(self, shape: tuple[int, ...]) -> Callable[[], Array]:
        """What makes new arrays of a shape, in as few steps as can be."""
        if self._element is None and self._dtype.nbytes(shape) < KEPT_FROM_NBYTES:
            return partial(np.empty, shape, self.numpy_dtype)
        return partial(self.new, shape)

    def clear(self) -> None:
        """Keep nothing; what callers have stays theirs."""
        self._kept.clear()
