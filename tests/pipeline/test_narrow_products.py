"""Products with floats of 16 bits, which are read as they are kept."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from arenite.dtype import float32
from arenite.ir import Var, buffer, graph_input, make
from arenite.ir.graph import Graph
from arenite.pipeline import compile_graph

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("rows", [1, 7, 90])
def test_floats_of_16_bits_are_multiplied_as_they_are_kept(rows: int, dtype: Any) -> None:
    kept = RNG.standard_normal((200, 300), dtype=np.float32).astype(dtype)
    wide = make("cast", buffer(kept), dtype=float32)
    x = graph_input("x", 0, (Var("rows", 1, 100), 300), float32)
    graph = Graph.of([make("matmul", x, wide, transpose_a=False, transpose_b=True)])
    given = RNG.standard_normal((rows, 300), dtype=np.float32)
    with compile_graph(graph, threads=1) as one, compile_graph(graph, threads=2) as two:
        assert one.plan.regions["mapped"].nbytes >= kept.nbytes
        assert "packed" not in one.plan.regions
        assert len(one.kernels) == 1
        [found], [other] = one(given), two(given)
        np.testing.assert_array_equal(found, other)
    exact = given.astype(np.float64) @ kept.astype(np.float64).T
    np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-4)
