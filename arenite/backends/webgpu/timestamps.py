"""Times on the device's own clock: what each launch took, and the gaps between.

In: the steps of a run, one a launch. Out: when each began and ended. A launch is a pass of its own
here, which writes the clock before and behind it; launches of a plain run share one, so the gaps
are wider than they are there. The clock needs the feature `timestamp-query`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from arenite.backends.webgpu.dispatch import new_buffer
from arenite.backends.webgpu.exchange import Exchange, Transfer
from arenite.backends.webgpu.table import DispatchTable
from arenite.device.webgpu import WebGpuAllocator
from arenite.program.loaded import Timings

if TYPE_CHECKING:
    from arenite.backends.webgpu.load import WebGpuProgram

Array = NDArray[Any]

FEATURE = "timestamp-query"
#: Of one query set.
MAX_QUERIES = 4096
_STAMP_NBYTES = 8
_STAMP = np.dtype([(name, np.int64) for name in "worker tick kernel tile begin end".split()])


def profile(program: WebGpuProgram, arrays: list[Array], sizes: dict[str, int]) -> Timings:
    """Run once with times; by the host's clock, and each launch alone, where the device's is not
    for programs to read."""
    from arenite.backends.webgpu.limits import limits

    program.run(arrays, sizes)
    table, exchange = program.bound_table(sizes), program.exchange(arrays, sizes)
    table.write()
    about = _about(program, table)
    table.join(False)
    steps = program.order.single_steps
    records = np.zeros(len(steps), _STAMP)
    records["kernel"] = range(len(steps))
    if FEATURE in program.device.device.features:
        _run_timed(program, table, exchange, records)
    else:
        for k in program.order.every:
            records["begin"][k] = time.perf_counter_ns()
            program.run_alone(steps[k], table, exchange)
            records["end"][k] = time.perf_counter_ns()
    table.join(True)
    return Timings(records, 1e9, 0, sizes, lambda _: limits(program.device.name), about)


def _run_timed(
    program: WebGpuProgram, table: DispatchTable, exchange: Exchange, records: Array
) -> None:
    """Run with the device's clock around every dispatch; copies are taken for no time."""
    order = program.order
    times = Timestamps(program.device, max(len(order.rows), 1))
    with program.failing():
        encoder = program.device.device.create_command_encoder()
        for step in (order.single_steps[k] for k in order.every):
            stamps = times.of_pass(step.start) if isinstance(step, range) else None
            program.record_step(encoder, table, exchange, step, stamps)
        times.resolve(encoder)
        program.device.device.queue.submit([encoder.finish()])
        found = times.read()
    records["begin"][order.rows] = found[: len(order.rows), 0]
    records["end"][order.rows] = found[: len(order.rows), 1]
    last = 0
    for k in order.every:
        if isinstance(order.single_steps[k], Transfer):
            records["begin"][k] = records["end"][k] = last
        last = int(records["end"][k])


def _about(program: WebGpuProgram, table: DispatchTable) -> str:
    n_passes = sum(isinstance(step, range) and len(step) > 0 for step in program.order.steps)
    return (
        f"{table.n_dispatches} dispatches in {n_passes} passes, {table.n_barriers} of them "
        "behind a barrier"
    )


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
