"""The arrays a graph brings along: owned by it, or existing elsewhere."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from mmap import PAGESIZE

import numpy as np

from arenite.device.buffer import Buffer, copies_of
from arenite.device.disk import DiskAllocator
from arenite.dtype import Array, DType
from arenite.ir.element import held_dtype, packed, unpacked


class ConstantData:
    """An array owned by the graph; equal contents are the same object."""

    __slots__ = ("__weakref__", "array", "digest", "dtype")

    def __init__(self, array: Array, dtype: DType, digest: str) -> None:
        self.array, self.dtype, self.digest = array, dtype, digest

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the axes."""
        return self.array.shape

    def held(self) -> Array:
        """The memory as kernels read it."""
        if self.dtype.bits < 8:
            return packed(self.array, self.dtype)
        # NumPy's own function for this adds an axis to an array of none.
        return self.array if self.array.flags.c_contiguous else self.array.copy()

    def __repr__(self) -> str:
        return f"ConstantData({self.digest[:12]})"


class BufferSource:
    """An array that exists, in host memory or in a device Buffer. Equal only to itself. `on_read`
    hears whenever someone asks for the elements."""

    __slots__ = ("_on_read", "_storage", "dtype", "id", "shape")

    _ids = itertools.count(1)

    def __init__(self, storage: Array | Buffer, on_read: Callable[[], None] | None = None) -> None:
        self._on_read = on_read
        self.id = next(self._ids)
        self.dtype = storage.dtype if isinstance(storage, Buffer) else held_dtype(storage.dtype)
        self.shape: tuple[int, ...] = storage.shape
        if self.dtype.bits < 8 and not isinstance(storage, Buffer):
            data = Buffer.from_array(packed(storage, self.dtype))
            storage = data.view(0, data.nbytes, self.dtype, storage.shape)
        self._storage = storage

    @property
    def storage(self) -> Array | Buffer:
        """What holds the bytes; elements narrower than a byte are always in a Buffer, packed."""
        return self._storage

    def array(self) -> Array:
        """The elements, read-only; without a copy where they are whole bytes. Rows of bytes for a
        block-quantised type."""
        if self._on_read is not None:
            self._on_read()
        if isinstance(self._storage, Buffer):
            if self.dtype.bits < 8 or self.dtype.is_block:
                data = np.frombuffer(self._storage.as_host_bytes(), np.uint8)
                return unpacked(data, self.dtype, self.shape)
            return self._storage.as_array()
        view = self._storage.view()
        view.flags.writeable = False
        return view

    def held(self) -> Array:
        """The memory as kernels read it; that of elements narrower than a byte in place."""
        storage = self._storage
        if isinstance(storage, Buffer) and (self.dtype.bits < 8 or self.dtype.is_block):
            return np.frombuffer(storage.as_host_bytes(), np.uint8)
        array = self.array()
        return array if array.flags.c_contiguous else array.copy()

    @property
    def nbytes(self) -> int:
        """How much of memory it takes."""
        return self._storage.nbytes

    @property
    def file(self) -> DiskAllocator | None:
        """The mapped file that it lies in."""
        allocator = self._storage.allocator if isinstance(self._storage, Buffer) else None
        return allocator if isinstance(allocator, DiskAllocator) else None

    def __repr__(self) -> str:
        return f"BufferSource({self.id})"


def held_copies(sources: Sequence[BufferSource]) -> list[Array]:
    """What these in Buffers hold, read into memory of its own."""
    buffers = [source.storage for source in sources if isinstance(source.storage, Buffer)]
    made: list[Array] = []
    for source, data in zip(sources, copies_of(buffers), strict=True):
        if source.dtype.bits < 8 or source.dtype.is_block:
            made.append(np.frombuffer(data, np.uint8))
        else:
            made.append(np.ndarray(source.shape, source.dtype.to_numpy(), data))
    return made


def drop_pages(sources: Iterable[BufferSource]) -> None:
    """Give the memory of mapped files back; it is read from them when it is needed. Arrays side by
    side in a file are one stretch: each call of the system stops all threads for a moment."""
    stretches: list[tuple[DiskAllocator, int, int]] = []
    mapped = [
        (storage.raw_ptr, storage.nbytes, storage.allocator)
        for storage in (source.storage for source in sources)
        if isinstance(storage, Buffer) and isinstance(storage.allocator, DiskAllocator)
    ]
    for address, nbytes, file in sorted(mapped, key=lambda one: one[:2]):
        if stretches:
            before, first, end = stretches[-1]
            if before is file and address - end < PAGESIZE:
                stretches[-1] = (file, first, max(end, address + nbytes))
                continue
        stretches.append((file, address, address + nbytes))
    for file, first, end in stretches:
        file.drop_pages(first, end - first)
