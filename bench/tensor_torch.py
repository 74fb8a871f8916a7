"""PyTorch's side of `bench.tensor`, eager and compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from bench.tensor_cases import indices, inputs


def prepare(case: str, threads: int) -> Callable[[], None]:
    torch.set_num_threads(threads)
    compiled = case.endswith(" compiled")
    case = case.removesuffix(" compiled")
    arrays = [torch.from_numpy(array) for array in inputs(case)]
    if case.startswith("gather"):
        arrays.append(torch.from_numpy(indices()))
    function = _function(case)
    if compiled:
        function = torch.compile(function)

    def work() -> None:
        with torch.no_grad():
            function(*arrays)

    return work


def _function(case: str) -> Callable[..., Any]:
    kind = case.split()[0]
    axis = 1 if "rows" in case else 0
    functional = torch.nn.functional
    functions: dict[str, Callable[..., Any]] = {
        "softmax": lambda x: torch.softmax(x, -1),
        "layer": lambda x, w, b: functional.layer_norm(x, (x.shape[-1],), w, b),
        "rms": lambda x, w: functional.rms_norm(x, (x.shape[-1],), w),
        "gelu": functional.gelu,
        "chain": _chain,
        "sum": lambda x: x.sum(axis),
        "max": lambda x: x.amax(axis),
        "mean": lambda x: x.mean(axis),
        "transpose": lambda x: x.T.contiguous(),
        "concat": lambda a, b: torch.cat([a, b]),
        "gather": lambda x, rows: x[rows],
    }
    return functions[kind]


def _chain(x: torch.Tensor) -> torch.Tensor:
    for k in range(10):
        x = (x + 0.1 * k) * 0.99
    return x
