"""Our side of `bench.attention`."""

from __future__ import annotations

from collections.abc import Callable

import arenite
from arenite.tensor import Tensor
from bench import gemm_ours
from bench.attention_cases import inputs, work_of


def prepare(case: str, threads: int) -> Callable[[], None]:
    if case == "peak":
        return gemm_ours.prepare(case, threads)
    arrays = inputs(case)
    causal = work_of(case).kind == "causal"

    def function(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = (x.swapaxes(1, 2) for x in (q, k, v))
        return q.attention(k, v, mask, causal=causal)

    compiled = arenite.compile(function, *arrays, threads=threads)

    def work() -> None:
        compiled(*arrays)

    return work
