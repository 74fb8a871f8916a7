"""This checkout against another one, each in processes of its own, in turn: what a change costs.

    python -m bench.checkouts OTHER [--rounds 7] [--threads 1] [--sides NAME ... [--only PART ...]]

OTHER is a checkout with a `.venv` in it. The table has their time over ours, by row. With --sides
the rows are all cases of other benches that both have (`gemm conv attention int8 language tensor
recurrent fused`), each with the least and the most of its rounds; at the end the mean of each.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import arenite
from arenite.tensor import asarray

HERE = Path(__file__).resolve()
#: Measurements of each side in one process of it.
TURNS = 3
RNG = np.random.default_rng(0)


def numbers(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def seconds(work: Callable[[], object], at_least: float = 0.25) -> float:
    """The median of the faster half."""
    work()
    times: list[float] = []
    end = time.perf_counter() + at_least
    while len(times) < 7 or time.perf_counter() < end:
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(sorted(times)[: len(times) // 2])


def rows(threads: int) -> dict[str, float]:
    found: dict[str, float] = {}

    def case(name: str, function: Callable[..., Any], *arrays: Any) -> None:
        with arenite.compile(function, *arrays, threads=threads) as program:
            found[name] = seconds(lambda: program(*arrays))

    for m, k, n in ((128, 768, 3072), (512, 512, 512), (1, 4096, 4096), (16, 3072, 768)):
        case(f"product {m}x{k}x{n}", lambda a, b: a @ b, numbers(m, k), numbers(k, n))
    w, b = asarray(numbers(768, 3072)), asarray(numbers(3072))
    case("bias and gelu", lambda x: (x @ w + b).gelu(), numbers(128, 768))
    for name in ("gelu", "silu", "sigmoid", "exp", "tanh", "sin"):
        case(name, lambda x, name=name: getattr(x, name)(), numbers(1 << 20))
    case("softmax", lambda x: x.softmax(1), numbers(512, 1024))
    taps = asarray(numbers(64, 64, 3, 3))
    case("convolution 3x3", lambda x: x.conv(taps, padding=1), numbers(1, 64, 56, 56))
    heads = [numbers(1, 12, 128, 64) for _ in range(3)]
    case("attention", lambda q, k, v: ((q @ k.swapaxes(2, 3)) * 0.125).softmax(3) @ v, *heads)
    small = numbers(4, 4)
    with arenite.compile(lambda x: x + 1, small, threads=threads) as program:
        found["small call"] = seconds(lambda: [program(small) for _ in range(1000)]) / 1000
    return found


def measured(checkout: Path, threads: int) -> dict[str, float]:
    command = [str(checkout / ".venv/bin/python"), str(HERE), "--rows", "--threads", str(threads)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, cwd=checkout)
    found: dict[str, float] = json.loads(ran.stdout)
    return found


def compare_sides(name: str, other: Path, threads: int, rounds: int, only: list[str]) -> None:
    """Our side of a bench, as it is here and there. Each round is of new processes: where in one
    its arrays happen to lie may make a fifth of the time of a product by few rows."""
    from bench.harness import Side, SideFailed, compare  # `--rows` runs outside of the package

    module = f"bench.{name}_ours"
    means: list[float] = []
    for case in map(str, importlib.import_module(f"bench.{name}_cases").CASES):
        if only and not any(part in case for part in only):
            continue
        ratios: list[float] = []
        for _ in range(rounds):
            ours, theirs = Side(module), Side(module, other)
            try:
                ratios.append(compare(ours, theirs, case, threads, rounds=TURNS).ratio)
            except SideFailed as failed:
                print(f"{name}, {case}: {str(failed)[:100]}")
                break
            finally:
                ours.close()
                theirs.close()
        if ratios:
            means.append(statistics.median(ratios))
            spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
            print(f"{name + ', ' + case:44} {means[-1]:.2f}   {spread}", flush=True)
    if means:
        mean = statistics.geometric_mean(means)
        print(f"{name}, {threads} threads: mean {mean:.3f} of {len(means)} cases", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", nargs="?", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--sides", nargs="+", metavar="NAME", default=[])
    parser.add_argument("--only", nargs="+", metavar="PART", default=[], help="parts of names")
    parser.add_argument("--rows", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rows:
        print(json.dumps(rows(given.threads)))
        return
    if given.other is None or not (given.other / ".venv/bin/python").exists():
        sys.exit("give a checkout that has a .venv with this project installed in it")
    for name in given.sides:
        compare_sides(name, given.other.resolve(), given.threads, given.rounds, given.only)
    if given.sides:
        return
    ratios: dict[str, list[float]] = {}
    for _ in range(given.rounds):
        theirs = measured(given.other.resolve(), given.threads)
        ours = measured(HERE.parent.parent, given.threads)
        for name, took in ours.items():
            ratios.setdefault(name, []).append(theirs[name] / took)
    for name, some in ratios.items():
        print(f"{name:24} {statistics.median(some):.2f}   {min(some):.2f} to {max(some):.2f}")


if __name__ == "__main__":
    main()
