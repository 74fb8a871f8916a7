"""A compiled program on a device: launches become dispatches, results come back when they are done.

In: shaders, launches, values and the plan. Out: a program that is called with arrays. A call
records every launch into one command buffer, copies of arguments and results among them, and
returns a handle (`start`); the next call may be made before the first is waited for.
WebGPU runs dispatches that touch one buffer in the order of the queue, so nothing waits here.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arenite.backends.webgpu import submission, timestamps
from arenite.backends.webgpu.compile import shaders_of
from arenite.backends.webgpu.dispatch import Bound, dispatches_of, new_buffer, submit
from arenite.backends.webgpu.exchange import Exchange, StagingPool, Transfer, in_words
from arenite.backends.webgpu.failure import check_errors
from arenite.backends.webgpu.memory import Region, Regions, constants_of
from arenite.backends.webgpu.recorder import record_rows
from arenite.backends.webgpu.results import Pending
from arenite.backends.webgpu.table import DispatchTable
from arenite.device.registry import get
from arenite.device.webgpu import WORD_NBYTES, WebGpuAllocator
from arenite.errors import (
    AreniteError,
    NotCompiled,
    RaceFound,
    RunCancelled,
    UndeclaredAccess,
)
from arenite.ir.dim import evaluate
from arenite.ir.interface import GraphInterface
from arenite.program.arguments import check_room, write_to
from arenite.program.compiled import Compiled
from arenite.program.launch import Launch
from arenite.program.loaded import LoadedProgram, OnPacked, Timings
from arenite.program.places import Places, Resizer
from arenite.program.steps import StepKind
from arenite.program.value_spec import copy_name

if TYPE_CHECKING:
    from arenite.schedule import Schedule

Array = NDArray[Any]

_STAMP = np.dtype([(name, np.int64) for name in "worker tick kernel tile begin end".split()])


class Recorded(NamedTuple):
    """The command buffer of a run, which can be submitted once."""

    exchange: Exchange
    commands: Any


class WebGpuProgram(LoadedProgram):
    """One program on one device."""

    def __init__(self, interface: GraphInterface, compiled: Compiled) -> None:
        _refuse(compiled)
        super().__init__(interface, compiled)
        self.shaders = shaders_of(compiled.image)
        self.names = [one.name for one in (*compiled.load, *compiled.launches)]
        self._resizer = Resizer(compiled.frame, compiled.plan, {})
        self._constants = constants_of(interface, compiled)
        self._on_host = frozenset(compiled.frame.numbers("input", "output"))
        self._n_load = len(compiled.load)
        self._states = frozenset(map(int, self.state_numbers))
        self._state_set = 0
        self._places = self._placed()
        self._table: DispatchTable | None = None
        self._recorded: dict[tuple[int, ...], Recorded] = {}  # ahead, by state set and sizes
        self._last: dict[str, int] = {}
        self._expected: dict[str, int] | None = None
        self._is_cancelled = False
        self._open()

    def _open(self) -> None:
        """Take memory on the device."""
        device = get(self.compiled.options.device)
        assert isinstance(device, WebGpuAllocator)
        self.device = device
        self._regions: Regions | None = Regions(device, self.compiled, self._constants)
        nbytes = len(self.names) * WORD_NBYTES
        self._staging = StagingPool(device)
        self._errors = new_buffer(device, nbytes, "STORAGE COPY_SRC COPY_DST")

    @property
    def regions(self) -> Regions:
        """Its memory, until it is closed."""
        assert self._regions is not None
        return self._regions

    # Running.

    def run(
        self, arrays: list[Array], sizes: dict[str, int], out: Sequence[Array | None] | None = None
    ) -> list[Array]:
        if out is not None:
            outputs = [self.compiled.values[number] for number in self.compiled.outputs]
            check_room(out, [(value.shape, value.dtype) for value in outputs], sizes)
        self._is_cancelled = False
        results = self.start(arrays, sizes).result()
        if self._is_cancelled:
            raise RunCancelled("the run was cancelled; the Executable can be called again")
        return results if out is None else write_to(out, results, [None] * len(out), "")

    def start(self, arrays: list[Array], sizes: dict[str, int]) -> Pending:
        """Begin a run; its results can be asked for later."""
        with self._failing():
            self.pack(None)
            recorded = self._recorded.pop((self._state_set, *sizes.values()), None)
            if recorded is None:
                recorded = self._record_run(sizes, arrays)
            else:
                recorded.exchange.arrays = arrays
                for step in self.steps:
                    if isinstance(step, Transfer) and not self._is_result(step.launch):
                        recorded.exchange.record(None, step, self._place(step.there))
            self.bound_table(sizes).write()
            pending = self._submit(recorded)
            self._record_ahead(sizes)
            return pending

    def _record_run(self, sizes: Mapping[str, int], arrays: Sequence[Array] | None) -> Recorded:
        """The command buffer of a run, of which arrays may be known later."""
        table = self.bound_table(sizes)
        exchange = self._exchange(arrays or (), sizes)
        encoder = self.device.device.create_command_encoder()
        encoder.clear_buffer(self._errors)
        for step in self.steps:
            is_given = isinstance(step, Transfer) and not self._is_result(step.launch)
            if arrays is not None or not is_given:
                self._record_step(encoder, table, exchange, step)
        return self._finished(encoder, exchange)

    def _finished(self, encoder: Any, exchange: Exchange) -> Recorded:
        """What was recorded, with the errors of all launches behind it."""
        if self.names:
            nbytes = len(self.names) * WORD_NBYTES
            encoder.copy_buffer_to_buffer(self._errors, 0, exchange.staging, 0, nbytes)
        return Recorded(exchange, encoder.finish())

    def _record_ahead(self, sizes: Mapping[str, int]) -> None:
        """Record the run that is likely to be next while the device has this one: where sizes go on
        as they went the last two times, by 1 for each token say. It takes the host longer than
        anything else of a run, and needs nothing that this run makes."""
        expected = self._expected
        step = {name: size - self._last.get(name, size) for name, size in sizes.items()}
        self._expected = {name: size + step[name] for name, size in sizes.items()}
        self._last = dict(sizes)
        for _, one in self._recorded.items():
            self._staging.give_back(one.exchange.staging)
        self._recorded.clear()
        is_within = all(
            var.low <= self._expected[var.name] <= var.high for var in self.interface.vars
        )
        if sizes == expected and is_within and self._can_record_ahead:
            key = (self._state_set, *self._expected.values())
            self._recorded[key] = self._record_run(self._expected, None)

    @cached_property
    def _can_record_ahead(self) -> bool:
        """Whether no array is part of a command buffer, and results are the device's."""
        copies = [step for step in self.steps if isinstance(step, Transfer)]
        values = self.compiled.values
        return all(step.is_free for step in copies) and all(
            values[number].kind == "output" for number in self.compiled.outputs
        )

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """What goes wrong on the device ends the program until `reset`."""
        try:
            with self.device.failures("run the program"):
                yield
        except AreniteError as error:
            self.fail(str(error))
            raise

    def pack(self, on_progress: OnPacked | None) -> None:
        if self.load_ns is None:
            began = time.perf_counter_ns()
            launches = [self._launch(one, k) for k, one in enumerate(self.compiled.load)]
            submit(self.device, dispatches_of(self.device, launches, self._errors))
            self.load_ns = time.perf_counter_ns() - began
            if on_progress is not None:
                on_progress(1, 1)

    def cancel(self) -> None:
        # What was submitted can't be called back: its results are dropped when they come.
        self._is_cancelled = True

    def _exchange(self, arrays: Sequence[Array], sizes: Mapping[str, int]) -> Exchange:
        return Exchange(self._staging, self.compiled, self._constants, sizes, arrays)

    def _submit(self, recorded: Recorded) -> Pending:
        """Run what is recorded; the results come with the errors of all launches."""
        return Pending(
            self.device,
            recorded.exchange.staging,
            submission.submit(self.device, recorded.commands),
            self.names,
            recorded.exchange.outputs,
            self.fail,
            self._staging.give_back,
        )

    # Binding.

    def bound_table(self, sizes: Mapping[str, int]) -> DispatchTable:
        """The launches, with these sizes and the set of states in use. Values lie where the plan
        for the largest sizes has them: memory is taken for these, and nothing moves."""
        if self._table is None:
            self.n_binds += 1
            launches = [self.compiled.launches[k] for k in self._rows]
            rows = {k: row for row, k in enumerate(self._rows)}
            self._table = DispatchTable(
                self.device,
                [self._launch(self.compiled.launches[k], self._n_load + k) for k in self._rows],
                [launch.sizes for launch in launches],
                [launch.tiles for launch in launches],
                self._errors,
                [range(rows[one[0]], rows[one[-1]] + 1) for one in self._sets if one[0] in rows],
            )
        self._table.resize(sizes)
        return self._table

    def _placed(self) -> Places:
        places = self._resizer.places(self.compiled.plan)
        if self._state_set:
            places.offset[self.state_numbers] = [*map(self._state_at, self.state_numbers)]
        return places

    def _place(self, number: int) -> tuple[Region, int]:
        """The region of a value and the word it begins at, in the set of states in use."""
        return self.regions.place(number, int(self._places.offset[number]))

    def _is_dispatch(self, launch: Launch) -> bool:
        """Whether it is no copy from the host, or to it."""
        return self._on_host.isdisjoint(map(int, launch.arrays))

    @cached_property
    def steps(self) -> list[range | Transfer]:
        """What is recorded, in order: rows of the table, which are one pass, and copies. A pass
        costs as much as several dispatches: one ends only for a copy that is bound to its place."""
        from arenite.hazards import HazardTracker
        from arenite.program.touched import placed

        launches = self.compiled.launches
        ranges = [touched.ranges for touched in placed(launches, self._placed())]
        order = [k for one in self._sets for k in one]

        def free(order: Sequence[int]) -> set[int]:
            """Launches that conflict with none before them in this order."""
            tracker, found = HazardTracker(), set()
            for k in order:
                if not tracker.check(ranges[k]):
                    found.add(k)
                tracker.add(ranges[k])
            return found

        ahead, behind = free(order), free(order[::-1])
        steps: list[range | Transfer] = []
        results: list[Transfer] = []
        first = end = 0
        for k in order:
            launch = launches[k]
            if self._is_dispatch(launch):
                end += 1
                continue
            transfer = self._transfer(k, launch, ahead, behind)
            if transfer.is_free:
                (results if self._is_result(k) else steps).append(transfer)
                continue
            steps += [range(first, end), transfer]
            first = end
        return [*steps, range(first, end), *results]

    def _is_result(self, number: int) -> bool:
        launch = self.compiled.launches[number]
        return not self._on_host.isdisjoint(map(int, launch.writes))

    def _transfer(self, number: int, launch: Launch, ahead: set[int], behind: set[int]) -> Transfer:
        """The copy that a launch is: one of its values is on the host."""
        [host] = [n for n in map(int, launch.arrays) if n in self._on_host]
        [there] = [n for n in map(int, launch.arrays) if n not in self._on_host]
        is_free = number in (behind if self._is_result(number) else ahead)
        return Transfer(number, host, there, is_free)

    def _launch(self, launch: Launch, number: int) -> Bound:
        """A launch at the largest sizes; its error word is that of a number."""
        sizes = {var.name: var.high for var in self.interface.vars}
        return Bound(
            launch.name,
            self.shaders[launch.entry],
            [self._place(int(value)) for value in launch.arrays],
            [evaluate(size, sizes) for size in launch.sizes],
            evaluate(launch.tiles, sizes),
            number,
        )

    @cached_property
    def _sets(self) -> list[list[int]]:
        """Launches by number, in the order they run in: those of a set wait for the same, conflict
        with none of each other on their final addresses, and may be one dispatch."""
        from arenite.hazards import order
        from arenite.program.touched import placed

        launches = self.compiled.launches
        levels = [0] * len(launches)
        for edge in sorted(order(placed(launches, self._placed())), key=lambda one: one.after):
            levels[edge.after] = max(levels[edge.after], levels[edge.before] + 1)
        sets: dict[tuple[int, int], list[int]] = {}
        for k, launch in enumerate(launches):
            kind = -1 - k
            if self._is_dispatch(launch):
                shader = self.shaders[launch.entry]
                kind = min([one.threads for _, _, one in shader.smaller], default=shader.threads)
            sets.setdefault((levels[k], kind), []).append(k)
        return [sets[key] for key in sorted(sets)]

    @cached_property
    def _rows(self) -> list[int]:
        """The numbers of launches that are rows of the table."""
        every = (k for one in self._sets for k in one)
        return [k for k in every if self._is_dispatch(self.compiled.launches[k])]

    def _record_step(
        self,
        encoder: Any,
        table: DispatchTable,
        exchange: Exchange,
        step: range | Transfer,
        times: dict[str, Any] | None = None,
    ) -> None:
        if isinstance(step, Transfer):
            exchange.record(encoder, step, self._place(step.there))
        elif times is not None or table.rows["x"][step.start : step.stop].any():
            record_rows(encoder, table.rows[step.start : step.stop], times)

    # State.

    def use_state_set(self, number: int) -> None:
        if number != self._state_set:
            self._state_set = number
            self._places = self._placed()
            if self._table is not None:
                for row, number in enumerate(self._rows):
                    launch = self.compiled.launches[number]
                    if not self._states.isdisjoint(map(int, launch.arrays)):
                        words = [self._place(int(value))[1] for value in launch.arrays]
                        self._table.place(row, words)

    def _state_at(self, number: int) -> int:
        name = self.compiled.values[number].name
        return self._resizer.offset_of(copy_name(name, self._state_set))

    @contextmanager
    def state(self, number: int) -> Iterator[NDArray[np.uint8]]:
        name = copy_name(self.compiled.values[number].name, self._state_set)
        there = self.regions.planned.view(name)
        content = np.frombuffer(bytearray(there.copyout()), np.uint8)
        before = content.copy()
        yield content
        if not np.array_equal(before, content):
            there.copyin(content)

    # What it shows.

    def verify(self, schedule: Callable[[], Schedule]) -> None:
        from arenite.hazards import Order, order, verify
        from arenite.program.touched import placed

        # As they run: the sets one after another, and no order within a set.
        touched = placed(self.compiled.launches, self._places)
        places = {k: at for at, k in enumerate(k for one in self._sets for k in one)}
        edges = tuple(
            (places[before], places[after])
            for one, other in itertools.pairwise(self._sets)
            for before in one
            for after in other
        )
        verify([touched[k] for k in places], Order(edges=edges))
        for edge in order(touched):
            if places[edge.before] > places[edge.after]:
                raise RaceFound(
                    f"launch {touched[edge.after].name} runs before {touched[edge.before].name}, "
                    "which it conflicts with and stands behind in the program"
                )

    def profile(self, arrays: list[Array], sizes: dict[str, int]) -> Timings:
        from arenite.backends.webgpu.backend import BACKEND

        self.run(arrays, sizes)
        table, exchange = self.bound_table(sizes), self._exchange(arrays, sizes)
        table.write()
        records = np.zeros(len(self.compiled.launches), _STAMP)
        about = self._about(table)
        table.join(False)
        steps = self._single_steps()
        records["kernel"] = range(len(steps))
        if timestamps.kept(self.device):
            self._run_timed(steps, table, exchange, records)
        else:
            for k, step in ((k, steps[k]) for one in self._sets for k in one):
                records["begin"][k] = time.perf_counter_ns()
                self._run_alone(step, table, exchange)
                records["end"][k] = time.perf_counter_ns()
        table.join(True)
        return Timings(records, 1e9, 0, sizes, BACKEND.limits, about)

    def _run_timed(
        self,
        steps: Mapping[int, range | Transfer],
        table: DispatchTable,
        exchange: Exchange,
        records: Array,
    ) -> None:
        """Run with the device's clock around every dispatch; copies are taken for no time."""
        times = timestamps.Timestamps(self.device, max(len(self._rows), 1))
        order = [k for one in self._sets for k in one]
        with self._failing():
            encoder = self.device.device.create_command_encoder()
            for step in (steps[k] for k in order):
                stamps = times.of_pass(step.start) if isinstance(step, range) else None
                self._record_step(encoder, table, exchange, step, stamps)
            times.resolve(encoder)
            self.device.device.queue.submit([encoder.finish()])
            found = times.read()
        records["begin"][self._rows] = found[: len(self._rows), 0]
        records["end"][self._rows] = found[: len(self._rows), 1]
        last = 0
        for k in order:
            if isinstance(steps[k], Transfer):
                records["begin"][k] = records["end"][k] = last
            last = int(records["end"][k])

    def _about(self, table: DispatchTable) -> str:
        n_passes = sum(isinstance(step, range) and len(step) > 0 for step in self.steps)
        return (
            f"{table.n_dispatches} dispatches in {n_passes} passes, {table.n_barriers} of them "
            "behind a barrier"
        )

    def _single_steps(self) -> dict[int, range | Transfer]:
        """A step for each launch, by its number."""
        found: dict[int, range | Transfer] = {
            step.launch: step for step in self.steps if isinstance(step, Transfer)
        }
        for row, number in enumerate(self._rows):
            found[number] = range(row, row + 1)
        return found

    def _run_alone(self, step: range | Transfer, table: DispatchTable, exchange: Exchange) -> None:
        with self._failing():
            encoder = self.device.device.create_command_encoder()
            self._record_step(encoder, table, exchange, step)
            self.device.device.queue.submit([encoder.finish()])
            self.device.synchronize()

    def run_checked(self, arrays: list[Array], sizes: dict[str, int]) -> list[Array]:
        states = {number: self._content_of(number) for number in self.state_numbers}
        with self._failing():
            self.pack(None)
            table, exchange = self.bound_table(sizes), self._exchange(arrays, sizes)
            table.write()
        table.join(False)
        steps = self._single_steps()
        for k in (k for one in self._sets for k in one):
            before = self.regions.contents()
            self._run_alone(steps[k], table, exchange)
            self._check_bytes(self.compiled.launches[k], before, self.regions.contents())
        table.join(True)
        check_errors(self.device.words(self._errors, 0, len(self.names) * WORD_NBYTES), self.names)
        with self._failing():
            encoder = self.device.device.create_command_encoder()
            results = self._submit(self._finished(encoder, exchange)).result()
        for number, content in states.items():
            with self.state(number) as now:
                now[:] = content
        return results

    def _content_of(self, number: int) -> NDArray[np.uint8]:
        with self.state(number) as content:
            return content.copy()

    def _check_bytes(
        self, launch: Launch, before: NDArray[np.uint8], after: NDArray[np.uint8]
    ) -> None:
        """UndeclaredAccess unless all that differs is what the launch writes."""
        differs = before != after
        for number in map(int, launch.writes):
            if number not in self._on_host:
                at = int(self._places.offset[number])
                differs[at : at + in_words(int(self._places.nbytes[number]))] = False
        if differs.any():
            raise UndeclaredAccess(
                f"kernel {launch.name} wrote byte {int(np.flatnonzero(differs)[0])} of the arena, "
                "which it does not declare"
            )

    # Ending.

    def reset(self) -> None:
        self.failure = None
        self._table = None
        self._recorded.clear()
        if self.device.is_lost:
            self.load_ns = None
            self._open()

    def close(self) -> None:
        self._table = None
        self._recorded.clear()
        self._regions = None


def load(interface: GraphInterface, compiled: Compiled) -> WebGpuProgram:
    """A program on the device of its options."""
    return WebGpuProgram(interface, compiled)


def _refuse(compiled: Compiled) -> None:
    """NotCompiled for programs that are more than launches one after another."""
    kinds = {step.kind for step in compiled.steps} - {StepKind.LAUNCH}
    if kinds:
        what = ", ".join(sorted(kind.value for kind in kinds))
        raise NotCompiled(
            f"this program has steps other than launches ({what}): branches, loops, sizes found "
            "while running and calls of the host are not done on WebGPU yet"
        )
