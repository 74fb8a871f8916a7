"""One side of `bench.nodes`: a process that profiles a whole model, stopped while it is not asked.

A side is a module with `prepare(model, threads) -> Callable[[], Times]`: it builds the model and
returns what runs it once with a profile. Of the runs of a round the faster half counts, node by
node: what disturbs a run disturbs a node or two.
"""

from __future__ import annotations

import importlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import mean

from bench.harness import Side

#: Seconds of whatever a run spends its time with, by name: "conv NAME" for a convolution, "after
#: NAME" for what follows it in nodes of its own, "layout" for conversions, "rest", and "run" for
#: all of it without a profile.
Times = dict[str, float]

RUNS = 10


class NodeSide(Side):
    def __init__(self, module: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bench.nodes_side", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.process.send_signal(signal.SIGSTOP)


def faster_half(runs: list[Times]) -> Times:
    """The mean of the faster half of the runs, name by name."""
    names = dict.fromkeys(name for run in runs for name in run)
    found = {name: sorted(run.get(name, 0.0) for run in runs) for name in names}
    return {name: mean(numbers[: (len(runs) + 1) // 2]) for name, numbers in found.items()}


def timed(run: Callable[[], object]) -> Times:
    """A run without a profile."""
    began = time.perf_counter()
    run()
    return {"run": time.perf_counter() - began}


def serve(module: str) -> None:
    """Answer questions on standard input until it ends."""
    side = importlib.import_module(module)
    work: Callable[[], list[Times]] | None = None
    for line in sys.stdin:
        question = json.loads(line)
        answer: Times = {}
        if "prepare" in question:
            work = side.prepare(question["prepare"], question["threads"])
        else:
            assert work is not None
            answer = faster_half(work())
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve(sys.argv[1])
