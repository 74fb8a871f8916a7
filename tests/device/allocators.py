"""Allocators that are watched while tests use them."""

from __future__ import annotations

import time

from arenite.device import (
    Allocator,
    AllocatorStats,
    Buffer,
    BufferOptions,
    CpuAllocator,
    HostMemory,
    RawBuffer,
)
from arenite.dtype import uint8


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


def filled(allocator: Allocator, data: bytes) -> Buffer:
    buffer = Buffer(allocator, uint8, (len(data),))
    buffer.copyin(data)
    return buffer
