"""ONNX models from file to result: ours, ONNX Runtime and OpenVINO on the same inputs.

    python -m bench.whole_models FOLDER [NAME...]

FOLDER holds the files of `whole_models_cases.py`: those written by an exporter of standard
architectures (random weights), and real ones. Missing ones are named and left out. For each model
and one and two threads: the ratio to both peers (their time over ours) with its quartiles; the
share of the machine's limit (the time that its kernels' operations and bytes need at least, over
the time of all threads); and the three kernels that cost most: their share of the time and, in
brackets, of their limit.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import geometric_mean, median, quantiles

from bench.harness import ROUNDS, Side, SideFailed
from bench.whole_models_cases import CASES

PEERS = ("onnxruntime", "openvino")


def main(folder: Path, names: list[str]) -> None:
    sides = {name: Side(f"bench.whole_models_{name}") for name in ("ours", *PEERS)}
    head = f"{'model':24} {'threads':>7} {'ours ms':>9}" + "".join(f"{one:>30}" for one in PEERS)
    print(head)
    best: dict[str, list[float]] = {}
    for name, case in CASES.items():
        path = folder / case.file
        if names and name not in names:
            continue
        if not path.exists():
            print(f"{name:24} not here: {path}")
            continue
        for threads in (1, 2):
            times = measured(sides, f"{name} {path}", threads)
            if "ours" not in times:
                continue
            mine = times["ours"]
            row = f"{name:24} {threads:7} {median(mine) * 1e3:9.2f}"
            ratios = []
            for peer in PEERS:
                if peer not in times:
                    row += f"{'failed':>30}"
                    continue
                rounds = [one / other for one, other in zip(times[peer], mine, strict=True)]
                low, middle, high = quantiles(rounds, n=4)
                ratios.append(middle)
                row += f"{middle:14.2f} ({low:.2f} to {high:.2f})"
            told = sides["ours"].ask(profile=True)
            share = told["limit"] / (threads * median(mine))
            print(
                f"{row}\n{'':24} {share:.0%} of the limit; most: {', '.join(told['top'])}",
                flush=True,
            )
            if ratios:
                best.setdefault(f"{case.family}, {threads} threads", []).append(min(ratios))
    for family, ratios in best.items():
        print(f"{family}: geometric mean over the better peer {geometric_mean(ratios):.2f}")
    for side in sides.values():
        side.close()


def measured(sides: dict[str, Side], case: str, threads: int) -> dict[str, list[float]]:
    """Seconds by side and round; a side that fails is told and left out."""
    ready = {}
    for name, side in sides.items():
        try:
            side.ask(prepare=case, threads=threads)
            ready[name] = side
        except SideFailed as failed:
            print(f"{name} on {case}: {str(failed).strip().splitlines()[-1]}")
    times: dict[str, list[float]] = {name: [] for name in ready}
    for _ in range(ROUNDS):
        for name, side in ready.items():
            times[name].append(side.ask()["seconds"])
    return times


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), sys.argv[2:])
