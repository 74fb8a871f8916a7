"""Random graphs over bools, integers and floats of all widths, held to NumPy to the last bit."""

from __future__ import annotations

import numpy as np
import pytest

from arenite.ir.graph import Graph
from arenite.pipeline import compile_graph
from tests.pipeline.mixed_graphs import Array, MixedMaker


def check(graph: Graph, arrays: list[Array], expected: list[Array]) -> None:
    results = []
    for threads in (1, 2):
        with compile_graph(graph, threads=threads) as program:
            results.append(program(*arrays))
            if threads == 2:
                results.append(program.run_checked(*arrays))
    for made in results:
        for node, got, want in zip(graph.outputs, made, expected, strict=True):
            assert (got.dtype, got.shape) == (want.dtype, want.shape)
            if got.dtype.kind not in "biu":
                got, want = got.astype(np.float64), want.astype(np.float64)
            np.testing.assert_array_equal(got, want, err_msg=repr(node))


@pytest.mark.parametrize("is_later", [False, True], ids=["known sizes", "sizes found later"])
@pytest.mark.parametrize("seed", range(40))
def test_random_graphs_of_many_types(seed: int, is_later: bool) -> None:
    maker = MixedMaker(seed, is_later)
    graph, expected = maker.make(60)
    check(graph, maker.arrays, expected)
