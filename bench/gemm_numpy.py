"""NumPy's side of `bench.gemm`; its threads are set where the process is started."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bench.gemm_cases import inputs, is_transposed


def prepare(case: str, threads: int) -> Callable[[], None]:
    many, b = inputs(case)
    right = b.T if is_transposed(case) else b

    def work() -> None:
        for a in many:
            np.matmul(a, right)

    return work
