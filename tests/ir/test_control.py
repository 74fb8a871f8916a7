"""Control flow in the IR: types, laziness, captures, digests, texts and the verifier."""

from __future__ import annotations

import gc
import subprocess
import sys

import numpy as np
import pytest

from arenite.dtype import BY_NAME
from arenite.errors import (
    IndexOutOfRange,
    InvalidArgument,
    InvalidGraph,
    ShapeMismatch,
    TypeMismatch,
)
from arenite.ir import (
    Graph,
    Node,
    Region,
    Var,
    constant,
    evaluate,
    full,
    graph_input,
    make,
    parameter,
    size,
    text,
    verify,
)
from arenite.ir.ops.control import cut, loop_parts
from arenite.ir.regions import closed, loop
from arenite.passes.rewrite import apply
from arenite.passes.simplify import simplify
from tests.ir.op_examples import x

F32, I64, BOOL = (BY_NAME[name] for name in ("float32", "int64", "bool"))


def flag(index: int = 9) -> Node:
    return graph_input(f"c{index}", index, (), BOOL)


def trips(n: int) -> Node:
    return full((), n, I64)


def doubling(start: Node, n: Node, add: Node | None = None) -> list[Node]:
    """s = s + s (+ add), with the rows of all s."""
    number, state = parameter((), I64), parameter(start.shape, start.dtype)
    new = make("add", state, state)
    if add is not None:
        new = make("add", new, add)
    return loop(n, [start], ((number, state), (new,)), rows=[new] if n.op != "input" else [])


def test_an_if_needs_one_condition_and_sides_of_one_type() -> None:
    with pytest.raises(TypeMismatch, match="the condition is float32"):
        make("if", x(), x(2), x(2, index=1))
    with pytest.raises(ShapeMismatch, match="another shape"):
        make("if", flag(), x(2), x(3, index=1))
    with pytest.raises(TypeMismatch, match="another dtype"):
        make("if", flag(), x(2), make("cast", x(2), dtype=I64))


def test_the_oracle_computes_the_side_that_is_asked_for() -> None:
    data, at = x(3, 2), graph_input("at", 1, (2,), I64)
    node = make("if", flag(), make("gather", data, at, axis=0), full((2, 2), 7, F32))
    graph = Graph.of([node])
    numbers = np.arange(6, dtype=np.float32).reshape(3, 2)
    bad, good = np.array([0, 5]), np.array([2, 0])
    assert (evaluate(graph, [numbers, bad, np.array(False)])[0] == 7).all()
    np.testing.assert_array_equal(
        evaluate(graph, [numbers, good, np.array(True)])[0], numbers[[2, 0]]
    )
    with pytest.raises(IndexOutOfRange):
        evaluate(graph, [numbers, bad, np.array(True)])


def test_a_chain_of_a_hundred_thousand_ifs_is_walked() -> None:
    value, c = x(1), flag()
    for _ in range(100_000):
        value = make("if", c, make("neg", value), value)
    graph = Graph.of([value])
    [result] = evaluate(graph, [np.ones(1, np.float32), np.array(True)])
    assert result == 1
    verify(graph)
    assert graph.digest()


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_the_oracle_runs_loops(n: int) -> None:
    last, stacked = doubling(x(2), trips(n), x(2, index=1))
    a, b = np.array([1, 2], np.float32), np.array([0.5, -1], np.float32)
    results = evaluate(Graph.of([last, stacked]), [a, b])
    expected = []
    for _ in range(n):
        a = a + a + b
        expected.append(a)
    np.testing.assert_array_equal(results[0], a)
    np.testing.assert_array_equal(results[1], np.reshape(expected, (n, 2)))


def test_rows_that_a_condition_leaves_out_are_zero() -> None:
    number, state = parameter((), I64), parameter((), I64)
    new = make("add", state, full((), 3, I64))
    goes_on = make("lt", new, full((), 10, I64))
    [last, stacked] = loop(
        trips(6), [full((), 0, I64)], ((number, state), (new,)), rows=[new], goes_on=goes_on
    )
    results = evaluate(Graph.of([last, stacked]))
    assert results[0] == 12
    np.testing.assert_array_equal(results[1], [3, 6, 9, 12, 0, 0])


@pytest.mark.parametrize("limit", [0, 4, 10, 99])
def test_rows_may_be_cut_where_the_iterations_ended(limit: int) -> None:
    number, state = parameter((), I64), parameter((), I64)
    new = make("add", state, full((), 3, I64))
    first = make("lt", full((), 0, I64), full((), limit, I64))
    goes_on = make("lt", new, full((), limit, I64))
    [last, stacked, twice] = loop(
        trips(6),
        [full((), 0, I64)],
        ((number, state), (new,)),
        rows=[new, make("mul", new, full((), 2, I64))],
        condition=first,
        goes_on=goes_on,
        cut_rows=True,
    )
    assert stacked.shape == twice.shape
    graph = Graph.of([last, stacked, make("add", stacked, twice)])
    verify(graph)
    expected: list[int] = []
    value = 0
    while len(expected) < 6 and value < limit:
        value += 3
        expected.append(value)
    results = evaluate(graph)
    assert results[0] == value
    assert results[1].tolist() == expected
    assert results[2].tolist() == [3 * row for row in expected]


def test_a_trip_count_may_be_a_size_and_then_shapes_the_rows() -> None:
    n = Var("n", 0, 9)
    start = graph_input("x", 0, (n,), F32)
    [last, stacked] = doubling(start, size(n, I64))
    assert stacked.shape == (n, n)
    results = evaluate(Graph.of([last, stacked]), [np.ones(3, np.float32)])
    np.testing.assert_array_equal(results[1], [[2] * 3, [4] * 3, [8] * 3])
    number, state = parameter((), I64), parameter((2,), F32)
    found = graph_input("n", 1, (), I64)
    with pytest.raises(InvalidArgument, match="found while running"):
        loop(found, [x(2)], ((number, state), (state,)), rows=[state])


def test_a_body_that_changes_a_type_is_an_error_that_says_so() -> None:
    number, state = parameter((), I64), parameter((2,), F32)
    wider = make("expand", make("reshape", state, shape=(1, 2)), shape=(3, 2))
    with pytest.raises(ShapeMismatch, match=r"carried value 0.*float32\[3, 2\], not float32\[2\]"):
        loop(trips(2), [x(2)], ((number, state), (wider,)))
    with pytest.raises(TypeMismatch, match="another dtype"):
        loop(trips(2), [x(2)], ((number, state), (make("cast", state, dtype=I64),)))
    with pytest.raises(InvalidArgument, match="carries 1 values, and its body gives 2"):
        loop(trips(2), [x(2)], ((number, state), (state, state)))


def test_what_does_not_depend_on_the_body_is_captured_as_a_whole() -> None:
    number, state = parameter((), I64), parameter((2,), F32)
    outside = make("exp", make("neg", x(2, index=1)))
    ones, known = full((2,), 1, F32), constant(np.array([3, 4], np.float32))
    new = make("add", make("mul", make("add", state, outside), ones), known)
    [last] = loop(trips(2), [x(2)], ((number, state), (new,)))
    parts = loop_parts(last)
    assert parts.captures == (outside,)
    inside = {node.op for node in Graph.of([]).of_region(last.attr("body")).nodes}
    assert inside == {"parameter", "add", "mul", "full", "constant"}
    verify(Graph.of([last]))


def test_what_is_made_up_goes_into_a_body_and_what_is_the_same_comes_out() -> None:
    number, state, step, bias = (
        parameter((), I64), parameter((2,), F32), parameter((2,), F32), parameter((2,), F32)
    )  # fmt: skip
    always = full((), True, BOOL)
    new = make("add", make("add", state, make("exp", bias)), step)
    body = Region((number, state, step, bias), (always, new, make("mul", new, new)))
    given = (trips(3), always, x(2), full((2,), 1, F32), x(2, index=1))
    nodes = [make("loop", *given, body=body, carried=1, index=k) for k in (0, 1)]
    graph = Graph.of(nodes)
    arrays = [np.array([1, 2], np.float32), np.array([0, 1], np.float32)]
    made = apply(graph, simplify)
    verify(made)
    parts = [loop_parts(node) for node in made.outputs]
    assert [value.op for value in parts[0].captures] == ["exp"]
    assert parts[0] == parts[1]  # still one loop
    for one, other in zip(evaluate(made, arrays), evaluate(graph, arrays), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_body_uses_parameters_of_the_body_around_it() -> None:
    number, state = parameter((), I64), parameter((2,), F32)
    inner = doubling(state, trips(2), make("neg", state))
    [last] = loop(trips(3), [x(2)], ((number, state), (inner[0],)))
    graph = Graph.of([last])
    verify(graph)
    expected = np.array([1, -2], np.float32)
    for _ in range(3):
        start = expected
        for _ in range(2):
            expected = expected + expected - start
    np.testing.assert_array_equal(evaluate(graph, [np.array([1, -2], np.float32)])[0], expected)


def test_the_verifier_finds_what_leaves_a_region() -> None:
    given, stray = parameter((2,), F32), parameter((2,), F32)
    number, always = parameter((), I64), full((), True, BOOL)
    region = Region((number, given), (always, make("add", given, stray)))
    node = make("loop", trips(1), always, x(2), body=region, carried=1, index=0)
    with pytest.raises(InvalidGraph, match="outside; what a region needs"):
        verify(Graph.of([node]))
    with pytest.raises(InvalidGraph, match="outside its region"):
        verify(Graph.of([make("neg", stray)]))
    whole = Region((number, given), (always, make("add", given, x(2))))
    node = make("loop", trips(1), always, x(2), body=whole, carried=1, index=0)
    with pytest.raises(InvalidGraph, match="which is outside"):
        verify(Graph.of([node]))


def test_equal_bodies_have_equal_digests_in_every_process() -> None:
    first = Graph.of(doubling(x(2), trips(3))).digest()
    assert Graph.of(doubling(x(2), trips(3))).digest() == first
    assert Graph.of(doubling(x(2), trips(4))).digest() != first
    assert Graph.of(doubling(x(2), trips(3), x(2))).digest() != first
    code = (
        "from tests.ir.test_control import *\n"
        "parameter((), I64), doubling(x(5), trips(1))\n"
        "print(Graph.of(doubling(x(2), trips(3))).digest())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == first


def test_bodies_are_printed_where_they_stand() -> None:
    n = Var("n", 1, 4)
    start = graph_input("x", 0, (n,), F32)
    printed = text(Graph.of(doubling(start, size(n, I64))))
    assert "where n in 1..4" in printed
    assert printed.count("@0(") == 1
    assert "body=@0, carried=1, index=1) : float32[n, n]" in printed
    lines = printed.splitlines()
    at = next(k for k, line in enumerate(lines) if line.startswith("    @0("))
    assert lines[at] == "    @0(%0: int64[], %1: float32[n])"
    assert lines[at + 2 : at + 4] == [
        "    %3 = add(%1, %1) : float32[n]",
        "    return %2, %3, %3",
    ]


def test_a_region_with_nothing_from_outside_has_no_captures() -> None:
    given = parameter((2,), F32)
    region, captures = closed([given], [make("neg", given), given])
    assert region == Region((given,), (make("neg", given), given))
    assert captures == ()


def test_the_number_of_a_found_size_does_not_count() -> None:
    def digest() -> str:
        x = graph_input("x", 0, (9, 2), BY_NAME["float32"])
        count = graph_input("n", 1, (), BY_NAME["int64"])
        return Graph.of([make("neg", cut(x, count))]).digest()

    first = digest()
    other = graph_input("other", 0, (), BY_NAME["int64"])
    kept = [cut(graph_input("y", 1, (k, 2), BY_NAME["float32"]), other) for k in range(3, 6)]
    gc.collect()  # the first graph is gone, and its sizes with it
    assert digest() == first
    assert len(kept) == 3
