"""Products of rows that are scaled in unusual ways, judged by NumPy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import arenite
from arenite import ir
from arenite.tensor import Tensor

Array = NDArray[Any]


@pytest.mark.parametrize("is_turned", [False, True])
@pytest.mark.parametrize("shape", [(), (1,), (32,)])
def test_rows_times_a_number_and_over_their_root_mean_square(
    shape: tuple[int, ...], is_turned: bool
) -> None:
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((5, 32), (32, 20)))
    gain = np.full(shape, 0.3, np.float32)
    known = [Tensor.of_node(ir.constant(one)) for one in (gain, w.T.copy() if is_turned else w)]

    def scaled(x: Tensor) -> Tensor:
        squares = (x * x).mean(-1, keepdims=True)
        matrix = known[1].T if is_turned else known[1]
        return x * known[0] * (squares + 1e-6) ** -0.5 @ matrix

    wide = x.astype(np.float64)
    wanted = wide * gain / np.sqrt((wide * wide).mean(-1, keepdims=True) + 1e-6) @ w
    np.testing.assert_allclose(arenite.compile(scaled, x)(x), wanted, rtol=1e-4, atol=1e-5)
