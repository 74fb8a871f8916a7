"""Single ONNX operators and small networks: ours against ONNX Runtime, the slowest first.

    python -m bench.operators FOLDER [--threads N] [--rounds N] [NAME...]

Into FOLDER go the models of `operators_cases.py`, each a file NAME.onnx with its inputs beside it
in NAME.npz; other pairs that lie there (`bench.networks` writes some) are run too. Before a model
is timed its results are compared. A ratio is ONNX Runtime's time over ours, the median over rounds.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from bench import operators_onnxruntime, operators_ours
from bench.harness import Comparison, Side, SideFailed, compare
from bench.operators_cases import CASES


def write(folder: Path) -> None:
    for name, case in CASES.items():
        path = folder / f"{name}.onnx"
        path.write_bytes(case.model().SerializeToString())
        np.savez(path.with_suffix(".npz"), allow_pickle=False, **case.given)


def difference(path: Path) -> float:
    """How far our results are from ONNX Runtime's, over their greatest number."""
    ours, theirs = (
        [np.asarray(one) for one in side.prepare(str(path), 1)()]
        for side in (operators_ours, operators_onnxruntime)
    )
    furthest = 0.0
    for mine, one in zip(ours, theirs, strict=True):
        if mine.shape != one.shape or mine.dtype != one.dtype:
            raise ValueError(f"{path.stem}: {mine.shape} {mine.dtype}, not {one.shape} {one.dtype}")
        if one.size:
            wide, other = mine.astype(np.float64), one.astype(np.float64)
            scale = max(1e-30, float(np.abs(other).max()))
            furthest = max(furthest, float(np.abs(wide - other).max()) / scale)
    return furthest


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_intermixed_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    write(given.folder)
    ours, theirs = Side("bench.operators_ours"), Side("bench.operators_onnxruntime")
    found: dict[str, tuple[Comparison, float]] = {}
    for path in sorted(given.folder.glob("*.onnx")):
        if given.names and path.stem not in given.names:
            continue
        try:
            times = compare(ours, theirs, str(path), given.threads, rounds=given.rounds)
            found[path.stem] = times, difference(path)
            print(f"{path.stem:28} {times.ratio:.2f}", flush=True)
        except (SideFailed, ValueError) as error:
            print(f"{path.stem:28} {str(error).strip().splitlines()[-1]}", flush=True)
    for side in (ours, theirs):
        side.close()
    print("\n| model | ours µs | ONNX Runtime µs | ratio | quartiles | difference |")
    print("|---|---:|---:|---:|---|---:|")
    for name, (times, far) in sorted(found.items(), key=lambda one: one[1][0].ratio):
        print(
            f"| {name} | {times.ours_seconds * 1e6:.1f} | {times.theirs_seconds * 1e6:.1f} "
            f"| {times.ratio:.2f} | {times.low:.2f} to {times.high:.2f} | {far:.0e} |"
        )


if __name__ == "__main__":
    main()
