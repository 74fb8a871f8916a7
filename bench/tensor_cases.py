"""The work of `bench.tensor`: the shapes of each case, and how many bytes it must move."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

#: name -> shapes of the inputs
CASES: dict[str, list[tuple[int, ...]]] = {
    "softmax 1024x1024": [(1024, 1024)],
    "softmax 64x4096": [(64, 4096)],
    "layer norm 1024x1024": [(1024, 1024), (1024,), (1024,)],
    "layer norm 64x4096": [(64, 4096), (4096,), (4096,)],
    "rms norm 1024x1024": [(1024, 1024), (1024,)],
    "rms norm 64x4096": [(64, 4096), (4096,)],
    "gelu 1024x1024": [(1024, 1024)],
    "gelu 64x4096": [(64, 4096)],
    "chain of 20 on 10^6": [(1_000_000,)],
    "sum rows 1024x1024": [(1024, 1024)],
    "sum columns 1024x1024": [(1024, 1024)],
    "max rows 1024x1024": [(1024, 1024)],
    "max columns 1024x1024": [(1024, 1024)],
    "mean rows 1024x1024": [(1024, 1024)],
    "mean columns 1024x1024": [(1024, 1024)],
    "transpose 1024x1024": [(1024, 1024)],
    "concat 1024x1024": [(512, 1024), (512, 1024)],
    "gather rows 1024x1024": [(1024, 1024)],
}
REDUCTIONS = ("sum", "max", "mean")


def inputs(case: str) -> list[Array]:
    rng = np.random.default_rng(1)
    return [rng.standard_normal(shape, dtype=np.float32) for shape in CASES[case]]


def indices() -> NDArray[np.int64]:
    return np.random.default_rng(2).permutation(1024)


def nbytes(case: str) -> int:
    """Bytes of inputs and outputs, each once: what memory bandwidth limits."""
    moved = sum(4 * int(np.prod(shape)) for shape in CASES[case])
    first = 4 * int(np.prod(CASES[case][0]))
    if case.startswith(REDUCTIONS):
        return moved + 4096
    return moved + (2 * first if case.startswith("concat") else first)
