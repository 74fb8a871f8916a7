"""Arithmetic on shapes folds away, also where sizes are no numbers yet."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from arenite.ir import Var, evaluate
from arenite.ir.graph import Graph
from tests.frontends.onnx.one_node import graph_of

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
ONE = numpy_helper.from_array(np.ones(1, np.int64))
SHAPE = (Var("batch", 1, 8), Var("length", 1, 16), 4)


def graph_with(nodes: list[tuple[str, str, str, dict[str, Any]]], **consts: Any) -> Graph:
    """Nodes by operator, inputs, output and attributes; x comes in and y goes out."""
    made = [helper.make_node(op, i.split(), [o], **attrs) for op, i, o, attrs in nodes]
    stored = [numpy_helper.from_array(np.asarray(v), name) for name, v in consts.items()]
    graph = helper.make_graph(
        made,
        "shapes",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "length", 4])],
        [helper.make_empty_tensor_value_info("y")],
        stored,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    return graph_of(model, {"x": X}, {"x": SHAPE})


def computed(graph: Graph) -> Any:
    [made] = evaluate(graph, [X])
    return made


def test_a_shape_with_what_stays_is_expanded_to() -> None:
    # As PyTorch writes x.expand(-1, length, -1): where the wanted size is -1 it is 1.
    graph = graph_with(
        [
            ("Shape", "x", "shape", {}),
            ("Gather", "shape one", "length", {}),
            ("Unsqueeze", "length first", "row", {}),
            ("Concat", "minus row minus", "wanted", {"axis": 0}),
            ("Shape", "wanted", "rank", {}),
            ("ConstantOfShape", "rank", "ones", {"value": ONE}),
            ("Mul", "ones minus", "all_minus", {}),
            ("Equal", "wanted all_minus", "is_minus", {}),
            ("Where", "is_minus ones wanted", "sizes", {}),
            ("Slice", "x zero one1 one1", "column", {}),
            ("Expand", "column sizes", "y", {}),
        ],
        one=np.int64(1),
        first=np.array([0]),
        minus=np.array([-1]),
        zero=np.array([0]),
        one1=np.array([1]),
    )  # fmt: skip
    assert graph.outputs[0].shape == SHAPE
    np.testing.assert_array_equal(computed(graph), np.repeat(X[:, :1], 3, 1))


@pytest.mark.parametrize(
    ("op", "number", "holds"),
    [
        ("Equal", -1, False),
        ("Greater", 0, True),
        ("GreaterOrEqual", 1, True),
        ("Less", 17, True),
        ("LessOrEqual", 0, False),
    ],
)
def test_comparisons_that_bounds_decide_are_known(op: str, number: int, holds: bool) -> None:
    graph = graph_with(
        [
            ("Shape", "x", "shape", {}),
            ("Gather", "shape one", "length", {}),
            (op, "length number", "is_so", {}),
            ("Where", "is_so a b", "sizes", {}),
            ("ConstantOfShape", "sizes", "y", {}),
        ],
        one=np.int64(1),
        number=np.int64(number),
        a=np.array([2, 3]),
        b=np.array([3, 2]),
    )
    assert graph.outputs[0].shape == ((2, 3) if holds else (3, 2))


def test_a_comparison_that_a_run_decides_is_left_to_it() -> None:
    graph = graph_with(
        [
            ("Shape", "x", "shape", {}),
            ("Gather", "shape one", "length", {}),
            ("Equal", "length three", "y", {}),
        ],
        one=np.int64(1),
        three=np.int64(3),
    )
    assert computed(graph)
    assert not evaluate(graph, [X[:, :2]])[0]


def test_sizes_are_divided_and_what_is_left_is_counted() -> None:
    graph = graph_with(
        [
            ("Shape", "x", "shape", {}),
            ("Gather", "shape one", "length", {}),
            ("Div", "length two", "half", {}),
            ("Mod", "length two", "odd", {}),
            ("Neg", "odd", "less", {}),
            ("Sum", "half half odd odd less", "all", {}),
            ("Reshape", "all row", "all1", {}),
            ("ConstantOfShape", "all1", "y", {}),
        ],
        one=np.int64(1),
        two=np.int64(2),
        row=np.array([1]),
    )
    assert computed(graph).shape == (3,)
    assert evaluate(graph, [np.repeat(X, 2, 1)])[0].shape == (6,)


@pytest.mark.parametrize(
    ("op", "number", "rounding", "wanted"),
    [
        ("Mul", 2.0, None, lambda n: 2 * n),
        ("Mul", 0.5, "Floor", lambda n: n // 2),
        ("Mul", 0.5, "Ceil", lambda n: -(-n // 2)),
        ("Mul", 1.5, None, lambda n: 3 * n // 2),
        ("Div", 4.0, "Ceil", lambda n: -(-n // 4)),
    ],
)
def test_sizes_times_numbers_are_sizes(op: str, number: float, rounding: Any, wanted: Any) -> None:
    nodes: list[tuple[str, str, str, dict[str, Any]]] = [
        ("Shape", "x", "shape", {}),
        ("Cast", "shape", "reals", {"to": TensorProto.FLOAT}),
        ("Slice", "reals one two", "real", {}),
        (op, "real number", "more", {}),
        (rounding or "Identity", "more", "whole", {}),
        ("Cast", "whole", "size", {"to": TensorProto.INT64}),
        ("ConstantOfShape", "size", "y", {}),
    ]
    graph = graph_with(nodes, one=np.array([1]), two=np.array([2]), number=np.float32(number))
    for n in (1, 2, 3, 7):
        assert evaluate(graph, [np.zeros((1, n, 4), np.float32)])[0].shape == (wanted(n),)


def test_sizes_as_floats_are_numbers_of_the_run_too() -> None:
    graph = graph_with(
        [
            ("Shape", "x", "shape", {}),
            ("Gather", "shape one", "length", {}),
            ("Cast", "length", "real", {"to": TensorProto.FLOAT}),
            ("Mul", "real number", "more", {}),
            ("Div", "x more", "y", {}),
        ],
        one=np.int64(1),
        number=np.float32(0.25),
    )
    np.testing.assert_array_equal(computed(graph), X / np.float32(0.75))


@pytest.mark.parametrize(("op", "size"), [("ReduceMin", 2), ("ReduceMax", 5), ("ReduceSum", 7)])
def test_the_least_of_some_sizes_is_a_size(op: str, size: int) -> None:
    # As PyTorch writes the number of candidates that a detector keeps: min(5, batch).
    axes = {"axes": [0]} if op != "ReduceSum" else {}
    graph = graph_with(
        [
            ("Shape", "x", "shape", {}),
            ("Gather", "shape zero", "batch", {}),
            ("Unsqueeze", "batch first", "row", {}),
            ("Concat", "most row", "both", {"axis": 0}),
            (op, "both first" if op == "ReduceSum" else "both", "k", {"keepdims": 0, **axes}),
            ("Unsqueeze", "k first", "wanted", {}),
            ("Tile", "most wanted", "y", {}),
        ],
        zero=np.int64(0),
        first=np.array([0]),
        most=np.array([5]),
    )
    assert not isinstance(graph.outputs[0].shape[0], int)
    np.testing.assert_array_equal(computed(graph), [5] * size)
