"""The one team of threads of the process.

In: the runtime image's addresses and how many threads a run wants. Out: a control block that runs
are entered with. Worker 0 is the caller; the others are native threads that never hold a Python
thread state, pinned to CPUs other than the caller's (if that is moved to one of theirs, they
exchange places), spinning briefly and then asleep. Their code and their control block are never
unmapped. A forked process has no workers: it starts a new team.

Another program may have a worker's CPU. What such a worker has begun holds up all others, so it
rests for some time, in which they work without it. Afterwards it tries its CPU before it takes
anything on, so that nobody waits for it again where that is still another program's.
"""

from __future__ import annotations

import ctypes
import os

from arenite import locks
from arenite.backends.cpu.compiling.loader import map_memory
from arenite.backends.cpu.driver.layout import Team as Layout
from arenite.backends.cpu.driver.layout import Worker
from arenite.errors import InvalidArgument, OutOfMemory
from arenite.records import NamedTuple

SPIN_SECONDS = 50e-6
#: Of a team larger than the CPUs it may run on: how long a thread spins before it gives way.
YIELD_SECONDS = 2e-6
MAX_THREADS = 1024
#: The caller sleeps in a run so long before it looks whether the others run at all; and then so
#: long between two looks.
FIRST_LOOK_SECONDS = 100e-6
NEXT_LOOK_SECONDS = 1e-3
#: How long a worker that has rested spins to see whether its CPU is still another program's: longer
#: than a scheduler leaves a CPU to one of two that want it.
TRY_SECONDS = 12e-3
#: Between two looks at which CPU the caller is on.
PLACE_SECONDS = 10e-3

_libc = ctypes.CDLL(None, use_errno=True)


class TeamCode(NamedTuple):
    """What a team needs of the runtime image."""

    worker: int  # address of a thread's life
    stop: int  # address of the function that ends them
    imports: int  # address of the import table
    clocks_per_second: float


class Team:
    """Threads 1, 2, ...; `lock` is held by whoever runs on them."""

    def __init__(self, code: TeamCode) -> None:
        self.lock = locks.exclusive()
        self._code = code
        self._threads: list[int] = []  # pthread_t
        self.n_threads = 1  # the caller included
        self.address = map_memory(Layout.WORKERS + MAX_THREADS * Worker.NBYTES)
        self._set(Layout.IMPORTS, code.imports)
        self._set(Layout.SPIN_CLOCKS, int(SPIN_SECONDS * code.clocks_per_second))
        self._set(Layout.YIELD_CLOCKS, 2**62)
        self._set(Layout.NS_SCALE, int(2**16 * 1e9 / code.clocks_per_second))
        self._set(Layout.FIRST_LOOK + 8, int(FIRST_LOOK_SECONDS * 1e9))
        self._set(Layout.NEXT_LOOK + 8, int(NEXT_LOOK_SECONDS * 1e9))
        self._set(Layout.PLACE_CLOCKS, int(PLACE_SECONDS * code.clocks_per_second))
        self._set(Layout.TRY_CLOCKS, int(TRY_SECONDS * code.clocks_per_second))
        self._set(Layout.N_THREADS, 1)
        self._set_of(0, Worker.TEAM, self.address)

    @property
    def n_inside(self) -> int:
        """Workers that may be reading the memory of a run, one that is over perhaps."""
        gate = ctypes.c_int64.from_address(self.address + Layout.GATE).value
        return gate & Layout.COUNT_MASK

    def grow(self, n_threads: int) -> None:
        """Have at least so many threads; the lock is held."""
        if n_threads > MAX_THREADS:
            raise InvalidArgument(f"{n_threads} threads; a team has at most {MAX_THREADS}")
        if n_threads <= self.n_threads:
            return
        import signal  # slow to import, and needed by runs alone

        cpus = _cpus_after_this_one()
        if self.n_threads == 1:
            self._set_of(0, Worker.CPU, cpus[0])
        if n_threads > len(cpus):
            self._set(Layout.YIELD_CLOCKS, int(YIELD_SECONDS * self._code.clocks_per_second))
        # Signals are for Python's threads: workers are born with all of them blocked, but for the
        # one of a mapped file that was cut short, which is handled where it happens.
        blocked = signal.valid_signals() - {signal.SIGBUS}
        before = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
        try:
            while self.n_threads < n_threads:
                self._start(self.n_threads, cpus[self.n_threads % len(cpus)])
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def stop(self) -> None:
        """End all threads but the caller; the lock is held, so they are in no run."""
        end = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(self._code.stop)
        end(self.address, self.n_threads)
        for thread in self._threads:
            _libc.pthread_join(ctypes.c_ulong(thread), None)
        self._threads = []
        self._count()
        self._set(Layout.STOP, 0)

    def _start(self, index: int, cpu: int) -> None:
        self._set_of(index, Worker.INDEX, index)
        self._set_of(index, Worker.TEAM, self.address)
        thread = ctypes.c_ulong()
        failure = _libc.pthread_create(
            ctypes.byref(thread),
            None,
            ctypes.c_void_p(self._code.worker),
            ctypes.c_void_p(self._record(index)),
        )
        if failure:
            raise OutOfMemory(
                f"thread {index} of the team was not started: {os.strerror(failure)}; "
                "ask for fewer threads"
            )
        self._threads.append(thread.value)
        clock = ctypes.c_int32()
        _libc.pthread_getcpuclockid(thread, ctypes.byref(clock))
        self._set_of(index, Worker.CPU_CLOCK, clock.value)
        self._set_of(index, Worker.THREAD, thread.value)
        self._set_of(index, Worker.CPU, cpu)
        self._count()
        _pin(thread, cpu)

    def _count(self) -> None:
        self.n_threads = len(self._threads) + 1
        self._set(Layout.N_THREADS, self.n_threads)

    def _record(self, index: int) -> int:
        return self.address + Layout.WORKERS + index * Worker.NBYTES

    def _set(self, offset: int, value: int) -> None:
        ctypes.c_int64.from_address(self.address + offset).value = value

    def _set_of(self, index: int, offset: int, value: int) -> None:
        ctypes.c_int64.from_address(self._record(index) + offset).value = value


def _cpus_after_this_one() -> list[int]:
    """The CPUs we may run on, beginning with the one this thread is on."""
    cpus = sorted(os.sched_getaffinity(0))
    here = _libc.sched_getcpu()
    first = cpus.index(here) if here in cpus else 0
    return cpus[first:] + cpus[:first]


def _pin(thread: ctypes.c_ulong, cpu: int) -> None:
    """Best effort: an unpinned worker is slower, not wrong."""
    nbytes = Layout.CPU_SET_NBYTES
    if cpu < 8 * nbytes:
        chosen = (ctypes.c_uint64 * (nbytes // 8))()
        chosen[cpu // 64] = 1 << (cpu % 64)
        _libc.pthread_setaffinity_np(thread, ctypes.c_size_t(nbytes), chosen)
