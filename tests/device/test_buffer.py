"""Buffer: contents, views, protocols, lifetimes, and copies between devices."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
import threading
import time
from array import array as machine_array
from typing import Any, cast

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arenite.device import (
    Allocator,
    AllocatorStats,
    Buffer,
    BufferOptions,
    CpuAllocator,
    HostMemory,
    RawBuffer,
)
from arenite.device.buffer import STAGING_NBYTES
from arenite.dtype import BY_NAME, float32, uint8
from arenite.errors import (
    InvalidArgument,
    InvalidView,
    NotAllocated,
    NotCpuAccessible,
    ReadOnly,
    SizeMismatch,
    TypeMismatch,
)


class HiddenAllocator(Allocator):
    """A device whose memory the host cannot reach, made of Allocator's interface alone."""

    name = "hidden"

    def __init__(self) -> None:
        self._memory: dict[RawBuffer, bytearray] = {}
        self.largest_copy_nbytes = 0
        self.n_synchronized = 0

    def allocate(self, nbytes: int, options: BufferOptions) -> RawBuffer:
        raw = RawBuffer(nbytes, address=None, cpu_accessible=False, read_only=False)
        self._memory[raw] = bytearray(nbytes)
        return raw

    def free(self, raw: RawBuffer) -> None:
        del self._memory[raw]

    def copyin(self, raw: RawBuffer, offset: int, source: memoryview) -> None:
        self.largest_copy_nbytes = max(self.largest_copy_nbytes, source.nbytes)
        self._memory[raw][offset : offset + source.nbytes] = source

    def copyout(self, raw: RawBuffer, offset: int, target: memoryview) -> None:
        self.largest_copy_nbytes = max(self.largest_copy_nbytes, target.nbytes)
        target[:] = self._memory[raw][offset : offset + target.nbytes]

    def synchronize(self) -> None:
        self.n_synchronized += 1

    @property
    def stats(self) -> AllocatorStats:
        return AllocatorStats(sum(map(len, self._memory.values())), len(self._memory))


class CountingAllocator(CpuAllocator):
    """Counts allocations, and leaves other threads time to make a second one."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[int] = []

    def allocate(self, nbytes: int, options: BufferOptions) -> HostMemory:
        self.calls.append(nbytes)
        time.sleep(0.0002)
        return super().allocate(nbytes, options)


@pytest.fixture
def cpu() -> CpuAllocator:
    return CpuAllocator()


def filled(allocator: Allocator, data: bytes) -> Buffer:
    buffer = Buffer(allocator, uint8, (len(data),))
    buffer.copyin(data)
    return buffer


# Allocation


def test_a_buffer_is_allocated_lazily_and_once(cpu: CpuAllocator) -> None:
    buffer = Buffer(cpu, float32, (2, 3))
    assert not buffer.is_allocated
    assert cpu.stats.n_live == 0
    buffer.ensure_allocated()
    buffer.ensure_allocated()
    assert buffer.is_allocated
    assert cpu.stats.n_live == 1


def test_allocate_allocates_at_once(cpu: CpuAllocator) -> None:
    assert Buffer.allocate(cpu, float32, (2, 3)).is_allocated


def test_views_of_a_lazy_buffer_share_its_allocation(cpu: CpuAllocator) -> None:
    parent = Buffer(cpu, uint8, (8,))
    view = parent.view(2, 4)
    view.ensure_allocated()
    assert parent.is_allocated
    assert view.raw_ptr == parent.raw_ptr + 2
    assert cpu.stats.n_live == 1


def test_many_threads_allocate_once() -> None:
    allocator = CountingAllocator()
    for _ in range(50):
        buffer = Buffer(allocator, uint8, (64,))
        handles = [buffer, *(buffer.view(n, 8) for n in range(7))]
        barrier = threading.Barrier(len(handles))
        addresses: list[int] = []

        def allocate(handle: Buffer, barrier: threading.Barrier, addresses: list[int]) -> None:
            barrier.wait()
            handle.ensure_allocated()
            addresses.append(handle.raw_ptr - handle.offset)

        threads = [
            threading.Thread(target=allocate, args=(handle, barrier, addresses))
            for handle in handles
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert set(addresses) == {buffer.raw_ptr}
    assert allocator.calls == [64] * 50


def test_reading_before_there_is_anything_raises(cpu: CpuAllocator) -> None:
    buffer = Buffer(cpu, float32, (1,))
    for read in (
        buffer.as_host_bytes,
        buffer.as_host_bytes_mut,
        buffer.as_array,
        buffer.as_array_mut,
        buffer.as_slice,
        buffer.item,
        buffer.copyout,
        lambda: buffer.raw_ptr,
        lambda: np.asarray(buffer),
        lambda: np.from_dlpack(buffer),
        lambda: Buffer(cpu, float32, (1,)).copy_from(buffer),
    ):
        with pytest.raises(NotAllocated, match="ensure_allocated"):
            read()
    assert cpu.stats.n_live == 0


def test_describing_a_buffer_allocates_nothing(cpu: CpuAllocator) -> None:
    buffer = Buffer(cpu, float32, (2, 3))
    assert repr(buffer) == (
        f"<Buffer {buffer.id} on cpu: float32 (2, 3), storage {buffer.storage_id}, not allocated>"
    )
    view = buffer.view(4, 8)
    assert "uint8 (8,), bytes 4..12 of 24" in repr(view)
    assert not buffer.is_allocated
    buffer.ensure_allocated()
    assert "not allocated" not in repr(buffer)


def test_what_a_buffer_says_of_itself(cpu: CpuAllocator) -> None:
    buffer = Buffer(cpu, "float32", (2, 3))
    view = buffer.view(8, 8, "int16", (2, 2))
    assert (buffer.nbytes, buffer.total_nbytes, buffer.offset) == (24, 24, 0)
    assert (view.nbytes, view.total_nbytes, view.offset) == (8, 24, 8)
    assert (view.dtype.name, view.shape) == ("int16", (2, 2))
    assert view.allocator is cpu
    assert view.device == "cpu"


def test_identities(cpu: CpuAllocator) -> None:
    buffer, other = Buffer(cpu, uint8, (8,)), Buffer(cpu, uint8, (8,))
    left, right = buffer.view(0, 4), buffer.view(0, 4)
    assert len({buffer.id, other.id, left.id, right.id}) == 4
    assert buffer.storage_id == left.storage_id == right.storage_id != other.storage_id


def test_a_storage_id_is_never_used_again(cpu: CpuAllocator) -> None:
    ids = {Buffer.allocate(cpu, uint8, (8,)).storage_id for _ in range(1000)}
    assert len(ids) == 1000


def test_an_empty_buffer_works(cpu: CpuAllocator) -> None:
    buffer = Buffer(cpu, float32, (3, 0))
    buffer.copyin(b"")
    assert buffer.copyout() == b""
    assert buffer.as_array().shape == (3, 0)
    assert buffer.as_host_bytes().nbytes == 0
    assert np.from_dlpack(buffer).shape == (3, 0)
    buffer.view(0, 0).copy_from(buffer)
    buffer.copyout(bytearray())
    assert Buffer.from_array(np.empty((0, 2), np.int8)).as_array().shape == (0, 2)


@pytest.mark.parametrize("shape", [(-1,), (2, -3), (1.5,), 3, ("a",)])
def test_a_shape_is_a_sequence_of_sizes(cpu: CpuAllocator, shape: Any) -> None:
    with pytest.raises(InvalidArgument):
        Buffer(cpu, float32, shape)


# Contents


def test_bytes_go_in_and_come_out(cpu: CpuAllocator) -> None:
    buffer = Buffer(cpu, float32, (2,))
    buffer.copyin(bytes(range(8)))
    assert buffer.copyout() == bytes(range(8))
    assert bytes(buffer.as_host_bytes()) == bytes(range(8))
    target = np.zeros(2, np.float32)
    buffer.copyout(target)
    assert target.tobytes() == bytes(range(8))


@pytest.mark.parametrize(
    "source",
    [
        np.arange(6, dtype=np.int32).reshape(2, 3),
        np.arange(6, dtype=np.int32).reshape(3, 2).T,
        np.arange(12, dtype=np.int32)[::2],
        np.arange(12, dtype=">i2"),
        np.arange(12).astype(ml_dtypes.bfloat16),
    ],
)
def test_any_array_goes_in_as_its_bytes_in_c_order(
    cpu: CpuAllocator, source: np.ndarray[Any, Any]
) -> None:
    buffer = Buffer(cpu, uint8, (24,))
    buffer.copyin(source)
    assert buffer.copyout() == source.tobytes()


def test_any_bytes_like_goes_in(cpu: CpuAllocator) -> None:
    buffer = Buffer(cpu, uint8, (8,))
    for source in (
        bytearray(b"01234567"),
        memoryview(b"0x1x2x3x4x5x6x7x")[::2],
        machine_array("I", [1, 2]),
        (ctypes.c_int16 * 4)(1, 2, 3, 4),
    ):
        buffer.copyin(source)
        assert buffer.copyout() == memoryview(source).tobytes()


@pytest.mark.parametrize("source", ["12345678", [1, 2], 8, np.array([None])])
def test_what_has_no_bytes_does_not_go_in(cpu: CpuAllocator, source: Any) -> None:
    with pytest.raises(TypeMismatch):
        Buffer(cpu, uint8, (8,)).copyin(source)


@pytest.mark.parametrize("nbytes", [0, 7, 9, 16])
def test_a_copy_of_the_wrong_size_changes_nothing(cpu: CpuAllocator, nbytes: int) -> None:
    buffer = filled(cpu, bytes(range(8)))
    with pytest.raises(SizeMismatch, match=rf"{nbytes} bytes .* has 8"):
        buffer.copyin(b"x" * nbytes)
    with pytest.raises(SizeMismatch):
        buffer.copy_from(filled(cpu, b"x" * nbytes))
    target = bytearray(b"x" * nbytes)
    with pytest.raises(SizeMismatch):
        buffer.copyout(target)
    assert buffer.copyout() == bytes(range(8))
    assert target == b"x" * nbytes
    lazy = Buffer(cpu, uint8, (8,))
    with pytest.raises(SizeMismatch):
        lazy.copyin(b"x" * nbytes)
    assert not lazy.is_allocated


def test_a_target_is_writable_and_in_order(cpu: CpuAllocator) -> None:
    buffer = filled(cpu, bytes(8))
    with pytest.raises(ReadOnly):
        buffer.copyout(bytes(8))
    with pytest.raises(InvalidArgument, match="C-contiguous"):
        buffer.copyout(np.zeros((4, 4), np.uint8)[:, ::2])
    with pytest.raises(InvalidArgument, match="C-contiguous"):
        buffer.copyout(memoryview(bytearray(16))[::2])


def test_arrays_share_the_memory(cpu: CpuAllocator) -> None:
    buffer = filled(cpu, bytes(24)).view(0, 24, "float32", (2, 3))
    read, write = buffer.as_array(), buffer.as_array_mut()
    write[1, 2] = 7
    assert read[1, 2] == 7
    assert buffer.as_slice()[5] == 7
    assert buffer.as_slice().shape == (6,)
    assert np.shares_memory(read, write)
    buffer.as_host_bytes_mut()[0:4] = np.float32(3).tobytes()
    assert read[0, 0] == 3


def test_read_only_arrays_stay_so(cpu: CpuAllocator) -> None:
    buffer = filled(cpu, bytes(8))
    for array in (buffer.as_array(), buffer.as_slice(), np.frombuffer(buffer.as_host_bytes())):
        assert not array.flags.writeable
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.flags.writeable = True
    assert buffer.as_host_bytes().readonly
    assert not buffer.as_host_bytes_mut().readonly


def test_another_dtype_is_a_view_and_no_access(cpu: CpuAllocator) -> None:
    buffer = Buffer.allocate(cpu, float32, (2,))
    assert buffer.as_array("float32").dtype == buffer.as_array(np.float32).dtype == np.float32
    for access in (buffer.as_array, buffer.as_array_mut, buffer.as_slice):
        with pytest.raises(TypeMismatch, match=r"int32.*view it"):
            access("int32")
    assert buffer.view(0, 8, "int32").as_array().dtype == np.int32


def test_item_is_the_only_element(cpu: CpuAllocator) -> None:
    bfloat = Buffer.from_array(np.array([[1.5]], ml_dtypes.bfloat16))
    assert bfloat.item() == 1.5
    for value in (True, 7, 2.5, 1 + 2j):
        item = Buffer.from_array(np.array(value)).item()
        assert item == value
        assert type(item) is type(value)
    for shape in ((0,), (2,), (1, 2)):
        with pytest.raises(SizeMismatch, match="not one"):
            Buffer.allocate(cpu, float32, shape).item()


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_every_dtype_can_be_stored(cpu: CpuAllocator, name: str) -> None:
    dtype = BY_NAME[name]
    buffer = Buffer(cpu, name, (2, 256))
    data = bytes(n % 251 for n in range(buffer.nbytes))
    buffer.copyin(data)
    assert buffer.copyout() == bytes(buffer.as_host_bytes()) == data
    assert buffer.view(0, buffer.nbytes).view(0, buffer.nbytes, name).shape == (512,)
    if dtype.has_numpy:
        assert buffer.as_array().tobytes() == data
        assert buffer.as_array().shape == (2, 256)
    else:
        with pytest.raises(TypeMismatch, match="uint8"):
            buffer.as_array()
        with pytest.raises(TypeMismatch, match="uint8"):
            np.asarray(buffer)


# Views


@pytest.mark.parametrize(
    ("offset", "nbytes"), [(-1, 2), (0, -1), (0, 9), (8, 1), (9, 0), (2**70, 1)]
)
def test_a_view_stays_within_its_parent(cpu: CpuAllocator, offset: int, nbytes: int) -> None:
    buffer = Buffer(cpu, uint8, (100,)).view(10, 8)
    with pytest.raises(InvalidView, match=f"{nbytes} bytes at offset {offset} leaves the 8 bytes"):
        buffer.view(offset, nbytes)


def test_a_shape_fills_its_view(cpu: CpuAllocator) -> None:
    buffer = Buffer(cpu, uint8, (72,))
    with pytest.raises(InvalidView, match="takes 20 bytes; the view has 24"):
        buffer.view(0, 24, float32, (5,))
    with pytest.raises(InvalidView, match="7 bytes are no whole number of float32 elements"):
        buffer.view(0, 7, float32)
    with pytest.raises(InvalidView, match="19 bytes are no whole number of q4_0 blocks"):
        buffer.view(0, 19, "q4_0")
    with pytest.raises(InvalidView, match="float6"):
        buffer.view(0, 2, "float6_e2m3fn")
    with pytest.raises(InvalidArgument, match="negative"):
        buffer.view(0, 24, float32, (-2, -3))
    assert buffer.view(0, 2, "int4", (3,)).shape == (3,)
    assert buffer.view(0, 2, "int4").shape == (4,)
    assert buffer.view(18, 36, "q4_0").shape == (64,)
    assert buffer.view(0, 4, float32, ()).shape == ()


def test_offsets_are_integers_of_any_kind(cpu: CpuAllocator) -> None:
    buffer = Buffer(cpu, uint8, (8,))
    assert buffer.view(cast(int, np.int64(2)), cast(int, np.uint8(4))).offset == 2
    with pytest.raises(InvalidArgument, match="offset must be an integer"):
        buffer.view(cast(int, 1.0), 4)
    with pytest.raises(InvalidArgument, match="no dtype"):
        buffer.view(0, 4, "float31")


def test_an_offset_is_added_exactly_once() -> None:
    buffer = Buffer.from_array(np.arange(100, dtype=np.uint8))
    view = buffer.view(10, 80).view(20, 50).view(5, 4)
    assert view.offset == 35
    assert view.copyout() == bytes([35, 36, 37, 38])


@st.composite
def nested_spans(draw: st.DrawFn, nbytes: int) -> list[tuple[int, int]]:
    """Offset and length of views, each within the one before."""
    spans = []
    for _ in range(draw(st.integers(1, 5))):
        offset = draw(st.integers(0, nbytes))
        nbytes = draw(st.integers(0, nbytes - offset))
        spans.append((offset, nbytes))
    return spans


@given(
    spans=st.lists(nested_spans(200), min_size=1, max_size=6),
    name=st.sampled_from(["uint8", "int16", "float32", "complex128", "bfloat16", "bool"]),
)
def test_views_of_views_are_slices_of_slices(spans: list[list[tuple[int, int]]], name: str) -> None:
    model = bytearray(n % 2 for n in range(200))
    root = filled(CpuAllocator(), bytes(model))
    itemsize = BY_NAME[name].bits // 8
    for number, nested in enumerate(spans):
        view, expected = root, memoryview(model)
        for offset, nbytes in nested:
            view = view.view(offset, nbytes)
            expected = expected[offset : offset + nbytes]
        assert view.copyout() == expected
        whole = expected.nbytes // itemsize * itemsize
        typed = view.view(0, whole, name)
        np.testing.assert_array_equal(
            typed.as_array().view(np.uint8), np.frombuffer(expected[:whole], np.uint8)
        )
        data = bytes([number % 2]) * view.nbytes
        view.copyin(data)
        expected[:] = data
        assert root.copyout() == model


@given(source=nested_spans(60), offset=st.integers(0, 60))
def test_overlapping_views_copy_as_memmove_does(source: list[tuple[int, int]], offset: int) -> None:
    start, nbytes = source[0]
    offset = min(offset, 60 - nbytes)
    for allocator in (CpuAllocator(), HiddenAllocator()):
        model = bytearray(range(60))
        root = filled(allocator, bytes(model))
        root.view(offset, nbytes).copy_from(root.view(start, nbytes))
        model[offset : offset + nbytes] = model[start : start + nbytes]
        assert root.copyout() == model


# Devices out of reach


def test_memory_out_of_reach_has_no_host_view() -> None:
    buffer = filled(HiddenAllocator(), bytes(4)).view(0, 4, float32)
    for access in (
        buffer.as_host_bytes,
        buffer.as_host_bytes_mut,
        buffer.as_array,
        buffer.as_array_mut,
        buffer.as_slice,
        buffer.item,
        buffer.__dlpack_device__,
        buffer.__dlpack__,
        lambda: buffer.raw_ptr,
        lambda: np.asarray(buffer),
    ):
        with pytest.raises(NotCpuAccessible):
            access()


def test_memory_out_of_reach_is_copied_in_and_out() -> None:
    buffer = filled(HiddenAllocator(), bytes(range(16)))
    view = buffer.view(4, 8).view(2, 4)
    assert view.copyout() == bytes([6, 7, 8, 9])
    view.copyin(b"abcd")
    target = bytearray(16)
    buffer.copyout(target)
    assert target == bytes(range(6)) + b"abcd" + bytes(range(10, 16))


def test_any_device_copies_to_any_device(cpu: CpuAllocator) -> None:
    data = bytes(range(100))
    hidden = HiddenAllocator()

    def buffers() -> list[Buffer]:
        return [
            Buffer(cpu, uint8, (100,)),
            Buffer.from_array(np.zeros(100, np.uint8)),
            Buffer(hidden, uint8, (100,)),
            Buffer(HiddenAllocator(), uint8, (100,)),
        ]

    for source in buffers():
        source.copyin(data)
        for target in buffers():
            target.copyin(bytes(100))
            target.view(10, 80).copy_from(source.view(5, 80))
            assert target.copyout() == bytes(10) + data[5:85] + bytes(10)


def test_a_copy_between_devices_out_of_reach_is_staged_in_bounded_chunks() -> None:
    nbytes = 2 * STAGING_NBYTES + 123
    data = np.random.default_rng(1).integers(0, 256, nbytes, np.uint8)
    one, two = HiddenAllocator(), HiddenAllocator()
    source, target = filled(one, data.tobytes()), Buffer(two, uint8, (nbytes,))
    one.largest_copy_nbytes = 0
    target.copy_from(source)
    assert one.largest_copy_nbytes == two.largest_copy_nbytes == STAGING_NBYTES
    assert target.copyout() == data.tobytes()


@pytest.mark.parametrize("shift", [-5, 5])
def test_a_staged_copy_onto_itself_is_right_in_both_directions(shift: int) -> None:
    nbytes = 2 * STAGING_NBYTES
    data = np.random.default_rng(2).integers(0, 256, nbytes + 10, np.uint8)
    root = filled(HiddenAllocator(), data.tobytes())
    root.view(5 + shift, nbytes).copy_from(root.view(5, nbytes))
    data[5 + shift : 5 + shift + nbytes] = data[5 : 5 + nbytes].copy()
    assert root.copyout() == data.tobytes()


def test_synchronize_reaches_the_device(cpu: CpuAllocator) -> None:
    hidden = HiddenAllocator()
    Buffer(hidden, uint8, (1,)).synchronize()
    assert hidden.n_synchronized == 1
    assert hidden.trim() == 0
    Buffer(cpu, uint8, (1,)).synchronize()


# Borrowed arrays


def test_a_borrowed_array_is_shared() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    buffer = Buffer.from_array(array)
    assert (buffer.dtype, buffer.shape, buffer.is_allocated) == (float32, (2, 3), True)
    assert buffer.raw_ptr == array.ctypes.data
    buffer.view(4, 4, float32).copyin(np.array([9], np.float32))
    assert array[0, 1] == 9


def test_a_read_only_array_is_borrowed_read_only() -> None:
    array = np.arange(3)
    array.flags.writeable = False
    buffer = Buffer.from_array(array)
    for write in (
        lambda: buffer.copyin(bytes(24)),
        buffer.as_array_mut,
        buffer.view(0, 8).as_host_bytes_mut,
    ):
        with pytest.raises(ReadOnly):
            write()
    assert not np.asarray(buffer).flags.writeable


def test_what_cannot_be_borrowed() -> None:
    with pytest.raises(InvalidArgument, match="copy it first"):
        Buffer.from_array(np.zeros((4, 4))[:, ::2])
    with pytest.raises(InvalidArgument, match="counterpart"):
        Buffer.from_array(np.zeros(4, ">f4"))
    with pytest.raises(TypeMismatch, match="list"):
        Buffer.from_array(cast(Any, [1, 2]))


# Python's protocols


def test_numpy_shares_the_memory_as_it_is(cpu: CpuAllocator) -> None:
    buffer = filled(cpu, bytes(24)).view(0, 24, "float32", (2, 3))
    array = np.asarray(buffer)
    assert array.dtype == np.float32
    assert array.shape == (2, 3)
    array[0, 0] = 5
    assert buffer.as_array()[0, 0] == 5


def test_numpy_gets_the_ml_dtypes_too(cpu: CpuAllocator) -> None:
    buffer = Buffer.allocate(cpu, "bfloat16", (2,))
    assert np.asarray(buffer).dtype == ml_dtypes.bfloat16


def test_array_copies_when_asked_and_when_it_must(cpu: CpuAllocator) -> None:
    buffer = filled(cpu, bytes(8)).view(0, 8, float32)
    shared = buffer.__array__(copy=False)
    assert np.shares_memory(shared, buffer.__array__(np.dtype(np.float32), copy=False))
    assert not np.shares_memory(shared, buffer.__array__(copy=True))
    assert not np.shares_memory(shared, np.array(buffer))
    assert buffer.__array__(np.dtype(np.float64)).dtype == np.float64
    assert buffer.__array__(np.dtype(np.int8), copy=True).dtype == np.int8
    with pytest.raises(ValueError, match="without a copy"):
        buffer.__array__(np.dtype(np.float64), copy=False)


def test_the_buffer_protocol_shares_the_memory(cpu: CpuAllocator) -> None:
    buffer = filled(cpu, bytes(24)).view(0, 24, "float32", (2, 3))
    readonly = Buffer.from_array(np.frombuffer(b"12345678", np.float32))
    if sys.version_info >= (3, 12):
        view = memoryview(buffer)
        assert (view.format, view.shape, view.readonly) == ("f", (2, 3), False)
        view[1, 2] = 4.0
        assert buffer.as_array()[1, 2] == 4
        assert bytes(readonly) == b"12345678"
        assert memoryview(readonly).readonly
        with pytest.raises((BufferError, TypeError)):
            ctypes.c_char.from_buffer(readonly)
        with pytest.raises(NotAllocated):
            memoryview(Buffer(cpu, uint8, (1,)))
    else:  # Python calls __buffer__ from 3.12 on; before, an array is the way
        with pytest.raises(TypeError):
            memoryview(cast(Any, buffer))
        np.asarray(buffer)[1, 2] = 4
        assert buffer.__buffer__(0)[1, 2] == 4.0


def test_the_buffer_protocol_has_no_form_of_packed_and_small_floats(cpu: CpuAllocator) -> None:
    for name in ("int4", "q8_0", "bfloat16", "float8_e5m2"):
        with pytest.raises(BufferError, match="view the bytes as uint8"):
            Buffer.allocate(cpu, name, (32,)).__buffer__(0)


# Lifetimes


def test_ten_thousand_buffers_and_views_leave_no_live_bytes(cpu: CpuAllocator) -> None:
    cpu.pool_cap_nbytes = 10 * 4096
    for n in range(10_000):
        buffer = Buffer.allocate(cpu, uint8, (n % 50 * 100,))
        view = buffer.view(0, buffer.nbytes).view(0, buffer.nbytes)
        keep: Any = (
            view,
            view.as_array(),
            view.as_host_bytes_mut(),
            view.__dlpack__(),
            np.from_dlpack(view),
            Buffer.from_dlpack(view).as_array(),
        )[n % 6]
        del buffer, view
        assert cpu.stats.n_live == 1
        del keep
    stats = cpu.stats
    assert (stats.n_live, stats.live_nbytes) == (0, 0)
    assert stats.pooled_nbytes <= 10 * 4096


def test_ten_thousand_buffers_alive_at_once_all_go(cpu: CpuAllocator) -> None:
    buffers = [Buffer.allocate(cpu, uint8, (8,)) for _ in range(10_000)]
    views = [buffer.view(2, 4).view(1, 2) for buffer in buffers]
    buffers.clear()
    assert cpu.stats.n_live == 10_000
    views.clear()
    assert cpu.stats.live_nbytes == 0


def test_bytes_are_not_handed_out_again_under_a_living_array(cpu: CpuAllocator) -> None:
    buffer = filled(cpu, b"precious")
    array = buffer.as_array_mut()[2:]
    view = memoryview(buffer.as_host_bytes()[1:])
    del buffer
    others = [filled(cpu, b"overwrit") for _ in range(3)]
    assert array.tobytes() == b"ecious"
    del array
    others.append(filled(cpu, b"overwrit"))
    assert bytes(view) == b"recious"
    del view, others
    assert cpu.stats.n_live == 0


def test_a_storage_in_a_garbage_cycle_outlives_the_del_methods_in_it(cpu: CpuAllocator) -> None:
    seen: list[tuple[bytes, int]] = []

    class Owner:
        def __init__(self) -> None:
            self.me = self
            self.buffer = filled(cpu, b"precious")

        def __del__(self) -> None:
            seen.append((self.buffer.copyout(), cpu.stats.n_live))

    Owner()
    gc.collect()
    assert seen == [(b"precious", 1)]
    assert cpu.stats.n_live == 0


def test_a_borrowed_array_lives_as_long_as_its_buffer() -> None:
    array = np.arange(10)
    references = sys.getrefcount(array)
    view = Buffer.from_array(array).view(8, 8, "int64")
    exported = np.asarray(view)
    del view
    assert sys.getrefcount(array) == references + 1
    assert exported[0] == 1
    del exported
    assert sys.getrefcount(array) == references


def test_a_hidden_device_gets_its_memory_back_once() -> None:
    hidden = HiddenAllocator()  # its free raises for what is not there
    buffer = filled(hidden, bytes(8))
    view = buffer.view(0, 4)
    del buffer
    assert hidden.stats.n_live == 1
    del view
    assert hidden.stats.n_live == 0


def test_a_failed_allocation_can_be_tried_again() -> None:
    class Failing(CpuAllocator):
        fails = True

        def allocate(self, nbytes: int, options: BufferOptions) -> HostMemory:
            if self.fails:
                raise MemoryError
            return super().allocate(nbytes, options)

    allocator = Failing()
    buffer = Buffer(allocator, uint8, (8,))
    with pytest.raises(MemoryError):
        buffer.ensure_allocated()
    allocator.fails = False
    buffer.copyin(bytes(8))
    assert allocator.stats.n_live == 1


def test_what_is_alive_at_exit_does_no_harm() -> None:
    script = """
import numpy as np
from arenite import device
from arenite.device import Buffer

cpu = device.get("cpu")
buffer = Buffer.allocate(cpu, "float32", (4,))
small = Buffer.allocate(cpu, "bfloat16", (4,))
alive = [
    buffer.as_array(),
    buffer.as_host_bytes(),
    buffer.__dlpack__(),
    small.__dlpack__(max_version=(1, 0)),
    np.from_dlpack(buffer),
    Buffer.from_dlpack(small),
    Buffer.from_dlpack(np.arange(3)).as_array(),
    Buffer.from_dlpack(Buffer.from_dlpack(buffer)),
]

class Cycle:
    def __init__(self):
        self.me = self
        self.alive = [Buffer.from_dlpack(buffer), small.__dlpack__(), buffer.view(0, 4).as_array()]

Cycle()
cycle = Cycle()
"""
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", script], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
