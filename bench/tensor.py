"""Tensors on the CPU against PyTorch (reductions: the better of PyTorch and NumPy).

    python -m bench.tensor [word ...]        only cases with one of these words in their name

Needs torch beside Arenite. One and two threads. Prints the median ratio (their time over ours) with
its quartiles, and the share of the memory bandwidth that is measured before each case.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from bench.harness import Side, compare_best
from bench.tensor_cases import CASES, REDUCTIONS, nbytes


def read_bandwidth() -> float:
    """Bytes a second that one thread reads and writes: a copy of 64 MiB, best of five."""
    source = np.ones(2**24, np.float32)
    target = np.empty_like(source)
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        np.copyto(target, source)
        best = min(best, time.perf_counter() - began)
    return 2 * source.nbytes / best


def main(words: list[str]) -> None:
    cases = [case for case in CASES if not words or any(word in case for word in words)]
    cases += [f"{case} compiled" for case in cases if case.startswith("chain")]
    ours = Side("bench.tensor_ours")
    peers = {"PyTorch": Side("bench.tensor_torch"), "NumPy": Side("bench.tensor_numpy")}
    print(
        "| work | threads | ours µs | theirs µs | ratio | quartiles | peer | GB/s | of a copy's |"
    )
    print("|---|---:|---:|---:|---:|---|---|---:|---:|")
    try:
        for case in cases:
            for threads in (1, 2):
                print(row(case, threads, ours, peers), flush=True)
    finally:
        for side in (ours, *peers.values()):
            side.close()


def row(case: str, threads: int, ours: Side, peers: dict[str, Side]) -> str:
    limit = read_bandwidth()
    plain = case.removesuffix(" compiled")
    asked = peers if case.startswith(REDUCTIONS) else {"PyTorch": peers["PyTorch"]}
    peer, result = compare_best(ours, asked, plain, threads, case)
    speed = nbytes(plain) / result.ours_seconds
    return (
        f"| {case} | {threads} | {result.ours_seconds * 1e6:.1f} "
        f"| {result.theirs_seconds * 1e6:.1f} | {result.ratio:.2f} "
        f"| {result.low:.2f} to {result.high:.2f} | {peer} | {speed / 1e9:.1f} "
        f"| {speed / limit:.0%} |"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
