"""Profile: how long each kernel took in one run, what it moved, and on which threads.

Each kernel is shown beside its limit, of those of one core, or of a whole GPU: multiply-adds in
float32, float64 or bytes (int8), or reading memory or a cache, whichever takes longest for its
operations and bytes. What took no time by the device's clock, as copies do there, has no rates.
Of memory that is a core's part of what all read together that ran the kernel.
Products with zeros around an image count as operations, though they are left out.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from numpy.typing import NDArray

from arenite.ir.dim import evaluate
from arenite.memory.html import html_table
from arenite.memory.tables import aligned, name_list
from arenite.program.cached_kernel import CachedKernel
from arenite.program.limits import Limits
from arenite.program.loaded import Timings
from arenite.program.threads import default_n_threads


@dataclass(frozen=True, slots=True)
class KernelTime:
    """One kernel: busy seconds over all threads and all of its runs, and what that is for its bytes
    and operations."""

    name: str
    seconds: float
    n_runs: int
    n_tiles: int
    share: float  # of all busy seconds
    gops: float  # operations a second, of whatever kind
    gbytes: float  # moved a second
    limit_share: float  # of what a core can do, of the limit it is nearer to
    bound: str  # which that is: float32, float64, int8, memory or a cache
    origin: str
    reads: tuple[str, ...] = ()  # arguments, weights and states, by name


@dataclass(frozen=True)
class Profile:
    """One run, kernel by kernel: prints as a table beside the limits of the machine."""

    kernels: tuple[KernelTime, ...]
    wall_seconds: float
    records: NDArray[Any]
    clocks_per_second: float
    names: Sequence[str]  # of kernels
    n_lost: int  # calls that were not noted for lack of room
    limits: Limits
    about: str = ""  # what the device has to say of a run: its dispatches and barriers

    @classmethod
    def of(
        cls, timings: Timings, kernels: Sequence[CachedKernel], reads: Sequence[tuple[str, ...]]
    ) -> Profile:
        """`reads` is what each kernel reads that has a name of its own."""
        records, rate, n_lost, sizes, limits, about = timings
        busy: dict[int, list[float]] = {}
        threads: dict[int, set[int]] = {}
        n_runs: Counter[int] = Counter()
        for record in records:
            took = float(record["end"] - record["begin"]) / rate
            k = int(record["kernel"])
            busy.setdefault(k, []).append(took)
            threads.setdefault(k, set()).add(int(record["worker"]))
            n_runs[k] += int(record["tile"]) == 0  # each run has one first tile
        total = sum(map(sum, busy.values())) or 1.0
        n_cores = {k: min(len(found), default_n_threads()) for k, found in threads.items()}
        times = []
        for k, calls in sorted(busy.items()):
            kernel = kernels[k]
            seconds = sum(calls)
            moved = n_runs[k] * evaluate(kernel.reads_nbytes + kernel.writes_nbytes, sizes)
            arithmetic = {
                name: n_runs[k] * evaluate(count, sizes)
                for name, count in kernel.arithmetic.items()
            }
            times.append(
                KernelTime(
                    kernel.entry_point,
                    seconds,
                    n_runs[k],
                    len(calls),
                    seconds / total,
                    *_rates(arithmetic, moved, seconds),
                    *limits(n_cores[k]).share(arithmetic, moved, seconds, n_runs[k]),
                    str(kernel.origins[0]) if kernel.origins else "",
                    reads[k],
                )
            )
        wall = 0.0
        if len(records):
            wall = float(records["end"].max() - records["begin"].min()) / rate
        names = [kernel.entry_point for kernel in kernels]
        most = limits(max(n_cores.values(), default=1))
        return cls(tuple(times), wall, records, rate, names, n_lost, most, about)

    def _rows(self) -> list[list[str]]:
        rates = ["Gop/s", "GB/s", "of limit"]
        head = ["kernel", "µs", "share", "runs", "tiles", *rates, "reads", "origin"]
        ordered = sorted(self.kernels, key=lambda kernel: -kernel.seconds)
        return [head] + [
            [
                k.name,
                f"{k.seconds * 1e6:.1f}",
                f"{k.share:.1%}",
                str(k.n_runs),
                str(k.n_tiles),
                *((f"{k.gops:.1f}", f"{k.gbytes:.1f}") if k.seconds else ("", "")),
                f"{k.limit_share:.0%} {k.bound}" if k.seconds else "",
                name_list(k.reads),
                k.origin,
            ]
            for k in ordered
        ]

    def __str__(self) -> str:
        lost = f"; {self.n_lost} calls were not noted" if self.n_lost else ""
        about = f"\n{self.about}" if self.about else ""
        return (
            aligned(self._rows(), {1, 2, 3, 4, 5, 6, 7})
            + f"\n\n{self.wall_seconds * 1e6:.1f} µs from the first kernel to the last{lost}{about}"
            + f"\n{self.limits}"
        )

    def _repr_html_(self) -> str:
        return html_table(self._rows(), range(1, 8))

    def to_json(self) -> str:
        """The table, and the limits of a core."""
        return json.dumps(self._table())

    def _table(self) -> dict[str, Any]:
        return {
            "kernels": [asdict(one) for one in self.kernels],
            "wall_seconds": self.wall_seconds,
            "lost": self.n_lost,
            "limits": asdict(self.limits),
            "about": self.about,
        }

    def to_chrome_trace(self) -> str:
        """For `arenite show`, chrome://tracing and its like: one lane a thread, and the table."""
        return json.dumps(self.trace_data())

    def trace_data(self) -> dict[str, Any]:
        """What `to_chrome_trace` writes, as plain data."""
        records = self.records
        first = int(records["begin"].min()) if len(records) else 0
        micros = 1e6 / self.clocks_per_second
        workers = sorted({int(record["worker"]) for record in records})
        lanes: list[dict[str, Any]] = [
            {
                "name": "thread_name",
                "ph": "M",
                "pid": 0,
                "tid": tid,
                "args": {"name": f"thread {tid}"},
            }
            for tid in workers
        ]
        events = [
            {
                "name": self.names[int(record["kernel"])],
                "ph": "X",
                "pid": 0,
                "tid": int(record["worker"]),
                "ts": (int(record["begin"]) - first) * micros,
                "dur": int(record["end"] - record["begin"]) * micros,
                "args": {"tile": int(record["tile"])},
            }
            for record in records
        ]
        return {"traceEvents": [*lanes, *events], "arenite": self._table()}


def _rates(arithmetic: Mapping[str, int], nbytes: int, seconds: float) -> tuple[float, float]:
    """Operations and bytes a second, in units of 10**9."""
    if not seconds:
        return 0.0, 0.0
    return sum(arithmetic.values()) / seconds / 1e9, nbytes / seconds / 1e9
