"""Memory of devices: raw handles, allocators, and the buffers and views made on them.

    allocator = device.get("cpu")            # or "disk:weights.bin"
    buffer = Buffer(allocator, "float32", (2, 3))
    buffer.copyin(array)
    row = buffer.view(12, 12, "float32")     # shares the bytes

This room knows nothing of graphs and kernels. Nothing here is ordered or locked for the caller
beyond what allocation itself needs: who may touch which bytes when is decided in `hazards`.
"""

from arenite.device.allocator import Allocator, AllocatorStats, BufferOptions, Ledger
from arenite.device.buffer import Buffer
from arenite.device.cpu import CpuAllocator
from arenite.device.disk import DiskAllocator, FileIdentity
from arenite.device.raw import BorrowedMemory, HostMemory, MappedFile, RawBuffer
from arenite.device.registry import get
from arenite.lazy import lister

__all__ = [
    "Allocator",
    "AllocatorStats",
    "BorrowedMemory",
    "Buffer",
    "BufferOptions",
    "CpuAllocator",
    "DiskAllocator",
    "FileIdentity",
    "HostMemory",
    "Ledger",
    "MappedFile",
    "RawBuffer",
    "get",
]

__dir__ = lister("arenite.device")
