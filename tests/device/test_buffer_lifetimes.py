"""Buffer: borrowed arrays, Python's protocols, and how long bytes live."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
from typing import Any, cast

import ml_dtypes
import numpy as np
import pytest

from arenite.device import Buffer, BufferOptions, CpuAllocator, HostMemory
from arenite.dtype import float32, uint8
from arenite.errors import InvalidArgument, NotAllocated, ReadOnly, TypeMismatch
from tests.device.allocators import HiddenAllocator, filled

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
        view: Any = memoryview(buffer)
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
