"""Decoding while another program has one of two cores: tokens a second on one thread and on two.

python -m bench.busy [rounds]

SmolLM2 in Q4_1. The other program is a loop that never ends, pinned to the second core. Both
thread counts take turns in one process, 60 tokens each; medians over the rounds, with and without
the other program.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time

import arenite

TOKENS = 60
LOOP = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"


def rate(model: arenite.LanguageModel) -> float:
    """Tokens a second, one after the other."""
    session = model.session()
    session.feed([1, 2, 3])
    began = time.perf_counter()
    for k in range(TOKENS):
        session.feed([100 + k])
    return TOKENS / (time.perf_counter() - began)


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    cores = sorted(os.sched_getaffinity(0))[:2]
    os.sched_setaffinity(0, cores)
    models = [arenite.load("smollm2-135m-instruct", context=512, threads=n) for n in (1, 2)]
    for model in models:
        rate(model)
    for is_busy in (False, True):
        command = [sys.executable, "-c", LOOP, str(cores[1])]
        other = subprocess.Popen(command) if is_busy else None
        try:
            found = [[rate(model) for model in models] for _ in range(rounds)]
        finally:
            if other is not None:
                other.kill()
                other.wait()
        one, two = (statistics.median(column) for column in zip(*found, strict=True))
        ratios = sorted(b / a for a, b in found)
        print(
            f"{'one core taken' if is_busy else 'both cores free'}: one thread {one:.0f} tok/s, "
            f"two {two:.0f}; two over one {statistics.median(ratios):.2f} "
            f"({ratios[0]:.2f} to {ratios[-1]:.2f})"
        )


if __name__ == "__main__":
    main()
