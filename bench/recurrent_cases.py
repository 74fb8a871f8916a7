"""The work of `bench.recurrent`: one LSTM layer of 128, batch 1."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

HIDDEN = 128
#: name -> steps
CASES = {"LSTM 128, 1 step": 1, "LSTM 128, 100 steps": 100}


def weights() -> tuple[Array, Array, Array]:
    """W[4 * hidden, inputs], R[4 * hidden, hidden], bias[4 * hidden]."""
    rng = np.random.default_rng(1)
    shapes = ((4 * HIDDEN, HIDDEN), (4 * HIDDEN, HIDDEN), (4 * HIDDEN,))
    w, r, b = (0.1 * rng.standard_normal(shape, dtype=np.float32) for shape in shapes)
    return w, r, b


def inputs(case: str) -> tuple[Array, Array, Array]:
    """x[time, 1, inputs], h[1, hidden], c[1, hidden]."""
    rng = np.random.default_rng(2)
    shapes = ((CASES[case], 1, HIDDEN), (1, HIDDEN), (1, HIDDEN))
    x, h, c = (rng.standard_normal(shape, dtype=np.float32) for shape in shapes)
    return x, h, c
