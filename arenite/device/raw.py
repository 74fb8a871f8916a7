"""RawBuffer: an opaque handle to the memory of one device, and its host kinds.

In: an address and what keeps it valid. Out: handles that say how many bytes they have, whether the
host can reach them and whether they may be written. A handle has no lock: exclusive use while a
kernel runs is the schedule's duty. A handle is valid until its allocator's `free`; the memory
behind it stays mapped for as long as the handle lives.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class RawBuffer:
    """Memory of a device. Device rooms derive their own kind and add the handle they need."""

    nbytes: int
    address: int | None  # on its own device; None where memory has no flat address
    cpu_accessible: bool
    read_only: bool


@dataclass(frozen=True, slots=True, eq=False)
class Mapping:
    """One mapping of the system, in whole pages; unmapped when the last holder lets go."""

    memory: mmap.mmap
    address: int
    nbytes: int


@dataclass(frozen=True, slots=True, eq=False)
class HostMemory(RawBuffer):
    """Anonymous host memory, aligned to at least 64 bytes."""

    mapping: Mapping


@dataclass(frozen=True, slots=True, eq=False)
class MappedFile(RawBuffer):
    """A region of a file mapped read-only."""

    mapping: Mapping


@dataclass(frozen=True, slots=True, eq=False)
class BorrowedMemory(RawBuffer):
    """Host memory that someone else owns; `owner` keeps it valid."""

    owner: object
