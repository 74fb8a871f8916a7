"""Products by chosen matrices, judged by the gguf package's own numbers, one choice at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from arenite.device import Buffer
from arenite.dtype import BY_NAME, float32
from arenite.errors import IndexOutOfRange, ShapeMismatch, TypeMismatch
from arenite.ir import Node, Var, buffer, constant, graph_input, make
from arenite.ir.graph import Graph
from arenite.ir.ops.experts import matmul_experts
from arenite.pipeline import compile_graph
from tests.codegen.block_weights import TYPES, random_blocks
from tests.pipeline.test_blocks import activations, numbers_by_gguf, rounding_bound

Array = NDArray[Any]
INT64 = BY_NAME["int64"]


def experts_node(name: str, experts: int, columns: int, depth: int) -> tuple[Node, Array]:
    """Weights of a block type, and their numbers."""
    raw = random_blocks(name, experts * columns, depth, seed=experts)
    held = Buffer.from_array(raw.reshape(-1))
    node = buffer(held.view(0, held.nbytes, BY_NAME[name], (experts, columns, depth)))
    return node, numbers_by_gguf(name, raw).reshape(experts, columns, depth)


def program(w: Node, rows: Any, choices: int, *, own_rows: bool) -> Graph:
    shape = (rows, choices, w.shape[2]) if own_rows else (rows, w.shape[2])
    x = graph_input("x", 0, shape, float32)
    return Graph.of([matmul_experts(x, w, graph_input("chosen", 1, (rows, choices), INT64))])


def choices_of(rows: int, choices: int, experts: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(0, experts, (rows, choices))


def one_by_one(
    x: Array, weights: Array, chosen: Array, of: Callable[[Array, Array], Array]
) -> Array:
    """What `of` makes of a row and the matrix that it chooses, for all choices."""
    made = np.empty((*chosen.shape, weights.shape[1]))
    for place in np.ndindex(*chosen.shape):
        row = x[place] if x.ndim == 3 else x[place[0]]
        made[place] = of(row[None], weights[chosen[place]])[0]
    return made


def product(row: Array, matrix: Array) -> Array:
    return np.asarray(row.astype(np.float64) @ matrix.T)


@pytest.mark.parametrize("own_rows", [False, True])
@pytest.mark.parametrize("name", TYPES)
def test_products_against_gguf(name: str, own_rows: bool) -> None:
    w, weights = experts_node(name, 7, 75, 512)
    rows = Var("rows", 1, 40)
    graph = program(w, rows, 3, own_rows=own_rows)
    with compile_graph(graph, threads=1) as one, compile_graph(graph, threads=2) as two:
        for n in (1, 2, 40):
            x = activations(*((n, 3, 512) if own_rows else (n, 512)), seed=n)
            chosen = choices_of(n, 3, 7, seed=n)
            [found], [other] = one(x, chosen), two(x, chosen)
            np.testing.assert_array_equal(found, other)
            exact, bound = (one_by_one(x, weights, chosen, of) for of in (product, rounding_bound))
            assert np.all(np.abs(found - exact) <= bound)
            assert np.abs(found - exact).max() > 0.001 * bound.mean()
        two.verify()
        np.testing.assert_array_equal(two.run_checked(x, chosen)[0], found)


@given(st.data())
@settings(max_examples=18, deadline=None)
def test_any_shape(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(TYPES))
    experts, columns = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 80))
    depth = BY_NAME[name].block_length * data.draw(st.integers(1, 3))
    rows, choices = data.draw(st.integers(1, 50)), data.draw(st.integers(1, 4))
    own_rows = data.draw(st.booleans())
    w, weights = experts_node(name, experts, columns, depth)
    x = activations(*((rows, choices, depth) if own_rows else (rows, depth)))
    chosen = choices_of(rows, choices, experts)
    with compile_graph(program(w, rows, choices, own_rows=own_rows)) as exe:
        [found] = exe(x, chosen)
    exact, bound = (one_by_one(x, weights, chosen, of) for of in (product, rounding_bound))
    assert np.all(np.abs(found - exact) <= bound)


@pytest.mark.parametrize("name", ["float32", "float16"])
@pytest.mark.parametrize("own_rows", [False, True])
def test_floats(name: str, own_rows: bool) -> None:
    weights = activations(5, 37, 70, seed=1).astype(name)
    rows = Var("rows", 1, 20)
    graph = program(constant(weights), rows, 2, own_rows=own_rows)
    with compile_graph(graph, threads=1) as one, compile_graph(graph, threads=2) as two:
        for n in (1, 20):
            x = activations(*((n, 2, 70) if own_rows else (n, 70)), seed=n)
            chosen = choices_of(n, 2, 5)
            [found], [other] = one(x, chosen), two(x, chosen)
            np.testing.assert_array_equal(found, other)
            exact = one_by_one(x, weights.astype(np.float64), chosen, product)
            np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-4)


def test_weights_are_packed_once() -> None:
    w, _ = experts_node("q4_0", 4, 64, 64)
    with compile_graph(program(w, 1, 2, own_rows=False)) as exe:
        assert exe.plan.regions["packed"].nbytes >= BY_NAME["q4_0"].nbytes((4, 64, 64))
        ops = {kernel.entry_point.rsplit("_", 1)[0] for kernel in exe.kernels}
        assert "matmul_packed_experts" in ops
        assert "pack_blocks" not in ops


@pytest.mark.parametrize("bad", [-1, 7])
@pytest.mark.parametrize("name", ["q4_0", "float32"])
def test_a_matrix_that_is_not_there(name: str, bad: int) -> None:
    w = experts_node(name, 7, 40, 64)[0] if name == "q4_0" else constant(activations(7, 40, 64))
    with compile_graph(program(w, 2, 2, own_rows=False)) as exe:
        x = activations(2, 64)
        with pytest.raises(IndexOutOfRange):
            exe(x, np.array([[0, 1], [bad, 2]]))
        exe.reset()
        assert np.isfinite(exe(x, np.array([[0, 1], [6, 2]]))[0]).all()


def test_what_does_not_fit_is_refused() -> None:
    w, _ = experts_node("q4_0", 7, 40, 64)
    x, chosen = graph_input("x", 0, (2, 64), float32), graph_input("chosen", 1, (2, 3), INT64)
    with pytest.raises(ShapeMismatch, match="x is \\[rows, depth\\]"):
        matmul_experts(graph_input("x", 0, (2, 32), float32), w, chosen)
    with pytest.raises(ShapeMismatch, match="x is \\[rows, depth\\]"):
        matmul_experts(graph_input("x", 0, (2, 2, 64), float32), w, chosen)
    with pytest.raises(ShapeMismatch, match="chosen \\[rows, a known number\\]"):
        matmul_experts(x, w, graph_input("chosen", 1, (2,), INT64))
    with pytest.raises(TypeMismatch, match="chosen must be int64"):
        matmul_experts(x, w, graph_input("chosen", 1, (2, 3), float32))
    with pytest.raises(ShapeMismatch, match="experts, columns, depth"):
        matmul_experts(x, constant(activations(4, 64)), chosen)
    with pytest.raises(TypeMismatch, match="not int64"):
        matmul_experts(x, constant(np.zeros((2, 4, 64), np.int64)), chosen)
    flat = Buffer.from_array(random_blocks("q4_0", 1, 64).reshape(-1))
    row = buffer(flat.view(0, flat.nbytes, BY_NAME["q4_0"], (64,)))
    with pytest.raises(ShapeMismatch, match="two or three known sizes"):
        make("pack_blocks", row, dtype=row.dtype)
