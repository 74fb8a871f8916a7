"""Attention that is spelled out: when it becomes the op, when not, and what the results are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from arenite import ir
from arenite.backends.cpu.passes.attention import spelled_attentions
from arenite.dtype import BY_NAME
from arenite.ir import reference, verify
from arenite.ir.graph import Graph
from arenite.ir.node import Origin, Origins
from arenite.ir.ops.sources import full
from arenite.pipeline import compile_graph
from arenite.tensor import Tensor, where

FLOAT32 = BY_NAME["float32"]
Array = NDArray[Any]


def given(index: int, *shape: int, dtype: str = "float32") -> Tensor:
    return Tensor.of_node(ir.graph_input(f"x{index}", index, shape, BY_NAME[dtype]))


def arrays_of(graph: Graph) -> list[Array]:
    rng = np.random.default_rng(5)
    found = []
    for node in graph.inputs:
        values = rng.standard_normal(tuple(int(str(size)) for size in node.shape))
        found.append(values > -0.5 if node.dtype.name == "bool" else values.astype(np.float32))
    return found


def ops_of(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes]


def referred(graph: Graph) -> tuple[Graph, Any]:
    """The graph after the pass, shown to mean the same by the reference; and what that is."""
    made = spelled_attentions(graph)
    verify(made)
    arrays = arrays_of(graph)
    [want], [got] = reference.evaluate(graph, arrays), reference.evaluate(made, arrays)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    return made, want


def check(result: Tensor) -> Graph:
    """The graph after the pass, shown to mean the same."""
    graph = Graph.of([result.node])
    made, want = referred(graph)
    arrays = arrays_of(graph)
    names = [node.attr("name") for node in graph.inputs]
    with compile_graph(graph) as program:
        [ran] = program.run(dict(zip(names, arrays, strict=True)))
    np.testing.assert_allclose(ran, want, rtol=1e-4, atol=1e-5)
    return made


Q, K, V = given(0, 2, 4, 9, 16), given(1, 2, 4, 12, 16), given(2, 2, 4, 12, 8)
MASK, SEEN = given(3, 2, 1, 9, 12), given(3, 2, 1, 1, 12, dtype="bool")


def keys_last(k: Tensor) -> Tensor:
    return k.swapaxes(-1, -2)


SPELLED: dict[str, Callable[[], Tensor]] = {
    "plain": lambda: (Q @ keys_last(K)).softmax() @ V,
    "scaled": lambda: (Q @ keys_last(K) * 0.25).softmax() @ V,
    "divided": lambda: (Q @ keys_last(K) / 4.0).softmax() @ V,
    "scaled before": lambda: ((Q * 0.5) @ keys_last(K * 0.5)).softmax() @ V,
    "mask": lambda: (Q @ keys_last(K) * 0.25 + MASK).softmax() @ V,
    "mask first": lambda: (MASK + Q @ keys_last(K) / 4.0).softmax() @ V,
    "hidden": lambda: where(SEEN, Q @ keys_last(K), float("-inf")).softmax() @ V,
    "shown": lambda: where(SEEN, float("-inf"), Q @ keys_last(K)).softmax() @ V,
    "hidden by the least number": lambda: (
        where(SEEN, Q @ keys_last(K) / 4.0, float(np.finfo(np.float32).min)).softmax() @ V
    ),
    "shown but for the least number": lambda: (
        where(SEEN, float(np.finfo(np.float32).min), Q @ keys_last(K)).softmax() @ V
    ),
    "values turned": lambda: (Q @ keys_last(K)).softmax() @ keys_last(given(2, 2, 4, 8, 12)),
}


@pytest.mark.parametrize("name", SPELLED)
def test_becomes_the_op(name: str) -> None:
    ops = ops_of(check(SPELLED[name]()))
    assert ops.count("attention") == 1
    assert not {"matmul", "exp", "div", "max"} & {*ops}


def test_who_sees_nothing_but_the_least_number_sees_all_alike() -> None:
    seen = given(3, 2, 1, 1, 12, dtype="bool")
    lowest = float(np.finfo(np.float32).min)
    made = spelled_attentions(
        Graph.of([(where(seen, Q @ keys_last(K), lowest).softmax() @ V).node])
    )
    assert "attention" in ops_of(made)
    q, k, v, mask = arrays_of(made)
    with compile_graph(made) as program:
        [got] = program(q, k, v, np.zeros_like(mask))
    want = np.broadcast_to(v.mean(2, keepdims=True), got.shape)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_layer_after_layer() -> None:
    x = given(0, 1, 2, 6, 8)
    for _ in range(3):
        x = (x @ keys_last(x) * 0.3).softmax() @ x
    ops = ops_of(check(x))
    assert ops.count("attention") == 3
    assert "matmul" not in ops


def test_heads_of_one_projection() -> None:
    x = given(0, 2, 10, 3 * 4 * 8).reshape(2, 10, 3, 4, 8)
    q, k, v = (x[:, :, part].swapaxes(1, 2) for part in range(3))
    result = ((q @ keys_last(k)) / 8**0.5).softmax() @ v
    assert "attention" in ops_of(check(result.swapaxes(1, 2).reshape(2, 10, 32)))


def weights_are_read() -> Tensor:
    weights = (Q @ keys_last(K)).softmax()
    return weights @ V + weights.sum()


def scores_are_read() -> Tensor:
    scores = Q @ keys_last(K)
    return scores.softmax() @ V + scores.max()


KEPT: dict[str, Callable[[], Tensor]] = {
    "weights are read": weights_are_read,
    "scores are read": scores_are_read,
    "over queries": lambda: (Q @ keys_last(K)).softmax(-2) @ V,
    "no softmax": lambda: (Q @ keys_last(K)).exp() @ V,
    "a scale for each head": lambda: (Q @ keys_last(K) * given(3, 4, 1, 1)).softmax() @ V,
    "heads that are stretched": lambda: (Q @ keys_last(given(1, 1, 1, 12, 16))).softmax() @ V,
    "hidden by a number": lambda: where(SEEN, Q @ keys_last(K), -3.0).softmax() @ V,
    "too wide": lambda: (
        (given(0, 1, 1, 3, 300) @ keys_last(given(1, 1, 1, 4, 300))).softmax()
        @ given(2, 1, 1, 4, 8)
    ),
}


@pytest.mark.parametrize("name", KEPT)
def test_stays_spelled_out(name: str) -> None:
    assert "attention" not in ops_of(check(KEPT[name]()))


def meant(result: Tensor) -> list[str]:
    """The ops after the pass, shown to mean the same by the reference alone."""
    made, _ = referred(Graph.of([result.node]))
    return ops_of(made)


@pytest.mark.parametrize("flags", range(16))
def test_products_of_what_lies_turned(flags: int) -> None:
    """Everything is square, so that no shape tells one from the other."""
    a, b, c, d = (bool(flags >> k & 1) for k in range(4))
    q, k, v = (given(k, 2, 3, 8, 8) for k in range(3))
    scores = ir.make("matmul", q.node, k.node, transpose_a=a, transpose_b=b)
    weights = (Tensor.of_node(scores) * 0.3).softmax()
    result = ir.make("matmul", weights.node, v.node, transpose_a=c, transpose_b=d)
    assert ("attention" in meant(Tensor.of_node(result))) == (not a and not c)


def test_what_is_made_of_an_attention_and_of_something_else() -> None:
    assert "attention" in meant((Q @ keys_last(K)).softmax() @ V + V[:, :, :9])


def test_an_attention_keeps_where_it_came_from() -> None:
    result = ((Q @ keys_last(K)).softmax() @ V).node
    line = Origin("model.py", 7)
    made = spelled_attentions(Graph.of([result], Origins({result: [line]})))
    assert made.outputs[0].op == "attention"
    assert made.origins.of(made.outputs[0]) == (line,)


def test_numbers_on_either_side() -> None:
    scores = Q @ keys_last(K)
    assert "attention" in meant((0.25 * (0.5 * Q @ keys_last(K)) / 2.0).softmax() @ V)
    assert "attention" in meant(where(SEEN, scores / 4.0, float("-inf")).softmax() @ V)
    assert "attention" not in meant((4.0 / (scores.exp() + 1.0)).softmax() @ V)
    assert "attention" not in meant((4.0 / (scores + 100.0)).softmax() @ V)
    assert "attention" not in meant((scores * 0.0).softmax() @ V)
    assert "attention" not in meant((scores - 4.0).softmax() @ V)
    assert "attention" not in meant(where(SEEN, scores, scores * 2.0).softmax() @ V)


def test_weights_that_are_a_result() -> None:
    weights = (Q @ keys_last(K)).softmax()
    graph = Graph.of([(weights @ V).node, weights.node])
    assert spelled_attentions(graph) is graph


def test_a_long_chain() -> None:
    node = ir.graph_input("x", 0, (2,), FLOAT32)
    graph_input = node
    for _ in range(100_000):
        node = ir.make("add", node, full((2,), 1.0, FLOAT32))
    graph = Graph((graph_input,), (node,))
    assert spelled_attentions(graph) is graph
