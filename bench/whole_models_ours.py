"""Our side of `bench.whole_models`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import arenite
from arenite.model import CompiledModel
from bench.whole_models_cases import feed

#: Runs with time stamps; the shortest counts.
PROFILES = 5
TOP = 3


@dataclass(frozen=True)
class Work:
    """A compiled model and its inputs."""

    program: CompiledModel
    arrays: dict[str, Any]

    def __call__(self) -> None:
        self.program(**self.arrays)


def prepare(case: str, threads: int) -> Work:
    name, path = case.split(" ", 1)
    return Work(arenite.load(path).compile(threads=threads), feed(name, path))


def profile(work: Work) -> dict[str, Any]:
    """The least seconds that a core's limits allow for all kernels, and those that take longest.

    A kernel that read its bytes from a nearer cache than its limit tells counts as at its limit.
    """
    runs = [work.program.profile(**work.arrays) for _ in range(PROFILES)]
    best = min(runs, key=lambda one: one.wall_seconds)
    longest = sorted(best.kernels, key=lambda kernel: -kernel.seconds)[:TOP]
    return {
        "limit": sum(min(one.limit_share, 1.0) * one.seconds for one in best.kernels),
        "top": [
            f"{one.name} {one.share:.0%} ({one.limit_share:.0%} {one.bound})" for one in longest
        ],
    }
