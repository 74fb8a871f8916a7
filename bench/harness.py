"""Us and a peer on the same work: each in its own process, taking turns, the idle one stopped.

Two spinning thread pools on two cores ruin each other, so the process that is not measured is
stopped (SIGSTOP). Each round measures both; the figure is the median over rounds of their time
over ours, with the quartiles around it.

A side is a module with `prepare(case, threads) -> Callable[[], None]`: it builds the work and
returns what runs it once. It may have `profile(work)` too: what it tells of one run.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

ROUNDS = 15
#: A measurement repeats the work until this much time has passed.
MEASURE_SECONDS = 0.1


@dataclass(frozen=True)
class Comparison:
    """Medians over rounds; `ratio` is their time over ours."""

    ours_seconds: float
    theirs_seconds: float
    ratio: float
    low: float  # quartiles of the ratio
    high: float


class SideFailed(RuntimeError):
    """A side can't do the work it was asked for; it goes on with the next."""


class Side:
    """A process that measures one side, stopped while it is not asked; of another checkout, with
    the virtual environment in it, where one is given."""

    def __init__(self, module: str, checkout: Path | None = None) -> None:
        python = sys.executable if checkout is None else str(checkout / ".venv/bin/python")
        self.process = subprocess.Popen(
            [python, "-m", "bench.harness", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=checkout,
        )
        self.process.send_signal(signal.SIGSTOP)

    def ask(self, **question: object) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        self.process.send_signal(signal.SIGSTOP)
        if not line:
            raise RuntimeError(f"a side ended while it was asked {question}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise SideFailed(answer["error"])
        return answer

    def close(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()


def compare(
    ours: Side, theirs: Side, case: str, threads: int, their_case: str = "", rounds: int = ROUNDS
) -> Comparison:
    """Both sides on one case, in turns; `their_case` where the peer calls it otherwise."""
    return compare_best(ours, {"": theirs}, case, threads, their_case, rounds)[1]


def compare_best(
    ours: Side,
    peers: Mapping[str, Side],
    case: str,
    threads: int,
    their_case: str = "",
    rounds: int = ROUNDS,
) -> tuple[str, Comparison]:
    """All sides on one case, in turns; the peer that does best against us, and how."""
    ours.ask(prepare=case, threads=threads)
    for side in peers.values():
        side.ask(prepare=their_case or case, threads=threads)
    mine: list[float] = []
    theirs: dict[str, list[float]] = {name: [] for name in peers}
    for _ in range(rounds):
        mine.append(ours.ask()["seconds"])
        for name, side in peers.items():
            theirs[name].append(side.ask()["seconds"])
    best = min(theirs, key=lambda name: median(theirs[name]))
    ratios = [one / other for one, other in zip(theirs[best], mine, strict=True)]
    low, middle, high = quantiles(ratios, n=4)
    return best, Comparison(median(mine), median(theirs[best]), middle, low, high)


def measure(work: Callable[[], None]) -> float:
    """Seconds for one run: the best of a few batches, each long enough for the clock; of work that
    is long itself, one run."""
    began = time.perf_counter()
    work()
    once = time.perf_counter() - began
    if once >= MEASURE_SECONDS:
        return once
    repeats = max(1, int(MEASURE_SECONDS / 5 / max(once, 1e-7)))
    best = float("inf")
    until = time.perf_counter() + MEASURE_SECONDS
    while time.perf_counter() < until:
        began = time.perf_counter()
        for _ in range(repeats):
            work()
        best = min(best, (time.perf_counter() - began) / repeats)
    return best


def serve(module: str) -> None:
    """Answer questions on standard input until it ends."""
    side = importlib.import_module(module)
    work: Callable[[], None] | None = None
    for line in sys.stdin:
        question = json.loads(line)
        if "prepare" in question:
            work = None
            try:
                work = side.prepare(question["prepare"], question["threads"])
                work()
                answer: dict[str, object] = {"seconds": 0.0}
            except Exception as error:  # told to who asked
                answer = {"error": f"{type(error).__name__}: {error}"}
        else:
            assert work is not None
            answer = side.profile(work) if "profile" in question else {"seconds": measure(work)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    serve(sys.argv[1])
