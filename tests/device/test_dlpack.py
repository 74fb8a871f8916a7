"""DLPack out and in: addresses, type codes, flags, refusals, and who frees what how often.

The capsules are read and made here by the layout of dlpack.h, not with the code under test.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from arenite.device import Buffer, CpuAllocator
from arenite.dtype import BY_NAME, float32
from arenite.errors import InvalidArgument, ReadOnly, TypeMismatch

# Name, type code, bits: from dlpack.h, version 1.1.
TYPES = [
    ("int8", 0, 8),
    ("int16", 0, 16),
    ("int32", 0, 32),
    ("int64", 0, 64),
    ("uint8", 1, 8),
    ("uint16", 1, 16),
    ("uint32", 1, 32),
    ("uint64", 1, 64),
    ("float16", 2, 16),
    ("float32", 2, 32),
    ("float64", 2, 64),
    ("bfloat16", 4, 16),
    ("complex64", 5, 64),
    ("complex128", 5, 128),
    ("bool", 6, 8),
    ("float8_e3m4", 7, 8),
    ("float8_e4m3", 8, 8),
    ("float8_e4m3b11fnuz", 9, 8),
    ("float8_e4m3fn", 10, 8),
    ("float8_e4m3fnuz", 11, 8),
    ("float8_e5m2", 12, 8),
    ("float8_e5m2fnuz", 13, 8),
    ("float8_e8m0fnu", 14, 8),
]

get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
new_capsule = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
)(("PyCapsule_New", ctypes.pythonapi))
DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    )


class Legacy(ctypes.Structure):
    """DLManagedTensor."""

    _fields_ = (("tensor", Tensor), ("manager", ctypes.c_void_p), ("deleter", DELETER))


class Versioned(ctypes.Structure):
    """DLManagedTensorVersioned."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", DELETER),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    )


class Producer:
    """Twelve float32 made by hand. Counts the calls of its deleter; nothing frees it otherwise."""

    def __init__(self, **changes: Any) -> None:
        self.n_deleted = 0
        self.device = changes.pop("device", (1, 0))
        self.name: bytes = changes.pop("name", b"dltensor_versioned")
        self.memory = np.arange(13, dtype=np.float32)
        self.shape = (ctypes.c_int64 * 2)(*changes.pop("shape", (3, 4)))
        strides = changes.pop("strides", (4, 1))
        self.strides = (ctypes.c_int64 * 2)(*strides) if strides else None
        tensor = Tensor(
            data=changes.pop("data", self.memory.ctypes.data),
            device_type=changes.pop("device_type", 1),
            ndim=changes.pop("ndim", 2),
            code=changes.pop("code", 2),
            bits=changes.pop("bits", 32),
            lanes=changes.pop("lanes", 1),
            shape=ctypes.addressof(self.shape),
            strides=ctypes.addressof(self.strides) if self.strides else None,
            byte_offset=changes.pop("byte_offset", 4),
        )
        has_deleter = changes.pop("has_deleter", True)
        self.deleter = DELETER(self.delete) if has_deleter else DELETER()
        self.managed: Legacy | Versioned
        if self.name == b"dltensor_versioned":
            self.managed = Versioned(1, 0, None, self.deleter, 0, tensor)
            self.managed.major = changes.pop("major", 1)
            self.managed.flags = changes.pop("flags", 0)
        else:
            self.managed = Legacy(tensor, None, self.deleter)
        assert not changes

    def delete(self, pointer: int) -> None:
        assert pointer == ctypes.addressof(self.managed)
        self.n_deleted += 1

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device  # type: ignore[no-any-return]

    def __dlpack__(self, **kwargs: Any) -> Any:
        if kwargs and self.name == b"dltensor":
            raise TypeError("an old producer takes no max_version")
        return new_capsule(ctypes.addressof(self.managed), self.name, None)


class Through:
    """Hands a ready capsule to a consumer."""

    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __dlpack__(self, **kwargs: Any) -> Any:
        return self.capsule


def header(capsule: Any) -> dict[str, int]:
    """The facts of a capsule, by the byte offsets of dlpack.h on a 64-bit machine."""
    if "dltensor_versioned" in repr(capsule):
        pointer = get_pointer(capsule, b"dltensor_versioned")
        major, minor = struct.unpack("II", ctypes.string_at(pointer, 8))
        (flags,) = struct.unpack("Q", ctypes.string_at(pointer + 24, 8))
        pointer += 32
    else:
        pointer = get_pointer(capsule, b"dltensor")
        major = minor = flags = 0
    fields = struct.unpack("QiiiBBHQQQ", ctypes.string_at(pointer, 48))
    facts = dict(zip((name for name, *_ in Tensor._fields_), fields, strict=True))
    return facts | {"major": major, "minor": minor, "flags": flags}


@pytest.fixture
def cpu() -> CpuAllocator:
    return CpuAllocator()


# Out


@pytest.mark.parametrize("max_version", [None, (0, 8), (1, 0), (1, 1), (2, 0)])
@pytest.mark.parametrize(("name", "code", "bits"), TYPES)
def test_a_capsule_says_what_the_buffer_is(
    cpu: CpuAllocator, name: str, code: int, bits: int, max_version: tuple[int, int] | None
) -> None:
    buffer = Buffer.allocate(cpu, name, (3, 5)).view(0, 3 * 4 * bits // 8, name, (3, 4))
    capsule = buffer.__dlpack__(max_version=max_version)
    facts = header(capsule)
    assert (facts["code"], facts["bits"], facts["lanes"]) == (code, bits, 1)
    assert facts["data"] + facts["byte_offset"] == buffer.raw_ptr
    assert (facts["device_type"], facts["device_id"], facts["ndim"]) == (1, 0, 2)
    assert struct.unpack("qq", ctypes.string_at(facts["shape"], 16)) == (3, 4)
    if facts["strides"]:  # NULL, as NumPy before 2.4 writes it, means C-contiguous
        assert struct.unpack("qq", ctypes.string_at(facts["strides"], 16)) == (4, 1)
    is_versioned = max_version is not None and max_version[0] >= 1
    assert facts["major"] == int(is_versioned)
    if is_versioned and 7 <= code <= 14:
        assert facts["minor"] >= 1
    assert facts["flags"] == 0


def test_every_dtype_of_whole_bytes_has_a_code() -> None:
    assert {name for name, _, _ in TYPES} == {d.name for d in BY_NAME.values() if d.has_numpy}


@pytest.mark.parametrize("name", ["int4", "float4_e2m1fn", "q4_0"])
def test_packed_types_are_exported_as_bytes_only(cpu: CpuAllocator, name: str) -> None:
    buffer = Buffer.allocate(cpu, name, (32,))
    with pytest.raises(BufferError, match="view the bytes as uint8"):
        buffer.__dlpack__()
    assert np.from_dlpack(buffer.view(0, buffer.nbytes)).nbytes == buffer.nbytes


def test_numpy_takes_a_view_without_copying(cpu: CpuAllocator) -> None:
    buffer = Buffer.allocate(cpu, "float32", (10,))
    view = buffer.view(8, 24, "float32", (2, 3))
    array = np.from_dlpack(view)
    assert array.ctypes.data == view.raw_ptr == buffer.raw_ptr + 8
    array[1, 2] = 3
    assert buffer.as_array()[7] == 3


def test_read_only_memory_says_so() -> None:
    buffer = Buffer.from_array(np.frombuffer(b"12345678", np.float32))
    assert header(buffer.__dlpack__(max_version=(1, 0)))["flags"] == 1
    assert not np.from_dlpack(buffer).flags.writeable
    for max_version in (None, (0, 8)):
        with pytest.raises(BufferError, match="read-only"):
            buffer.__dlpack__(max_version=max_version)


@pytest.mark.parametrize("max_version", [None, (1, 0)])
@pytest.mark.parametrize("is_writable", [True, False])
def test_a_copy_is_the_consumers_own(
    max_version: tuple[int, int] | None, is_writable: bool
) -> None:
    array = np.arange(4).astype(ml_dtypes.bfloat16)
    array.flags.writeable = is_writable
    buffer = Buffer.from_array(array)
    capsule = buffer.__dlpack__(copy=True, max_version=max_version)
    facts = header(capsule)
    assert facts["data"] != buffer.raw_ptr
    assert facts["flags"] == (2 if max_version else 0)
    copied = Buffer.from_dlpack(Through(capsule))
    assert (copied.dtype.name, copied.copyout()) == ("bfloat16", array.tobytes())
    copied.copyin(bytes(8))
    assert array[3] == 3


def test_arguments_of_the_standard(cpu: CpuAllocator) -> None:
    buffer = Buffer.allocate(cpu, "float32", (4,))
    assert buffer.__dlpack_device__() == (1, 0)
    assert header(buffer.__dlpack__(dl_device=(1, 0), copy=False))["data"] == buffer.raw_ptr
    with pytest.raises(BufferError):
        buffer.__dlpack__(dl_device=(2, 0))
    with pytest.raises(InvalidArgument, match="stream"):
        buffer.__dlpack__(stream=1)


@pytest.mark.parametrize("max_version", [None, (1, 0)])
@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_an_exported_capsule_frees_once_taken_or_not(
    cpu: CpuAllocator, name: str, max_version: tuple[int, int] | None
) -> None:
    capsule = Buffer.allocate(cpu, name, (4,)).__dlpack__(max_version=max_version)
    assert cpu.stats.n_live == 1
    del capsule
    assert cpu.stats.n_live == 0

    capsule = Buffer.allocate(cpu, name, (4,)).__dlpack__(max_version=max_version)
    taken = Buffer.from_dlpack(Through(capsule))
    with pytest.raises(InvalidArgument, match="taken already"):
        Buffer.from_dlpack(Through(capsule))
    del capsule
    view = taken.view(0, 4)
    del taken
    assert cpu.stats.n_live == 1
    del view
    assert cpu.stats.n_live == 0


# In


def test_numpy_arrays_come_in_without_copying() -> None:
    array = np.arange(6, dtype=np.int16).reshape(2, 3)
    buffer = Buffer.from_dlpack(array)
    assert (buffer.dtype.name, buffer.shape, buffer.is_allocated) == ("int16", (2, 3), True)
    assert buffer.raw_ptr == array.ctypes.data
    buffer.as_array_mut()[1, 2] = 99
    assert array[1, 2] == 99


def test_a_read_only_array_comes_in_read_only() -> None:
    array = np.arange(6)
    array.flags.writeable = False
    with pytest.raises(ReadOnly):
        Buffer.from_dlpack(array).as_array_mut()


@pytest.mark.parametrize("array", [np.zeros((0, 4)), np.array(3.5), np.zeros((4, 1, 3))[:, :, :]])
def test_odd_shapes_come_in(array: np.ndarray[Any, Any]) -> None:
    np.testing.assert_array_equal(Buffer.from_dlpack(array).as_array(), array)


@pytest.mark.parametrize("array", [np.zeros((4, 4))[:, ::2], np.zeros((3, 4)).T, np.zeros(8)[::-1]])
def test_strided_arrays_are_refused_and_left_whole(array: np.ndarray[Any, Any]) -> None:
    with pytest.raises(InvalidArgument, match="copy it first"):
        Buffer.from_dlpack(array)


@pytest.mark.parametrize("name", [b"dltensor", b"dltensor_versioned"])
@pytest.mark.parametrize("strides", [(4, 1), None])
def test_the_producers_deleter_is_called_exactly_once(
    name: bytes, strides: tuple[int, int] | None
) -> None:
    producer = Producer(name=name, strides=strides)
    buffer = Buffer.from_dlpack(producer)
    assert (buffer.dtype, buffer.shape) == (float32, (3, 4))
    assert buffer.raw_ptr == producer.memory.ctypes.data + 4
    array, view = buffer.as_array(), buffer.view(4, 8)
    del buffer
    np.testing.assert_array_equal(array, np.arange(1, 13, dtype=np.float32).reshape(3, 4))
    del array
    assert producer.n_deleted == 0
    del view
    assert producer.n_deleted == 1


def test_a_producer_without_a_deleter() -> None:
    producer = Producer(has_deleter=False)
    assert Buffer.from_dlpack(producer).as_array()[0, 0] == 1
    assert producer.n_deleted == 0


def test_the_read_only_flag_is_heeded() -> None:
    with pytest.raises(ReadOnly):
        Buffer.from_dlpack(Producer(flags=1)).as_array_mut()
    Buffer.from_dlpack(Producer(flags=2)).as_array_mut()


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: Producer(device=(2, 0)), r"device \(2, 0\)"),
        (lambda: Producer(device_type=2), "device 2"),
        (lambda: Producer(major=2), "speaks DLPack 2.0"),
        (lambda: Producer(code=3), "type code 3"),
        (lambda: Producer(code=0, bits=4), "4 bits"),
        (lambda: Producer(lanes=2), "2 lanes"),
        (lambda: Producer(strides=(1, 3)), "C-contiguous"),
        (lambda: Producer(name=b"something"), "no DLPack capsule"),
        (lambda: Producer(shape=(-3, 4)), "negative size"),
        (lambda: Producer(shape=(-3, -4), strides=None), "negative size"),
        (lambda: Producer(ndim=65), "65 axes"),
        (lambda: Producer(ndim=-1), "-1 axes"),
        (lambda: Producer(data=None), "NULL"),
        (lambda: Producer(shape=(2**40, 2**40), strides=None), "no memory has"),
        (lambda: Producer(byte_offset=2**63), "no memory has"),
    ],
)
def test_what_cannot_be_taken_is_not_deleted(make: Callable[[], Producer], complaint: str) -> None:
    producer = make()
    given = Through(producer.__dlpack__())
    given.__dlpack_device__ = producer.__dlpack_device__  # type: ignore[method-assign]
    named = repr(given.capsule)
    with pytest.raises(InvalidArgument, match=complaint):
        Buffer.from_dlpack(given)
    assert producer.n_deleted == 0
    # By its name the capsule knows that it has not been taken and is its own to delete.
    assert repr(given.capsule) == named


def test_no_elements_need_no_memory() -> None:
    assert Buffer.from_dlpack(Producer(data=None, shape=(0, 4))).copyout() == b""


def test_only_what_speaks_dlpack_comes_in() -> None:
    for other in (b"bytes", [1], None):
        with pytest.raises(TypeMismatch, match="DLPack"):
            Buffer.from_dlpack(other)
