"""A recurrent layer against ONNX Runtime, one and two threads.

    python -m bench.recurrent

Needs onnx and onnxruntime beside Arenite. Prints the median ratio (their time over ours) with its
quartiles.
"""

from __future__ import annotations

from bench.harness import Side, compare
from bench.recurrent_cases import CASES


def main() -> None:
    ours, theirs = Side("bench.recurrent_ours"), Side("bench.recurrent_ort")
    print("| work | threads | ours µs | theirs µs | ratio | quartiles |")
    print("|---|---:|---:|---:|---:|---|")
    try:
        for case in CASES:
            for threads in (1, 2):
                result = compare(ours, theirs, case, threads)
                print(
                    f"| {case} | {threads} | {result.ours_seconds * 1e6:.1f} "
                    f"| {result.theirs_seconds * 1e6:.1f} | {result.ratio:.2f} "
                    f"| {result.low:.2f} to {result.high:.2f} |",
                    flush=True,
                )
    finally:
        ours.close()
        theirs.close()


if __name__ == "__main__":
    main()
