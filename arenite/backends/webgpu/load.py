"""A compiled program on a device: launches become dispatches, results come back when they are done.

In: shaders, launches, values and the plan. Out: a program that is called with arrays. A call writes
the inputs, records every launch into one command buffer, has the results copied to memory that can
be mapped, and returns a handle (`start`); the next call may be made before the first is waited for.
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
from arenite.backends.webgpu.failure import check_errors
from arenite.backends.webgpu.memory import Regions, constants_of
from arenite.backends.webgpu.results import Output, Pending
from arenite.device.registry import get
from arenite.device.webgpu import WORD_NBYTES, WebGpuAllocator
from arenite.errors import AreniteError, NotCompiled, RunCancelled, UndeclaredAccess
from arenite.ir.dim import evaluate
from arenite.ir.outline import Outline
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

    def __init__(self, outline: Outline, compiled: Compiled) -> None:
        _refuse(compiled)
        super().__init__(outline, compiled)
        self.shaders = shaders_of(compiled.image)
        self.names = [one.name for one in (*compiled.load, *compiled.launches)]
        self._resizer = Resizer(compiled.frame, compiled.plan, {})
        self._constants = constants_of(outline, compiled)
        self._state_set = 0
        self._bound: OrderedDict[tuple[int, ...], list[Dispatch]] = OrderedDict()
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
            dispatches = self.dispatches(sizes)
            self._write_inputs(arrays)
            encoder = self.device.device.create_command_encoder()
            encoder.clear_buffer(self._errors)
            record(encoder, dispatches)
            return self._copy_back(encoder, arrays, sizes)

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
            submit(self.device, self._bind(self.compiled.load, 0, places, {}))
            self.load_ns = time.perf_counter_ns() - began
            if on_progress is not None:
                on_progress(1, 1)

    def cancel(self) -> None:
        # What was submitted can't be called back: its results are dropped when they come.
        self._is_cancelled = True

    def _write_inputs(self, arrays: Sequence[Array]) -> None:
        for number in self.compiled.frame.numbers("input"):
            array = arrays[self.compiled.values[number].source]
            if array.nbytes:
                data = np.zeros(-(-array.nbytes // WORD_NBYTES) * WORD_NBYTES, np.uint8)
                data[: array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
                at = self.regions.io_at[number]
                self.device.device.queue.write_buffer(self.regions.io.gpu, at, data)

    def _copy_back(self, encoder: Any, arrays: list[Array], sizes: Mapping[str, int]) -> Pending:
        values = self.compiled.values
        end = n_errors = len(self.names) * WORD_NBYTES
        outputs: list[Output] = []
        copies = []
        for number in self.compiled.outputs:
            value, dtype = values[number], values[number].dtype.to_numpy()
            shape = tuple(evaluate(dim, sizes) for dim in value.shape)
            if value.kind in ("input", "constant"):
                is_input = value.kind == "input"
                known = arrays[value.source] if is_input else self._constants[number].array()
                outputs.append(Output(shape, dtype, known=known))
                continue
            outputs.append(Output(shape, dtype, end))
            nbytes = -(-evaluate(value.nbytes, sizes) // WORD_NBYTES) * WORD_NBYTES
            if nbytes:
                copies.append((number, end, nbytes))
            end += nbytes
        staging = new_buffer(self.device, end, "COPY_DST MAP_READ")
        if n_errors:
            encoder.copy_buffer_to_buffer(self._errors, 0, staging, 0, n_errors)
        offsets = self._places(self.compiled.plan).offset
        for number, at, nbytes in copies:
            region, first = self.regions.place(number, int(offsets[number]))
            encoder.copy_buffer_to_buffer(region.gpu, first * WORD_NBYTES, staging, at, nbytes)
        self.device.device.queue.submit([encoder.finish()])
        return Pending(self.device, staging, self.names, outputs, self.fail)

    # Binding.

    def dispatches(self, sizes: dict[str, int]) -> list[Dispatch]:
        """What is recorded for a run of these sizes."""
        key = (self._state_set, *(sizes[var.name] for var in self.outline.vars))
        found = self._bound.get(key)
        if found is None:
            self.n_binds += 1
            plan = self._resizer.plan_for(sizes) if self.outline.vars else self.compiled.plan
            first = len(self.compiled.load)
            found = self._bind(self.compiled.launches, first, self._places(plan), sizes)
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

    def _bind(
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
        from arenite.program.touched import touched

        launches = self.compiled.launches
        in_order = tuple((k, k + 1) for k in range(len(launches) - 1))
        places = self._places(self.compiled.plan)
        verify(touched(launches, places), Order(edges=in_order))

    def profile(self, arrays: list[Array], sizes: dict[str, int]) -> Timings:
        from arenite.backends.webgpu.backend import BACKEND

        self.run(arrays, sizes)
        records = np.zeros(len(self.compiled.launches), _STAMP)
        dispatches = iter(self.dispatches(sizes))
        for k, launch in enumerate(self.compiled.launches):
            records["kernel"][k] = k
            records["begin"][k] = time.perf_counter_ns()
            if evaluate(launch.tiles, sizes):
                self._run_alone(next(dispatches))
            records["end"][k] = time.perf_counter_ns()
        return Timings(records, 1e9, 0, sizes, BACKEND.limits)

    def _run_alone(self, dispatch: Dispatch) -> None:
        with self._failing():
            submit(self.device, [dispatch])
            self.device.synchronize()

    def run_checked(self, arrays: list[Array], sizes: dict[str, int]) -> list[Array]:
        states = {number: self._content_of(number) for number in self.state_numbers}
        with self._failing():
            self.pack(None)
            self._write_inputs(arrays)
        plan = self._resizer.plan_for(sizes) if self.outline.vars else self.compiled.plan
        places = self._places(plan)
        dispatches = iter(self.dispatches(sizes))
        for launch in self.compiled.launches:
            if not evaluate(launch.tiles, sizes):
                continue
            before = self.regions.contents()
            self._run_alone(next(dispatches))
            self._check_bytes(launch, places, before, self.regions.contents(), sizes)
        check_errors(self.device.words(self._errors, 0, len(self.names) * WORD_NBYTES), self.names)
        with self._failing():
            encoder = self.device.device.create_command_encoder()
            results = self._copy_back(encoder, arrays, sizes).result()
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
        before: Mapping[str, NDArray[np.uint8]],
        after: Mapping[str, NDArray[np.uint8]],
        sizes: Mapping[str, int],
    ) -> None:
        """UndeclaredAccess unless all that differs is what the launch writes."""
        differs = {name: before[name] != after[name] for name in before}
        for value in launch.writes:
            number = int(value)
            region, at = self.regions.place(number, int(places.offset[number]))
            nbytes = int(places.nbytes[number])
            if number in self.regions.io_at:
                nbytes = evaluate(self.compiled.values[number].nbytes, sizes)
            differs[region.name][at * WORD_NBYTES : at * WORD_NBYTES + nbytes] = False
        for name, wrong in differs.items():
            if wrong.any():
                raise UndeclaredAccess(
                    f"kernel {launch.name} wrote byte {int(np.flatnonzero(wrong)[0])} of the "
                    f"{name}, which it does not declare"
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


def load(outline: Outline, compiled: Compiled) -> WebGpuProgram:
    """A program on the device of its options."""
    return WebGpuProgram(outline, compiled)


def _refuse(compiled: Compiled) -> None:
    """NotCompiled for programs that are more than launches one after another."""
    kinds = {step.kind for step in compiled.steps} - {StepKind.LAUNCH}
    if kinds:
        what = ", ".join(sorted(kind.value for kind in kinds))
        raise NotCompiled(
            f"this program has steps other than launches ({what}): branches, loops, sizes found "
            "while running and calls of the host are not done on WebGPU yet"
        )
