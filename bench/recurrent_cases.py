"""The work of `bench.recurrent`: one recurrent layer of 128."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

HIDDEN = 128


@dataclass(frozen=True)
class Case:
    kind: str  # LSTM or GRU
    steps: int
    batch: int

    @property
    def gates(self) -> int:
        return {"LSTM": 4, "GRU": 3}[self.kind]


CASES = {
    "LSTM 128, 1 step": Case("LSTM", 1, 1),
    "LSTM 128, 100 steps": Case("LSTM", 100, 1),
    "LSTM 128, 100 steps, batch 4": Case("LSTM", 100, 4),
    "LSTM 128, 100 steps, batch 16": Case("LSTM", 100, 16),
    "GRU 128, 100 steps": Case("GRU", 100, 1),
    "GRU 128, 100 steps, batch 4": Case("GRU", 100, 4),
    "GRU 128, 100 steps, batch 16": Case("GRU", 100, 16),
}


def weights(case: Case) -> tuple[Array, Array, Array]:
    """W[gates * hidden, inputs], R[gates * hidden, hidden], bias[gates * hidden]."""
    rng = np.random.default_rng(1)
    rows = case.gates * HIDDEN
    shapes = ((rows, HIDDEN), (rows, HIDDEN), (rows,))
    w, r, b = (0.1 * rng.standard_normal(shape, dtype=np.float32) for shape in shapes)
    return w, r, b


def inputs(case: Case) -> tuple[Array, ...]:
    """x[time, batch, inputs], h[batch, hidden], and of an LSTM c[batch, hidden]."""
    rng = np.random.default_rng(2)
    shapes = [(case.steps, case.batch, HIDDEN), *[(case.batch, HIDDEN)] * 2]
    arrays = [rng.standard_normal(shape, dtype=np.float32) for shape in shapes]
    return tuple(arrays if case.kind == "LSTM" else arrays[:2])
