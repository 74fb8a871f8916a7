"""A compiled program on a device: launches become dispatches, results come back when they are done.

In: shaders, launches, values and the plan. Out: a program that is called with arrays. A call writes
the inputs, records every launch into one command buffer, has the results copied to memory that can
be mapped, and returns a handle; the next call may be made before the first is waited for. WebGPU
orders dispatches by what they bind, so nothing waits here.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arenite.backends.webgpu.compile import shaders_of
from arenite.backends.webgpu.dispatch import Bound, Dispatch, dispatches_of, new_buffer, record
from arenite.backends.webgpu.failure import check_errors
from arenite.backends.webgpu.memory import Regions, shape_of
from arenite.device.webgpu import WORD_NBYTES, WebGpuAllocator
from arenite.errors import NotCompiled
from arenite.ir.dim import evaluate
from arenite.ir.outline import Outline
from arenite.program.arguments import Arguments
from arenite.program.compiled import Compiled
from arenite.program.launch import Launch
from arenite.program.lazy_sequence import LaterMapping
from arenite.program.places import Places
from arenite.program.resize import Resizer
from arenite.program.steps import StepKind

Array = NDArray[Any]

#: Bindings of variables whose dispatches are kept.
MAX_BOUND = 16


class Pending:
    """Results that may not be there yet."""

    def __init__(self, program: Loaded, staging: Any, mapped: Any, outputs: list[_Output]) -> None:
        self._program = program
        self._staging = staging
        self._mapped = mapped
        self._outputs = outputs
        self._results: list[Array] | None = None

    def result(self) -> list[Array]:
        """Wait for the results, or for the error that the run ended with."""
        if self._results is None:
            device = self._program.device
            with device.failures("wait for results"):
                self._mapped.sync_wait()
                data = np.frombuffer(self._staging.read_mapped(copy=True), np.uint8)
                self._staging.unmap()
            check_errors(data.data, self._program.names)
            self._results = [output.array(data) for output in self._outputs]
        return self._results


@dataclass(frozen=True, slots=True)
class _Output:
    """A result: bytes of the staging memory, or an array that is there already."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    at: int = 0
    known: Array | None = None

    def array(self, data: NDArray[np.uint8]) -> Array:
        if self.known is not None:
            return self.known.copy()
        count = int(np.prod(self.shape, dtype=np.int64))
        end = self.at + count * self.dtype.itemsize
        return data[self.at : end].copy().view(self.dtype).reshape(self.shape)


class Loaded:
    """One program on one device."""

    def __init__(self, outline: Outline, compiled: Compiled, device: WebGpuAllocator) -> None:
        _refuse(compiled)
        self.device = device
        self.compiled = compiled
        self.shaders = shaders_of(compiled.image)
        self.arguments = Arguments(outline.inputs, outline.vars)
        self._variables = outline.vars
        self._resizer = Resizer(
            compiled.frame, compiled.plan, LaterMapping(cache(lambda: compiled.pointers))
        )
        self._constants = _constants(outline, compiled)
        self.regions = Regions(device, compiled, self._constants)
        self.names = [one.name for one in (*compiled.load, *compiled.launches)]
        self._errors = new_buffer(
            self.device, len(self.names) * WORD_NBYTES, "STORAGE COPY_SRC COPY_DST"
        )
        self._bound: OrderedDict[tuple[int, ...], list[Dispatch]] = OrderedDict()
        self._is_packed = False

    # Running.

    def run(self, arrays: Sequence[Array]) -> list[Array]:
        """The results."""
        return self.start(arrays).result()

    def start(self, arrays: Sequence[Array]) -> Pending:
        """Begin a run; its results can be asked for later."""
        arrays = self.arguments.fitting([np.asarray(array) for array in arrays])
        sizes = self.arguments.sizes(arrays) if self.arguments.is_open else {}
        dispatches = self._dispatches(sizes)
        with self.device.failures("run the program"):
            self._pack()
            for number, value in enumerate(self.compiled.values):
                if value.kind == "input":
                    self._write(number, arrays[value.source])
            encoder = self.device.device.create_command_encoder()
            encoder.clear_buffer(self._errors)
            record(encoder, dispatches)
            return self._copy_back(encoder, arrays, sizes)

    def profile(self, arrays: Sequence[Array]) -> list[tuple[str, float]]:
        """Run launch by launch: names and seconds, the way to the device and back included."""
        import time

        arrays = self.arguments.fitting([np.asarray(array) for array in arrays])
        self.start(arrays).result()
        times = []
        for dispatch in self._dispatches(self.arguments.sizes(arrays)):
            began = time.perf_counter()
            with self.device.failures(f"run {dispatch.name}"):
                encoder = self.device.device.create_command_encoder()
                record(encoder, [dispatch])
                self.device.device.queue.submit([encoder.finish()])
            self.device.synchronize()
            times.append((dispatch.name, time.perf_counter() - began))
        return times

    def close(self) -> None:
        """Let go of everything on the device."""
        self._bound.clear()
        del self.regions, self._errors

    def _write(self, number: int, array: Array) -> None:
        if array.nbytes:
            data = np.zeros(-(-array.nbytes // WORD_NBYTES) * WORD_NBYTES, np.uint8)
            data[: array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            at = self.regions.io_at[number]
            self.device.device.queue.write_buffer(self.regions.io.gpu, at, data)

    def _pack(self) -> None:
        """What depends on constants alone, once."""
        if not self._is_packed:
            places = self._resizer.places(self.compiled.plan)
            encoder = self.device.device.create_command_encoder()
            record(encoder, self._bind(self.compiled.load, 0, places, {}))
            self.device.device.queue.submit([encoder.finish()])
            self._is_packed = True

    def _copy_back(self, encoder: Any, arrays: list[Array], sizes: Mapping[str, int]) -> Pending:
        values = self.compiled.values
        end = len(self.names) * WORD_NBYTES
        outputs: list[_Output] = []
        copies = []
        for number in self.compiled.outputs:
            value, dtype = values[number], values[number].dtype.to_numpy()
            shape = shape_of(self.compiled, number, sizes)
            if value.kind == "input":
                outputs.append(_Output(shape, dtype, known=arrays[value.source]))
            elif value.kind == "constant":
                known = self._constants[number].reshape(shape)
                outputs.append(_Output(shape, dtype, known=known))
            else:
                outputs.append(_Output(shape, dtype, end))
                nbytes = evaluate(value.nbytes, sizes)
                nbytes = -(-nbytes // WORD_NBYTES) * WORD_NBYTES
                if nbytes:
                    copies.append((number, end, nbytes))
                end += nbytes
        staging = new_buffer(self.device, max(end, WORD_NBYTES), "COPY_DST MAP_READ")
        encoder.copy_buffer_to_buffer(self._errors, 0, staging, 0, len(self.names) * WORD_NBYTES)
        offsets = self._resizer.places(self.compiled.plan).offset
        for number, at, nbytes in copies:
            region, first = self.regions.place(number, int(offsets[number]))
            encoder.copy_buffer_to_buffer(region.gpu, first * WORD_NBYTES, staging, at, nbytes)
        self.device.device.queue.submit([encoder.finish()])
        return Pending(self, staging, staging.map_async("READ"), outputs)

    # Binding.

    def _dispatches(self, sizes: dict[str, int]) -> list[Dispatch]:
        key = tuple(sizes[var.name] for var in self._variables)
        found = self._bound.get(key)
        if found is None:
            plan = self._resizer.plan_for(sizes) if self._variables else self.compiled.plan
            first = len(self.compiled.load)
            places = self._resizer.places(plan)
            with self.device.failures("bind the program"):
                found = self._bind(self.compiled.launches, first, places, sizes)
            self._bound[key] = found
            if len(self._bound) > MAX_BOUND:
                self._bound.popitem(last=False)
        self._bound.move_to_end(key)
        return found

    def _bind(
        self, launches: Sequence[Launch], first: int, places: Places, sizes: Mapping[str, int]
    ) -> list[Dispatch]:
        offsets = places.offset
        bound = [
            Bound(
                launch.name,
                self.shaders[launch.entry],
                [self.regions.place(int(v), int(offsets[int(v)])) for v in launch.arrays],
                [evaluate(size, sizes) for size in launch.sizes],
                evaluate(launch.tiles, sizes),
                first + row,
            )
            for row, launch in enumerate(launches)
        ]
        return dispatches_of(self.device, bound, self._errors)


def _constants(outline: Outline, compiled: Compiled) -> dict[int, Array]:
    """Arrays of the constants by number of their value."""
    found = {}
    for number, value in enumerate(compiled.values):
        if value.kind == "constant":
            own = value.source < 0
            found[number] = (
                compiled.constants[-1 - value.source]
                if own
                else outline.constants[value.source].held()
            )
    return found


def _refuse(compiled: Compiled) -> None:
    """NotCompiled for programs that are more than launches one after another."""
    kinds = {step.kind for step in compiled.steps} - {StepKind.LAUNCH}
    if kinds:
        what = ", ".join(sorted(kind.value for kind in kinds))
        raise NotCompiled(
            f"this program has steps other than launches ({what}): branches, loops, sizes found "
            "while running and calls of the host are not done on WebGPU yet"
        )
    if any(value.kind == "pointer" for value in itertools.islice(compiled.values, None)):
        raise NotCompiled("values that change places while running are not done on WebGPU yet")
