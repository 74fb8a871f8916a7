"""Executable: a compiled model, ready to be called. Plan, arena, one native entry.

Calling it binds the inputs in place (or copies what does not fit), enters native code once and
returns new arrays. Sizes that are variables are read off the inputs' shapes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from arenite import locks
from arenite.backends.cpu.driver.layout import END
from arenite.backends.cpu.driver.native import Outcome, OutcomeKind
from arenite.backends.cpu.execution.binding import Binder, Binding
from arenite.backends.cpu.execution.failure import error_of
from arenite.backends.cpu.execution.handover import Handover
from arenite.backends.cpu.execution.hosts import HostCalls
from arenite.backends.cpu.execution.load_step import LoadStep, OnPacked
from arenite.errors import InvalidArgument, RunCancelled, RunFailed
from arenite.ir.outline import Outline
from arenite.memory import MemoryPlan
from arenite.program.arguments import Arguments, check_targets, write_to
from arenite.program.assemble import Assembly
from arenite.program.backend import backend_of
from arenite.program.closing import Closing
from arenite.program.compiled import Compiled
from arenite.program.places import Places
from arenite.program.threads import chosen_n_threads
from arenite.runtime.state import HeldState, States

if TYPE_CHECKING:
    from arenite.backends.cpu.driver.stamps import Stamps
    from arenite.backends.cpu.execution.quick import QuickCall
    from arenite.ir.graph import Graph
    from arenite.passes import Record
    from arenite.program.cached_kernel import CachedKernel, Kernels
    from arenite.program.table import LaunchTable
    from arenite.runtime.profile import Profile
    from arenite.schedule import Schedule

Array = NDArray[Any]

#: Estimated work below which a run keeps the GIL: giving it up would cost more.
KEEP_GIL_BELOW_NS = 50_000
#: Values that people know by name.
_NAMED_KINDS = ("constant", "input", "packed", "state")


class Executable(Closing):
    """Call it with arrays, in the order of the graph's inputs."""

    def __init__(
        self, graph: Graph | Outline, compiled: Compiled, threads: int | None = None
    ) -> None:
        self._outline = outline = Outline.of(graph)
        self.compiled = compiled
        self.threads = chosen_n_threads(threads)
        self._values = compiled.values
        self._binder = Binder(outline, compiled)
        self._reads_files = bool(self._binder.files)
        self._load_step = LoadStep(outline, self._binder)
        self._assembly = self._binder.assembly
        self._hosts = HostCalls(outline, compiled, self._assembly.first_cell)
        # A signal handler may run in the middle of a run, on its thread: it gets past the lock, and
        # is told.
        self._lock = locks.reentrant()
        self._is_running = False
        self._failure: str | None = None
        self._is_closed = False
        locks.watch(self)
        self._is_short = self._assembly.skeleton.cost_ns < KEEP_GIL_BELOW_NS
        self._arguments = Arguments(outline.inputs, outline.vars)
        self._handover = Handover(outline, self._binder, self._arguments)
        #: For arrays like those of the last run.
        self._quick: QuickCall | None = None

    @property
    def graph(self) -> Graph:
        """What was compiled."""
        return self._outline.graph

    @property
    def plan(self) -> MemoryPlan:
        """Where every value lives, with sizes at their largest."""
        return self.compiled.plan

    @property
    def kernels(self) -> Kernels:
        from arenite.program.cached_kernel import Kernels

        return Kernels(self.compiled.kernels)

    @property
    def load_kernels(self) -> Kernels:
        """Those that read constants alone: they run once, before the first run."""
        from arenite.program.cached_kernel import Kernels

        return Kernels(self.compiled.load_kernels)

    @property
    def load_ns(self) -> int | None:
        """What computing the packed values took, once they are there."""
        return self._load_step.ns

    @property
    def kept_nbytes(self) -> int:
        """What is kept for the next results, of those the caller has let go of: for each output no
        more than the plan counts for it."""
        return sum(results.kept_nbytes for results in self._binder.results.values())

    def keep_results(self, keeps: bool) -> None:
        """Whether memory of large results is kept for the next ones once the caller has let go of
        it; else it goes back to the system, and every run asks for it anew."""
        for results in self._binder.results.values():
            results.keep(keeps)

    @property
    def n_binds(self) -> int:
        """How often the program was bound to sizes."""
        return self._binder.n_binds

    @cached_property
    def passes(self) -> tuple[Record, ...]:
        """The graph after each pass, made anew when asked for: running needs none of it."""
        from arenite.passes import run

        options, names = self.compiled.options, self.compiled.passes
        ways = backend_of(options.device).ways(options)
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
        it runs: a run that fails or is cancelled leaves them half written.
        """
        results = self.quickly(arrays, out)
        if results is not None:
            return results
        if out is not None:
            check_targets(out)
        return self._run([np.asarray(array) for array in arrays], out)

    def quickly(
        self, arrays: Sequence[Any], out: Sequence[Any] | None = None
    ) -> list[Array] | None:
        """Run, if these are arrays like those of the last run; else do nothing, and give None."""
        with self._lock:
            quick = self._quick
            if quick is None or self._is_running:
                return None
            try:
                self._is_running = True
                if self._reads_files:
                    with self._binder.files.reading(self._fail):
                        returned, results = quick.run(arrays, self.threads, out)
                else:
                    returned, results = quick.run(arrays, self.threads, out)
                if returned > END:
                    self._check_outcome(quick.table.outcome(returned))
            finally:
                self._is_running = False
        return results if returned == END else None

    def pack(self, on_progress: OnPacked | None = None) -> None:
        """Do now what the first run does first: all that depends on constants alone, such as
        weights that are packed. `on_progress(done, total)` hears of its parts."""
        with self._turn(), self._binder.files.reading(self._fail):
            self._load_step.run(self.threads, self._check_outcome, on_progress)

    def run(self, inputs: Mapping[str, Any]) -> list[Array]:
        """Run with inputs by name."""
        names = [port.name for port in self._outline.inputs]
        if set(names) != set(inputs):
            raise InvalidArgument(f"inputs {names} are needed, {list(inputs)} were given")
        return self(*[inputs[name] for name in names])

    def _run(self, arrays: list[Array], out: Sequence[Array] | None = None) -> list[Array]:
        """The results, in `out` where that is given: what does not fit it is refused before the
        run, unless sizes are found in it."""
        with self._lock:
            if self._is_running or self._is_closed or self._failure is not None:
                self._check_open()
                self._check_failure()
            try:
                self._is_running = True
                handover = self._handover
                with self._binder.files.reading(self._fail):
                    binding, arrays = self._bound_for(arrays)
                    results = handover.prepare(binding, arrays, out)
                    outcome = binding.table.run(self.threads, binding.bind, self._is_short)
                    if outcome.kind is OutcomeKind.SEGMENT:
                        outcome = self._go_on(binding, outcome)
                    if outcome.kind is not OutcomeKind.END:
                        self._check_outcome(outcome)
                    results = handover.finished(binding, results)
                self._quick = handover.quick_for(binding, arrays) if handover.may_be_quick else None
            finally:
                self._is_running = False
        return results if out is None else write_to(out, results)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Alone with the arena, of an Executable that is open and in no run."""
        with self._lock:
            self._check_open()
            try:
                self._is_running = True
                self._quick = None
                yield
            finally:
                self._is_running = False

    def _go_on(self, binding: Binding, outcome: Outcome, stamps: Stamps | None = None) -> Outcome:
        """From segment to segment: what the host computes, then native code again."""
        while outcome.kind is OutcomeKind.SEGMENT:
            assert outcome.tick is not None
            number = int(binding.table.table.entries[outcome.tick]["a"])
            try:
                self._hosts.call(number, binding.words, self._handover.sizes_after(binding))
            except BaseException:
                binding.table.reset()
                raise
            outcome = binding.table.run(
                self.threads, binding.bind, keep_gil=self._is_short, stamps=stamps
            )
        return outcome

    def cancel(self) -> None:
        """End the run in progress, from another thread; the load step before the first run too."""
        self._load_step.cancel()
        for binding in list(self._binder.bound.values()):
            binding.table.cancel()

    def _bound_for(self, arrays: list[Array]) -> tuple[Binding, list[Array]]:
        """The program for the sizes of these arrays, and the arrays as it reads them."""
        arrays = self._arguments.fitting(arrays)
        if not self._arguments.is_open and self._binder.bound:
            binding = next(iter(self._binder.bound.values()))
        else:
            sizes = self._arguments.sizes(arrays) if self._arguments.is_open else {}
            self._load_step.run(self.threads, self._check_outcome)
            binding = self._binder.obtain(sizes)
        return binding, self._handover.packed(arrays)

    # State.

    @property
    def state(self) -> States:
        """What lives from run to run, by name."""
        return States([self._held(number) for number in self._binder.state_numbers])

    @property
    def n_state_sets(self) -> int:
        """How many copies of every state there are."""
        return self._binder.n_state_sets

    def use_state_set(self, number: int) -> None:
        """From now on runs, and `state`, work on this copy of every state; 0 at first."""
        if not 0 <= number < self.n_state_sets:
            raise InvalidArgument(
                f"set {number} of states was asked for; there are sets 0 to {self.n_state_sets - 1}"
            )
        with self._lock:
            self._check_idle()
            self._binder.use_state_set(number)

    def reset_state(self) -> None:
        """Make all states of the set in use zero, as they were before the first run."""
        for one in self.state.values():
            one.clear()

    def _held(self, number: int) -> HeldState:
        @contextmanager
        def opened() -> Iterator[NDArray[np.uint8]]:
            with self._turn():
                yield self._binder.state_bytes(number)

        return HeldState(self._outline.states[self._values[number].source], opened)

    # What it shows.

    def verify(self) -> None:
        """Check the plan and prove the order on final addresses, and with branches and loops that
        every byte read is of the value meant; RaceFound or InvalidPlan."""
        self.plan.verify()
        places = self._binder.places(self.plan)
        self._load_step.verify()
        largest = {var.name: var.high for var in self._outline.vars}
        self._verify_table(self._assembly.table(places), places, largest)
        for number in range(1, self.n_state_sets):
            other = self._binder.places(self.plan, number)
            self._verify_table(self._assembly.table(other), other, largest)
        for binding in list(self._binder.bound.values()):  # calls in other threads may add one
            binding.plan.verify()
            self._verify_table(binding.table.table, binding.places, binding.sizes)
        self.compiled.verify()

    def _verify_table(self, table: LaunchTable, places: Places, sizes: Mapping[str, int]) -> None:
        self._assembly.verify(places, table)
        if self._assembly.skeleton.is_straight and not self._binder.state_numbers:
            return
        from arenite.backends.cpu.driver.table_check import check_table
        from arenite.backends.cpu.execution.dataflow import check_dataflow, given_values

        check_table(table)
        given = given_values(self.compiled, self.graph.states)
        load = frozenset(kernel.entry_point for kernel in self.load_kernels)
        hosts = self.compiled.hosts
        check_dataflow(self.schedule, self._assembly, table, places, sizes, given, load, hosts)

    def profile(self, *arrays: Any) -> Profile:
        """Run once with time stamps: a table of kernels with their times."""
        from arenite.backends.cpu.driver.stamps import Stamps
        from arenite.runtime.profile import Profile

        with self._turn(), self._binder.files.reading(self._fail):
            self._check_failure()
            binding, fitting = self._bound_for([np.asarray(array) for array in arrays])
            held = self._handover.prepare(binding, fitting)
            stamps = Stamps(self.threads)
            outcome = binding.table.run(threads=self.threads, bind=binding.bind, stamps=stamps)
            outcome = self._go_on(binding, outcome, stamps)
            del held
            self._check_outcome(outcome)
            sizes = self._handover.sizes_after(binding)
            reads = [self._named_reads(kernel) for kernel in self.kernels]
            return Profile.of(stamps, self.kernels, sizes, self._assembly.launch_at, reads)

    def _named_reads(self, kernel: CachedKernel) -> tuple[str, ...]:
        """Arguments, weights and states that a kernel reads."""
        read = dict.fromkeys(self._values[int(number)] for number in kernel.ins)
        return tuple(value.name for value in read if value.kind in _NAMED_KINDS)

    def run_checked(self, *arrays: Any) -> list[Array]:
        """Run launch by launch on memory of its own; UndeclaredAccess names a kernel that touches
        bytes it does not declare. States are read, and stay as they are. Slow: for tests and for
        debugging."""
        from arenite.backends.cpu.execution.checked import BoundPart, BoundProgram, run_checked

        with self._turn(), self._binder.files.reading(self._fail):
            self._check_failure()
            binding, fitting = self._bound_for([np.asarray(array) for array in arrays])
            given = {
                number: fitting[value.source]
                for number, value in enumerate(self._values)
                if value.kind == "input"
            }
            binder = self._binder
            given |= {number: binder.state_bytes(number) for number in binder.state_numbers}
            load, hosts = Assembly.straight(self.compiled.load, binder.io), self._hosts
            load_table = binder.bound_to(load, binding.places, binding.sizes).table
            check = partial(self._check_outcome, assembly=load, kernels=self.load_kernels)
            main, found = self._assembly, self.compiled.found
            parts = [
                BoundPart(self.load_kernels, load, load_table, {}, hosts, check),
                BoundPart(
                    self.kernels, main, binding.table.table, found, hosts, self._check_outcome
                ),
            ]
            program = BoundProgram(
                self._values, self.compiled.outputs, parts, binding.places, binding.sizes
            )
            return run_checked(program, given | binder.constants)

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"{self.threads} threads"
        return (
            f"<Executable: {len(self.compiled.kernels)} kernels, "
            f"{self.plan.peak_nbytes} bytes of arena, {state}>"
        )

    # Ending.

    def reset(self) -> None:
        """Make a failed Executable usable again; states stay as the failed run left them."""
        with self._turn():
            self._failure = None
            self._binder.bound.clear()

    def close(self) -> None:
        """Give every byte back to the system. Returned arrays are the caller's and stay."""
        with self._lock:
            self._check_idle()
            self._is_closed = True
            self._quick = None
            self._binder.close()

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

    def _check_failure(self) -> None:
        if self._failure is not None:
            raise RunFailed(f"this Executable cannot run before reset(): {self._failure}")

    def _check_outcome(
        self,
        outcome: Outcome,
        assembly: Assembly | None = None,
        kernels: Sequence[CachedKernel] | None = None,
    ) -> None:
        """Raise what a run that did not come to its end raises; a failed one leaves its mark."""
        if outcome.kind is OutcomeKind.CANCELLED:
            raise RunCancelled(
                f"the run was cancelled; the Executable can be called again{self._about_state()}"
            )
        if outcome.kind is OutcomeKind.ERROR:
            launch_at = (assembly or self._assembly).launch_at
            number = None if outcome.site is None else launch_at.get(outcome.site)
            kernel = None if number is None else (kernels or self.kernels)[number]
            error = error_of(kernel, outcome, self._about_state())
            self._fail(str(error))
            raise error

    def _fail(self, why: str) -> None:
        """Run no more before `reset()`."""
        self._failure = why
        self._quick = None

    def _about_state(self) -> str:
        """What to know about states after a run that did not come to its end."""
        if not self._binder.state_numbers:
            return ""
        return "; its states may be half written: reset_state() or load() them"

    def forget_after_fork(self) -> None:
        """In a forked process: a run of another thread is another process's now."""
        if self._is_running and not locks.is_mine(self._lock):
            self._fail("it was running when the process forked")
            self._is_running = False
