"""Attention of float32 on the CPU against PyTorch's scaled_dot_product_attention.

    python -m bench.attention [word ...]        only cases with one of these words in their name

Needs torch beside Arenite. One and two threads. Prints the median ratio (their time over ours) with
its quartiles, and the share of the multiply-add peak of as many cores, measured beside each case.
"""

from __future__ import annotations

import sys

from bench.attention_cases import CASES, work_of
from bench.gemm import peak
from bench.harness import Side, compare


def main(words: list[str]) -> None:
    cases = [case for case in CASES if not words or any(word in case for word in words)]
    ours, theirs = Side("bench.attention_ours"), Side("bench.attention_torch")
    print("| attention | threads | ours µs | theirs µs | ratio | quartiles | of the peak |")
    print("|---|---:|---:|---:|---:|---|---:|")
    try:
        for case in cases:
            for threads in (1, 2):
                print(row(case, threads, ours, theirs), flush=True)
    finally:
        for side in (ours, theirs):
            side.close()


def row(case: str, threads: int, ours: Side, theirs: Side) -> str:
    result = compare(ours, theirs, case, threads)
    share = work_of(case).operations / result.ours_seconds / (threads * peak(ours))
    return (
        f"| {case} | {threads} | {result.ours_seconds * 1e6:.0f} "
        f"| {result.theirs_seconds * 1e6:.0f} | {result.ratio:.2f} "
        f"| {result.low:.2f} to {result.high:.2f} | {share:.0%} |"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
