"""Profiles of a program in segments, joined: times made up, sums by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from arenite.pipeline.segmented_profile import joined
from arenite.program.limits import Limits
from arenite.runtime.profile import KernelTime, Profile

LIMITS = Limits(gflops=100.0, float64_gflops=50.0, int8_gops=400.0, read_gbytes=20.0)
TIME = KernelTime("matmul", 1e-3, 1, 4, 1.0, 50.0, 4.0, 0.5, "float32", "file:1")


def profile(*times: KernelTime) -> Profile:
    records = np.zeros(1, [("kernel", "i8"), ("tile", "i8")])
    return Profile(times, 2e-3, records, 1e9, [times[0].name], 1, LIMITS)


def test_segments_are_told_apart_and_runs_of_one_are_added_up() -> None:
    slow = replace(TIME, seconds=3e-3, n_runs=2, gops=10.0, gbytes=8.0, limit_share=0.1)
    found = joined(
        [("segment 0", profile(TIME)), ("segment 1", profile(TIME)), ("segment 0", profile(slow))],
        LIMITS,
    )
    first, second = found.kernels
    assert (first.name, second.name) == ("segment 0 matmul", "segment 1 matmul")
    assert first.seconds == pytest.approx(4e-3)
    assert (first.n_runs, first.n_tiles) == (3, 8)
    assert first.gops == pytest.approx((50.0 * 1e-3 + 10.0 * 3e-3) / 4e-3)
    assert first.gbytes == pytest.approx((4.0 * 1e-3 + 8.0 * 3e-3) / 4e-3)
    assert first.limit_share == pytest.approx((0.5 * 1e-3 + 0.1 * 3e-3) / 4e-3)
    assert first.share == pytest.approx(0.8)
    assert second.share == pytest.approx(0.2)
    assert found.wall_seconds == pytest.approx(6e-3)
    assert found.n_lost == 3


@pytest.mark.parametrize(("seconds", "bound"), [(0.5e-3, "float32"), (3e-3, "memory")])
def test_shares_of_other_limits_are_not_mixed(seconds: float, bound: str) -> None:
    other = replace(TIME, seconds=seconds, limit_share=0.9, bound="memory")
    [one] = joined([("segment 0", profile(TIME)), ("segment 0", profile(other))], LIMITS).kernels
    assert (one.bound, one.limit_share) == (bound, 0.5 if bound == "float32" else 0.9)
