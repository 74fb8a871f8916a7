"""Limits of a core, and operations counted exactly, so that shares mean something."""

from __future__ import annotations

import numpy as np

import arenite
from arenite.runtime.limits import Limits, limits


def test_both_limits_are_measured_once() -> None:
    found = limits()
    assert found.gflops > 0
    assert found.read_gbytes > 0
    assert limits() is found


def test_a_kernel_is_bound_by_the_limit_it_is_nearer_to() -> None:
    most = Limits(gflops=100.0, read_gbytes=20.0)
    assert most.share(50.0, 1.0) == (0.5, "arithmetic")
    assert most.share(1.0, 15.0) == (0.75, "memory")


def test_an_epilogue_counts_once_for_each_element() -> None:
    a, b = np.ones((30, 40), np.float32), np.ones((40, 50), np.float32)
    program = arenite.compile(lambda a, b: (a @ b) * 2 + 1, a, b)
    [kernel] = program.kernels
    assert kernel.operations == 2 * 30 * 40 * 50 + 2 * 30 * 50
    [time] = program.profile(a, b).kernels
    assert time.bound in ("arithmetic", "memory")
    assert time.limit_share > 0
    assert "of limit" in str(program.profile(a, b))
