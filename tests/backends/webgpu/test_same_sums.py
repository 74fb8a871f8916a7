"""With `same_sums` a row of a product has the same bits alone and among others, for all types of
weights, with norms before it and what follows behind it; and is right by NumPy in float64."""

from __future__ import annotations

import numpy as np
import pytest

from arenite.dtype import BY_NAME
from arenite.dtype.blocks import dequantised
from arenite.ir import Var, buffer, constant, graph_input, make
from arenite.ir.compose.basic import cast
from arenite.ir.compose.neural import rms_norm
from arenite.ir.graph import Graph
from arenite.ir.node import Node
from arenite.ir.ops.blocks import as_quantised, matmul_blocks
from arenite.pipeline import compile_graph
from arenite.program.options import Options
from tests.backends.webgpu.runner import Array, webgpu
from tests.codegen.block_weights import random_blocks, weights_node

F32 = BY_NAME["float32"]
BLOCKS = ("q8_0", "q4_0", "q4_1", "q4_k", "q6_k", "q5_0")
FLOATS = {"f16": np.float16, "f32": np.float32}
COUNTS = (1, 2, 3, 4, 5, 8, 9, 21)
COLUMNS = 23
#: Beside the sum of the sizes of what is summed.
BOUND = 2e-6


def product(name: str, x: Node, depth: int) -> tuple[Node, Array]:
    """x by weights of a type, and these as numbers."""
    if name in BLOCKS:
        raw = random_blocks(name, COLUMNS, depth)
        w = weights_node(name, raw, depth)
        return matmul_blocks(x, w), dequantised(raw, w.dtype, (COLUMNS, depth))
    own = np.random.default_rng(3).standard_normal((COLUMNS, depth)).astype(FLOATS[name])
    made = make("matmul", x, cast(buffer(own), F32), transpose_a=False, transpose_b=True)
    return made, own


@pytest.mark.parametrize("is_normed", [False, True])
@pytest.mark.parametrize("depth", [256, 2560])
@pytest.mark.parametrize("name", [*BLOCKS, *FLOATS])
def test_rows_alone_and_among_others(name: str, depth: int, is_normed: bool) -> None:
    webgpu()
    x = graph_input("x", 0, (Var("rows", 0, max(COUNTS)), depth), F32)
    gain = np.random.default_rng(2).uniform(0.5, 2, depth).astype(np.float32)
    rows = rms_norm(x, 1, constant(gain), 1e-5) if is_normed else x
    made, weights = product(name, rows, depth)
    given = np.random.default_rng(1).standard_normal((max(COUNTS), depth)).astype(np.float32)
    with compile_graph(
        Graph.of([made * 3.0]), Options(device="webgpu", same_sums=True, fixed_places=True)
    ) as program:
        [whole] = program(given)
        for count in COUNTS:
            for first in {0, max(COUNTS) - count}:
                [some] = program(given[first : first + count])
                np.testing.assert_array_equal(some, whole[first : first + count], f"{first}")
        assert program(given[:0])[0].shape == (0, COLUMNS)
        kernels = [one.code for one in program.kernels if "transfer" not in one.entry_point]
        assert all("foreign" in code for code in kernels)
    # Rows are multiplied with their gain, of blocks quantised, and normed behind the sums.
    scaled = given * gain if is_normed else given
    normed = as_quantised(scaled) if name in BLOCKS else scaled.astype(np.float64)
    if is_normed:
        squares = (given.astype(np.float64) ** 2).mean(-1, keepdims=True)
        normed = normed / np.sqrt(squares + 1e-5)
    size = np.abs(normed) @ np.abs(weights.astype(np.float64)).T
    right = normed @ weights.astype(np.float64).T
    assert (np.abs(whole / 3 - right) <= BOUND * size).all()
