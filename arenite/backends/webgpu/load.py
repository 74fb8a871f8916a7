"""A compiled program on a device: launches become dispatches, results come back when they are done.

In: shaders, launches, values and the plan. Out: a program that is called with arrays. A call
records every launch into one command buffer, copies of arguments and results among them, and
returns a handle (`start`); the next call may be made before the first is waited for.
WebGPU runs dispatches that touch one buffer in the order of the queue, so nothing waits here.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arenite.backends.webgpu import submission, timestamps
from arenite.backends.webgpu.checked import run_checked
from arenite.backends.webgpu.compile import shaders_of
from arenite.backends.webgpu.decoding import Ahead, WebGpuDecoding
from arenite.backends.webgpu.device_memory import staging_nbytes
from arenite.backends.webgpu.dispatch import (
    Bound,
    Dispatch,
    dispatches_of,
    new_buffer,
    submit,
)
from arenite.backends.webgpu.exchange import Exchange, StagingPool, Transfer
from arenite.backends.webgpu.memory import Region, Regions, constants_of
from arenite.backends.webgpu.order import LaunchOrder
from arenite.backends.webgpu.recorder import record_rows
from arenite.backends.webgpu.results import Pending
from arenite.backends.webgpu.shader import Shader
from arenite.backends.webgpu.table import DispatchTable
from arenite.device import Buffer
from arenite.device.registry import get
from arenite.device.webgpu import WORD_NBYTES, WebGpuAllocator
from arenite.dtype import uint8
from arenite.errors import (
    AreniteError,
    NotCompiled,
    RunCancelled,
)
from arenite.ir.dim import evaluate
from arenite.ir.interface import GraphInterface
from arenite.program.arguments import check_room, write_to
from arenite.program.compiled import Compiled
from arenite.program.decoding import TokenChoice
from arenite.program.launch import Launch
from arenite.program.lazy_sequence import LazySequence
from arenite.program.loaded import LoadedProgram, OnPacked, Timings
from arenite.program.places import Places, Resizer
from arenite.program.steps import StepKind
from arenite.program.value_spec import copy_name

if TYPE_CHECKING:
    from arenite.schedule import Schedule

Array = NDArray[Any]


class Recorded(NamedTuple):
    """The command buffer of a run, which can be submitted once."""

    exchange: Exchange
    commands: Any


class SamplerLaunch(NamedTuple):
    """The launch that chooses a token, and its memory."""

    region: Region
    sample: Dispatch
    shader: Shader


class WebGpuProgram(LoadedProgram):
    """One program on one device."""

    def __init__(self, interface: GraphInterface, compiled: Compiled) -> None:
        _refuse(compiled)
        super().__init__(interface, compiled)
        self.shaders = shaders_of(compiled.image)
        self.names = LazySequence(
            len(compiled.load) + len(compiled.launches),
            lambda: [one.with_origins for one in (*compiled.load_kernels, *compiled.kernels)],
        )
        self._resizer = Resizer(compiled.frame, compiled.plan, {})
        self._constants = constants_of(interface, compiled)
        self._n_load = len(compiled.load)
        self._states = frozenset(map(int, self.state_numbers))
        self._state_set = 0
        self.places = self._placed()
        self._table: DispatchTable | None = None
        self._recorded: dict[tuple[int, ...], Recorded] = {}  # ahead, by state set and sizes
        self._ahead: dict[int, deque[Ahead]] = {}  # of texts whose tokens are chosen here
        self._last: dict[str, int] = {}
        self._expected: dict[str, int] | None = None
        self._is_cancelled = False
        self._open()

    def _open(self) -> None:
        """Take memory on the device."""
        device = get(self.compiled.options.device)
        assert isinstance(device, WebGpuAllocator)
        self.device = device
        self._samplers: dict[int, SamplerLaunch] = {}
        self._regions: Regions | None = Regions(device, self.compiled, self._constants)
        nbytes = len(self.names) * WORD_NBYTES
        self.staging = StagingPool(device, staging_nbytes(self.compiled.values, len(self.names)))
        self._errors = new_buffer(device, nbytes, "STORAGE COPY_SRC COPY_DST")
        with self._regions.uploading(self._constants) as has_time:
            # Pipelines are made meanwhile, for the longest runs and for the shortest.
            for which in ("high", "low") if has_time else ():
                self.bound_table({var.name: getattr(var, which) for var in self.interface.vars})

    @cached_property
    def order(self) -> LaunchOrder:
        """In which its launches are recorded."""
        return LaunchOrder(self.compiled, self.shaders, self._placed())

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
        self.check_cancelled()
        return results if out is None else write_to(out, results, [None] * len(out), "")

    def start(self, arrays: list[Array], sizes: dict[str, int]) -> Pending:
        """Begin a run; its results can be asked for later."""
        with self.failing():
            self.pack(None)
            recorded = self._recorded.pop((self._state_set, *sizes.values()), None)
            if recorded is None:
                recorded = self._record_run(sizes, arrays)
            else:
                recorded.exchange.arrays = arrays
                for step in self.order.arguments:
                    recorded.exchange.record(None, step, self.place(step.there))
            self.bound_table(sizes).write()
            pending = self.submit(recorded)
            self._record_ahead(sizes)
            return pending

    def _record_run(self, sizes: Mapping[str, int], arrays: Sequence[Array] | None) -> Recorded:
        """The command buffer of a run, of which arrays may be known later."""
        table = self.bound_table(sizes)
        exchange = self.exchange(arrays or (), sizes)
        encoder = self.encoder()
        for step in self.order.steps:
            is_given = isinstance(step, Transfer) and not self.order.is_result(step)
            if arrays is not None or not is_given:
                self.record_step(encoder, table, exchange, step)
        return self.finished(encoder, exchange)

    def encoder(self) -> Any:
        """What a run is recorded with; it has no errors yet."""
        encoder = self.device.device.create_command_encoder()
        encoder.clear_buffer(self._errors)
        return encoder

    def finished(self, encoder: Any, exchange: Exchange) -> Recorded:
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
        for one in self._recorded.values():
            self.staging.give_back(one.exchange.staging)
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
        copies = [step for step in self.order.steps if isinstance(step, Transfer)]
        values = self.compiled.values
        return all(step.is_free for step in copies) and all(
            values[number].kind == "output" for number in self.compiled.outputs
        )

    @contextmanager
    def failing(self) -> Iterator[None]:
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
            self.regions.give_back_sources()
            self.load_ns = time.perf_counter_ns() - began
            if on_progress is not None:
                on_progress(1, 1)

    def cancel(self) -> None:
        # What was submitted can't be called back: its results are dropped when they come.
        self._is_cancelled = True

    def check_cancelled(self) -> None:
        """RunCancelled, if someone has asked for it."""
        if self._is_cancelled:
            raise RunCancelled("the run was cancelled; the Executable can be called again")

    def exchange(self, arrays: Sequence[Array], sizes: Mapping[str, int]) -> Exchange:
        outputs = self.compiled.outputs
        return Exchange(self.staging, self.compiled, self._constants, sizes, arrays, outputs)

    def decoder(
        self, choice: TokenChoice, tokens: Sequence[int], numbers: NDArray[np.float64]
    ) -> WebGpuDecoding | None:
        """Runs that choose their own tokens, if they can here."""
        self._is_cancelled = False
        with self.failing():
            self.pack(None)
            return WebGpuDecoding.begin(self, choice, tokens, numbers)

    @property
    def ahead(self) -> deque[Ahead]:
        """Runs that were recorded for texts with the set of states in use: one that ends leaves
        some to the next."""
        return self._ahead.setdefault(self._state_set, deque())

    def sampler(self, nbytes: int, shader: Shader, logits: int) -> SamplerLaunch:
        """Memory for choosing tokens and the launch that chooses by a value of logits, one for each
        set of states: a text that is made with the states of another ends that one."""
        known = self._samplers.get(self._state_set)
        has_room = known is not None and known.region.buffer.nbytes >= nbytes
        if known is None or not has_room or known.shader is not shader:
            slot = self.compiled.plan.slots.get("webgpu: sampler")
            planned = 0 if slot is None else slot.nbytes // self.n_state_sets
            buffer = Buffer.allocate(self.device, uint8, (max(planned, nbytes),))
            region = Region.of("sampler", buffer)
            bound = Bound("sample", shader, [self.place(logits), (region, 0)], (), 1, 0)
            [sample] = dispatches_of(self.device, [bound], None)
            known = self._samplers[self._state_set] = SamplerLaunch(region, sample, shader)
            self.ahead.clear()  # which is bound to another
        return known

    def submit(self, recorded: Recorded) -> Pending:
        """Run what is recorded; the results come with the errors of all launches."""
        return Pending(
            self.device,
            recorded.exchange.staging,
            submission.submit(self.device, recorded.commands),
            self.names,
            recorded.exchange.outputs,
            self.fail,
            self.staging.give_back,
        )

    # Binding.

    def bound_table(self, sizes: Mapping[str, int]) -> DispatchTable:
        """The launches, with these sizes and the set of states in use. Values lie where the plan
        for the largest sizes has them: memory is taken for these, and nothing moves."""
        if self._table is None:
            self.n_binds += 1
            rows = self.order.rows
            launches = [self.compiled.launches[k] for k in rows]
            self._table = DispatchTable(
                self.device,
                [self._launch(self.compiled.launches[k], self._n_load + k) for k in rows],
                [launch.sizes for launch in launches],
                [launch.tiles for launch in launches],
                self._errors,
                self.order.joinable,
            )
        self._table.resize(sizes)
        return self._table

    def _placed(self) -> Places:
        places = self._resizer.places(self.compiled.plan)
        if self._state_set:
            places.offset[self.state_numbers] = [*map(self._state_at, self.state_numbers)]
        return places

    def place(self, number: int) -> tuple[Region, int]:
        """The region of a value and the word it begins at, in the set of states in use."""
        return self.regions.place(number, int(self.places.offset[number]))

    def _launch(self, launch: Launch, number: int) -> Bound:
        """A launch at the largest sizes; its error word is that of a number."""
        sizes = {var.name: var.high for var in self.interface.vars}
        return Bound(
            launch.name,
            self.shaders[launch.entry],
            [self.place(int(value)) for value in launch.arrays],
            [evaluate(size, sizes) for size in launch.sizes],
            evaluate(launch.tiles, sizes),
            number,
        )

    def record_step(
        self,
        encoder: Any,
        table: DispatchTable,
        exchange: Exchange,
        step: range | Transfer,
        times: dict[str, Any] | None = None,
    ) -> None:
        if isinstance(step, Transfer):
            exchange.record(encoder, step, self.place(step.there))
        elif times is not None or table.rows["x"][step.start : step.stop].any():
            record_rows(encoder, table.rows[step.start : step.stop].reshape(-1), times)

    def run_alone(self, step: range | Transfer, table: DispatchTable, exchange: Exchange) -> None:
        """A step by itself, and wait for it."""
        with self.failing():
            encoder = self.device.device.create_command_encoder()
            self.record_step(encoder, table, exchange, step)
            self.device.device.queue.submit([encoder.finish()])
            self.device.synchronize()

    # State.

    def use_state_set(self, number: int) -> None:
        if number != self._state_set:
            self._state_set = number
            self.places = self._placed()
            if self._table is not None:
                for row, number in enumerate(self.order.rows):
                    launch = self.compiled.launches[number]
                    if not self._states.isdisjoint(map(int, launch.arrays)):
                        words = [self.place(int(value))[1] for value in launch.arrays]
                        self._table.place(row, words)

    def _state_at(self, number: int) -> int:
        name = self.compiled.values[number].name
        return self._resizer.offset_of(copy_name(name, self._state_set))

    @contextmanager
    def state(self, number: int) -> Iterator[NDArray[np.uint8]]:
        name = copy_name(self.compiled.values[number].name, self._state_set)
        there = self.regions.view(name)
        content = np.frombuffer(bytearray(there.copyout()), np.uint8)
        before = content.copy()
        yield content
        if not np.array_equal(before, content):
            there.copyin(content)

    # What it shows.

    def verify(self, schedule: Callable[[], Schedule]) -> None:
        self.order.verify(self.places)

    def profile(self, arrays: list[Array], sizes: dict[str, int]) -> Timings:
        return timestamps.profile(self, arrays, sizes)

    def run_checked(self, arrays: list[Array], sizes: dict[str, int]) -> list[Array]:
        return run_checked(self, arrays, sizes)

    # Ending.

    @property
    def is_lost(self) -> bool:
        return self.device.is_lost

    def reset(self) -> None:
        self.failure = None
        self._table = None
        self._recorded.clear()
        self._ahead.clear()
        if self.is_lost:
            self.load_ns = None
            self._open()

    def close(self) -> None:
        self._table = None
        self._recorded.clear()
        self._ahead.clear()
        self._samplers.clear()
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
