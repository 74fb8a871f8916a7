"""Products of rows scaled in unusual ways, or by weights in odd places, judged by NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import arenite
from arenite import ir
from arenite.device.disk import DiskAllocator
from arenite.dtype import BY_NAME
from arenite.ir.graph import Graph
from arenite.pipeline import compile_graph
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


@pytest.mark.parametrize("is_turned", [False, True])
@pytest.mark.parametrize("rows", [1, 3, 40])
@pytest.mark.parametrize("name", ["float32", "float16", "float64"])
def test_weights_anywhere_in_a_file(name: str, rows: int, is_turned: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(rows)
    w = rng.standard_normal((70, 300)).astype(name)
    x = rng.standard_normal((rows, 300)).astype("float64" if name == "float64" else "float32")
    stored = np.ascontiguousarray(w if is_turned else w.T)
    given = ir.graph_input("x", 0, x.shape, BY_NAME[x.dtype.name])
    results = []
    for offset in (0, 1, 2, 6, 33):
        path = tmp_path / str(offset)
        path.write_bytes(b"?" * offset + stored.tobytes())
        file = DiskAllocator(path).file()
        node = ir.buffer(file.view(offset, stored.nbytes, BY_NAME[name], stored.shape))
        wide = node if w.dtype == x.dtype else ir.make("cast", node, dtype=given.dtype)
        product = ir.make("matmul", given, wide, transpose_a=False, transpose_b=is_turned)
        with compile_graph(Graph.of([product])) as exe:
            results += exe(x)
    np.testing.assert_allclose(results[0], x @ w.T.astype(x.dtype), rtol=1e-3, atol=1e-3)
    for one in results[1:]:
        np.testing.assert_array_equal(one, results[0])
