"""The host's side of one run: arguments on their way to the device, and room for what comes back.

An argument whose bytes nobody touches before it comes is written ahead of the command buffer; any
other is copied in its place among the launches, from a buffer of its own. Results are copied to one
buffer, behind the error words, that is mapped when the device is done; those that nobody overwrites
after all launches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from arenite.backends.webgpu.device_memory import in_sixteens
from arenite.backends.webgpu.dispatch import new_buffer
from arenite.backends.webgpu.memory import Constant, Region
from arenite.backends.webgpu.results import Output
from arenite.device.webgpu import WORD_NBYTES, WebGpuAllocator
from arenite.ir.dim import evaluate
from arenite.program.compiled import Compiled

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Transfer:
    """A launch that copies a value of the host, by number, to a value of the device, or back."""

    launch: int  # its number
    value: int
    there: int
    is_free: bool  # an argument to go ahead of all launches, a result to follow them


class StagingPool:
    """Buffers that results are copied to and mapped from, used again when they have been read;
    there are no more of them than `most_nbytes`, unless that many are in use."""

    def __init__(self, device: WebGpuAllocator, most_nbytes: int) -> None:
        self.device, self._most_nbytes = device, most_nbytes
        self._free: list[Any] = []  # those that were used last behind
        self._known: WeakSet[Any] = WeakSet()

    def take(self, nbytes: int) -> Any:
        """One of so many bytes, or a few more."""
        size = in_sixteens(nbytes)
        for place in reversed(range(len(self._free))):
            if self._free[place].size == size:
                return self._free.pop(place)
        while self._free and self.nbytes + size > self._most_nbytes:
            self._known.discard(self._free.pop(0))
        made = new_buffer(self.device, size, "COPY_DST MAP_READ")
        self._known.add(made)
        return made

    @property
    def nbytes(self) -> int:
        """Of those that are in use and those that are not."""
        return sum(one.size for one in self._known)

    def give_back(self, buffer: Any) -> None:
        """Keep it for who comes."""
        if self.nbytes <= self._most_nbytes:
            self._free.append(buffer)


class Exchange:
    """Made for the sizes of a run, whose arrays may come later; `outputs` are its results, in the
    order of the values that were asked for. At `token_at` the staging memory has room for a token
    that the run chooses."""

    def __init__(
        self,
        pool: StagingPool,
        compiled: Compiled,
        constants: Mapping[int, Constant],
        sizes: Mapping[str, int],
        arrays: Sequence[Array],
        outputs: Sequence[int],
    ) -> None:
        self._device = pool.device
        self._compiled, self.sizes = compiled, sizes
        self.arrays = arrays
        self.token_at = WORD_NBYTES * (len(compiled.load) + len(compiled.launches))
        end = self.token_at + WORD_NBYTES
        self.outputs: list[Output] = []
        self._received: dict[int, int] = {}  # where in the staging a result begins
        for number in outputs:
            value = compiled.values[number]
            dtype, shape = value.dtype.to_numpy(), tuple(evaluate(d, sizes) for d in value.shape)
            if value.kind == "output":
                if number not in self._received:
                    self._received[number] = end
                    end += in_words(evaluate(value.nbytes, sizes))
                self.outputs.append(Output(shape, dtype, self._received[number]))
            else:
                is_input = value.kind == "input"
                known = arrays[value.source] if is_input else constants[number].array()
                self.outputs.append(Output(shape, dtype, known=known))
        self.staging = pool.take(end)

    def record(self, encoder: Any, one: Transfer, place: tuple[Region, int]) -> None:
        """Put a copy into a command buffer, or into the queue ahead of it; `place` is the region
        of the value of the device and the word it begins at."""
        there, at = place[0].gpu, place[1] * WORD_NBYTES
        nbytes = in_words(evaluate(self._compiled.values[one.value].nbytes, self.sizes))
        if not nbytes:
            return
        if self._compiled.values[one.value].kind == "output":
            begin = self._received[one.value]
            encoder.copy_buffer_to_buffer(there, at, self.staging, begin, nbytes)
            return
        array = self.arrays[self._compiled.values[one.value].source]
        data, gpu = _bytes(array), self._device.device
        if one.is_free:
            gpu.queue.write_buffer(there, at, data)
            return
        with self._device.failures(f"allocate {data.nbytes} bytes", data.nbytes):
            upload = gpu.create_buffer_with_data(data=data, usage="COPY_SRC")
        encoder.copy_buffer_to_buffer(upload, 0, there, at, nbytes)


def _bytes(array: Array) -> NDArray[np.uint8]:
    """Those of an array, and as many zeros as make whole words of them."""
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return (
        np.pad(data, (0, in_words(data.nbytes) - data.nbytes))
        if data.nbytes % WORD_NBYTES
        else data
    )


def in_words(nbytes: int) -> int:
    """As many bytes as whole words take."""
    return -(-nbytes // WORD_NBYTES) * WORD_NBYTES
