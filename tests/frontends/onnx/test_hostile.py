"""Models that lie: each gives one clear error, in bounded time and memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

from arenite.errors import InvalidFile, NotSupported
from tests.frontends.onnx.models import (
    graph,
    info,
    model,
    one_node,
    opened,
    read_or_refused,
    stored,
    translated,
)


def chain(names: list[tuple[str, str]]) -> ModelProto:
    nodes = [helper.make_node("Neg", [a], [b]) for a, b in names]
    return model(graph(nodes, [info("x", [2])], [info("y", None)]))


def calls_itself() -> ModelProto:
    body = [helper.make_node("Again", ["a"], ["b"], domain="own")]
    function = helper.make_function(
        "own", "Again", ["a"], ["b"], body, [helper.make_opsetid("own", 1)]
    )
    node = helper.make_node("Again", ["x"], ["y"], domain="own")
    return model(graph([node], [info("x", [2])], [info("y", None)]), functions=[function])


def doubling(depth: int) -> ModelProto:
    """Functions that each call the one before twice."""
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    functions = [
        helper.make_function(
            "own", "F0", ["a"], ["b"], [helper.make_node("Neg", ["a"], ["b"])], sets
        )
    ]
    for k in range(1, depth):
        body = [
            helper.make_node(f"F{k - 1}", ["a"], ["c"], domain="own"),
            helper.make_node(f"F{k - 1}", ["c"], ["b"], domain="own"),
        ]
        functions.append(helper.make_function("own", f"F{k}", ["a"], ["b"], body, sets))
    node = helper.make_node(f"F{depth - 1}", ["x"], ["y"], domain="own")
    return model(graph([node], [info("x", [2])], [info("y", None)]), functions=functions)


def nested(depth: int) -> ModelProto:
    short = graph([helper.make_node("Neg", ["x"], ["z0"])], [], [info("z0", None)])
    inner = short
    for k in range(1, depth):
        node = helper.make_node("If", ["yes"], [f"z{k}"], then_branch=inner, else_branch=short)
        inner = graph([node], [], [info(f"z{k}", None)])
    node = helper.make_node("If", ["yes"], ["y"], then_branch=inner, else_branch=short)
    given = [info("x", [2]), info("yes", [], TensorProto.BOOL)]
    return model(graph([node], given, [info("y", None)]))


def with_tensor(tensor: TensorProto) -> ModelProto:
    node = helper.make_node("Add", ["x", "w"], ["y"])
    return model(graph([node], [info("x", [2])], [info("y", None)], [tensor]))


def twice_named() -> ModelProto:
    nodes = [helper.make_node("Neg", ["x"], ["y"]), helper.make_node("Abs", ["x"], ["y"])]
    return model(graph(nodes, [info("x", [2])], [info("y", None)]))


def without_versions() -> ModelProto:
    made = chain([("x", "y")])
    del made.opset_import[:]
    return made


def with_type(kind: int) -> ModelProto:
    made = chain([("x", "y")])
    made.graph.input[0].type.tensor_type.elem_type = kind
    return made


LIES: dict[str, tuple[Callable[[], ModelProto], str]] = {
    "a cycle": (lambda: chain([("b", "a"), ("a", "b"), ("x", "y")]), "made by no node before it"),
    "an undefined name": (lambda: chain([("nothing", "y")]), "'nothing' is made by no node"),
    "an output nobody makes": (lambda: chain([("x", "z")]), "'y', is made by no node"),
    "a name made twice": (twice_named, "'y' is the name of something else too"),
    "an input's name made again": (lambda: chain([("x", "x"), ("x", "y")]), "something else too"),
    "a function that calls itself": (calls_itself, "function 'Again' calls itself"),
    "functions that double": (lambda: doubling(30), "nodes, its functions counted"),
    "graphs in graphs": (lambda: nested(32), "graphs are nested more than 32 deep"),
    "no operator set": (without_versions, "does not say which version"),
    "an old operator set": (lambda: one_node("Neg", version=5), "version 5 of ONNX's operators"),
    "a future operator set": (lambda: one_node("Neg", version=999), "version 999"),
    "an unknown type": (lambda: with_type(77), "no element type 77"),
    "a negative size": (
        lambda: with_tensor(TensorProto(name="w", data_type=1, dims=[-2], float_data=[1, 2])),
        "which is none",
    ),
    "2^60 elements": (
        lambda: with_tensor(TensorProto(name="w", data_type=1, dims=[2**31, 2**31])),
        "elements",
    ),
    "more elements than numbers": (
        lambda: with_tensor(TensorProto(name="w", data_type=1, dims=[10**9], float_data=[1.0])),
        "takes 1000000000 numbers, and has 1",
    ),
    "raw bytes that are too few": (
        lambda: with_tensor(TensorProto(name="w", data_type=1, dims=[4], raw_data=b"1234")),
        "takes 16 bytes, and has 4",
    ),
    "an unknown operator": (lambda: one_node("Frobnicate"), "'Frobnicate' of ai.onnx 17"),
    "an escape in a name": (lambda: one_node("Ev\x1bil"), r"Ev\\x1bil"),
}


@pytest.mark.parametrize("lie", LIES)
def test_lies_are_refused_in_bounded_memory(lie: str) -> None:
    make, reason = LIES[lie]
    data = make().SerializeToString()
    opened(one_node("Neg"))  # so that what is loaded once is loaded
    tracemalloc.start()
    try:
        with pytest.raises((InvalidFile, NotSupported), match=reason) as caught:
            translated(opened(ModelProto.FromString(data)))
        assert tracemalloc.get_traced_memory()[1] < 64 * 2**20
    finally:
        tracemalloc.stop()
    text = str(caught.value)
    assert "m.onnx" in text
    assert len(text) < 2000
    assert text.isprintable()


def test_every_unknown_operator_is_listed_with_node_and_version() -> None:
    inner = graph([helper.make_node("Inner", ["x"], ["z"], name="deep")], [], [info("z", None)])
    nodes = [
        helper.make_node("Odd", ["x"], ["a"], name="first"),
        helper.make_node("Odd", ["a"], ["b"], name="second"),
        helper.make_node("Strange", ["b"], ["c"], domain="far.away"),
        helper.make_node("If", ["yes"], ["y"], then_branch=inner, else_branch=inner),
    ]
    given = [info("x", [2]), info("yes", [], TensorProto.BOOL)]
    with pytest.raises(NotSupported) as caught:
        translated(opened(model(graph(nodes, given, [info("y", None)]))))
    text = str(caught.value)
    assert "'Odd' of ai.onnx 17 (node 'first' and 1 more)" in text
    assert "'Strange' of far.away 1 (node 'c')" in text
    assert "'Inner' of ai.onnx 17 (node 'deep' and 1 more)" in text


def bomb(op: str, n_outputs: int = 1, **inputs: Any) -> ModelProto:
    """A node with constants that ask for very much."""
    tensors = [stored(name, array) for name, array in inputs.items()]
    outputs = [f"y{k}" for k in range(n_outputs)]
    node = helper.make_node(op, [*inputs], outputs, name="bomb")
    kinds = [info(name, None) for name in outputs]
    return model(graph([node], [], kinds, tensors))


MANY = np.asarray([10**15], np.int64)
BOMBS: dict[str, Callable[[], ModelProto]] = {
    "Expand": lambda: bomb("Expand", x=np.ones(1, np.float32), shape=MANY),
    "Tile": lambda: bomb("Tile", x=np.ones(1, np.float32), repeats=MANY),
    "ConstantOfShape": lambda: bomb("ConstantOfShape", shape=MANY),
    "Pad": lambda: bomb("Pad", x=np.ones(1, np.float32), pads=np.asarray([10**15, 0])),
    "Range": lambda: bomb(
        "Range", start=np.int64(0), limit=np.int64(10**15), delta=np.int64(1)
    ),
    "Resize": lambda: bomb(
        "Resize", x=np.ones((1, 1, 1, 1), np.float32), roi=np.zeros(0, np.float32),
        scales=np.zeros(0, np.float32), sizes=np.asarray([1, 1, 10**7, 10**8]),
    ),
    "OneHot": lambda: bomb(
        "OneHot", indices=np.zeros(1, np.int64), depth=np.int64(10**15),
        values=np.arange(2, dtype=np.float32),
    ),
}  # fmt: skip


@pytest.mark.parametrize("op", BOMBS)
def test_shapes_beyond_all_memory_cost_nothing_to_read(op: str) -> None:
    """Reading gives a graph whose plan says what it would take, or one clear error."""
    data = BOMBS[op]().SerializeToString()
    tracemalloc.start()
    try:
        read_or_refused(data)
        assert tracemalloc.get_traced_memory()[1] < 64 * 2**20
    finally:
        tracemalloc.stop()
