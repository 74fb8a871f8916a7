"""Executable: a compiled model, ready to be called, whatever device it is for.

Calling it binds the inputs in place (or copies what does not fit), runs the program once and
returns new arrays. Sizes that are variables are read off the inputs' shapes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from arenite import locks
from arenite.errors import IndexOutOfRange, InvalidArgument, RunFailed
from arenite.ir.interface import GraphInterface
from arenite.memory import MemoryPlan
from arenite.program.arguments import Arguments, check_targets
from arenite.program.backend import backend_of
from arenite.program.compiled import Compiled
from arenite.program.places import Places, Resizer
from arenite.runtime.compiled_program import CompiledProgram

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from arenite.ir.graph import Graph
    from arenite.passes import Record
    from arenite.program.cached_kernel import CachedKernel, Kernels
    from arenite.program.decoding import ChosenToken, Decoding, TokenChoice
    from arenite.program.loaded import Loaded, OnPacked, Timings
    from arenite.runtime.profile import Profile
    from arenite.runtime.state import HeldState, States
    from arenite.schedule import Schedule

Array: TypeAlias = "NDArray[Any]"

#: Values that people know by name.
_NAMED_KINDS = ("constant", "input", "packed", "state")


class Executable(CompiledProgram):
    """Call it with arrays, in the order of the graph's inputs."""

    def __init__(
        self, graph: Graph | GraphInterface, compiled: Compiled, threads: int | None = None
    ) -> None:
        self._interface = interface = GraphInterface.of(graph)
        super().__init__(Arguments(interface.inputs, interface.vars), threads)
        self.compiled = compiled
        self._loaded: Loaded = backend_of(compiled.options.device).load(
            interface, compiled, self.threads
        )

    @property
    def executables(self) -> tuple[Executable, ...]:
        """Itself alone: it has no segments."""
        return (self,)

    @property
    def graph(self) -> Graph:
        """What was compiled."""
        return self._interface.graph

    @property
    def device(self) -> str:
        """What it runs on."""
        return self.compiled.options.device

    @property
    def on_cpu(self) -> dict[str, str]:
        """Ops that the device refuses and the CPU does: none, since all of it is one program."""
        return {}

    @property
    def plan(self) -> MemoryPlan:
        """Where every value lives, with sizes at their largest."""
        return self.compiled.plan

    def plan_for(self, sizes: Mapping[str, int]) -> MemoryPlan:
        """Where every value lives with these values of the sizes that are variables."""
        return self._resizer.plan_for(sizes) if self._interface.vars else self.plan

    @property
    def places(self) -> Places:
        """Where the plan has every value, by number of the value."""
        return self._resizer.places(self.plan)

    @cached_property
    def _resizer(self) -> Resizer:
        return Resizer(self.compiled.frame, self.plan, self.compiled.pointers)

    @property
    def kernels(self) -> Kernels:
        """The kernels in the order of their launches, which print as a table."""
        from arenite.program.cached_kernel import Kernels

        return Kernels(self.compiled.kernels, self._named_reads)

    @property
    def load_kernels(self) -> Kernels:
        """Those that read constants alone: they run once, before the first run."""
        from arenite.program.cached_kernel import Kernels

        return Kernels(self.compiled.load_kernels, self._named_reads)

    @property
    def load_ns(self) -> int | None:
        """What computing the packed values took, once they are there."""
        return self._loaded.load_ns

    @property
    def failure(self) -> str | None:
        """Why it cannot run before `reset()`; None where it can."""
        return self._loaded.failure

    @property
    def kept_nbytes(self) -> int:
        """What is kept for the next results, of those the caller has let go of: for each output no
        more than the plan counts for it."""
        return self._loaded.kept_nbytes

    def keep_results(self, keeps: bool) -> None:
        """Whether memory of large results is kept for the next ones once the caller has let go of
        it; else it goes back to the system, and every run asks for it anew."""
        self._loaded.keep_results(keeps)

    @property
    def n_binds(self) -> int:
        """How often the program was bound to sizes."""
        return self._loaded.n_binds

    @cached_property
    def passes(self) -> tuple[Record, ...]:
        """The graph after each pass, made anew when asked for: running needs none of it."""
        from arenite.passes import NEUTRAL, run

        options, names = self.compiled.options, self.compiled.passes
        ways = [(*NEUTRAL, *own) for own in backend_of(options.device).ways(options)]
        way = next(way for way in ways if tuple(one.name for one in way) == names)
        return run(self.graph, way)[1]

    @cached_property
    def schedule(self) -> Schedule:
        """The fused kernels with the reason for each border, made anew when asked for."""
        from arenite.schedule import fuse

        return fuse(self.passes[-1].graph)

    # Calling.

    def __call__(self, *arrays: Any, out: Sequence[Array] | None = None) -> list[Array]:
        """Run; the outputs as new arrays, or written into `out`.

        Arrays of `out` that lie in C order, and share no byte with an input, are written to while
        it runs: a run that fails or is cancelled leaves them half written. Where the number of rows
        of a result is found by the run, `out` has as many, or as many as there may be at the most:
        then its first rows are returned, and what is behind them is anything.
        """
        results = self.fast_path(arrays, out)
        if results is not None:
            return results
        if out is not None:
            check_targets(out)
        return self._run([np.asarray(array) for array in arrays], out)

    def fast_path(
        self, arrays: Sequence[Any], out: Sequence[Any] | None = None
    ) -> list[Array] | None:
        """Run, if these are arrays like those of the last run; else do nothing, and give None."""
        with self._lock:
            quick = self._loaded.quick
            if quick is None or self._is_running:
                return None
            try:
                self._is_running = True
                return quick.run(arrays, out)
            except IndexOutOfRange as error:
                raise self._after(error) from None
            finally:
                self._is_running = False

    def pack(self, on_progress: OnPacked | None = None) -> None:
        """Do now what the first run does first: all that depends on constants alone, such as
        weights that are packed. `on_progress(done, total)` hears of its parts."""
        with self._turn():
            self._loaded.pack(on_progress)

    def run_into(self, arrays: Sequence[Array], out: Sequence[Array | None]) -> list[Array]:
        """Run, as with `out`, arrays that nobody else writes to; None is for a new array."""
        return self._run([*arrays], out)

    def _run(self, arrays: list[Array], out: Sequence[Array | None] | None = None) -> list[Array]:
        """The results, in `out` where that is given: what does not fit it is refused before the
        run, unless sizes are found in it."""
        with self._lock:
            is_idle = not (self._is_running or self._is_closed)
            if self.resets_itself and is_idle and self._loaded.is_lost:
                self._loaded.reset()
            if self._is_running or self._is_closed or self._loaded.failure is not None:
                self._check_open()
                self._check_failure()
            try:
                self._is_running = True
                results = self._loaded.run(*self._fitting(arrays), out)
            except IndexOutOfRange as error:
                raise self._after(error) from None
            finally:
                self._is_running = False
        return results

    def _after(self, error: IndexOutOfRange) -> IndexOutOfRange:
        """What a run raises that met an index outside its axis."""
        if not self.resets_itself:
            return IndexOutOfRange(f"{error}, then reset() the Executable")
        self._loaded.reset()
        return error

    def cancel(self) -> None:
        """End the run in progress, from another thread; the load step before the first run too."""
        self._loaded.cancel()

    # Decoding.

    def decoding(
        self, choice: TokenChoice, tokens: Sequence[int], numbers: NDArray[np.float64]
    ) -> Decoding | None:
        """Runs that choose their own tokens, behind those of a text: None where the device does not
        do that. `numbers` are random, and enough for all choices."""
        with self._turn():
            self._check_failure()
            begin = self._loaded.decoder
            return None if begin is None else begin(choice, tokens, numbers)

    def start_decoding(self, decoding: Decoding, *arrays: Array) -> None:
        """Begin another run; what stands for the token, the first of the arrays, is not read."""
        with self._turn():
            self._check_failure()
            decoding.start(*self._fitting([*arrays]))

    def next_token(
        self, decoding: Decoding, allowed: NDArray[np.bool_] | None = None
    ) -> ChosenToken | None:
        """Wait for the token of the run that began first, where choices are masked one of those
        that are `allowed`; None: the host is to choose it."""
        with self._turn():
            self._check_failure()
            return decoding.result(allowed)

    # State.

    @property
    def state(self) -> States:
        """What lives from run to run, by name."""
        from arenite.runtime.state import States

        return States([self._held(number) for number in self.compiled.frame.numbers("state")])

    @property
    def n_state_sets(self) -> int:
        """How many copies of every state there are."""
        return self._loaded.n_state_sets

    def use_state_set(self, number: int) -> None:
        """From now on runs, and `state`, work on this copy of every state; 0 at first."""
        if not 0 <= number < self.n_state_sets:
            raise InvalidArgument(
                f"set {number} of states was asked for; there are sets 0 to {self.n_state_sets - 1}"
            )
        with self._lock:
            self._check_idle()
            self._loaded.use_state_set(number)

    def _held(self, number: int) -> HeldState:
        from arenite.runtime.state import HeldState

        @contextmanager
        def open_bytes() -> Iterator[NDArray[np.uint8]]:
            with self._turn(), self._loaded.state(number) as content:
                yield content

        return HeldState(self._interface.states[self.compiled.values[number].source], open_bytes)

    # What it shows.

    def verify(self) -> None:
        """Check the plan and prove the order on final addresses, and with branches and loops that
        every byte read is of the value meant; RaceFound or InvalidPlan."""
        self.plan.verify()
        self._loaded.verify(lambda: self.schedule)
        self.compiled.verify()

    def profile(self, *arrays: Any) -> Profile:
        """Run once with time stamps: a table of kernels with their times."""
        from arenite.runtime.profile import Profile

        reads = [self._named_reads(one) for one in self.kernels]
        return Profile.of(self._timings(arrays), self.kernels, reads)

    def kernel_seconds(self, *arrays: Any) -> dict[str, float]:
        """Run once with time stamps: what each kernel took, by its name. Other than `profile` it
        does not measure what the device can do, which takes memory and time."""
        found: dict[str, float] = {}
        for number, took in self._timings(arrays).seconds().items():
            name = self.kernels[number].entry_point
            found[name] = found.get(name, 0.0) + took
        return found

    def _timings(self, arrays: Sequence[Any]) -> Timings:
        with self._turn():
            self._check_failure()
            return self._loaded.profile(*self._fitting([np.asarray(array) for array in arrays]))

    def save_html(
        self, path: str | PathLike[str], title: str = "", profile: Profile | None = None
    ) -> None:
        """Write a page that shows all of it: the plan over time, what passes changed, kernels with
        their code, who waits for whom, and the run of a profile. It needs nothing else."""
        from arenite.runtime.view import save_page

        save_page(path, {"": self}, title, profile)

    def _named_reads(self, kernel: CachedKernel) -> tuple[str, ...]:
        """Arguments, weights and states that a kernel reads."""
        read = dict.fromkeys(self.compiled.values[int(number)] for number in kernel.ins)
        return tuple(value.name for value in read if value.kind in _NAMED_KINDS)

    def run_checked(self, *arrays: Any) -> list[Array]:
        """Run launch by launch on memory of its own; UndeclaredAccess names a kernel that touches
        bytes it does not declare. States are read, and stay as they are. Slow: for tests and for
        debugging."""
        with self._turn():
            self._check_failure()
            return self._loaded.run_checked(*self._fitting([np.asarray(array) for array in arrays]))

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else self.runs_on
        return (
            f"<Executable: {len(self.compiled.kernels)} kernels, "
            f"{self.plan.peak_nbytes} bytes of arena, {state}>"
        )

    # Ending.

    def reset(self) -> None:
        """Make a failed Executable usable again; states stay as the failed run left them, but begin
        anew where their device was lost."""
        with self._turn():
            self._loaded.reset()

    def close(self) -> None:
        """Give every byte back to the system. Returned arrays are the caller's and stay."""
        with self._lock:
            self._check_idle()
            self._is_closed = True
            self._loaded.close()

    def _check_failure(self) -> None:
        if self.failure is not None:
            raise RunFailed(f"this Executable cannot run before reset(): {self.failure}")

    def forget_after_fork(self) -> None:
        """In a forked process: a run of another thread is another process's now."""
        if self._is_running and not locks.is_mine(self._lock):
            self._loaded.fail("it was running when the process forked")
            self._is_running = False
