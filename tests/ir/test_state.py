"""States in graphs: what they become is part of a graph, printed, hashed, checked and computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from arenite import ir
from arenite.dtype import BY_NAME
from arenite.errors import AreniteError, IndexOutOfRange, InvalidGraph, ShapeMismatch, TypeMismatch
from arenite.ir import Graph, Node, Var, make
from arenite.passes import run
from tests.ir.op_examples import x
from tests.passes.lists import PASSES

F32, I64 = BY_NAME["float32"], BY_NAME["int64"]


def state(name: str = "s", shape: tuple[Any, ...] = (4, 2), dtype: Any = F32) -> Node:
    return make("state", name=name, shape=shape, dtype=dtype)


def doubling() -> Graph:
    s, given = state(), x(4, 2)
    new = make("add", make("add", s, s), given)
    return Graph((given,), (make("neg", s),), ("old",), updates=((s, new),))


def test_a_graph_says_what_states_become() -> None:
    graph = doubling()
    ir.verify(graph)
    assert [node.attr("name") for node in graph.states] == ["s"]
    assert graph.results == (*graph.outputs, graph.updates[0][1])
    assert str(graph) == (
        "graph(%0: x0 float32[4, 2])\n"
        "%1 = state(name=s) : float32[4, 2]\n"
        "%2 = neg(%1) : float32[4, 2]\n"
        "%3 = add(%1, %1) : float32[4, 2]\n"
        "%4 = add(%3, %0) : float32[4, 2]\n"
        "s becomes %4\n"
        "return old=%2\n"
    )


def test_what_states_become_is_part_of_the_digest() -> None:
    s, t = state(), state("t")
    graphs = [
        Graph((), (s,)),
        Graph((), (s,), updates=((s, make("neg", s)),)),
        Graph((), (s,), updates=((s, make("abs", s)),)),
        Graph((), (s,), updates=((t, make("neg", s)),)),
        Graph((), (t,)),
    ]
    assert len({graph.digest() for graph in graphs}) == len(graphs)


def test_the_reference_goes_from_run_to_run() -> None:
    graph, given = doubling(), np.full((4, 2), 3, np.float32)
    for one in (graph, run(graph, PASSES)[0]):
        states: dict[str, Any] = {}
        outputs = [ir.evaluate(one, [given], states=states)[0] for _ in range(3)]
        np.testing.assert_array_equal([out[0, 0] for out in outputs], [0, -3, -9])
        np.testing.assert_array_equal(states["s"], np.full((4, 2), 21, np.float32))


def test_replacing_a_node_replaces_it_in_what_states_become() -> None:
    graph = doubling()
    [(s, new)] = graph.updates
    replaced = graph.replace({new: make("neg", s)})
    assert replaced.updates == ((s, make("neg", s)),)


@pytest.mark.parametrize(
    ("updates", "message"),
    [
        (lambda s: ((make("neg", s), s),), "is no state"),
        (lambda s: ((s, make("neg", s)), (s, make("abs", s))), "becomes two values"),
        (lambda s: ((s, make("cast", s, dtype=I64)),), "another type"),
        (lambda s: ((s, make("reshape", s, shape=(8,))),), "another type"),
        (lambda s: ((state("s", (3,)), x(3)),), "two states are called 's'"),
    ],
)
def test_the_verifier_finds_wrong_updates(updates: Callable[[Node], Any], message: str) -> None:
    s = state()
    inputs = tuple(value for _, value in updates(s) if value.op == "input")
    with pytest.raises(InvalidGraph, match=message):
        ir.verify(Graph(inputs, (s,), updates=updates(s)))


def test_update_slice_is_a_loop_over_rows() -> None:
    rng = np.random.default_rng(0)
    for axis, count, start in ((0, 2, 1), (1, 5, 0), (2, 1, 3), (1, 0, 99)):
        shape = [3, 5, 4]
        data, expected = (rng.standard_normal(shape).astype(np.float32),) * 2
        expected = expected.copy()
        shape[axis] = count
        rows = rng.standard_normal(shape).astype(np.float32)
        for k in range(count):
            at: list[Any] = [slice(None)] * 3
            at[axis] = start + k
            taken = list(at)
            taken[axis] = k
            expected[tuple(at)] = rows[tuple(taken)]
        node = make(
            "update_slice", x(3, 5, 4), x(*shape, index=1), x(index=2, dtype=I64), axis=axis
        )
        [made] = ir.evaluate(Graph.of([node]), [data, rows, np.asarray(start)])
        np.testing.assert_array_equal(made, expected)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_rows_go_each_where_its_own_start_says(axis: int) -> None:
    rng = np.random.default_rng(axis)
    shape = [4, 5, 6]
    data = rng.standard_normal(shape).astype(np.float32)
    starts = rng.permutation(shape[axis])[:3]
    shape[axis] = 3
    rows = rng.standard_normal(shape).astype(np.float32)
    expected = data.copy()
    for k, start in enumerate(starts):
        at: list[Any] = [slice(None)] * 3
        at[axis] = start
        expected[tuple(at)] = np.take(rows, k, axis)
    inputs = (x(4, 5, 6), x(*shape, index=1), x(3, index=2, dtype=I64))
    graph = Graph.of([make("update_slice", *inputs, axis=axis)])
    [made] = ir.evaluate(graph, [data, rows, starts])
    np.testing.assert_array_equal(made, expected)


def test_a_start_of_its_own_outside_is_an_error() -> None:
    inputs = (x(4, 2), x(2, 2, index=1), x(2, index=2, dtype=I64))
    node = make("update_slice", *inputs, axis=0)
    zeros = np.zeros((4, 2), np.float32)
    for starts in ([0, 4], [-1, 2]):
        with pytest.raises(IndexOutOfRange, match=r"not within 0\.\.3 of axis 0"):
            ir.evaluate(Graph.of([node]), [zeros, zeros[:2], np.array(starts)])


@pytest.mark.parametrize("start", [-1, 3, 2**63 - 1])
def test_rows_outside_are_an_error(start: int) -> None:
    node = make("update_slice", x(4, 2), x(2, 2, index=1), x(index=2, dtype=I64), axis=0)
    zeros = np.zeros((4, 2), np.float32)
    with pytest.raises(IndexOutOfRange, match=r"not within 0\.\.4 of axis 0"):
        ir.evaluate(Graph.of([node]), [zeros, zeros[:2], np.asarray(start)])


AT = ir.full((), 0, I64)


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (lambda: state(shape=(Var("n", 1, 4),)), ShapeMismatch, "sizes are numbers"),
        (
            lambda: make("update_slice", x(4, 2), x(1, 2, dtype=I64), AT, axis=0),
            TypeMismatch,
            "rows must be float32",
        ),
        (
            lambda: make("update_slice", x(4, 2), x(1, 3), AT, axis=0),
            ShapeMismatch,
            "elsewhere than on axis 0",
        ),
        (lambda: make("update_slice", x(4, 2), x(5, 2), AT, axis=0), ShapeMismatch, "do not fit"),
        (lambda: make("update_slice", x(4, 2), x(4, 2), AT, axis=2), ShapeMismatch, "axis 2"),
        (
            lambda: make("update_slice", x(4, 2), x(4, 2), ir.full((1,), 0, I64), axis=0),
            ShapeMismatch,
            "the start is one number",
        ),
        (lambda: make("front", x(4, 2), x(3), axis=1), ShapeMismatch, "may have fewer on axis 1"),
        (lambda: make("front", x(4, 2), AT, axis=1), ShapeMismatch, "has no rows"),
    ],
)
def test_what_is_refused(
    wrong: Callable[[], Node], error: type[AreniteError], message: str
) -> None:
    with pytest.raises(error, match=message):
        wrong()
