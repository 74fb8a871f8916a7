"""Random graphs on WebGPU: the whole way from passes to results, and every byte that is written."""

from __future__ import annotations

import numpy as np
import pytest

from arenite.ir import reference
from arenite.pipeline import compile_graph
from tests.backends.webgpu.runner import ON_WEBGPU, webgpu
from tests.pipeline.graphs import GraphMaker

#: Of what passes through some dozen functions; and of steps such as floor, which tip over.
BOUND, TIPPED = 1e-3, 0.01


@pytest.mark.parametrize("seed", range(6))
def test_a_random_graph_is_what_the_reference_has(seed: int) -> None:
    webgpu()
    maker = GraphMaker(seed)
    graph = maker.make(40)
    arrays = maker.arrays(seed)
    wanted = reference.evaluate(graph, arrays)
    with compile_graph(graph, ON_WEBGPU) as program:
        found, checked = program(*arrays), program.run_checked(*arrays)
        program.verify()
    for one, again, other in zip(found, checked, wanted, strict=True):
        assert one.tobytes() == again.tobytes()
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        near = np.isclose(one, other, rtol=BOUND, atol=BOUND, equal_nan=True)
        assert np.count_nonzero(~near) <= TIPPED * near.size
