"""Products of float matrices on the CPU against the better of PyTorch and NumPy.

    python -m bench.gemm [word ...]        only cases with one of these words in their name

Needs torch beside Arenite. One and two threads. Prints the median ratio (their time over ours) with
its quartiles, and the share of the multiply-add peak of as many cores, measured beside each case;
of products of one row also the share of the rate at which memory is read, by as many threads. At
the end the geometric mean of the ratios and the least of them.
"""

from __future__ import annotations

import os
import sys
from statistics import geometric_mean

from bench.gemm_cases import CASES, HALVES, n_products, operations, shape_of, weight_nbytes
from bench.gemm_ours import peak_operations
from bench.harness import Comparison, Side, compare_best
from bench.memory import READ_NBYTES

COLUMNS = "product threads ours_µs theirs_µs ratio quartiles peer of_the_peak of_memory".split()


def main(words: list[str]) -> None:
    cases = [case for case in CASES + HALVES if not words or any(word in case for word in words)]
    print("|", " | ".join(name.replace("_", " ") for name in COLUMNS), "|")
    print("|---|---:|---:|---:|---:|---|---|---:|---:|")
    ratios: dict[str, float] = {}
    for threads in (1, 2):
        os.environ["OPENBLAS_NUM_THREADS"] = str(threads)
        ours, memory = Side("bench.gemm_ours"), Side("bench.memory")
        peers = {"PyTorch": Side("bench.gemm_torch"), "NumPy": Side("bench.gemm_numpy")}
        try:
            memory.ask(prepare="", threads=threads)
            for case in cases:
                some = {"PyTorch": peers["PyTorch"]} if case in HALVES else peers
                peer, result = compare_best(ours, some, case, threads)
                ratios[f"{case}, {threads} threads"] = result.ratio
                seconds = result.ours_seconds / n_products(case)
                shares = [operations(case) / seconds / (threads * peak(ours))]
                if shape_of(case)[0] == 1:
                    rate = READ_NBYTES / min(memory.ask()["seconds"] for _ in range(3))
                    shares.append(weight_nbytes(case) / seconds / rate)
                print(_row(case, threads, peer, result, shares), flush=True)
        finally:
            for side in (ours, memory, *peers.values()):
                side.close()
    least = min(ratios, key=lambda name: ratios[name])
    mean = geometric_mean(ratios.values())
    print(f"\ngeometric mean {mean:.3f}, least {ratios[least]:.2f}: {least}")


def peak(ours: Side) -> float:
    """Operations a second that one core can do."""
    ours.ask(prepare="peak", threads=1)
    seconds: float = min(ours.ask()["seconds"] for _ in range(3))
    return peak_operations() / seconds


def _row(case: str, threads: int, peer: str, result: Comparison, shares: list[float]) -> str:
    count = n_products(case)
    name = f"{case}, {count} in one program" if count > 1 else case
    texts = [f"{share:.0%}" for share in shares] + [""] * (2 - len(shares))
    return (
        f"| {name} | {threads} | {result.ours_seconds / count * 1e6:.1f} "
        f"| {result.theirs_seconds / count * 1e6:.1f} | {result.ratio:.2f} "
        f"| {result.low:.2f} to {result.high:.2f} | {peer} | {' | '.join(texts)} |"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
