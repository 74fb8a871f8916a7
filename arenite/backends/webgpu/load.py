"""A compiled program on a device: launches become dispatches, results come back when they are done.

In: shaders, launches, values and the plan. Out: a program that is called with arrays. A call
records every launch into one command buffer, copies of arguments and results among them, and
returns a handle (`start`); the next call may be made before the first is waited for.
WebGPU runs dispatches that touch one buffer in the order of the queue, so nothing waits here.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from arenite.backends.webgpu.compile import shaders_of
from arenite.backends.webgpu.dispatch import (
    Bound,
    Dispatch,
    dispatches_of,
    new_buffer,
    record,
    submit,
)
from arenite.backends.webgpu.exchange import Exchange, Transfer, in_words
from arenite.backends.webgpu.failure import check_errors
from arenite.backends.webgpu.memory import Regions, constants_of
from arenite.backends.webgpu.results import Pending
from arenite.device.registry import get
from arenite.device.webgpu import WORD_NBYTES, WebGpuAllocator
from arenite.errors import AreniteError, NotCompiled, RunCancelled, UndeclaredAccess
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

#: Bindings of variables whose dispatches are kept.
MAX_BOUND = 16
_STAMP = np.dtype([(name, np.int64) for name in "worker tick kernel tile begin end".split()])


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
        self._state_set = 0
        self._bound: OrderedDict[tuple[int, ...], list[Dispatch | Transfer]] = OrderedDict()
        self._is_cancelled = False
        self._open()

    def _open(self) -> None:
        """Take memory on the device."""
        device = get(self.compiled.options.device)
        assert isinstance(device, WebGpuAllocator)
        self.device = device
        self._regions: Regions | None = Regions(device, self.compiled, self._constants)
        nbytes = len(self.names) * WORD_NBYTES
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
            steps, exchange = self.steps(sizes), self._exchange(arrays, sizes)
            encoder = self.device.device.create_command_encoder()
            encoder.clear_buffer(self._errors)
            _record(encoder, steps, exchange)
            return self._submit(encoder, exchange)

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
            places = self._resizer.places(self.compiled.plan)
            submit(self.device, self._dispatches(self.compiled.load, 0, places, {}))
            self.load_ns = time.perf_counter_ns() - began
            if on_progress is not None:
                on_progress(1, 1)

    def cancel(self) -> None:
        # What was submitted can't be called back: its results are dropped when they come.
        self._is_cancelled = True

    def _exchange(self, arrays: Sequence[Array], sizes: Mapping[str, int]) -> Exchange:
        return Exchange(self.device, self.compiled, self._constants, arrays, sizes)

    def _submit(self, encoder: Any, exchange: Exchange) -> Pending:
        """Run what is recorded; the results come with the errors of all launches."""
        if self.names:
            nbytes = len(self.names) * WORD_NBYTES
            encoder.copy_buffer_to_buffer(self._errors, 0, exchange.staging, 0, nbytes)
        self.device.device.queue.submit([encoder.finish()])
        return Pending(self.device, exchange.staging, self.names, exchange.outputs, self.fail)

    # Binding.

    def steps(self, sizes: dict[str, int]) -> list[Dispatch | Transfer]:
        """What is recorded for a run of these sizes: a step a launch that has work."""
        key = (self._state_set, *(sizes[var.name] for var in self.interface.vars))
        found = self._bound.get(key)
        if found is None:
            self.n_binds += 1
            plan = self._resizer.plan_for(sizes) if self.interface.vars else self.compiled.plan
            found = self._bind(self._places(plan), sizes)
            self._bound[key] = found
            if len(self._bound) > MAX_BOUND:
                self._bound.popitem(last=False)
        self._bound.move_to_end(key)
        return found

    def _places(self, plan: Any) -> Places:
        places = self._resizer.places(plan)
        if self._state_set:
            places.offset[self.state_numbers] = [*map(self._state_at, self.state_numbers)]
        return places

    def _bind(self, places: Places, sizes: Mapping[str, int]) -> list[Dispatch | Transfer]:
        from arenite.hazards import HazardTracker
        from arenite.program.touched import placed

        launches, first = self.compiled.launches, len(self.compiled.load)
        dispatches = iter(self._dispatches(launches, first, places, sizes))
        ranges = [touched.ranges for touched in placed(launches, places)]

        def free(order: Sequence[int]) -> set[int]:
            """Launches that conflict with none before them in this order."""
            tracker, found = HazardTracker(), set()
            for k in order:
                if not tracker.check(ranges[k]):
                    found.add(k)
                tracker.add(ranges[k])
            return found

        ahead, behind = free(range(len(ranges))), free(range(len(ranges))[::-1])
        steps: list[Dispatch | Transfer] = []
        for k, launch in enumerate(launches):
            if evaluate(launch.tiles, sizes):
                is_result = not self._on_host.isdisjoint(map(int, launch.writes))
                is_free = k in (behind if is_result else ahead)
                transfer = self._transfer(launch, places, sizes, is_free)
                steps.append(transfer or next(dispatches))
        return steps

    def _transfer(
        self, launch: Launch, places: Places, sizes: Mapping[str, int], is_free: bool
    ) -> Transfer | None:
        """The copy that a launch is, if one of its values is on the host."""
        on_host = [number for number in map(int, launch.arrays) if number in self._on_host]
        if not on_host:
            return None
        [host], [there] = on_host, [n for n in map(int, launch.arrays) if n not in self._on_host]
        region, word = self.regions.place(there, int(places.offset[there]))
        nbytes = in_words(evaluate(self.compiled.values[host].nbytes, sizes))
        return Transfer(launch.name, host, region.gpu, word * WORD_NBYTES, nbytes, is_free)

    def _dispatches(
        self, launches: Sequence[Launch], first: int, places: Places, sizes: Mapping[str, int]
    ) -> list[Dispatch]:
        bound = [
            Bound(
                launch.name,
                self.shaders[launch.entry],
                [self.regions.place(int(v), int(places.offset[int(v)])) for v in launch.arrays],
                [evaluate(size, sizes) for size in launch.sizes],
                evaluate(launch.tiles, sizes),
                first + row,
            )
            for row, launch in enumerate(launches)
            if self._on_host.isdisjoint(map(int, launch.arrays))
        ]
        return dispatches_of(self.device, bound, self._errors)

    # State.

    def use_state_set(self, number: int) -> None:
        self._state_set = number

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
        from arenite.hazards import Order, verify
        from arenite.program.touched import placed

        launches = self.compiled.launches
        in_order = tuple((k, k + 1) for k in range(len(launches) - 1))
        places = self._places(self.compiled.plan)
        verify(placed(launches, places), Order(edges=in_order))

    def profile(self, arrays: list[Array], sizes: dict[str, int]) -> Timings:
        from arenite.backends.webgpu.backend import BACKEND

        self.run(arrays, sizes)
        exchange = self._exchange(arrays, sizes)
        records = np.zeros(len(self.compiled.launches), _STAMP)
        steps = iter(self.steps(sizes))
        for k, launch in enumerate(self.compiled.launches):
            records["kernel"][k] = k
            records["begin"][k] = time.perf_counter_ns()
            if evaluate(launch.tiles, sizes):
                self._run_alone(next(steps), exchange)
            records["end"][k] = time.perf_counter_ns()
        return Timings(records, 1e9, 0, sizes, BACKEND.limits)

    def _run_alone(self, step: Dispatch | Transfer, exchange: Exchange) -> None:
        with self._failing():
            encoder = self.device.device.create_command_encoder()
            _record(encoder, [step], exchange)
            self.device.device.queue.submit([encoder.finish()])
            self.device.synchronize()

    def run_checked(self, arrays: list[Array], sizes: dict[str, int]) -> list[Array]:
        states = {number: self._content_of(number) for number in self.state_numbers}
        with self._failing():
            self.pack(None)
            exchange = self._exchange(arrays, sizes)
        plan = self._resizer.plan_for(sizes) if self.interface.vars else self.compiled.plan
        places = self._places(plan)
        steps = iter(self.steps(sizes))
        for launch in self.compiled.launches:
            if not evaluate(launch.tiles, sizes):
                continue
            before = self.regions.contents()
            self._run_alone(next(steps), exchange)
            self._check_bytes(launch, places, before, self.regions.contents())
        check_errors(self.device.words(self._errors, 0, len(self.names) * WORD_NBYTES), self.names)
        with self._failing():
            encoder = self.device.device.create_command_encoder()
            results = self._submit(encoder, exchange).result()
        for number, content in states.items():
            with self.state(number) as now:
                now[:] = content
        return results

    def _content_of(self, number: int) -> NDArray[np.uint8]:
        with self.state(number) as content:
            return content.copy()

    def _check_bytes(
        self,
        launch: Launch,
        places: Places,
        before: NDArray[np.uint8],
        after: NDArray[np.uint8],
    ) -> None:
        """UndeclaredAccess unless all that differs is what the launch writes."""
        differs = before != after
        for number in map(int, launch.writes):
            if number not in self._on_host:
                at = int(places.offset[number])
                differs[at : at + in_words(int(places.nbytes[number]))] = False
        if differs.any():
            raise UndeclaredAccess(
                f"kernel {launch.name} wrote byte {int(np.flatnonzero(differs)[0])} of the arena, "
                "which it does not declare"
            )

    # Ending.

    def reset(self) -> None:
        self.failure = None
        self._bound.clear()
        if self.device.is_lost:
            self.load_ns = None
            self._open()

    def close(self) -> None:
        self._bound.clear()
        self._regions = None


def _record(encoder: Any, steps: Sequence[Dispatch | Transfer], exchange: Exchange) -> None:
    """Put steps into a command buffer, in order. A pass costs as much as several dispatches: one
    ends only for a copy that is bound to its place."""
    dispatches: list[Dispatch] = []
    free: list[Transfer] = []
    for step in steps:
        if isinstance(step, Dispatch):
            dispatches.append(step)
        elif step.is_free:
            free.append(step)
        else:
            record(encoder, dispatches)
            dispatches = []
            exchange.record(encoder, step)
    record(encoder, dispatches)
    for step in free:
        exchange.record(encoder, step)


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
