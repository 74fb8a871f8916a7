"""PyTorch's sides of `bench.fused`: op by op, and compiled."""

from __future__ import annotations

from collections.abc import Callable

import torch

from bench.fused_cases import has_norm, inputs


def prepare(case: str, threads: int) -> Callable[[], None]:
    """`case` begins with "compiled " where torch.compile is asked for."""
    torch.set_num_threads(threads)
    name = case.removeprefix("compiled ")
    x, w, b = (torch.from_numpy(array) for array in inputs(name))

    def layer(x: torch.Tensor) -> torch.Tensor:
        if has_norm(name):
            normed = torch.nn.functional.rms_norm(x, b.shape, b, eps=1e-6)
            return torch.nn.functional.linear(normed, w)
        return torch.nn.functional.gelu(torch.nn.functional.linear(x, w, b))

    run = torch.compile(layer) if name != case else layer

    def work() -> None:
        with torch.no_grad():
            run(x)

    return work
