"""The guard around runs that read mapped files: a file that is cut short meanwhile is an error.

In: the files that a program's constants lie in. Out: `MappedFiles.reading()`, within which native
code may read them. FileChanged is raised before a run of files that have changed, and after one
during which they did: its results are not those of any file. A handler of SIGBUS (`guard_ir`) keeps
the process alive meanwhile; outside of runs the signal does what it always did.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache

from arenite import locks
from arenite.backends.cpu.compiling.loader import load_code, map_at, map_memory
from arenite.backends.cpu.driver.layout import Guard as Layout
from arenite.backends.cpu.driver.native import runtime
from arenite.backends.cpu.identity import machine
from arenite.device.disk import DiskAllocator
from arenite.errors import AreniteError, FileChanged

#: Hears why a run failed that may have left states half written.
OnFailure = Callable[[str], None]

#: Files that are guarded at once. More are read with checks before and after a run alone.
MAX_FILES = 4096

_SA_SIGINFO, _SA_ONSTACK, _SA_RESTART = 4, 0x08000000, 0x10000000


class _Action(ctypes.Structure):
    """The C library's `struct sigaction`."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_uint64 * 16),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


class FileGuard:
    """The table of files that runs are reading, and the handler that knows it: one a process."""

    def __init__(self) -> None:
        self._lock = locks.reentrant()
        self._slots: weakref.WeakKeyDictionary[DiskAllocator, int] = weakref.WeakKeyDictionary()
        self._free: list[int] = []
        self._table = table = map_memory(Layout.RECORDS + MAX_FILES * Layout.RECORD_NBYTES)
        self._libc = libc = ctypes.CDLL(None)
        for offset, function in (
            (Layout.SYSCALL, libc.syscall),
            (Layout.SIGACTION, libc.sigaction),
            (Layout.RAISE, getattr(libc, "raise")),
        ):
            self._set(offset, ctypes.cast(function, ctypes.c_void_p).value or 0)
        self._set(Layout.PAGE_MASK, -mmap.PAGESIZE)
        self._code = load_code(_with_fourth(runtime().bus_error_at, table), permanent=True)
        flags = _SA_SIGINFO | _SA_ONSTACK | _SA_RESTART
        self._action = _Action(handler=self._code.base, flags=flags)
        self._found = _Action()
        locks.watch(self)

    @contextmanager
    def reading(self, files: Sequence[DiskAllocator], on_failure: OnFailure) -> Iterator[None]:
        """While it lasts native code may read the files. FileChanged afterwards, in place of any
        error of ours, where something of them could not be read; `on_failure` hears of it where
        they are unchanged, so that a next run could read them."""
        with self._lock:
            self._install()
            slots = {file: slot for file in files if (slot := self._slot_of(file)) is not None}
            before = {file: self._faults(slot) for file, slot in slots.items()}
        counted: list[int] = []
        try:
            with self._lock:
                for slot in slots.values():
                    counted.append(slot)
                    self._count(slot, 1)
            yield
        except AreniteError:
            self._raise_faults(slots, before, on_failure)
            raise
        finally:
            with self._lock:
                for slot in counted:
                    self._count(slot, -1)
                self._restore(slots, before)
        self._raise_faults(slots, before, on_failure)

    def forget_after_fork(self) -> None:
        """In a forked process: what other threads were reading is not read here."""
        for file, slot in list(self._slots.items()):
            self._set(_record(slot) + Layout.ACTIVE, 0)
            if self._faults(slot):  # zeros may still be there
                map_at(file.mapping.address, file.mapping.nbytes, file.descriptor)

    def _install(self) -> None:
        """Make the handler the first to hear of a fault; others may have come before it since."""
        from signal import SIGBUS  # a module that is slow to import, and needed by runs alone

        number = int(SIGBUS)
        self._libc.sigaction(number, None, ctypes.byref(self._found))
        if self._found.handler != self._code.base:
            before = ctypes.c_void_p(self._table + Layout.BEFORE)
            ctypes.memmove(before, ctypes.byref(self._found), ctypes.sizeof(_Action))
            self._set(Layout.N_PASSED, 0)
            self._libc.sigaction(number, ctypes.byref(self._action), None)

    def _slot_of(self, file: DiskAllocator) -> int | None:
        slot = self._slots.get(file)
        if slot is None:
            n_records = self._get(Layout.N_RECORDS)
            if not self._free and n_records == MAX_FILES:
                return None
            slot = self._free.pop() if self._free else n_records
            start, nbytes = file.mapping.address, file.mapping.nbytes
            self._set(_record(slot) + Layout.START, start)
            self._set(
                _record(slot) + Layout.END, start + -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
            )
            self._set(Layout.N_RECORDS, max(n_records, slot + 1))
            self._slots[file] = slot
            weakref.finalize(file, self._free.append, slot).atexit = False
        return slot

    def _restore(self, slots: dict[DiskAllocator, int], before: dict[DiskAllocator, int]) -> None:
        """Have the file again where a run that was the last to read it found zeros instead, so that
        nobody who reads the mapping otherwise takes them for its content."""
        for file, slot in slots.items():
            is_read = self._get(_record(slot) + Layout.ACTIVE)
            if self._faults(slot) != before[file] and not is_read:
                map_at(file.mapping.address, file.mapping.nbytes, file.descriptor)

    def _raise_faults(
        self,
        slots: dict[DiskAllocator, int],
        before: dict[DiskAllocator, int],
        on_failure: OnFailure,
    ) -> None:
        for file, slot in slots.items():
            if self._faults(slot) != before[file]:
                file.check()
                why = f"{file.path} could not be read in the middle of a run: its disk failed"
                on_failure(why)
                raise FileChanged(f"{why}; see to it, then reset() or open the file again")

    def _count(self, slot: int, by: int) -> None:
        active = _record(slot) + Layout.ACTIVE
        self._set(active, max(self._get(active) + by, 0))

    def _faults(self, slot: int) -> int:
        return self._get(_record(slot) + Layout.FAULTS)

    def _get(self, offset: int) -> int:
        return ctypes.c_int64.from_address(self._table + offset).value

    def _set(self, offset: int, value: int) -> None:
        ctypes.c_int64.from_address(self._table + offset).value = value


def _record(slot: int) -> int:
    return Layout.RECORDS + slot * Layout.RECORD_NBYTES


def _with_fourth(function: int, argument: int) -> bytes:
    """Code that calls a function with its three arguments and a fourth one."""
    if machine() == "x86_64":  # mov rcx, argument; mov rax, function; jmp rax
        return struct.pack("<2sq2sq2s", b"\x48\xb9", argument, b"\x48\xb8", function, b"\xff\xe0")
    # ldr x3, argument; ldr x4, function; br x4; nop; the two words
    return struct.pack("<4I2q", 0x58000083, 0x580000A4, 0xD61F0080, 0xD503201F, argument, function)


@cache
def file_guard() -> FileGuard:
    """The guard of this process; it stays."""
    return FileGuard()


class MappedFiles:
    """The files that a program's constants lie in, if any do."""

    def __init__(self, files: Iterable[DiskAllocator]) -> None:
        self.files = tuple(dict.fromkeys(files))

    def __bool__(self) -> bool:
        return bool(self.files)

    def reading(self, on_failure: OnFailure) -> AbstractContextManager[None]:
        """Around native code that reads them; FileChanged where they change or have changed."""
        return self._reading(on_failure) if self.files else nullcontext()

    @contextmanager
    def _reading(self, on_failure: OnFailure) -> Iterator[None]:
        self.check()
        with file_guard().reading(self.files, on_failure):
            yield
        self.check()

    def check(self) -> None:
        """FileChanged where one is no longer what it was when it was opened."""
        for file in self.files:
            file.check()
