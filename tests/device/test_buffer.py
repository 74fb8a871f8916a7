"""Buffer: when it is allocated, and what goes in and comes out."""

from __future__ import annotations

import copy
import ctypes
import gc
import pickle
import threading
from array import array as machine_array
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import ml_dtypes
import numpy as np
import pytest

from arenite.device import Allocator, Buffer, BufferOptions, CpuAllocator, DiskAllocator
from arenite.device.storage import KNOWN
from arenite.dtype import BY_NAME, float32, uint8
from arenite.errors import (
    InvalidArgument,
    NotAllocated,
    NotSupported,
    ReadOnly,
    SizeMismatch,
    TypeMismatch,
)
from arenite.hazards import BufferRange, Role
from tests.device.allocators import CountingAllocator, filled

# Allocation


def test_a_buffer_is_allocated_lazily_and_once(memory: Allocator) -> None:
    gc.collect()
    before = memory.stats.n_live  # a GPU is opened once for all tests
    buffer = Buffer(memory, float32, (2, 3))
    assert not buffer.is_allocated
    assert memory.stats.n_live == before
    buffer.ensure_allocated()
    buffer.ensure_allocated()
    assert buffer.is_allocated
    assert memory.stats.n_live == before + 1


def test_allocate_allocates_at_once(memory: Allocator) -> None:
    assert Buffer.allocate(memory, float32, (2, 3)).is_allocated


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


def test_identities(memory: Allocator) -> None:
    buffer, other = Buffer(memory, uint8, (8,)), Buffer(memory, uint8, (8,))
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
def test_a_shape_is_a_sequence_of_sizes(memory: Allocator, shape: Any) -> None:
    with pytest.raises(InvalidArgument):
        Buffer(memory, float32, shape)


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
    memory: Allocator, source: np.ndarray[Any, Any]
) -> None:
    buffer = Buffer(memory, uint8, (24,))
    buffer.copyin(source)
    assert buffer.copyout() == source.tobytes()


def test_any_bytes_like_goes_in(memory: Allocator) -> None:
    buffer = Buffer(memory, uint8, (8,))
    for source in (
        bytearray(b"01234567"),
        memoryview(b"0x1x2x3x4x5x6x7x")[::2],
        machine_array("I", [1, 2]),
        (ctypes.c_int16 * 4)(1, 2, 3, 4),
    ):
        buffer.copyin(source)
        assert buffer.copyout() == memoryview(source).tobytes()


@pytest.mark.parametrize("source", ["12345678", [1, 2], 8, np.array([None])])
def test_what_has_no_bytes_does_not_go_in(memory: Allocator, source: Any) -> None:
    with pytest.raises(TypeMismatch):
        Buffer(memory, uint8, (8,)).copyin(source)


@pytest.mark.parametrize("nbytes", [0, 7, 9, 16])
def test_a_copy_of_the_wrong_size_changes_nothing(memory: Allocator, nbytes: int) -> None:
    buffer = filled(memory, bytes(range(8)))
    with pytest.raises(SizeMismatch, match=rf"{nbytes} bytes .* has 8"):
        buffer.copyin(b"x" * nbytes)
    with pytest.raises(SizeMismatch):
        buffer.copy_from(filled(memory, b"x" * nbytes))
    target = bytearray(b"x" * nbytes)
    with pytest.raises(SizeMismatch):
        buffer.copyout(target)
    assert buffer.copyout() == bytes(range(8))
    assert target == b"x" * nbytes
    lazy = Buffer(memory, uint8, (8,))
    with pytest.raises(SizeMismatch):
        lazy.copyin(b"x" * nbytes)
    assert not lazy.is_allocated


def test_a_target_is_writable_and_in_order(memory: Allocator) -> None:
    buffer = filled(memory, bytes(8))
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


# Copies of handles, and what leaves the types


def test_a_copy_of_a_handle_is_another_handle_on_the_same_bytes(cpu: CpuAllocator) -> None:
    buffer = Buffer.allocate(cpu, float32, (2, 3))
    twin = copy.copy(buffer)
    assert twin.id != buffer.id
    assert twin.storage_id == buffer.storage_id
    twin.copyin(np.ones((2, 3), np.float32))
    assert buffer.as_array().sum() == 6
    part = copy.copy(buffer.view(12, 12, float32))
    assert (part.offset, part.shape) == (12, (3,))


def test_a_deep_copy_has_bytes_of_its_own(cpu: CpuAllocator, tmp_path: Path) -> None:
    buffer = Buffer(cpu, float32, (2, 3), BufferOptions(zeroed=True))
    own = copy.deepcopy(buffer.view(12, 12, float32))
    assert own.storage_id != buffer.storage_id
    assert (own.allocator, own.total_nbytes) == (cpu, 12)
    own.copyin(np.ones(3, np.float32))
    assert buffer.as_array().sum() == 0
    (tmp_path / "file").write_bytes(b"abcd")
    of_file = copy.deepcopy(DiskAllocator(tmp_path / "file").file())
    of_file.copyin(b"efgh")
    assert (tmp_path / "file").read_bytes() == b"abcd"


def test_a_handle_is_not_pickled(memory: Allocator) -> None:
    with pytest.raises(NotSupported, match="copyout"):
        pickle.dumps(Buffer.allocate(memory, float32, (2, 3)))


def test_what_is_no_buffer_and_no_target_is_refused(memory: Allocator) -> None:
    buffer = Buffer.allocate(memory, float32, (2,))
    for other in (np.ones(2, np.float32), bytes(8), None):
        with pytest.raises(TypeMismatch, match="copyin takes"):
            buffer.copy_from(cast(Any, other))
    for target in ([0, 0], "text", 8, object()):
        with pytest.raises(TypeMismatch, match=type(target).__name__):
            buffer.copyout(cast(Any, target))


def test_a_shape_that_no_array_has_is_refused(cpu: CpuAllocator) -> None:
    shape = (1,) * 65
    with pytest.raises(InvalidArgument, match="at most 64 sizes"):
        Buffer(cpu, uint8, shape)
    with pytest.raises(InvalidArgument, match="at most 64 sizes"):
        Buffer(cpu, uint8, (1,)).view(0, 1, uint8, shape)
    for huge in ((0, 2**63), (0, 2**70), (2**62, 0, 8)):
        with pytest.raises(InvalidArgument, match="no array of shape"):
            Buffer.allocate(cpu, uint8, huge).as_array()
    assert Buffer.allocate(cpu, uint8, (1,) * 64).as_array().ndim == 64


# Memory that comes back


def ways_back() -> list[Callable[[Buffer], Buffer]]:
    return [
        Buffer.from_dlpack,
        lambda buffer: Buffer.from_array(buffer.as_array_mut()),
        lambda buffer: Buffer.from_array(np.asarray(buffer)),
        lambda buffer: Buffer.from_array(np.from_dlpack(buffer)),
        lambda buffer: Buffer.from_dlpack(np.from_dlpack(buffer)),
        lambda buffer: Buffer.from_array(np.frombuffer(buffer.as_host_bytes_mut(), np.float32)),
        lambda buffer: Buffer.from_array(
            np.ctypeslib.as_array((ctypes.c_float * 6).from_address(buffer.raw_ptr))
        ),
    ]


@pytest.mark.parametrize("way", range(len(ways_back())))
def test_memory_that_is_ours_is_recognised(cpu: CpuAllocator, way: int) -> None:
    whole = Buffer.allocate(cpu, float32, (10,))
    part = whole.view(8, 24, float32)
    back = ways_back()[way](part)
    assert back.id != part.id
    assert (back.storage_id, back.offset, back.nbytes) == (whole.storage_id, 8, 24)
    back.copyin(np.arange(6, dtype=np.float32))
    np.testing.assert_array_equal(whole.as_array()[2:8], np.arange(6))
    written = BufferRange.of(back, Role.WRITE)
    assert written.conflicts_with(BufferRange.of(whole.view(28, 4), Role.READ))
    assert not written.conflicts_with(BufferRange.of(whole.view(32, 8), Role.READ))
    del whole, part
    assert cpu.stats.n_live == 1  # `back` is as good a holder as any
    del back
    assert cpu.stats.n_live == 0


def test_memory_that_comes_back_read_only_stays_so(cpu: CpuAllocator) -> None:
    buffer = Buffer.allocate(cpu, float32, (4,))
    back = Buffer.from_array(buffer.as_array())
    for handle in (back, back.view(0, 4), copy.copy(back)):
        with pytest.raises(ReadOnly):
            handle.as_host_bytes_mut()
        with pytest.raises(ReadOnly):
            handle.copyin(bytes(handle.nbytes))
        assert not np.asarray(handle).flags.writeable
    buffer.copyin(np.ones(4, np.float32))
    assert back.as_array().sum() == 4


def test_an_array_that_is_borrowed_twice_is_one_storage() -> None:
    array = np.arange(8, dtype=np.float32)
    whole, part = Buffer.from_array(array), Buffer.from_array(array[2:4])
    assert part.storage_id == whole.storage_id
    assert part.offset == 8
    read_only = array[4:]
    read_only.flags.writeable = False
    first, again = Buffer.from_array(read_only), Buffer.from_array(array[4:])
    assert first.storage_id == again.storage_id
    again.copyin(np.zeros(4, np.float32))
    with pytest.raises(ReadOnly):
        first.as_array_mut()


def test_views_of_a_borrowed_array_conflict_where_they_overlap() -> None:
    array = np.zeros((8, 4), np.float32)
    inner, across = Buffer.from_array(array[2:4]), Buffer.from_array(array[3:7])
    whole, apart = Buffer.from_array(array.reshape(-1)), Buffer.from_array(array[7:])
    written = BufferRange.of(inner, Role.WRITE)
    assert written.conflicts_with(BufferRange.of(across, Role.READ))
    assert written.conflicts_with(BufferRange.of(whole, Role.READ))
    assert not written.conflicts_with(BufferRange.of(apart, Role.READ))
    across.copyin(np.arange(16, dtype=np.float32))
    assert array[3:7].reshape(-1).tolist() == list(range(16))
    assert inner.copyout() == array[2:4].tobytes()


def test_memory_that_was_given_back_and_is_used_anew_is_another_storage() -> None:
    cpu = CpuAllocator()
    ids = []
    for _ in range(200):
        buffer = Buffer.allocate(cpu, float32, (4,))
        back = Buffer.from_array(buffer.as_array_mut())
        assert back.storage_id == buffer.storage_id
        ids.append(back.storage_id)
    assert len(set(ids)) == 200
    assert cpu.stats.hits >= 190
    foreign = [Buffer.from_array(np.ones(n + 1)) for n in range(300)]
    assert len({one.storage_id for one in foreign}) == 300
    del foreign
    assert len(KNOWN._starts) <= 2 * 400  # those that have gone are forgotten
