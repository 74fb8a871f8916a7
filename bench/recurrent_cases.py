"""The work of `bench.recurrent`: one LSTM layer of 128."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

HIDDEN = 128
#: name -> steps, batch
CASES = {
    "LSTM 128, 1 step": (1, 1),
    "LSTM 128, 100 steps": (100, 1),
    "LSTM 128, 100 steps, batch 4": (100, 4),
    "LSTM 128, 100 steps, batch 16": (100, 16),
}


def weights() -> tuple[Array, Array, Array]:
    """W[4 * hidden, inputs], R[4 * hidden, hidden], bias[4 * hidden]."""
    rng = np.random.default_rng(1)
    shapes = ((4 * HIDDEN, HIDDEN), (4 * HIDDEN, HIDDEN), (4 * HIDDEN,))
    w, r, b = (0.1 * rng.standard_normal(shape, dtype=np.float32) for shape in shapes)
    return w, r, b


def inputs(case: str) -> tuple[Array, Array, Array]:
    """x[time, batch, inputs], h[batch, hidden], c[batch, hidden]."""
    rng = np.random.default_rng(2)
    steps, batch = CASES[case]
    shapes = ((steps, batch, HIDDEN), (batch, HIDDEN), (batch, HIDDEN))
    x, h, c = (rng.standard_normal(shape, dtype=np.float32) for shape in shapes)
    return x, h, c
