"""A product with bias and gelu behind it, or a norm before it, against PyTorch, op by op and with
torch.compile.

    python -m bench.fused

Needs torch, and a C++ compiler for torch.compile, beside Arenite. One and two threads. Prints the
median ratio (their time over ours) with its quartiles, and the share of the multiply-add peak.
"""

from __future__ import annotations

from bench.fused_cases import CASES, operations
from bench.gemm import peak
from bench.harness import Side, compare

#: How the peer runs -> what the case is called there.
MANNERS = {"eager": "", "torch.compile": "compiled "}


def main() -> None:
    print("| work | threads | peer | ours µs | theirs µs | ratio | quartiles | of the peak |")
    print("|---|---:|---|---:|---:|---:|---|---:|")
    for threads in (1, 2):
        ours, theirs = Side("bench.fused_ours"), Side("bench.fused_torch")
        try:
            for case in CASES:
                for peer, prefix in MANNERS.items():
                    result = compare(ours, theirs, case, threads, prefix + case)
                    share = operations(case) / result.ours_seconds / (threads * peak(ours))
                    print(
                        f"| {case} | {threads} | {peer} | {result.ours_seconds * 1e6:.1f} "
                        f"| {result.theirs_seconds * 1e6:.1f} | {result.ratio:.2f} "
                        f"| {result.low:.2f} to {result.high:.2f} | {share:.0%} |",
                        flush=True,
                    )
        finally:
            ours.close()
            theirs.close()


if __name__ == "__main__":
    main()
