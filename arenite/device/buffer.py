"""Buffer: typed, shaped storage on a device, allocated lazily, or a view of it.

In: an allocator, a dtype, a shape. Out: the bytes as memoryviews, arrays, DLPack tensors, copies.
What must hold: a view shares its parent's storage and adds its own offset to the parent's exactly
once; nothing leaves the storage; whatever was handed out keeps the storage alive.

`as_array` and `as_host_bytes` are read-only, their `_mut` forms are not. Python's own protocols
(`__array__`, `__buffer__`, DLPack) share the memory as it is: writable where the storage is.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, overload

import numpy as np

from arenite.device.allocator import Allocator, BufferOptions, as_integer, checked_shape, flat_shape
from arenite.device.cpu import CPU
from arenite.device.host import BytesLike, bytes_of, target_bytes_of
from arenite.device.raw import MappedFile, RawBuffer
from arenite.device.storage import Storage
from arenite.dtype import DType, uint8
from arenite.dtype import of as dtype_of
from arenite.errors import (
    InvalidArgument,
    InvalidView,
    NotAllocated,
    NotCpuAccessible,
    NotSupported,
    ReadOnly,
    SizeMismatch,
    TypeMismatch,
    printable,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

DTypeLike: TypeAlias = DType | str | np.dtype[Any] | type

# What a copy between two devices that the host cannot reach takes of host memory.
STAGING_NBYTES = 4 * 2**20

_DEFAULT_OPTIONS = BufferOptions()
_buffer_ids = itertools.count(1)


class Buffer:
    """A handle on some bytes of a storage. `id` is the handle's, `storage_id` the storage's."""

    __slots__ = (
        *("__weakref__", "_dtype", "_id", "_is_read_only"),
        *("_nbytes", "_offset", "_shape", "_storage"),
    )

    _storage: Storage
    _offset: int
    _nbytes: int
    _dtype: DType
    _shape: tuple[int, ...]
    _id: int
    _is_read_only: bool  # through this handle; the storage may be so for all

    def __init__(
        self,
        allocator: Allocator,
        dtype: DTypeLike,
        shape: Sequence[int],
        options: BufferOptions = _DEFAULT_OPTIONS,
    ) -> None:
        """Nothing is allocated yet; a request the device can never serve raises now."""
        dtype = dtype_of(dtype)
        shape = checked_shape(shape)
        nbytes = dtype.nbytes(shape)
        allocator.check_request(nbytes, options)
        self._set(Storage(allocator, nbytes, options), 0, nbytes, dtype, shape)

    @classmethod
    def allocate(
        cls,
        allocator: Allocator,
        dtype: DTypeLike,
        shape: Sequence[int],
        options: BufferOptions = _DEFAULT_OPTIONS,
    ) -> Buffer:
        """A buffer that has its memory."""
        buffer = cls(allocator, dtype, shape, options)
        buffer.ensure_allocated()
        return buffer

    @classmethod
    def from_array(cls, array: NDArray[Any]) -> Buffer:
        """Borrow a C-contiguous NumPy array: no copy, read-only where it is. The buffer keeps the
        memory. An array over bytes that a storage is known for (those of another buffer, or of an
        array that was borrowed before) is a view of that storage. Of a view of an array all of that
        is borrowed: two views that overlap are of one storage."""
        if not isinstance(array, np.ndarray):
            raise TypeMismatch(f"a NumPy array is needed, not {type(array).__name__}")
        if not array.flags.c_contiguous:
            raise InvalidArgument(
                f"the array of shape {array.shape} has strides {array.strides} and is not "
                "C-contiguous; copy it first (numpy.ascontiguousarray)"
            )
        dtype, shape = dtype_of(array.dtype), checked_shape(array.shape)
        start, end = np.lib.array_utils.byte_bounds(array)
        owner: NDArray[Any] = array
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        first, last = np.lib.array_utils.byte_bounds(owner)
        if not first <= start <= end <= last:  # an array that was forged
            owner, first, last = array, start, end
        read_only = not array.flags.writeable
        storage, offset = Storage.at(first, last - first, owner=owner)
        offset += start - first
        return cls.__new__(cls)._set(storage, offset, array.nbytes, dtype, shape, read_only)

    @classmethod
    def from_dlpack(cls, producer: Any) -> Buffer:
        """Borrow the array of any object that speaks DLPack, on the CPU and C-contiguous. Of bytes
        that a storage is known for it is a view, as with `from_array`."""
        from arenite.device import dlpack

        taken = dlpack.take(producer)
        storage, offset = Storage.at(taken.address, taken.nbytes, release=taken.release)
        return cls.__new__(cls)._set(
            storage, offset, taken.nbytes, taken.dtype, taken.shape, taken.read_only
        )

    def view(
        self,
        offset: int,
        nbytes: int,
        dtype: DTypeLike = uint8,
        shape: Sequence[int] | None = None,
    ) -> Buffer:
        """`nbytes` bytes of this buffer from byte `offset` on, as `dtype`; flat without a shape."""
        offset, nbytes = as_integer("offset", offset), as_integer("nbytes", nbytes)
        if offset < 0 or nbytes < 0 or offset + nbytes > self._nbytes:
            raise InvalidView(
                f"a view of {nbytes} bytes at offset {offset} leaves the {self._nbytes} bytes of "
                f"{self!r}"
            )
        dtype = dtype_of(dtype)
        if shape is None:
            shape = flat_shape(dtype, nbytes)
        else:
            shape = checked_shape(shape)
            if dtype.nbytes(shape) != nbytes:
                raise InvalidView(
                    f"{dtype} of shape {shape} takes {dtype.nbytes(shape)} bytes; the view has "
                    f"{nbytes}"
                )
        return Buffer.__new__(Buffer)._set(
            *(self._storage, self._offset + offset, nbytes, dtype, shape), self._is_read_only
        )

    def _set(
        self,
        storage: Storage,
        offset: int,
        nbytes: int,
        dtype: DType,
        shape: tuple[int, ...],
        read_only: bool = False,
    ) -> Buffer:
        """This handle, on some bytes of a storage."""
        self._storage = storage
        self._offset = offset
        self._nbytes = nbytes
        self._dtype = dtype
        self._shape = shape
        self._is_read_only = read_only
        self._id = next(_buffer_ids)
        return self

    @property
    def id(self) -> int:
        """One per handle: a view has its own."""
        return self._id

    @property
    def storage_id(self) -> int:
        """One per allocation, shared by all views of it, never used again."""
        return self._storage.id

    @property
    def dtype(self) -> DType:
        """The type of its elements."""
        return self._dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of its axes."""
        return self._shape

    @property
    def nbytes(self) -> int:
        """Bytes of this handle: of a view those of the view."""
        return self._nbytes

    @property
    def offset(self) -> int:
        """Where this buffer starts within its storage, in bytes."""
        return self._offset

    @property
    def total_nbytes(self) -> int:
        """Bytes of the whole storage."""
        return self._storage.nbytes

    @property
    def allocator(self) -> Allocator:
        """Who makes its bytes."""
        return self._storage.allocator

    @property
    def device(self) -> str:
        """The name of the device."""
        return self._storage.allocator.name

    @property
    def is_allocated(self) -> bool:
        """Whether its bytes are there."""
        return self._storage.raw is not None

    @property
    def raw(self) -> RawBuffer:
        """The handle of its storage, as its device has it."""
        return self._allocated()

    @property
    def raw_ptr(self) -> int:
        """The address of the first byte, on its device; valid while anyone holds the storage."""
        raw = self._allocated()
        if raw.address is None:
            raise NotCpuAccessible(f"{self!r} has no flat address")
        self._storage.make_known()
        return raw.address + self._offset

    @property
    def is_read_only(self) -> bool:
        """Whether nothing can be written through this handle, once there is memory."""
        return self._is_read_only or (self.is_allocated and self._allocated().read_only)

    def ensure_allocated(self) -> None:
        """Allocate the storage where it is not yet; many threads may ask, one allocates."""
        self._storage.ensure()

    def as_host_bytes(self) -> memoryview:
        """The bytes in place, read-only. Of a mapped file see `as_array`."""
        return self._bytes_array(writable=False).data

    def as_host_bytes_mut(self) -> memoryview:
        """The bytes in place, writable. No kernel may be using them meanwhile."""
        return self._bytes_array(writable=True).data

    def as_array(self, dtype: DTypeLike | None = None) -> NDArray[Any]:
        """The elements in their shape and in place, read-only.

        Of a mapped file the array is the file: FileChanged is raised here where it has changed
        since it was opened, but nothing can be checked any more when the array is read. Who cuts
        the file short afterwards ends the process that reads there (SIGBUS); `copyout` and
        `copy_from` read without that risk.
        """
        self._check_dtype(dtype)
        return self._typed_array(self._shape, writable=False)

    def as_array_mut(self, dtype: DTypeLike | None = None) -> NDArray[Any]:
        """The elements in their shape, writable. No kernel may be using them meanwhile."""
        self._check_dtype(dtype)
        return self._typed_array(self._shape, writable=True)

    def as_slice(self, dtype: DTypeLike | None = None) -> NDArray[Any]:
        """The elements in one dimension, read-only."""
        self._check_dtype(dtype)
        return self._typed_array((prod(self._shape),), writable=False)

    def item(self) -> bool | int | float | complex:
        """The only element."""
        if prod(self._shape) != 1:
            raise SizeMismatch(f"{self!r} has {prod(self._shape)} elements, not one")
        value: bool | int | float | complex = self.as_slice().item()
        return value

    def copyin(self, source: BytesLike) -> None:
        """Copy bytes or an array in; allocates where that has not happened yet."""
        data = bytes_of(source)
        if data.nbytes != self._nbytes:
            raise SizeMismatch(
                f"{data.nbytes} bytes cannot fill {self!r}, which has {self._nbytes}"
            )
        raw = self._writable_raw()
        self.allocator.copyin(raw, self._offset, data)

    @overload
    def copyout(self, target: None = None) -> bytes: ...
    @overload
    def copyout(self, target: BytesLike) -> None: ...
    def copyout(self, target: BytesLike | None = None) -> bytes | None:
        """Copy the bytes out: as `bytes`, or into a writable target of exactly this size."""
        raw = self._allocated()
        if target is not None:
            data = target_bytes_of(target)
            if data.readonly:
                raise ReadOnly(f"{self!r} cannot be copied out into a target that is read-only")
            if data.nbytes != self._nbytes:
                raise SizeMismatch(f"{self!r} has {self._nbytes} bytes, the target {data.nbytes}")
            self.allocator.copyout(raw, self._offset, data)
            return None
        return self.allocator.read(raw, self._offset, self._nbytes)

    def read(self, offset: int, nbytes: int) -> bytes:
        """Some of the bytes, copied out: `view(offset, nbytes).copyout()` without a view."""
        return self.read_parts([(offset, nbytes)])[0]

    def read_parts(self, spans: Sequence[tuple[int, int]]) -> list[bytes]:
        """Copies of many parts of the bytes, each of an offset and a length."""
        for offset, nbytes in spans:
            if offset < 0 or nbytes < 0 or offset + nbytes > self._nbytes:
                raise InvalidView(
                    f"{nbytes} bytes at offset {offset} leave the {self._nbytes} bytes of {self!r}"
                )
        placed = ((self._offset + offset, nbytes) for offset, nbytes in spans)
        return self.allocator.read_parts(self._allocated(), placed)

    def copy_from(self, source: Buffer) -> None:
        """Copy all bytes of `source`, from any device to any device; the two may overlap."""
        if not isinstance(source, Buffer):
            raise TypeMismatch(
                f"copy_from takes another Buffer, not {type(source).__name__}; copyin takes bytes "
                "and arrays"
            )
        if source.nbytes != self._nbytes:
            raise SizeMismatch(f"{source!r} has {source.nbytes} bytes, {self!r} {self._nbytes}")
        source_raw = source._allocated()
        raw = self._writable_raw()
        if raw.cpu_accessible:
            source.allocator.copyout(source_raw, source.offset, self.as_host_bytes_mut())
        elif source_raw.cpu_accessible and not isinstance(source_raw, MappedFile):
            self.allocator.copyin(raw, self._offset, source.as_host_bytes())
        elif source.allocator is not self.allocator or not self.allocator.copy_within(
            raw, self._offset, source_raw, source.offset, self._nbytes
        ):
            self._copy_staged(raw, source, source_raw)

    def _copy_staged(self, raw: RawBuffer, source: Buffer, source_raw: RawBuffer) -> None:
        staging = memoryview(bytearray(min(STAGING_NBYTES, self._nbytes)))
        starts = range(0, self._nbytes, STAGING_NBYTES)
        # As memmove does: from the end on where the target overlaps the source's later bytes.
        for start in reversed(starts) if self._offset > source.offset else starts:
            chunk = staging[: min(STAGING_NBYTES, self._nbytes - start)]
            source.allocator.copyout(source_raw, source.offset + start, chunk)
            self.allocator.copyin(raw, self._offset + start, chunk)

    def synchronize(self) -> None:
        """Wait until everything started on the device has finished."""
        self.allocator.synchronize()

    def __array__(
        self, dtype: np.dtype[Any] | None = None, copy: bool | None = None
    ) -> NDArray[Any]:
        shared = self._shared_array()
        if copy:
            return shared.astype(shared.dtype if dtype is None else dtype, copy=True)
        if dtype is None or np.dtype(dtype) == shared.dtype:
            return shared
        if copy is False:
            raise InvalidArgument(f"{self._dtype} cannot become {np.dtype(dtype)} without a copy")
        return shared.astype(dtype)

    def __buffer__(self, flags: int, /) -> memoryview:
        try:
            return self._shared_array().data
        except (TypeMismatch, ValueError) as error:
            raise BufferError(
                f"the buffer protocol has no form of {self._dtype}; view the bytes as uint8"
            ) from error

    def __dlpack_device__(self) -> tuple[int, int]:
        if not self._allocated().cpu_accessible:
            raise NotCpuAccessible(f"{self!r} is not on a device that DLPack names; copy it out")
        from arenite.device import dlpack

        return dlpack.CPU_DEVICE

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        if stream is not None:
            raise InvalidArgument(f"host memory has no streams; stream must be None, not {stream}")
        data = self._bytes_array(writable=not self._reads_only())
        from arenite.device import dlpack

        return dlpack.export(
            data, self._dtype, self._shape, max_version=max_version, dl_device=dl_device, copy=copy
        )

    def __copy__(self) -> Buffer:
        """Another handle on the same bytes."""
        return Buffer.__new__(Buffer)._set(
            *(self._storage, self._offset, self._nbytes, self._dtype, self._shape),
            self._is_read_only,
        )

    def __deepcopy__(self, memo: object) -> Buffer:
        """The bytes in memory of their own, on the same device; those of a file on the CPU."""
        allocator = CPU if self._storage.ensure().read_only else self.allocator
        options = BufferOptions(alignment=self._storage.options.alignment)
        copied = Buffer(allocator, self._dtype, self._shape, options)
        copied.copy_from(self)
        return copied

    def __reduce__(self) -> NoReturn:
        raise NotSupported(
            f"{self!r} is a handle on memory of this process and can't be pickled; pickle its "
            "content (copyout()), dtype and shape instead"
        )

    def __repr__(self) -> str:
        within = (
            ""
            if self._nbytes == self.total_nbytes
            else f", bytes {self._offset}..{self._offset + self._nbytes} of {self.total_nbytes}"
        )
        state = "" if self.is_allocated else ", not allocated"
        return (
            f"<Buffer {self._id} on {printable(self.device)}: {self._dtype} {self._shape}{within}, "
            f"storage {self.storage_id}{state}>"
        )

    def _allocated(self) -> RawBuffer:
        raw = self._storage.raw
        if raw is None:
            raise NotAllocated(f"{self!r}: call ensure_allocated() or copyin() first")
        return raw

    def _reads_only(self) -> bool:
        return self._is_read_only or self._allocated().read_only

    def _writable_raw(self) -> RawBuffer:
        raw = self._storage.ensure()
        if self._reads_only():
            raise ReadOnly(f"{self!r} is read-only; copy it to the cpu and write there")
        return raw

    def _check_dtype(self, dtype: DTypeLike | None) -> None:
        if dtype is not None and dtype_of(dtype) != self._dtype:
            raise TypeMismatch(
                f"{self!r} was asked for as {dtype_of(dtype)}; to reinterpret its bytes, view it"
            )

    def _bytes_array(self, writable: bool) -> NDArray[np.uint8]:
        if writable and self._reads_only():
            raise ReadOnly(f"{self!r} is read-only; copy it to the cpu and write there")
        self._allocated()
        self.allocator.check()
        return self._storage.host_array(self._offset, self._nbytes, writable)

    def _typed_array(self, shape: tuple[int, ...], writable: bool) -> NDArray[Any]:
        data = self._bytes_array(writable)
        try:
            return np.ndarray(shape, self._dtype.to_numpy(), buffer=data)
        except (OverflowError, ValueError) as error:  # no elements, and sizes that are huge
            raise InvalidArgument(f"NumPy has no array of shape {shape}: {error}") from None

    def _shared_array(self) -> NDArray[Any]:
        return self._typed_array(self._shape, writable=not self._reads_only())


def copies_of(buffers: Sequence[Buffer]) -> list[bytes]:
    """The bytes of many buffers. A file that several lie in is asked once whether it changed."""
    together: dict[RawBuffer, list[Buffer]] = {}
    for buffer in buffers:
        together.setdefault(buffer._allocated(), []).append(buffer)
    copies: dict[int, bytes] = {}
    for raw, some in together.items():
        spans = [(one._offset, one._nbytes) for one in some]
        parts = some[0].allocator.read_parts(raw, spans)
        copies |= zip(map(id, some), parts, strict=True)
    return [copies[id(buffer)] for buffer in buffers]
