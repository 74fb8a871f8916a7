"""Nodes: interning, immutability, origins; and depth, which must never recurse."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest

from arenite.dtype import BY_NAME, float32
from arenite.errors import InvalidArgument
from arenite.ir import (
    Graph,
    Node,
    Origin,
    Origins,
    Var,
    constant,
    evaluate,
    full,
    graph_input,
    make,
    text,
    typed,
    verify,
)
from arenite.ir.node import _interned, nbytes_of
from arenite.ir.ops.define import OPS, on_inputs
from tests.ir.op_examples import ALL_EXAMPLES

X = graph_input("x", 0, (3, 4), float32)


def test_operators_of_python_make_nodes() -> None:
    """Of operands that broadcast and of numbers, which stay on the side where they stand."""
    ints = make("cast", X, dtype=BY_NAME["int32"])
    row = make("sum", X, axes=(0,))
    x = np.linspace(-3, 3, 12, dtype=np.float32).reshape(3, 4)
    n = x.astype(np.int32)
    two: Any = np.float32(2)
    cases = [
        (2.0 - X * 3.0 + row, 2.0 - x * 3.0 + x.sum(0)),
        (1.0 / (X + 5.0) - X / 2.0, 1.0 / (x + 5.0) - x / 2.0),
        (two * X, 2 * x),
        (abs(-X), abs(-x)),
        (ints // 2 + ints % 3, n // 2 + n % 3),
        ((ints << 2) ^ (ints >> 1) & 5 | 8, (n << 2) ^ (n >> 1) & 5 | 8),
        (~((row > X) | (X >= 0.5)), ~((x.sum(0) > x) | (x >= 0.5))),
        ((X > 0.0) & (X <= 2.0), (x > 0.0) & (x <= 2.0)),
    ]
    for node, wanted in cases:
        [found] = evaluate(Graph.of([node]), [x])
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_equal_nodes_are_the_same_object() -> None:
    assert make("add", X, X) is make("add", X, X)
    assert make("sum", X, axes=(0,)) is not make("sum", X, axes=(1,))
    assert graph_input("x", 0, (3, 4), float32) is X
    assert graph_input("x", 0, (3, 5), float32) is not X
    n = Var("n", 1, 4)
    assert full((n + n,), 1, float32) is full((2 * n,), 1, float32)


def test_numbers_that_python_holds_equal_are_told_apart() -> None:
    float64 = BY_NAME["float64"]
    assert full((2,), 0.0, float64) is not full((2,), -0.0, float64)
    assert full((2,), float("nan"), float64) is full((2,), float("nan"), float64)
    assert full((2,), 1, BY_NAME["int64"]) is not full((2,), True, BY_NAME["bool"])
    complex128 = BY_NAME["complex128"]
    assert full((), 0j, complex128) is not full((), complex(0.0, -0.0), complex128)
    # What rounds to the same element is the same.
    assert full((2,), 0.1, float32) is full((2,), float(np.float32(0.1)), float32)


def test_a_number_is_rounded_by_itself_whatever_was_rounded_before() -> None:
    given: list[Any] = [
        0,
        0.0,
        -0.0,
        False,
        True,
        1,
        1.0,
        np.float32(1),
        np.int8(1),
        0.1,
        np.float64(0.1),
    ]
    for _ in range(2):
        for value in [*given, *reversed(given)]:
            for name in ("float32", "float16", "int8", "bool", "float64"):
                dtype = BY_NAME[name]
                held = full((), value, dtype).attr("value")
                expected = np.asarray(value).astype(dtype.to_numpy()).item()
                assert type(held) is type(expected)
                assert (held, np.signbit(held)) == (expected, np.signbit(expected))
    assert np.isnan(full((), float("nan"), float32).attr("value"))


@pytest.mark.parametrize("op", OPS)
def test_a_node_on_other_inputs_of_the_same_types_is_what_making_it_gives(op: str) -> None:
    node = ALL_EXAMPLES[op]()
    assert on_inputs(node, node.inputs) is node
    others = tuple(
        graph_input(f"other{k}", k, value.shape, value.dtype) for k, value in enumerate(node.inputs)
    )
    try:
        made = make(node.op, *others, **dict(node.attrs))
    except InvalidArgument:  # where a number must be known
        with pytest.raises(InvalidArgument):
            on_inputs(node, others)
        return
    assert on_inputs(node, others) is made
    assert (made.shape, made.dtype) == (node.shape, node.dtype)


def test_nodes_on_other_inputs_are_sound() -> None:
    y = make("exp", X)
    old = make("pad", make("add", X, X), padding=((1, 0), (0, 2)), value=-0.0)
    new = on_inputs(old, (on_inputs(old.inputs[0], (y, X)),))
    verify(Graph.of([new]))
    assert new is make("pad", make("add", y, X), padding=((1, 0), (0, 2)), value=-0.0)


def test_a_dead_node_leaves_the_table() -> None:
    gc.collect()
    before = len(_interned)
    node = make("neg", make("exp", X))
    assert len(_interned) == before + 2
    del node
    assert len(_interned) == before


def test_threads_that_build_the_same_get_the_same() -> None:
    built: list[list[Node]] = []

    def build() -> None:
        node = X
        chain = []
        for _ in range(2000):
            node = make("neg", node)
            chain.append(node)
        built.append(chain)

    threads = [threading.Thread(target=build) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(a is b for chain in built for a, b in zip(chain, built[0], strict=True))


def test_nodes_do_not_change() -> None:
    with pytest.raises(AttributeError, match="'op' cannot be set"):
        X.op = "add"
    with pytest.raises(InvalidArgument, match=r"made by arenite\.ir\.make"):
        Node()


def test_what_a_node_tells() -> None:
    node = make("sum", X, axes=(1,))
    assert node.attr("axes") == (1,)
    assert (node.ndim, node.nbytes) == (1, 12)
    assert repr(node) == "<Node sum float32[3]>"
    assert typed((Var("batch", 1, 9), 4), float32) == "float32[batch, 4]"
    with pytest.raises(InvalidArgument, match="sum has no attribute 'axis'; it has: axes"):
        node.attr("axis")
    with pytest.raises(InvalidArgument, match="it has: none"):
        make("neg", X).attr("axis")


def test_bytes_of_packed_types() -> None:
    n = Var("n", 1, 9)
    assert nbytes_of((3,), BY_NAME["int4"]) == 2
    assert nbytes_of((2, 64), BY_NAME["q4_0"]) == 72
    assert nbytes_of((n, 2), BY_NAME["int4"]) == n
    assert str(nbytes_of((n,), BY_NAME["int2"])) == "(n + 3)//4"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: make("nonsense", X), "no op is called 'nonsense'; known: abs, "),
        (lambda: make("add", X), "add takes 2 inputs, not 1"),
        (lambda: make("attention", X), "attention takes 3 to 6 inputs, not 1"),
        (lambda: make("concat", axis=0), "concat takes 1 to any number of inputs, not 0"),
        (lambda: make("sum", X), r"sum has attributes \['axes'\], not \[\]"),
        (
            lambda: make("sum", X, axes=0),
            "axes = 0 is not a tuple of what is of type int",
        ),
        (lambda: make("sum", X, axes=(True,)), "is not a tuple of what is of type int"),
        (lambda: make("sort", X, axis=0, descending=1), "is not of type bool"),
    ],
)
def test_calls_that_make_no_sense(wrong: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        wrong()


def test_origins_stay_with_nodes_and_do_not_keep_them() -> None:
    origins = Origins()
    node = make("cos", X)
    a, b = Origin("model.py", 3), Origin("net.onnx", name="/layer/Cos")
    origins.add(node, a, b, a)
    origins.add(node, b)
    assert origins.of(node) == (a, b)
    assert [str(o) for o in (a, b)] == ["model.py:3", "net.onnx /layer/Cos"]
    assert origins.of(X) == ()
    assert len(origins.subset([node, X])) == 1
    assert Origins({node: [a]}).of(node) == (a,)
    del node
    assert len(origins) == 0


def test_a_chain_of_100_000_nodes_is_built_printed_hashed_run_and_deleted() -> None:
    start = constant(np.array([1.0, -2.0], np.float32))
    before = len(_interned)
    node = start
    for _ in range(50_000):
        node = make("add", make("neg", node), node)
    graph = Graph.of([node])
    assert len(graph) == 100_001
    assert text(graph).count("\n") == 100_003
    assert len(graph.digest()) == 40
    assert graph.vars == ()
    assert len(graph.users()) == 100_001
    assert graph.replace({start: full((2,), 0, float32)}).outputs[0] is not node
    verify(graph)
    assert evaluate(graph)[0].tolist() == [0.0, 0.0]
    del node, graph
    gc.collect()
    assert len(_interned) <= before + 1
