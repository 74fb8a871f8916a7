"""RawBuffer: an opaque handle to the memory of one device, and its host kinds.

In: an address and what keeps it valid. Out: handles that say how many bytes they have, whether the
host can reach them and whether they may be written. A handle has no lock: exclusive use while a
kernel runs is the schedule's duty. A handle is valid until its allocator's `free`; the memory
behind it stays mapped for as long as the handle lives. Handles are equal to themselves alone, and
never change.
"""

from __future__ import annotations

import mmap


class RawBuffer:
    """Memory of a device. Device rooms derive their own kind and add the handle they need."""

    __slots__ = ("address", "cpu_accessible", "nbytes", "owner", "read_only")

    def __init__(
        self,
        nbytes: int,
        address: int | None,
        cpu_accessible: bool,
        read_only: bool,
        owner: object = None,
    ) -> None:
        self.nbytes = nbytes
        self.address = address  # on its own device; None where memory has no flat address
        self.cpu_accessible = cpu_accessible
        self.read_only = read_only
        self.owner = owner  # what keeps the memory valid

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(nbytes={self.nbytes}, address={self.address}, "
            f"cpu_accessible={self.cpu_accessible}, read_only={self.read_only})"
        )


class Mapping:
    """One mapping of the system, in whole pages; unmapped when the last holder lets go."""

    __slots__ = ("address", "memory", "nbytes")

    def __init__(self, memory: mmap.mmap, address: int, nbytes: int) -> None:
        self.memory = memory
        self.address = address
        self.nbytes = nbytes


class HostMemory(RawBuffer):
    """Anonymous host memory inside a mapping, aligned to at least 64 bytes."""

    __slots__ = ()
    owner: Mapping


class MappedFile(RawBuffer):
    """A region of a file mapped read-only."""

    __slots__ = ()


class BorrowedMemory(RawBuffer):
    """Host memory that someone else owns."""

    __slots__ = ()
