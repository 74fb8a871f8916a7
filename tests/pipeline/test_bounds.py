"""No kernel writes behind the end of its output: casts to narrower types at every odd length."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from arenite import ir
from arenite.backends.cpu.execution import binding
from arenite.backends.cpu.execution.arrays import Results
from arenite.dtype import BY_NAME
from arenite.ir.graph import Graph
from arenite.pipeline import compile_graph

GUARD = 128


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("int32", "int8"),
        ("int32", "int16"),
        ("int16", "int8"),
        ("float32", "bfloat16"),
        ("float32", "float16"),
        ("float32", "float8_e4m3fn"),
    ],
)
def test_a_narrowing_cast_stays_within_its_output(
    source: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths = [1, 9, 17, 33, 65, 129]
    inputs = [ir.graph_input(f"x{k}", k, (n,), BY_NAME[source]) for k, n in enumerate(lengths)]
    graph = Graph(tuple(inputs), tuple(ir.make("cast", x, dtype=BY_NAME[target]) for x in inputs))
    blocks: list[NDArray[np.uint8]] = []

    class Guarded(Results):
        def new(self, shape: tuple[int, ...]) -> NDArray[Any]:
            dtype = BY_NAME[target]
            blocks.append(np.full(dtype.nbytes(shape) + 2 * GUARD, 0xAB, np.uint8))
            inside = blocks[-1][GUARD:-GUARD]
            return np.ndarray(shape, dtype.to_numpy(), buffer=inside)

    monkeypatch.setattr(binding, "Results", Guarded)
    arrays = [np.arange(n).astype(BY_NAME[source].to_numpy()) for n in lengths]
    with compile_graph(graph, threads=1) as program:
        results = program(*arrays)
    for array, result, block in zip(arrays, results, blocks, strict=True):
        assert (block[:GUARD] == 0xAB).all()
        assert (block[-GUARD:] == 0xAB).all()
        assert (result == array.astype(result.dtype)).all()
