"""A compiled program in memory of the CPU: calling it enters native code once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any
from weakref import WeakMethod

import numpy as np

from arenite.backends.cpu.driver.native import Outcome, OutcomeKind
from arenite.backends.cpu.execution.binding import Binder, Binding
from arenite.backends.cpu.execution.handover import Handover
from arenite.backends.cpu.execution.load_step import LoadStep
from arenite.dtype import Array
from arenite.errors import RunCancelled
from arenite.ir.interface import GraphInterface
from arenite.program.assemble import Assembly
from arenite.program.compiled import Compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from arenite.backends.cpu.driver.file_guard import MappedFiles
    from arenite.backends.cpu.driver.stamps import Stamps
    from arenite.backends.cpu.execution.host_calls import HostCalls
    from arenite.program.cached_kernel import CachedKernel
    from arenite.program.limits import Limits
    from arenite.program.loaded import OnPacked, Quick, Timings
    from arenite.program.places import Places
    from arenite.program.table import LaunchTable
    from arenite.schedule import Schedule


#: Estimated work below which a run keeps the GIL: giving it up would cost more.
KEEP_GIL_BELOW_NS = 50_000


class CpuProgram:
    """Binds inputs in place, or copies what does not fit, and runs on `threads` workers."""

    decoder = None
    is_lost = False

    def __init__(self, interface: GraphInterface, compiled: Compiled, threads: int) -> None:
        self._interface, self.compiled, self._threads = interface, compiled, threads
        self.failure: str | None = None
        self.binder = Binder(interface, compiled)
        self._reads_files = bool(self.binder.files)
        self._load_step = LoadStep(interface, self.binder)
        self.assembly = self.binder.assembly
        self._is_short = self.assembly.skeleton.cost_ns < KEEP_GIL_BELOW_NS
        self._handover = Handover(interface, self.binder)
        #: For arrays like those of the last run.
        self.quick: Quick | None = None

    @cached_property
    def _hosts(self) -> HostCalls:
        from arenite.backends.cpu.execution.host_calls import HostCalls

        return HostCalls(self._interface, self.compiled, self.assembly.first_cell)

    @property
    def load_ns(self) -> int | None:
        return self._load_step.ns

    @property
    def n_binds(self) -> int:
        return self.binder.n_binds

    @property
    def kept_nbytes(self) -> int:
        return sum(results.kept_nbytes for results in self.binder.results.values())

    @property
    def n_state_sets(self) -> int:
        return self.binder.n_state_sets

    # Running.

    def run(
        self, arrays: list[Array], sizes: dict[str, int], out: Sequence[Array | None] | None
    ) -> list[Array]:
        handover = self._handover
        with self.binder.files.reading(self.fail):
            binding, arrays = self._bound_for(arrays, sizes)
            results = handover.prepare(binding, arrays, out)
            outcome = binding.table.run(self._threads, binding.bind, self._is_short)
            if outcome.kind is OutcomeKind.SEGMENT:
                outcome = self._go_on(binding, outcome)
            if outcome.kind is not OutcomeKind.END:
                self._check_outcome(outcome)
            results = handover.finished(binding, results, out)
        if handover.may_be_quick:
            # Weak, so that nothing keeps the program.
            check: WeakMethod[Callable[..., None]] = WeakMethod(self._check_outcome)
            quick = handover.quick_for(binding, arrays, self._threads, check)
            fail: WeakMethod[Callable[..., None]] = WeakMethod(self.fail)
            files = self.binder.files
            self.quick = _Guarded(quick, files, fail) if self._reads_files else quick
        else:
            self.quick = None
        return results

    def pack(self, on_progress: OnPacked | None) -> None:
        with self.binder.files.reading(self.fail):
            self._load_step.run(self._threads, self._check_outcome, on_progress)

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
                self._threads, binding.bind, keep_gil=self._is_short, stamps=stamps
            )
        return outcome

    def cancel(self) -> None:
        self._load_step.cancel()
        for binding in list(self.binder.bound.values()):
            binding.table.cancel()

    def _bound_for(self, arrays: list[Array], sizes: dict[str, int]) -> tuple[Binding, list[Array]]:
        """The program for these sizes, and the arrays as it reads them."""
        if not sizes and self.binder.bound:
            binding = next(iter(self.binder.bound.values()))
        else:
            self.quick = None  # its addresses go with an arena that grows
            self._load_step.run(self._threads, self._check_outcome)
            binding = self.binder.obtain(sizes)
        return binding, self._handover.packed(arrays)

    # State.

    def use_state_set(self, number: int) -> None:
        self.binder.use_state_set(number)

    @contextmanager
    def state(self, number: int) -> Iterator[NDArray[np.uint8]]:
        self.quick = None
        yield self.binder.state_bytes(number)

    # What it shows.

    def verify(self, schedule: Callable[[], Schedule]) -> None:
        places = self.binder.places(self.compiled.plan)
        self._load_step.verify()
        largest = {var.name: var.high for var in self._interface.vars}
        self._verify_table(self.assembly.table(places), places, largest, schedule)
        for number in range(1, self.n_state_sets):
            other = self.binder.places(self.compiled.plan, number)
            self._verify_table(self.assembly.table(other), other, largest, schedule)
        for binding in list(self.binder.bound.values()):  # calls in other threads may add one
            binding.plan.verify()
            self._verify_table(binding.table.table, binding.places, binding.sizes, schedule)

    def _verify_table(
        self,
        table: LaunchTable,
        places: Places,
        sizes: Mapping[str, int],
        schedule: Callable[[], Schedule],
    ) -> None:
        self.assembly.verify(places, table)
        if self.assembly.skeleton.is_straight and not self.binder.state_numbers:
            return
        from arenite.backends.cpu.driver.table_check import check_table
        from arenite.backends.cpu.execution.dataflow import check_dataflow, given_values

        check_table(table)
        given = given_values(self.compiled, self._interface.graph.states)
        load = frozenset(kernel.entry_point for kernel in self.compiled.load_kernels)
        hosts = self.compiled.hosts
        check_dataflow(schedule(), self.assembly, table, places, sizes, given, load, hosts)

    def profile(self, arrays: list[Array], sizes: dict[str, int]) -> Timings:
        from arenite.backends.cpu.driver.native import runtime
        from arenite.backends.cpu.driver.stamps import Stamps
        from arenite.program.loaded import Timings

        with self.binder.files.reading(self.fail):
            binding, fitting = self._bound_for(arrays, sizes)
            held = self._handover.prepare(binding, fitting)
            stamps = Stamps(self._threads)
            outcome = binding.table.run(self._threads, binding.bind, stamps=stamps)
            outcome = self._go_on(binding, outcome, stamps)
            del held
            self._check_outcome(outcome)
            records = stamps.records(self.assembly.launch_at)
            rate = runtime().clocks_per_second
            return Timings(
                records, rate, stamps.n_lost, self._handover.sizes_after(binding), _limits
            )

    def run_checked(self, arrays: list[Array], sizes: dict[str, int]) -> list[Array]:
        from arenite.backends.cpu.execution.checked_run import BoundPart, BoundProgram, run_checked

        with self.binder.files.reading(self.fail):
            binding, fitting = self._bound_for(arrays, sizes)
            values, compiled, binder = self.compiled.values, self.compiled, self.binder
            given = {
                number: fitting[value.source]
                for number, value in enumerate(values)
                if value.kind == "input"
            }
            given |= {number: binder.state_bytes(number) for number in binder.state_numbers}
            load, hosts = Assembly.straight(compiled.load, binder.io), self._hosts
            load_table = binder.bound_to(load, binding.places, binding.sizes).table
            check = partial(self._check_outcome, assembly=load, kernels=compiled.load_kernels)
            main, table = self.assembly, binding.table.table
            parts = [
                BoundPart(compiled.load_kernels, load, load_table, {}, hosts, check),
                BoundPart(
                    compiled.kernels, main, table, compiled.found, hosts, self._check_outcome
                ),
            ]
            program = BoundProgram(values, compiled.outputs, parts, binding.places, binding.sizes)
            return run_checked(program, given | binder.constants)

    # Ending.

    def keep_results(self, keeps: bool) -> None:
        for results in self.binder.results.values():
            results.keep(keeps)

    def reset(self) -> None:
        self.failure = self.quick = None
        self.binder.bound.clear()

    def close(self) -> None:
        self.quick = None
        self.binder.close()

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
            from arenite.backends.cpu.execution.failure import error_of

            launch_at = (assembly or self.assembly).launch_at
            number = None if outcome.site is None else launch_at.get(outcome.site)
            kernel = None if number is None else (kernels or self.compiled.kernels)[number]
            error = error_of(kernel, outcome, self._about_state())
            self.fail(str(error))
            raise error

    def fail(self, why: str) -> None:
        """Run no more before `reset()`."""
        self.failure = why
        self.quick = None

    def _about_state(self) -> str:
        """What to know about states after a run that did not come to its end."""
        if not self.binder.state_numbers:
            return ""
        return "; its states may be half written: reset_state() or load() them"


class _Guarded:
    """A quick call of a program that reads mapped files, which may be cut short meanwhile."""

    def __init__(
        self, quick: Quick, files: MappedFiles, fail: WeakMethod[Callable[..., None]]
    ) -> None:
        self._quick, self._files, self._weak_fail = quick, files, fail

    def run(self, arrays: Sequence[Any], out: Sequence[Any] | None) -> list[Array] | None:
        with self._files.reading(self._fail):
            return self._quick.run(arrays, out)

    def _fail(self, why: str) -> None:
        fail = self._weak_fail()
        assert fail is not None, "who runs it holds it"
        fail(why)


def _limits(n_cores: int) -> Limits:
    """Of this machine; measuring them takes modules that running does not."""
    from arenite.backends.cpu.driver.limits import limits

    return limits(n_cores)
