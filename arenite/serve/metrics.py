"""Metrics: what the server has done and is doing, as Prometheus reads it."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator

from arenite import locks

#: Upper bounds of the buckets that times fall into, in seconds.
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
#: Values by name, each with what it says.
Measures = dict[str, tuple[str, float]]


class Histogram:
    """How many times lay below each bound, and their sum."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.total += seconds

    def lines(self, name: str) -> Iterator[str]:
        reached = 0
        for bound, count in zip((*BUCKETS, "+Inf"), self.counts, strict=True):
            reached += count
            yield f'{name}_bucket{{le="{bound}"}} {reached}'
        yield f"{name}_sum {self.total:.6f}"
        yield f"{name}_count {reached}"


class Metrics:
    """Counts since the server began."""

    def __init__(self) -> None:
        self._lock = locks.reentrant()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._seconds = Histogram()

    def request(self, route: str, status: int, seconds: float) -> None:
        """A request was answered."""
        with self._lock:
            self._requests[route, status] += 1
            self._seconds.add(seconds)

    def text(
        self, gauges: dict[str, tuple[str, float]], counters: dict[str, tuple[str, float]]
    ) -> str:
        """All of it; each gauge and counter with what it says."""
        with self._lock:
            requests = sorted(self._requests.items())
            lines = [
                "# HELP arenite_requests_total Requests by path and status.",
                "# TYPE arenite_requests_total counter",
                *(
                    f'arenite_requests_total{{path="{path}",status="{status}"}} {count}'
                    for (path, status), count in requests
                ),
                "# HELP arenite_request_seconds From a request to the end of its answer.",
                "# TYPE arenite_request_seconds histogram",
                *self._seconds.lines("arenite_request_seconds"),
            ]
        for kind, values in (("gauge", gauges), ("counter", counters)):
            for name, (about, value) in values.items():
                lines += [
                    f"# HELP arenite_{name} {about}",
                    f"# TYPE arenite_{name} {kind}",
                    f"arenite_{name} {value}",
                ]
        return "\n".join(lines) + "\n"
