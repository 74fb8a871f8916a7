"""The DISK device: one regular file, mapped read-only, as memory.

In: a path. Out: buffers that are regions of the file, zero-copy, at any offset, so typed views may
be misaligned. The file is mapped once; its bytes stay readable until the last buffer, view and
array over them has gone, also when the path is unlinked or replaced meanwhile. A file that is cut
short or rewritten in place changes under the mapping, and reading past its new end would kill the
process. So a descriptor of the very file is held: `check()` asks it whether that has happened, and
copies read through it, which at the end of a file give fewer bytes and no signal. Programs that
read the mapping itself are guarded by the runtime (docs/decisions/0004-mapped-files.md).
"""

from __future__ import annotations

import mmap
import os
import stat
import sys
import weakref
from collections.abc import Callable, Iterable
from functools import partial
from typing import NoReturn, TypeVar

from arenite.device.allocator import Allocator, AllocatorStats, BufferOptions, Ledger, as_integer
from arenite.device.buffer import Buffer
from arenite.device.host import host_address, mapping_of
from arenite.device.raw import MappedFile, Mapping, RawBuffer
from arenite.dtype import uint8
from arenite.errors import (
    FileChanged,
    FileMissing,
    InvalidArgument,
    InvalidFile,
    InvalidView,
    ReadOnly,
)
from arenite.records import NamedTuple

Read = TypeVar("Read", int, bytes)


class FileIdentity(NamedTuple):
    """What tells one state of one file from another."""

    device: int
    inode: int
    nbytes: int
    mtime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> FileIdentity:
        """That of an open file."""
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


class DiskAllocator(Allocator):
    """Regions of one file. `device.get("disk:PATH")` opens PATH anew each time."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.name = f"disk:{os.fspath(path)}"
        self.path = os.path.abspath(path)
        self.descriptor, self.mapping, self.identity = _map_file(self.path)
        weakref.finalize(self, os.close, self.descriptor).atexit = False
        self._ledger: Ledger[MappedFile] = Ledger(_let_go)

    @property
    def nbytes(self) -> int:
        """The size of the file when it was opened."""
        return self.identity.nbytes

    def file(self) -> Buffer:
        """The whole file as uint8."""
        return Buffer.allocate(self, uint8, (self.nbytes,))

    def check(self) -> None:
        """Raise FileChanged where the file was written to since it was opened: cut short, rewritten
        in place, appended to, or given another time of change. A path that leads to another file by
        now is no change: what was opened is still there."""
        try:
            now = FileIdentity.of(os.fstat(self.descriptor))
        except OSError as error:
            raise FileChanged(
                f"{self.path} was opened and cannot be asked for any more: {error.strerror}"
            ) from None
        if now != self.identity:
            changes = ", ".join(
                f"{name} was {old} and is {new}"
                for name, old, new in zip(now._fields, self.identity, now, strict=True)
                if new != old
            )
            raise FileChanged(
                f"{self.path} changed since it was opened: {changes}; open it again (to put a new "
                "file in its place unnoticed, write it beside the old one and rename it)"
            )

    def drop_pages(self, address: int, nbytes: int) -> None:
        """Let the system have the memory of the whole pages in a region back; whoever reads there
        again reads the file."""
        first = -(-(address - self.mapping.address) // mmap.PAGESIZE) * mmap.PAGESIZE
        last = (address + nbytes - self.mapping.address) // mmap.PAGESIZE * mmap.PAGESIZE
        if first < last and hasattr(mmap, "MADV_DONTNEED"):
            self.mapping.memory.madvise(mmap.MADV_DONTNEED, first, last - first)

    def check_request(self, nbytes: int, options: BufferOptions) -> None:
        if as_integer("nbytes", nbytes) < 0:
            raise InvalidArgument(f"{self.name}: {nbytes} bytes were asked for")
        if options.zeroed:
            self._refuse_writing("zeroed memory was asked for")
        if options.file_offset + nbytes > self.nbytes:
            raise InvalidView(
                f"{self.path} has {self.nbytes} bytes; {nbytes} bytes at offset "
                f"{options.file_offset} would end at {options.file_offset + nbytes}"
            )

    def allocate(self, nbytes: int, options: BufferOptions) -> MappedFile:
        self.check_request(nbytes, options)
        address = self.mapping.address + options.file_offset
        raw = MappedFile(nbytes, address, True, True, self.mapping)
        with self._ledger.locked():
            self._ledger.add(raw, nbytes)
        return raw

    def free(self, raw: RawBuffer) -> None:
        self._ledger.give_back(raw)

    def copyin(self, raw: RawBuffer, offset: int, source: memoryview) -> None:
        self._refuse_writing(f"a copy of {source.nbytes} bytes was asked for")

    def copyout(self, raw: RawBuffer, offset: int, target: memoryview) -> None:
        at = host_address(raw, offset, target.nbytes) - self.mapping.address
        left = target
        while left.nbytes:
            n = self._read(partial(os.preadv, self.descriptor, [left], at))
            at, left = at + n, left[n:]
        self.check()

    def read_parts(self, raw: RawBuffer, spans: Iterable[tuple[int, int]]) -> list[bytes]:
        found = [self._bytes(raw, offset, nbytes) for offset, nbytes in spans]
        self.check()
        return found

    def _bytes(self, raw: RawBuffer, offset: int, nbytes: int) -> bytes:
        at = host_address(raw, offset, nbytes) - self.mapping.address
        parts: list[bytes] = []
        left = nbytes
        while left:
            parts.append(self._read(partial(os.pread, self.descriptor, left, at)))
            at, left = at + len(parts[-1]), left - len(parts[-1])
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _read(self, read: Callable[[], Read]) -> Read:
        """What was read, at least a byte of it."""
        try:
            found = read()
        except OSError as error:
            raise FileChanged(f"{self.path} can't be read: {error.strerror}") from None
        if not found:
            self.check()
            raise FileChanged(f"{self.path} ended before its {self.nbytes} bytes were read")
        return found

    @property
    def stats(self) -> AllocatorStats:
        """Live bytes are those of the regions handed out; regions that overlap count twice."""
        return self._ledger.stats()

    def _refuse_writing(self, why: str) -> NoReturn:
        raise ReadOnly(
            f"{self.name} is mapped read-only: {why}; copy it to the cpu and write there"
        )


def _let_go(raw: MappedFile) -> None:
    """A region needs no more than to be forgotten: the handle's death lets the mapping go."""


def _map_file(path: str) -> tuple[int, Mapping, FileIdentity]:
    """A descriptor, which is the caller's to close, the mapping, and what the file is now."""
    try:
        # Before opening: a FIFO would block and opening a device node may do things to it.
        _check_regular(path, os.stat(path))
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            status = os.fstat(descriptor)
            _check_regular(path, status)
            if status.st_size == 0:
                raise InvalidFile(f"{path} is empty: there is nothing to map")
            mapping = mapping_of(_map_readonly(descriptor, status.st_size))
            return descriptor, mapping, FileIdentity.of(status)
        except BaseException:
            os.close(descriptor)
            raise
    except OSError as error:
        raise FileMissing(f"{path} cannot be opened: {error.strerror}") from error
    except ValueError as error:
        if isinstance(error, InvalidFile):
            raise
        raise InvalidFile(f"{path!r} cannot be mapped: {error}") from error


def _map_readonly(descriptor: int, nbytes: int) -> mmap.mmap:
    if sys.version_info >= (3, 13):
        return mmap.mmap(descriptor, nbytes, access=mmap.ACCESS_READ, trackfd=False)
    return mmap.mmap(descriptor, nbytes, access=mmap.ACCESS_READ)


def _check_regular(path: str, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = "a directory" if stat.S_ISDIR(status.st_mode) else "no regular file"
        raise InvalidFile(f"{path} is {kind}; a disk device is one regular file")
