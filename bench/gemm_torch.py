"""PyTorch's side of `bench.gemm`."""

from __future__ import annotations

from collections.abc import Callable

import torch

from bench.gemm_cases import inputs, is_transposed


def prepare(case: str, threads: int) -> Callable[[], None]:
    torch.set_num_threads(threads)
    a, b = (torch.from_numpy(array) for array in inputs(case))
    linear = torch.nn.functional.linear

    def work() -> None:
        with torch.no_grad():
            if is_transposed(case):
                linear(a, b)
            else:
                a @ b

    return work
