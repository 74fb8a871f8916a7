"""Placement: how close to the lower bound, and how long it takes.

    python -m bench.placement

Three tables: the MiniMalloc problems (greedy is largest first into the tightest gap, the reference
named in the data's README), networks of 10,000 values, and replaying a plan with new sizes.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median
from time import perf_counter

from arenite import memory
from arenite.memory import MemoryPlan, Replay, Value, csv_problems
from tests.memory.problems import graph_like

DATA = Path(__file__).parent / "data" / "minimalloc"


def largest_first_tightest_gap(values: list[Value]) -> int:
    """The peak of the plain greedy method; its own code, so that it judges ours."""
    placed: list[tuple[int, int, int, int]] = []
    for value in sorted(values, key=lambda v: -v.nbytes):
        start, end = value.lifetime.start, value.lifetime.end
        near = sorted((p[2], p[3]) for p in placed if p[0] < end and start < p[1])
        gaps, high = [], 0
        for low, top in near:
            if low - high >= value.nbytes:
                gaps.append((low - high, high))
            high = max(high, top)
        base = min(gaps)[1] if gaps else high
        placed.append((start, end, base, base + value.nbytes))
    return max(p[3] for p in placed)


def timed_plan(values: list[Value]) -> tuple[MemoryPlan, float]:
    began = perf_counter()
    plan = memory.plan(values)
    seconds = perf_counter() - began
    plan.verify()
    return plan, seconds


def challenging() -> None:
    print("| problem | values | lower bound | greedy | ours | greedy / bound | ours / bound | s |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for file in sorted(DATA.glob("*/*.csv")):
        values = csv_problems.read_csv(file)
        greedy = largest_first_tightest_gap(values)
        plan, seconds = timed_plan(values)
        bound = plan.lower_bound
        print(
            f"| {file.stem} | {len(values)} | {bound} | {greedy} | {plan.peak_nbytes} "
            f"| {greedy / bound:.3f} | {plan.ratio:.3f} | {seconds:.2f} |",
            flush=True,
        )


def networks() -> None:
    print("| reach, skips, seed | values | ours / bound | s | replay µs a value |")
    print("|---|---:|---:|---:|---:|")
    for reach, skips in [(4, 0.02), (8, 0.05), (20, 0.1)]:
        for seed in (1, 2, 3):
            values = graph_like(10_000, seed, reach, skips)
            plan, seconds = timed_plan(values)
            replay = Replay(plan)
            sizes = {value.id: 2 * value.nbytes for value in values}
            times = []
            for _ in range(5):
                began = perf_counter()
                new = replay.resize(sizes)
                times.append(perf_counter() - began)
            new.verify()
            micros = median(times) / len(values) * 1e6
            print(
                f"| {reach}, {skips:.0%}, {seed} | {len(values)} | {plan.ratio:.4f} "
                f"| {seconds:.2f} | {micros:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    challenging()
    print()
    networks()
