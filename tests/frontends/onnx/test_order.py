"""Files whose nodes stand in any order."""

from __future__ import annotations

from itertools import permutations

import numpy as np
from onnx import TensorProto, helper

from arenite.frontends.onnx.order import in_order
from tests.frontends.onnx.models import graph, info, model, results


def test_nodes_in_any_order_mean_the_same() -> None:
    nodes = [
        helper.make_node("Neg", ["x"], ["a"]),
        helper.make_node("Exp", ["a"], ["b"]),
        helper.make_node("Add", ["a", "b"], ["c"]),
        helper.make_node("Mul", ["c", "x"], ["y"]),
    ]
    x = np.linspace(-1, 1, 5, dtype=np.float32)
    wanted = (np.exp(-x) - x) * x
    for order in permutations(nodes):
        made = model(graph(order, [info("x", [5])], [info("y", [5])]))
        np.testing.assert_allclose(results(made, x)[0], wanted, rtol=1e-6)


def test_a_graph_in_a_node_uses_what_a_later_node_makes() -> None:
    branches = {
        f"{name}_branch": graph([helper.make_node(op, ["a"], [name])], [], [info(name, [2])])
        for name, op in (("then", "Neg"), ("else", "Identity"))
    }
    # One branch is nothing but a value around it.
    branches["else_branch"] = graph([], [], [info("a", [2])])
    nodes = [
        helper.make_node("If", ["c"], ["y"], **branches),
        helper.make_node("Exp", ["x"], ["a"]),
    ]
    inputs = [info("x", [2]), info("c", [], TensorProto.BOOL)]
    made = model(graph(nodes, inputs, [info("y", [2])]))
    x = np.array([0.5, 2], np.float32)
    for condition, sign in ((True, -1), (False, 1)):
        [y] = results(made, x, np.array(condition))
        np.testing.assert_allclose(y, sign * np.exp(x), rtol=1e-6)


def test_what_is_in_order_stays_as_it_is() -> None:
    nodes = [helper.make_node("Neg", [f"x{k}"], [f"x{k + 1}"]) for k in range(4)]
    assert in_order(nodes) is nodes
    turned = in_order(nodes[::-1])
    assert [one.output[0] for one in turned] == [one.output[0] for one in nodes]


def test_circles_come_last() -> None:
    nodes = [helper.make_node("Neg", [a], [b]) for a, b in ("ab", "ba", "yz", "xy")]
    assert [one.output[0] for one in in_order(nodes)] == ["y", "z", "b", "a"]
