"""Our side of `bench.fused`: one kernel, weights and bias as constants."""

from __future__ import annotations

from collections.abc import Callable

import arenite
from bench import gemm_ours
from bench.fused_cases import inputs


def prepare(case: str, threads: int) -> Callable[[], None]:
    if case == "peak":
        return gemm_ours.prepare(case, threads)
    x, w, b = inputs(case)
    weights, bias = arenite.Tensor(w), arenite.Tensor(b)
    compiled = arenite.compile(lambda x: (x @ weights.T + bias).gelu(), x, threads=threads)

    def work() -> None:
        compiled(x)

    return work
