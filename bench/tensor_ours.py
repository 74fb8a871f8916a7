"""Our side of `bench.tensor`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import arenite
from arenite.tensor import Tensor, concat
from bench.tensor_cases import indices, inputs


def prepare(case: str, threads: int) -> Callable[[], None]:
    arrays: list[Any] = list(inputs(case))
    if case.startswith("gather"):
        arrays.append(indices())
    compiled = arenite.compile(_function(case), *arrays, threads=threads)

    def work() -> None:
        compiled(*arrays)

    return work


def _function(case: str) -> Callable[..., Any]:
    kind = case.split()[0]
    axis = 1 if "rows" in case else 0
    functions: dict[str, Callable[..., Any]] = {
        "softmax": lambda x: x.softmax(-1),
        "layer": lambda x, w, b: x.layer_norm(w, b),
        "rms": lambda x, w: x.rms_norm(w),
        "gelu": lambda x: x.gelu(),
        "chain": _chain,
        "sum": lambda x: x.sum(axis),
        "max": lambda x: x.max(axis),
        "mean": lambda x: x.mean(axis),
        "transpose": lambda x: x.T,
        "concat": lambda a, b: concat([a, b], axis=0),
        "gather": lambda x, rows: x.take(rows, axis=0),
    }
    return functions[kind]


def _chain(x: Tensor) -> Tensor:
    for k in range(10):
        x = (x + 0.1 * k) * 0.99
    return x
