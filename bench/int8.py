"""Products and convolutions of bytes on the CPU against ONNX Runtime.

    python -m bench.int8 [--threads N] [word ...]        only cases with one of these words

Needs onnx and onnxruntime beside Arenite. One and two threads, unless told. Prints the median ratio
(their time over ours) with its quartiles, and the share of the dot-product peak of as many cores,
measured beside each case; at the end, for products and for layers, the geometric mean of the ratios
and the least of them.
"""

from __future__ import annotations

import argparse
from itertools import product
from statistics import geometric_mean

from bench.harness import ROUNDS, Side, compare
from bench.int8_cases import CASES, CONVOLUTIONS, PRODUCTS, operations
from bench.int8_ours import peak_operations

GROUPS = {"products": PRODUCTS, "layers": CONVOLUTIONS}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, choices=(1, 2), help="both, unless given")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("words", nargs="*")
    given = parser.parse_args()
    cases = [case for case in CASES if not given.words or any(word in case for word in given.words)]
    counts = (1, 2) if given.threads is None else (given.threads,)
    ours, theirs = Side("bench.int8_ours"), Side("bench.int8_onnx")
    print("| case | threads | ours µs | theirs µs | ratio | quartiles | of the peak |")
    print("|---|---:|---:|---:|---:|---|---:|")
    ratios: dict[tuple[str, int], float] = {}
    try:
        for case, threads in product(cases, counts):
            result = compare(ours, theirs, case, threads, rounds=given.rounds)
            ratios[case, threads] = result.ratio
            ours.ask(prepare="peak", threads=1)
            limit = peak_operations() / min(ours.ask()["seconds"] for _ in range(3))
            share = operations(case) / result.ours_seconds / (threads * limit)
            print(
                f"| {case} | {threads} | {result.ours_seconds * 1e6:.1f} "
                f"| {result.theirs_seconds * 1e6:.1f} | {result.ratio:.2f} "
                f"| {result.low:.2f} to {result.high:.2f} | {share:.0%} |",
                flush=True,
            )
    finally:
        for side in (ours, theirs):
            side.close()
    for (name, group), threads in product(GROUPS.items(), counts):
        found = {case: ratios[case, threads] for case in group if (case, threads) in ratios}
        if found:
            least = min(found, key=lambda case: found[case])
            mean = geometric_mean(found.values())
            print(
                f"\n{name}, {threads} threads: geometric mean {mean:.3f}, "
                f"least {found[least]:.2f}: {least}"
            )


if __name__ == "__main__":
    main()
