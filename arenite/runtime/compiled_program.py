"""CompiledProgram: what is called and looked at in one way, whether it is one program or cut into
segments, with what both do alike; and Plan, what its plan tells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias

from arenite import locks
from arenite.errors import InvalidArgument, RunFailed
from arenite.memory.plan import HOST
from arenite.program.arguments import Arguments
from arenite.program.backend import backend_of
from arenite.program.threads import chosen_n_threads

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from arenite.ir.graph import Graph
    from arenite.memory import Region, Slot, ValueId
    from arenite.passes import Record
    from arenite.program.cached_kernel import Kernels
    from arenite.runtime.executable import Executable
    from arenite.runtime.profile import Profile
    from arenite.runtime.state import States

Array: TypeAlias = "NDArray[Any]"


class Plan(Protocol):
    """Where every value lives, and what that takes: a MemoryPlan, or those of segments together."""

    @property
    def slots(self) -> Mapping[ValueId, Slot]:
        """Every value's bytes."""

    @property
    def regions(self) -> Mapping[str, Region]:
        """The stretches that slots lie in."""

    @property
    def capacity(self) -> int | None:
        """The budget, where there is one."""

    @property
    def peak_nbytes(self) -> int:
        """What is taken at most."""

    @property
    def reuse_edges(self) -> int:
        """Pairs of launches that only the sharing of bytes orders."""

    @property
    def total_nbytes(self) -> int:
        """With what is in memory outside of arenas while the program runs."""

    def verify(self) -> None:
        """InvalidPlan, where a rule is broken."""

    def to_json(self) -> str:
        """All of it as JSON text."""

    def _repr_html_(self) -> str: ...


class CompiledProgram(Protocol):
    """An Executable, or one in segments. It runs once at a time; other threads wait."""

    threads: int
    #: Whether a run that met an index outside its axis, or a device that is lost, is the end of it,
    #: and no reset() needed.
    resets_itself: bool = False
    _is_running: bool = False
    _is_closed: bool = False
    _arguments: Arguments
    #: A signal handler may run in the middle of a run, on its thread: it gets past the lock, and is
    #: told.
    _lock: locks.ReentrantLock

    def __init__(self, arguments: Arguments, threads: int | None) -> None:
        self._arguments = arguments
        self.threads = chosen_n_threads(threads)
        self._lock = locks.reentrant()
        locks.watch(self)

    @property
    def graph(self) -> Graph:
        """What was compiled."""

    @property
    def executables(self) -> tuple[Executable, ...]:
        """The programs it is made of: one, or those of the segments that are compiled now."""

    @property
    def device(self) -> str:
        """What it runs on."""

    @property
    def on_cpu(self) -> dict[str, str]:
        """Ops that the device refuses and the CPU does, and why."""

    @property
    def runs_on(self) -> str:
        """What does the work, as far as it is compiled: so many threads of the CPU, or a device, or
        both."""
        threads = f"{self.threads} threads"
        devices = [one.device for one in self.executables] or [self.device]
        names = (threads if backend_of(one).memory == HOST else one for one in devices)
        return " and ".join(dict.fromkeys(names))

    @property
    def plan(self) -> Plan:
        """Where every value lives."""

    @property
    def kernels(self) -> Kernels:
        """The kernels, which print as a table."""

    @property
    def load_kernels(self) -> Kernels:
        """Those that read constants alone: they run once."""

    @property
    def passes(self) -> tuple[Record, ...]:
        """The graph after each pass."""

    @property
    def state(self) -> States:
        """What lives from run to run, by name."""

    def __call__(self, *arrays: Any, out: Sequence[Array] | None = None) -> list[Array]:
        """Run; the outputs as new arrays, or written into `out`."""

    def fast_path(
        self, arrays: Sequence[Any], out: Sequence[Any] | None = None
    ) -> list[Array] | None:
        """Run, if these are arrays like those of the last run; else do nothing, and give None."""

    def run(self, inputs: Mapping[str, Any]) -> list[Array]:
        """Run with inputs by name."""
        names = [port.name for port in self._arguments.inputs]
        if set(names) != set(inputs):
            raise InvalidArgument(f"inputs {names} are needed, {list(inputs)} were given")
        return self(*[inputs[name] for name in names])

    def run_checked(self, *arrays: Any) -> list[Array]:
        """Run launch by launch, every byte watched."""

    def profile(self, *arrays: Any) -> Profile:
        """Run once with time stamps: a table of kernels with their times."""

    def save_html(
        self, path: str | PathLike[str], title: str = "", profile: Profile | None = None
    ) -> None:
        """Write a page that shows all of it, and needs nothing else."""

    def verify(self) -> None:
        """Check plans and prove orders; RaceFound or InvalidPlan."""

    def cancel(self) -> None:
        """End the run in progress, from another thread."""

    def reset(self) -> None:
        """Make what failed usable again."""

    def reset_state(self) -> None:
        """Make all states, of the set in use, zero, as they were before the first run."""
        for one in self.state.values():
            one.clear()

    def close(self) -> None:
        """Give every byte back to the system."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Alone with the memory, open and in no run."""
        with self._lock:
            self._check_open()
            try:
                self._is_running = True
                yield
            finally:
                self._is_running = False

    def _fitting(self, arrays: list[Array]) -> tuple[list[Array], dict[str, int]]:
        """Arrays as the program takes them, and the sizes they have."""
        arrays = self._arguments.fitting(arrays)
        return arrays, self._arguments.sizes(arrays) if self._arguments.is_open else {}

    def _check_idle(self) -> None:
        if self._is_running:
            raise RunFailed(
                "this Executable is in the middle of a run on this very thread: what a signal "
                "handler, or a function of the host, does while it runs can only cancel() it"
            )

    def _check_open(self) -> None:
        self._check_idle()
        if self._is_closed:
            raise RunFailed("this Executable was closed; compile again to get another")

    def forget_after_fork(self) -> None:
        """In a forked process: a run of another thread is another process's now."""
