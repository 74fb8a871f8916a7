"""Times on the device's own clock: what each launch took, and the gaps between.

In: the steps of a run, one a launch. Out: when each began and ended. A launch is a pass of its own
here, which writes the clock before and behind it; launches of a plain run share one, so the gaps
are wider than they are there. The clock needs the feature `timestamp-query`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from arenite.backends.webgpu.dispatch import new_buffer
from arenite.device.webgpu import WebGpuAllocator

FEATURE = "timestamp-query"
#: Of one query set.
MAX_QUERIES = 4096
_STAMP_NBYTES = 8


class Timestamps:
    """Room for the times of so many passes."""

    def __init__(self, device: WebGpuAllocator, n_passes: int) -> None:
        self._device = device
        self._n = 2 * n_passes
        starts = range(0, self._n, MAX_QUERIES)
        with device.failures("keep times"):
            self._sets = [
                device.device.create_query_set(
                    type="timestamp", count=min(MAX_QUERIES, self._n - start)
                )
                for start in starts
            ]
        nbytes = self._n * _STAMP_NBYTES
        self._resolved = new_buffer(device, nbytes, "QUERY_RESOLVE COPY_SRC")

    def of_pass(self, number: int) -> dict[str, Any]:
        """What a pass is begun with for its times to be kept."""
        which, at = divmod(2 * number, MAX_QUERIES)
        return {
            "query_set": self._sets[which],
            "beginning_of_pass_write_index": at,
            "end_of_pass_write_index": at + 1,
        }

    def resolve(self, encoder: Any) -> None:
        """Record that the times are made readable."""
        for k, one in enumerate(self._sets):
            at = k * MAX_QUERIES * _STAMP_NBYTES
            encoder.resolve_query_set(one, 0, one.count, self._resolved, at)

    def read(self) -> NDArray[np.int64]:
        """Begin and end of each pass, in nanoseconds."""
        from wgpu.backends.wgpu_native import lib

        ticks = np.frombuffer(
            self._device.words(self._resolved, 0, self._n * _STAMP_NBYTES), np.uint64
        )
        period = float(lib.wgpuQueueGetTimestampPeriod(self._device.device.queue._internal))
        found: NDArray[np.int64] = np.round((ticks - ticks.min()) * period).astype(np.int64)
        return found.reshape(-1, 2)


def kept(device: WebGpuAllocator) -> bool:
    """Whether the device has a clock that programs may read."""
    return FEATURE in device.device.features
