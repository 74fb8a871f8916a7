"""Our side of `bench.fused`: weights and bias as constants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import arenite
from bench import gemm_ours
from bench.fused_cases import has_norm, inputs


def prepare(case: str, threads: int) -> Callable[[], None]:
    if case == "peak":
        return gemm_ours.prepare(case, threads)
    x, w, b = inputs(case)
    weights, bias = arenite.Tensor(w), arenite.Tensor(b)

    def layer(x: Any) -> Any:
        if has_norm(case):
            return x.rms_norm(bias) @ weights.T
        return (x @ weights.T + bias).gelu()

    compiled = arenite.compile(layer, x, threads=threads)

    def work() -> None:
        compiled(x)

    return work
