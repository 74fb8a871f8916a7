"""Narrow weights of one row: asked for ahead where a cache may still have them, and only there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from arenite.dtype import of as dtype_of
from arenite.ir import graph_input
from arenite.ir.graph import Graph
from arenite.schedule import fuse
from arenite.tensor import Tensor
from tests.codegen import targets
from tests.codegen.made import TARGETS
from tests.codegen.products import BFLOAT16, Made, Shape, check

ROW = Shape(1, 70, 530, tb=True)
NBYTES = ROW.n * ROW.k * 2


def with_last_cache(name: str, nbytes: int) -> targets.Target:
    return replace(targets.named(name), l3_nbytes=nbytes)


@pytest.mark.parametrize("dtype", [np.float16, BFLOAT16], ids=str)
@pytest.mark.parametrize("name", TARGETS)
def test_what_stays_is_multiplied(name: str, dtype: Any) -> None:
    assert check(ROW, dtype, with_last_cache(name, NBYTES)).loops.product.stays


@pytest.mark.parametrize(
    ("cache_nbytes", "dtype", "stays"),
    [
        (NBYTES, np.float16, True),
        (4 * NBYTES, np.float16, False),  # it is near, and read as it is
        (NBYTES // 4, np.float16, False),  # the next run finds nothing of it
        (NBYTES, np.float32, False),
    ],
)
def test_only_lines_that_may_be_there_are_asked_for(
    cache_nbytes: int, dtype: Any, stays: bool
) -> None:
    a, b = ROW.operands(dtype)
    made = Made(ROW.product, [a.shape, b.shape], dtype, with_last_cache("host", cache_nbytes))
    assert made.loops.product.stays == stays
    if dtype == np.float16:
        assert ("prefetch" in made.compiled.ir) == stays


def test_a_large_program_around_it_leaves_nothing() -> None:
    dtype = dtype_of(np.dtype(np.float16))
    shapes = [(1, ROW.k), (ROW.n, ROW.k), (5 * ROW.n, ROW.k)]
    inputs = [graph_input(f"x{k}", k, shape, dtype) for k, shape in enumerate(shapes)]
    x, w, other = map(Tensor.of_node, inputs)
    graph = Graph(tuple(inputs), ((x @ w.T).node, (other + 1).node))
    for kernel in fuse(graph).kernels:
        assert kernel.given_nbytes == sum(2 * n * k for n, k in shapes)
