"""Entering native code: the runtime image of the process, and tables bound to it.

In: a launch table and its registers. Out: a BoundTable, whose `run` enters native code once and
says how it came back. The image (driver, team) comes from the cache, else from the
compiler; it is loaded once a process and stays. Native code is entered with the GIL, gives it up
by itself, and takes it back every 50 ms to look for signals, so that Ctrl-C ends a run.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from arenite import locks
from arenite.backends.cpu.compiling.loader import LoadedCode, load_code, map_memory
from arenite.backends.cpu.driver import layout
from arenite.backends.cpu.driver.layout import ArrayObject, Imports, Run, Worker
from arenite.backends.cpu.driver.team import MAX_THREADS, Team, TeamCode
from arenite.backends.cpu.identity import compiler_identity, machine, sources
from arenite.errors import DamagedCache, DeviceUnavailable, InvalidArgument, RunFailed
from arenite.program import cache
from arenite.program.model_file import code_sections, parse_code
from arenite.program.table import LaunchTable, aligned_empty
from arenite.records import NamedTuple

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from arenite.backends.cpu.driver.stamps import Stamps

POLL_SECONDS = 0.05
REFRESH_EPOCHS = 2**30
#: The sources whose text decides what the runtime image is.
_SOURCES = (
    *("driver_ir", "entry_ir", "eval_ir", "guard_ir", "ir_text", "layout"),
    *("quick_ir", "team_ir", "wait_ir", "../target", "../../../program/table"),
)


class OutcomeKind(IntEnum):
    END = layout.END
    SEGMENT = layout.SEGMENT
    ERROR = layout.ERROR
    CANCELLED = layout.CANCELLED


class Outcome(NamedTuple):
    """How native code came back."""

    kind: OutcomeKind
    tick: int | None = None  # SEGMENT: the entry that left; the run goes on behind it
    site: int | None = None  # ERROR: the launch's tick, or the site a kernel named
    code: int | None = None  # ERROR


_END = Outcome(OutcomeKind.END)
_Entry = Callable[[int], int]


class Runtime:
    """The runtime image, loaded."""

    def __init__(self, code: LoadedCode, entries: dict[str, int]) -> None:
        self._started = (0, 0.0)
        address = {name: code.address(offset) for name, offset in entries.items()}
        signature = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)
        self.code = code
        self.run_serial_at, self.run_parallel_at = address["run_serial"], address["run_parallel"]
        self.quick_at = address["quick"]
        self.bus_error_at = address["bus_error"]
        self.run_serial: _Entry = signature(self.run_serial_at)
        self.run_parallel: _Entry = signature(self.run_parallel_at)
        self.run_serial_profiled: _Entry = signature(address["run_serial_profiled"])
        self.run_parallel_profiled: _Entry = signature(address["run_parallel_profiled"])
        self.cancel = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address["cancel"])
        self.clock: Callable[[], int] = ctypes.PYFUNCTYPE(ctypes.c_int64)(address["clock"])
        self.imports = _import_table()
        self._worker, self._stop = address["worker"], address["stop"]
        self._started = (self.clock(), time.perf_counter())

    @property
    def clocks_per_second(self) -> float:
        """Of the driver's clock, measured since the image was loaded; at least for 0.2 ms."""
        clock, seconds = self._started
        while time.perf_counter() - seconds < 200e-6:
            pass
        return (self.clock() - clock) / (time.perf_counter() - seconds)

    def new_team(self) -> Team:
        return Team(TeamCode(self._worker, self._stop, self.imports, self.clocks_per_second))


class BoundTable:
    """A table and registers that native code can run, again and again. Threads queue."""

    def __init__(
        self,
        table: LaunchTable,
        registers: NDArray[np.int64],
        refresh_after: int = REFRESH_EPOCHS,
    ) -> None:
        _check_registers(table, registers)
        self.table = table
        self.registers = registers
        self._runtime = runtime()
        self._lock = locks.reentrant()
        self._is_running = False
        self._was_forked = False
        self._syncs = aligned_empty(max(table.n_syncs, 1) * layout.LINE_NBYTES, np.uint8)
        self._memory = aligned_empty(Run.NBYTES, np.uint8)
        #: Of what native code knows of it, laid out as `Run`.
        self.address = _address(self._memory)
        self._words = self._memory.view(np.int64)
        self._halves = self._memory.view(np.uint32)
        self._bind = (0, 0)
        self._keeps_gil = False
        rate = self._runtime.clocks_per_second
        for offset, value in (
            (Run.TABLE, _address(table.entries)),
            (Run.REGISTERS, _address(registers)),
            (Run.INSTRUCTIONS, _address(table.instructions)),
            (Run.WAITS, _address(table.waits)),
            (Run.SYNCS, _address(self._syncs)),
            (Run.IMPORTS, self._runtime.imports),
            (Run.N_THREADS, 1),
            (Run.N_SYNCS, table.n_syncs),
            (Run.POLL_CLOCKS, int(POLL_SECONDS * rate)),
            (Run.WORKER + Worker.ERROR, self.address + Run.ERROR),
        ):
            self._words[offset // 8] = value
        self._halves[Run.REFRESH_AFTER // 4] = refresh_after
        locks.watch(self)
        # Of all that workers read. Python's own end needs no care: the team ends before it.
        kept = (table, registers, self._syncs, self._memory)
        weakref.finalize(self, _retire, kept).atexit = False

    def run(
        self,
        threads: int = 1,
        bind: tuple[int, int] = (0, 0),
        keep_gil: bool = False,
        stamps: Stamps | None = None,
    ) -> Outcome:
        """Run from the start, or on from the SEGMENT that the last run ended with.

        `bind`: (first, count) of instructions to run before all else. `keep_gil`: for runs of some
        µs, where giving it up costs more than it gives. A team in use by another run is not waited
        for: this one then works on its own thread, with the same results.
        """
        with self._lock:
            if self._was_forked:
                raise RunFailed("this table was running when the process forked; bind it anew")
            if self._is_running:
                raise RunFailed("this table is in the middle of a run on this very thread")
            try:
                self._is_running = True
                if bind != self._bind:
                    self._halves[Run.BIND_FIRST // 4], self._halves[Run.BIND_COUNT // 4] = bind
                    self._bind = bind
                if keep_gil is not self._keeps_gil:
                    self._words[Run.KEEP_GIL // 8] = keep_gil
                    self._keeps_gil = keep_gil
                if threads == 1 and stamps is None:
                    returned = self._runtime.run_serial(self.address)
                else:
                    returned = self._run_with(threads, stamps)
            finally:
                self._is_running = False
            return _END if returned == layout.END else self.outcome(returned)

    def cancel(self) -> None:
        """End the run in progress, from any thread, within one kernel's time."""
        self._runtime.cancel(self.address)

    def reset(self) -> None:
        """The next run begins at the start, also after a SEGMENT."""
        with self._lock:
            self._halves[Run.RESUME // 4] = 0

    def register_address(self, register: int) -> int:
        """For kernels that write a register."""
        if not 0 <= register < len(self.registers):
            raise InvalidArgument(f"r{register} of {len(self.registers)} registers")
        return _address(self.registers) + 8 * register

    def forget_after_fork(self) -> None:
        """In a forked process: a run in progress is another process's now."""
        self._was_forked, self._is_running = self._is_running, False

    def _run_with(self, threads: int, stamps: Stamps | None) -> int:
        if not 1 <= threads <= MAX_THREADS:
            raise InvalidArgument(f"{threads} threads; a run has 1 to {MAX_THREADS}")
        if stamps is not None and stamps.n_threads < threads:
            raise InvalidArgument(f"stamps for {stamps.n_threads} threads; {threads} will run")
        crew = team() if threads > 1 else None
        if crew is not None and not crew.lock.acquire(blocking=False):
            crew = None
        self._words[Run.STAMPS // 8] = 0 if stamps is None else stamps.address
        try:
            if crew is None:
                alone = self._runtime.run_serial
                return (alone if stamps is None else self._runtime.run_serial_profiled)(
                    self.address
                )
            crew.grow(threads)
            self._words[Run.TEAM // 8] = crew.address
            self._words[Run.N_THREADS // 8] = threads
            together = self._runtime.run_parallel
            return (together if stamps is None else self._runtime.run_parallel_profiled)(
                self.address
            )
        finally:
            self._words[Run.TEAM // 8] = 0
            self._words[Run.STAMPS // 8] = 0
            if crew is not None:
                crew.lock.release()

    def outcome(self, returned: int) -> Outcome:
        """What the number that native code returned last says."""
        kind = OutcomeKind(returned)
        if kind is OutcomeKind.SEGMENT:
            return Outcome(kind, tick=int(self._halves[Run.SEGMENT // 4]))
        if kind is OutcomeKind.ERROR:
            word = int(self._words[Run.ERROR // 8]) & (2**64 - 1)
            return Outcome(kind, site=word >> 32, code=word & 0xFFFFFFFF)
        return Outcome(kind)


_lock = locks.reentrant()
_runtime: Runtime | None = None
_is_begun = False
_team: Team | None = None
#: Memory of tables that are gone, which a worker that came late may still read.
_RETIRED: list[object] = []


def _retire(memory: object) -> None:
    """Let go of a table's memory as soon as no worker is inside a run."""
    crew = _team
    if crew is not None and crew.n_inside:
        _RETIRED.append(memory)
    else:
        _RETIRED.clear()


def runtime() -> Runtime:
    """The runtime image of this process."""
    global _runtime
    if _runtime is None:
        with _lock:
            if _runtime is None:
                _runtime = _load()
    return _runtime


def begin_runtime() -> None:
    """Have the runtime image loaded, and compiled where the cache has none, while this thread does
    other things. What goes wrong is told to whoever asks for it then."""
    global _is_begun
    if _runtime is None and not _is_begun:
        _is_begun = True

        def load() -> None:
            with suppress(Exception):
                runtime()

        threading.Thread(target=load, name="arenite runtime image", daemon=True).start()


def team() -> Team:
    """The team of this process; it has the threads that runs have asked for so far."""
    global _team
    if _team is None:
        loaded = runtime()
        with _lock:
            if _team is None:
                _team = loaded.new_team()
    return _team


def stop_team() -> bool:
    """End the team's threads, unless a run is using them; the next run starts them again."""
    crew = _team
    if crew is None or not crew.lock.acquire(blocking=False):
        return False
    try:
        crew.stop()
    finally:
        crew.lock.release()
    return True


def _load() -> Runtime:
    if sys.platform != "linux":
        raise DeviceUnavailable(f"native code runs on Linux so far, not on {sys.platform}")
    objects, here = str(ArrayObject.DATA), os.path.dirname(os.path.abspath(__file__))
    text = sources(*(os.path.join(here, f"{name}.py") for name in _SOURCES))
    key = cache.key_of("runtime image", text, compiler_identity(), machine(), objects)
    store = cache.default()
    try:
        code, entries = parse_code(store.obtain(key, _build))
    except DamagedCache:
        store.drop(key)
        code, entries = parse_code(store.obtain(key, _build))
    return Runtime(load_code(code, permanent=True), entries)


def _build() -> dict[str, bytes]:
    from arenite.backends.cpu.compiling.link import link_objects
    from arenite.backends.cpu.compiling.pool import compile_modules
    from arenite.backends.cpu.driver.driver_ir import runtime_module
    from arenite.backends.cpu.target import NEON, X86_64

    # The plainest CPU of this kind: a driver gains nothing from more, and asks LLVM nothing.
    target = X86_64 if machine() == "x86_64" else NEON
    image = link_objects(compile_modules([runtime_module(target)], target))
    return code_sections(image.image, image.entries)


def _import_table() -> int:
    """Addresses for native code to call, in memory that stays."""
    libc = ctypes.CDLL(None)
    table = map_memory(Imports.NBYTES)
    for offset, function in (
        (Imports.SYSCALL, libc.syscall),
        (Imports.SAVE_THREAD, ctypes.pythonapi.PyEval_SaveThread),
        (Imports.RESTORE_THREAD, ctypes.pythonapi.PyEval_RestoreThread),
        (Imports.CHECK_SIGNALS, ctypes.pythonapi.PyErr_CheckSignals),
        (Imports.ERROR_OCCURRED, ctypes.pythonapi.PyErr_Occurred),
        (Imports.NEW_INTEGER, ctypes.pythonapi.PyLong_FromLongLong),
        (Imports.GET_CPU, libc.sched_getcpu),
        (Imports.SET_AFFINITY, libc.pthread_setaffinity_np),
    ):
        address = ctypes.cast(function, ctypes.c_void_p).value
        assert address is not None
        ctypes.c_int64.from_address(table + offset).value = address
    return table


def _check_registers(table: LaunchTable, registers: NDArray[np.int64]) -> None:
    if registers.dtype != np.int64 or registers.ndim != 1 or not registers.flags.c_contiguous:
        raise InvalidArgument("registers are one flat array of int64")
    if len(registers) != table.n_registers:
        raise InvalidArgument(f"{len(registers)} registers; the table has {table.n_registers}")


def _address(array: NDArray[Any]) -> int:
    where: int = array.__array_interface__["data"][0]
    return where


def _forget_after_fork() -> None:
    """The child has no workers."""
    global _team
    _team = None
    _RETIRED.clear()


os.register_at_fork(after_in_child=_forget_after_fork)
atexit.register(stop_team)
