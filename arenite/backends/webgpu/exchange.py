"""The host's side of one run: arguments on their way to the device, and room for what comes back.

upload     arguments, one behind the other
staging    error words, then results; mapped when the device is done
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arenite.backends.webgpu.dispatch import new_buffer
from arenite.backends.webgpu.memory import Constant
from arenite.backends.webgpu.results import Output
from arenite.device.webgpu import WORD_NBYTES, WebGpuAllocator
from arenite.ir.dim import evaluate
from arenite.program.compiled import Compiled

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Transfer:
    """A launch that copies a value of the host, by number, to bytes of a buffer, or from there."""

    name: str
    value: int
    gpu: Any  # wgpu's handle
    at: int
    nbytes: int  # of whole words


class Exchange:
    """Made for the arrays of a run; `outputs` are its results, in the program's order."""

    def __init__(
        self,
        device: WebGpuAllocator,
        compiled: Compiled,
        constants: Mapping[int, Constant],
        arrays: Sequence[Array],
        sizes: Mapping[str, int],
    ) -> None:
        self._device = device
        self._sent: dict[int, int] = {}  # where in the upload an argument begins
        sent: list[Array] = []
        end = 0
        for number in compiled.frame.numbers("input"):
            array = arrays[compiled.values[number].source]
            self._sent[number] = end
            sent.append(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
            sent.append(np.zeros(in_words(array.nbytes) - array.nbytes, np.uint8))
            end += in_words(array.nbytes)
        self._upload = self._uploaded(np.concatenate(sent)) if end else None
        end = WORD_NBYTES * (len(compiled.load) + len(compiled.launches))
        self.outputs: list[Output] = []
        self._received: dict[int, int] = {}  # where in the staging a result begins
        for number in compiled.outputs:
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
        self.staging = new_buffer(device, end, "COPY_DST MAP_READ")

    def _uploaded(self, data: Array) -> Any:
        import wgpu

        with self._device.failures(f"allocate {data.nbytes} bytes", data.nbytes):
            return self._device.device.create_buffer_with_data(
                data=data, usage=wgpu.BufferUsage.COPY_SRC
            )

    def record(self, encoder: Any, one: Transfer) -> None:
        """Put a copy into a command buffer."""
        if one.value in self._sent:
            begin = self._sent[one.value]
            encoder.copy_buffer_to_buffer(self._upload, begin, one.gpu, one.at, one.nbytes)
        else:
            begin = self._received[one.value]
            encoder.copy_buffer_to_buffer(one.gpu, one.at, self.staging, begin, one.nbytes)


def in_words(nbytes: int) -> int:
    """As many bytes as whole words take."""
    return -(-nbytes // WORD_NBYTES) * WORD_NBYTES
