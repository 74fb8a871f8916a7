"""PyTorch's side of `bench.gemm`."""

from __future__ import annotations

from collections.abc import Callable

import torch

from bench.gemm_cases import inputs, is_transposed


def prepare(case: str, threads: int) -> Callable[[], None]:
    torch.set_num_threads(threads)
    arrays, right = inputs(case)
    many, b = [torch.from_numpy(a) for a in arrays], torch.from_numpy(right)
    multiply = torch.nn.functional.linear if is_transposed(case) else torch.matmul

    def work() -> None:
        with torch.no_grad():
            for a in many:
                multiply(a, b)

    return work
