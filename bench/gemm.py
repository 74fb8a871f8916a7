"""Products of float32 matrices on the CPU against the better of PyTorch and NumPy.

    python -m bench.gemm [word ...]        only cases with one of these words in their name

Needs torch beside Arenite. One and two threads. Prints the median ratio (their time over ours) with
its quartiles, and the share of the multiply-add peak of as many cores, measured beside each case;
at the end the geometric mean of the ratios and the least of them.
"""

from __future__ import annotations

import os
import sys
from statistics import geometric_mean

from bench.gemm_cases import CASES, operations
from bench.gemm_ours import peak_operations
from bench.harness import Comparison, Side, compare_best


def main(words: list[str]) -> None:
    cases = [case for case in CASES if not words or any(word in case for word in words)]
    print("| product | threads | ours µs | theirs µs | ratio | quartiles | peer | of the peak |")
    print("|---|---:|---:|---:|---:|---|---|---:|")
    ratios: dict[str, float] = {}
    for threads in (1, 2):
        os.environ["OPENBLAS_NUM_THREADS"] = str(threads)
        ours = Side("bench.gemm_ours")
        peers = {"PyTorch": Side("bench.gemm_torch"), "NumPy": Side("bench.gemm_numpy")}
        try:
            for case in cases:
                peer, result = compare_best(ours, peers, case, threads)
                ratios[f"{case}, {threads} threads"] = result.ratio
                share = operations(case) / result.ours_seconds / (threads * peak(ours))
                print(_row(case, threads, peer, result, share), flush=True)
        finally:
            for side in (ours, *peers.values()):
                side.close()
    least = min(ratios, key=lambda name: ratios[name])
    mean = geometric_mean(ratios.values())
    print(f"\ngeometric mean {mean:.3f}, least {ratios[least]:.2f}: {least}")


def peak(ours: Side) -> float:
    """Operations a second that one core can do."""
    ours.ask(prepare="peak", threads=1)
    return peak_operations() / min(ours.ask()["seconds"] for _ in range(3))


def _row(case: str, threads: int, peer: str, result: Comparison, share: float) -> str:
    return (
        f"| {case} | {threads} | {result.ours_seconds * 1e6:.1f} "
        f"| {result.theirs_seconds * 1e6:.1f} | {result.ratio:.2f} "
        f"| {result.low:.2f} to {result.high:.2f} | {peer} | {share:.0%} |"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
