"""Graph: order, users, replacement, variables, digests, text, the verifier, the oracle."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from arenite.dtype import BY_NAME, float32
from arenite.errors import BoundsError, InvalidArgument, InvalidGraph, ShapeMismatch, TypeMismatch
from arenite.ir import (
    OPS,
    Graph,
    Node,
    Origin,
    Origins,
    Var,
    buffer,
    constant,
    evaluate,
    full,
    graph_input,
    make,
    size,
    topological,
    verify,
)

BATCH = Var("batch", 1, 64)
INT64 = BY_NAME["int64"]


def build(name: str = "x", weights: Any = None) -> Graph:
    """mean(exp(x) + c) of each row, and exp(x)"""
    x = graph_input(name, 0, (BATCH, 4), float32)
    c = constant(np.arange(4, dtype=np.float32)) if weights is None else buffer(weights)
    spread = make("expand", make("reshape", c, shape=(1, 4)), shape=(BATCH, 4))
    raised = make("exp", x)
    total = make("sum", make("add", raised, spread), axes=(1,))
    mean = make("div", total, full((BATCH,), 4, float32))
    origins = Origins({raised: [Origin("a.py", 7)], mean: [Origin("a.py", 9), Origin("b.py", 1)]})
    return Graph((x,), (mean, raised), ("mean", "raised"), origins)


def test_nodes_come_after_their_inputs_and_each_once() -> None:
    graph = build()
    position = {node: i for i, node in enumerate(graph.nodes)}
    assert len(position) == len(graph) == len(graph.nodes)
    assert all(position[v] < position[n] for n in graph.nodes for v in n.inputs)
    assert graph.nodes[0] is graph.inputs[0]
    assert topological(graph.outputs) == topological(graph.outputs)


def test_inputs_are_found_in_the_order_of_their_index() -> None:
    a, b = (graph_input(name, i, (2,), float32) for i, name in enumerate("ab"))
    graph = Graph.of([make("sub", b, a)], Origins({a: [Origin("f", 1)]}))
    assert graph.inputs == (a, b)
    assert graph.names == ("out0",)
    assert graph.origins.of(a) == (Origin("f", 1),)


def test_users() -> None:
    graph = build()
    users = graph.users()
    (x,) = graph.inputs
    (raised,) = users[x]
    assert raised.op == "exp"
    assert [user.op for user in users[raised]] == ["add"]
    assert users[graph.outputs[0]] == ()
    doubled = make("add", x, x)
    assert Graph.of([doubled]).users()[x] == (doubled,)


def test_replacement_rebuilds_what_depends_on_it() -> None:
    graph = build()
    raised = graph.outputs[1]
    changed = graph.replace({raised: make("abs", graph.inputs[0])})
    verify(changed)
    x = np.full((3, 4), -2, np.float32)
    mean, absolute = evaluate(changed, [x])
    assert (mean[0], absolute[0, 0]) == (3.5, 2.0)
    assert changed.names == graph.names
    assert changed.origins.of(changed.outputs[1]) == (Origin("a.py", 7),)
    assert len(changed.origins.of(changed.outputs[0])) == 2
    assert graph.replace({}).outputs == graph.outputs
    bound = graph.replace({graph.inputs[0]: full((BATCH, 4), 0, float32)})
    assert bound.inputs == ()
    with pytest.raises(InvalidGraph, match=r"cannot replace .*: float32\[2\] is another type"):
        graph.replace({raised: full((2,), 0, float32)})


def test_variables_are_collected_and_must_agree() -> None:
    assert build().vars == (BATCH,)
    n = Var("n", 2, 5)
    in_attr = make("slice", graph_input("x", 0, (9,), float32), start=(n,), stop=(9,), step=(1,))
    assert Graph.of([in_attr]).vars == (n,)
    other = graph_input("y", 1, (Var("batch", 1, 8),), float32)
    graph = Graph.of([*build().outputs, other])
    with pytest.raises(InvalidGraph, match=r"'batch' has bounds 1\.\.64 and 1\.\.8"):
        _ = graph.vars


def test_digests_follow_structure_and_content() -> None:
    digest = build().digest()
    assert digest == build().digest()
    assert digest != build("other").digest()
    first = build(weights=np.zeros(4, np.float32)).digest()
    assert first == build(weights=np.ones(4, np.float32)).digest() != digest
    graph = build()
    assert Graph(graph.inputs, graph.outputs, ("a", "b")).digest() != digest
    shared = buffer(np.zeros(3, np.float32))
    twice = Graph.of([make("add", shared, shared)])
    apart = Graph.of([make("add", shared, buffer(np.zeros(3, np.float32)))])
    assert twice.digest() != apart.digest()


def test_digests_are_the_same_in_every_process() -> None:
    code = "from tests.ir.test_graph import build; print(build().digest())"
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed},
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert found == {build().digest()}


def test_text() -> None:
    assert str(build()) == (
        "graph(%0: x float32[batch, 4]) where batch in 1..64\n"
        "%1 = exp(%0) : float32[batch, 4]   # a.py:7\n"
        "%2 = constant([0.0, 1.0, 2.0, 3.0]) : float32[4]\n"
        "%3 = reshape(%2) : float32[1, 4]\n"
        "%4 = expand(%3) : float32[batch, 4]\n"
        "%5 = add(%1, %4) : float32[batch, 4]\n"
        "%6 = sum(%5, axes=(1,)) : float32[batch]\n"
        "%7 = full(value=4.0) : float32[batch]\n"
        "%8 = div(%6, %7) : float32[batch]   # a.py:9, b.py:1\n"
        "return mean=%8, raised=%1\n"
    )
    node = buffer(np.zeros(3, np.float32))
    scalar, long = constant(np.array(2.5)), constant(np.arange(9))
    written = str(Graph.of([node, scalar, long, make("cast", long, dtype=float32)]))
    assert f"%0 = buffer(id={node.attr('source').id}) : float32[3]" in written
    assert "%1 = constant(2.5) : float64[]" in written
    assert "%2 = constant([0, 1, 2, 3, ...]) : int64[9]" in written
    assert "%3 = cast(%2) : float32[9]" in written


def test_names_go_with_outputs() -> None:
    with pytest.raises(InvalidGraph, match=r"1 outputs have 2 names: \('a', 'b'\)"):
        Graph((), (full((), 1, float32),), ("a", "b"))


def test_the_verifier_passes_what_is_right() -> None:
    verify(build())
    verify(Graph((graph_input("unused", 3, (2,), float32),), ()))


X0, X1 = graph_input("x", 0, (2,), float32), graph_input("y", 0, (2,), float32)
X2 = graph_input("x", 2, (2,), float32)


@pytest.mark.parametrize(
    ("make_graph", "message"),
    [
        (lambda: Graph((), (make("neg", X0),)), r"the graph does not list: \['x'\]"),
        (lambda: Graph((make("neg", X0),), ()), "which is no input"),
        (lambda: Graph((X0, X1), ()), "the same index"),
        (lambda: Graph((X0, X2), ()), "the same name"),
        (lambda: Graph((X0,), (X0, X0), ("a", "a")), "two outputs have the same name"),
    ],
)
def test_the_verifier_finds_wrong_graphs(make_graph: Any, message: str) -> None:
    with pytest.raises(InvalidGraph, match=message):
        verify(make_graph())


def forged(op: str, inputs: tuple[Node, ...], attrs: Any, shape: Any, dtype: Any) -> Node:
    node = Node.__new__(Node)
    for name, value in zip(
        ("op", "inputs", "attrs", "shape", "dtype"),
        (op, inputs, attrs, shape, dtype),
        strict=True,
    ):
        Node.__dict__[name].__set__(node, value)
    return node


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (forged("neg", (X0,), (), (2,), float32), "is not the one node"),
        (forged("neg", (X0,), (), (3,), float32), r"attributes give float32\[2\]"),
        (forged("neg", (X0,), (), (2,), INT64), r"attributes give float32\[2\]"),
        (forged("nonsense", (X0,), (), (2,), float32), "no such op"),
        (forged("sum", (X0,), (("axes", (5,)),), (2,), float32), "axis 5 is not within"),
        (forged("sum", (X0,), (("axes", 0),), (2,), float32), "a tuple of what"),
        (
            forged("sort", (X0,), (("descending", True), ("axis", 0)), (2,), float32),
            "not sorted",
        ),
    ],
)
def test_the_verifier_finds_wrong_nodes(node: Node, message: str) -> None:
    with pytest.raises(InvalidGraph, match=message):
        verify(Graph((X0,), (node,)))


def test_the_verifier_does_not_trust_the_order() -> None:
    graph = build()
    backwards = graph.nodes[::-1]
    graph.__dict__["nodes"] = backwards
    with pytest.raises(InvalidGraph, match="stands before one of its inputs"):
        verify(graph)
    graph.__dict__["nodes"] = backwards[1:]
    with pytest.raises(InvalidGraph, match="are not the nodes the outputs reach"):
        verify(graph)


def test_evaluation_by_name_and_by_order() -> None:
    x = np.ones((2, 4), np.float32)
    by_order = evaluate(build(), [x])
    by_name = evaluate(build(), {"x": x})
    for a, b in zip(by_order, by_name, strict=True):
        np.testing.assert_array_equal(a, b)
    assert by_order[0].flags.writeable
    np.testing.assert_allclose(by_order[0], np.exp(1) + 1.5, rtol=1e-6)


def test_outputs_never_share_memory_with_inputs() -> None:
    x = np.ones(3, np.float32)
    node = graph_input("x", 0, (3,), float32)
    (result,) = evaluate(Graph((node,), (node,)), [x])
    assert not np.shares_memory(result, x)


def test_sizes_bind_values() -> None:
    n = Var("n", 2, 9)
    graph = Graph.of([size(3 * n + 1, INT64), size(7, float32), full((n,), 2, float32)])
    numbers = evaluate(graph, [], {"n": 4})
    assert [numbers[0].item(), numbers[1].item(), numbers[2].shape] == [13, 7.0, (4,)]
    with pytest.raises(BoundsError, match="'n' stands in no input's shape; bind it"):
        evaluate(graph)
    with pytest.raises(TypeMismatch, match="a size is a number, not bool"):
        size(n, BY_NAME["bool"])


@pytest.mark.parametrize(
    ("inputs", "error", "message"),
    [
        ([], InvalidArgument, "the graph has 1 inputs, not 0"),
        ({"y": 1}, InvalidArgument, r"the graph has inputs \['x'\], not \['y'\]"),
        ([np.zeros(4, np.float32)], ShapeMismatch, r"'x' \(float32\[batch, 4\]\) got .* \(4,\)"),
        ([np.zeros((3, 5), np.float32)], ShapeMismatch, r"of shape \(3, 5\), not \(3, 4\)"),
        ([np.zeros((3, 4))], TypeMismatch, "got an array of float64"),
        ([np.zeros((0, 4), np.float32)], BoundsError, r"batch = 0 is outside its bounds 1\.\.64"),
        ([np.zeros((65, 4), np.float32)], BoundsError, "batch = 65 is outside"),
    ],
)
def test_inputs_are_checked(inputs: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        evaluate(build(), inputs)


def test_a_reference_is_held_to_the_type_of_its_node() -> None:
    node = make("permute", constant(np.arange(6.0).reshape(2, 3)), axes=(1, 0))
    for shape, dtype in (((5,), node.dtype), (node.shape, float32)):
        wrong = forged("permute", node.inputs, node.attrs, shape, dtype)
        with pytest.raises(InvalidGraph, match="the reference of <Node permute"):
            evaluate(Graph((), (wrong,)))


def test_an_input_has_no_value() -> None:
    with pytest.raises(InvalidArgument, match="given when the graph is run"):
        OPS["input"].reference([], {}, (), float32)
