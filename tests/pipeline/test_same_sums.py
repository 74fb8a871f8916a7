"""With `same_sums` a row of a product has the same bits alone and among others, for all types of
weights, and is right by NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from arenite.dtype import float32
from arenite.ir import Node, Var, constant, graph_input, make
from arenite.ir.compose import basic
from arenite.ir.graph import Graph
from arenite.ir.ops.blocks import matmul_blocks
from arenite.pipeline import compile_graph
from arenite.program.options import Options
from tests.codegen.block_weights import random_blocks, weights_node
from tests.pipeline.loaded import loaded

BLOCKS = ("q4_0", "q4_1", "q8_0", "q4_k", "q6_k")
FLOATS: dict[str, Any] = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32}
COUNTS = (1, 2, 3, 8, 17, 64, 97, 160)
OPTIONS = Options(same_sums=True, fixed_places=True)


def weights(name: str, columns: int, depth: int) -> tuple[Node, NDArray[Any] | None]:
    rng = np.random.default_rng(depth)
    if name in BLOCKS:
        return weights_node(name, random_blocks(name, columns, depth), depth), None
    own = rng.standard_normal((columns, depth), np.float32).astype(FLOATS[name])
    return constant(own), own.astype(np.float64)


@pytest.mark.parametrize("name", [*BLOCKS, *FLOATS])
@pytest.mark.parametrize(("depth", "columns"), [(256, 96), (1536, 576), (512, 7), (256, 1)])
def test_rows_alone_and_among_others(name: str, depth: int, columns: int) -> None:
    x = graph_input("x", 0, (Var("rows", 1, max(COUNTS)), depth), float32)
    w, numbers = weights(name, columns, depth)
    if name in BLOCKS:
        made = matmul_blocks(x, w)
    else:
        made = make("matmul", x, basic.cast(w, float32), transpose_a=False, transpose_b=True)
    # What follows is fused behind the sums, and what is before them may be too.
    graph = Graph.of([make("tanh", made) * 3.0])
    given = np.random.default_rng(1).standard_normal((max(COUNTS), depth)).astype(np.float32) / 30
    with compile_graph(graph, OPTIONS) as program:
        [whole] = program(given)
        assert np.isfinite(whole).all()
        for count in COUNTS:
            for first in {0, max(COUNTS) - count}:
                [some] = program(given[first : first + count])
                expected = whole[first : first + count]
                np.testing.assert_array_equal(some, expected, f"{first}, {count}")
    if numbers is not None:
        right = 3 * np.tanh(given.astype(np.float64) @ numbers.T)
        np.testing.assert_allclose(whole, right, atol=2e-4)


def test_other_sizes_cost_registers_alone() -> None:
    """With fixed places values of all sizes lie where the largest have them."""
    x = graph_input("x", 0, (Var("rows", 1, 64), 48), float32)
    w = constant(np.eye(48, dtype=np.float32) * 2)
    made = make("matmul", x, w, transpose_a=False, transpose_b=False)
    graph = Graph.of([make("matmul", make("tanh", made), made, transpose_a=True,
                           transpose_b=False)])  # fmt: skip
    given = np.random.default_rng(2).standard_normal((64, 48)).astype(np.float32)
    with compile_graph(graph, OPTIONS) as fixed, compile_graph(graph) as usual:
        for count in (64, 1, 40, 3, 64):
            np.testing.assert_array_equal(fixed(given[:count])[0], usual(given[:count])[0])
            binder = loaded(fixed).binder
            tables = {id(one.table.table) for one in binder.bound.values()}
            assert len(tables) == 1
        fixed.verify()
