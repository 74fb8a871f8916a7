"""Where a profiled run writes when each kernel began and ended.

In: how many threads and how many kernel calls a thread may note. Out: records, one a call of a
kernel, with the thread it ran on, in clocks (`native.Runtime.clocks_per_second`). What a run has
no room for is counted in `n_lost`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arenite.backends.cpu.driver.layout import LINE_NBYTES
from arenite.backends.cpu.driver.layout import Stamps as Layout
from arenite.program.table import aligned_empty

#: As the driver writes it.
_RECORD: np.dtype[Any] = np.dtype(
    [("tick", "<u4"), ("zero", "<u4"), ("tile", "<i8"), ("begin", "<i8"), ("end", "<i8")]
)
#: As it is read: `tile` is the first of the call.
STAMP: np.dtype[Any] = np.dtype(
    [(name, "<i8") for name in ("worker", "tick", "kernel", "tile", "begin", "end")]
)


class Stamps:
    """A buffer for the time stamps of one run."""

    def __init__(self, n_threads: int, capacity: int = 2**16) -> None:
        self.n_threads = n_threads
        self.capacity = capacity
        self._stride = Layout.RECORDS + capacity * Layout.RECORD_NBYTES
        self._stride = -(-self._stride // LINE_NBYTES) * LINE_NBYTES
        self._memory = aligned_empty(Layout.REGIONS + n_threads * self._stride, np.uint8)
        head = self._memory[: Layout.REGIONS].view(np.int64)
        head[Layout.STRIDE // 8] = self._stride
        head[Layout.CAPACITY // 8] = capacity

    @property
    def address(self) -> int:
        where: int = self._memory.__array_interface__["data"][0]
        return where

    @property
    def n_lost(self) -> int:
        return sum(max(0, self._count(worker) - self.capacity) for worker in range(self.n_threads))

    def records(self, launch_at: Mapping[int, int]) -> NDArray[Any]:
        """All stamps, in the order in which kernels began; `launch_at` is the number of the kernel
        at a tick."""
        parts = []
        for worker in range(self.n_threads):
            n = min(self._count(worker), self.capacity)
            start = self._region(worker) + Layout.RECORDS
            raw = self._memory[start : start + n * _RECORD.itemsize].view(_RECORD)
            part = np.zeros(n, STAMP)
            part["worker"] = worker
            for name in ("tick", "tile", "begin", "end"):
                part[name] = raw[name]
            part["kernel"] = [launch_at.get(tick, -1) for tick in raw["tick"].tolist()]
            parts.append(part)
        together = np.concatenate(parts)
        return together[np.argsort(together["begin"], kind="stable")]

    def _region(self, worker: int) -> int:
        return Layout.REGIONS + worker * self._stride

    def _count(self, worker: int) -> int:
        return int(self._memory[self._region(worker) :][:8].view(np.int64)[0])
