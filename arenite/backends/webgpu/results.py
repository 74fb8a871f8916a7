"""Results that may not be there yet: copied to memory that is mapped when the device is done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arenite.backends.webgpu.failure import check_errors
from arenite.backends.webgpu.submission import mapped
from arenite.device.webgpu import WebGpuAllocator
from arenite.errors import AreniteError

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Output:
    """A result: bytes of the staging memory, or an array that is there already."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    at: int = 0
    known: Array | None = None

    def array(self, data: NDArray[np.uint8]) -> Array:
        if self.known is not None:
            return self.known.reshape(self.shape).copy()
        count = int(np.prod(self.shape, dtype=np.int64))
        end = self.at + count * self.dtype.itemsize
        found = data[self.at : end].view(self.dtype).reshape(self.shape)
        return found if found.flags.aligned else found.copy()


class Pending:
    """A run that has begun. `staging` holds error words, then results."""

    def __init__(
        self,
        device: WebGpuAllocator,
        staging: Any,
        submission: int,
        names: Sequence[str],
        outputs: Sequence[Output],
        fail: Callable[[str], None],
        give_back: Callable[[Any], None],
    ) -> None:
        self._device = device
        self._staging = staging
        self._submission = submission
        self._names = names
        self._outputs = outputs
        self._fail = fail
        self._give_back = give_back
        self._results: list[Array] | None = None
        self._failure: AreniteError | None = None

    def result(self) -> list[Array]:
        """Wait for the results; raises what the run ended with, as often as it is asked."""
        if self._failure is not None:
            raise self._failure
        if self._results is None:
            try:
                with self._device.failures("wait for results"):
                    data = mapped(self._device, self._staging, self._submission)
                self._give_back(self._staging)
                check_errors(data.data, self._names)
            except AreniteError as error:
                self._failure = error
                self._fail(str(error))
                raise
            self._results = [output.array(data) for output in self._outputs]
        return self._results
