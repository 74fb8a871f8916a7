"""The first few in order, against NumPy's stable sort: equal elements, NaN, any axis."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arenite import ir
from arenite.dtype import BY_NAME
from arenite.ir import Var, reference
from arenite.ir.compose.basic import slice_axis
from arenite.ir.graph import Graph
from arenite.ir.node import Node
from arenite.passes.selection import selection
from arenite.pipeline import compile_graph


def first_of(shape: Any, dtype: str, count: int, axis: int, descending: bool) -> Node:
    x = ir.graph_input("x", 0, shape, BY_NAME[dtype])
    places = ir.make("argsort", x, axis=axis, descending=descending)
    return slice_axis(places, axis, 0, count)


def expected(x: Any, count: int, axis: int, descending: bool) -> Any:
    """By a stable sort of ranks, in which NaN is the greatest."""
    ranks = np.unique(x, return_inverse=True)[1].reshape(x.shape)
    order = np.argsort(-ranks if descending else ranks, axis=axis, kind="stable")
    return np.take(order, range(count), axis=axis)


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_any_line(data: st.DataObject) -> None:
    draw = data.draw
    size, others = draw(st.integers(1, 300)), draw(st.integers(1, 3))
    axis = draw(st.integers(0, 1))
    shape = (size, others) if axis == 0 else (others, size)
    dtype = draw(st.sampled_from(["float32", "int32", "uint8", "int64"]))
    descending = draw(st.booleans())
    count = draw(st.integers(0, min(size, 12)))
    rng = np.random.default_rng(draw(st.integers(0, 9)))
    x = rng.integers(0, draw(st.sampled_from([2, 9, 250])), shape).astype(dtype)
    if dtype == "float32":
        for value in (np.nan, -np.inf, np.inf, -0.0):
            x[rng.random(shape) < draw(st.sampled_from([0, 0.02, 0.7]))] = value
    node = first_of(shape, dtype, count, axis, descending)
    [result] = reference.evaluate(Graph.of([selection(node)]), [x])
    np.testing.assert_array_equal(result, expected(x, count, axis, descending))


@pytest.mark.parametrize(
    ("shape", "count", "axis", "dtype", "descending"),
    [
        ((3, 4001), 5, 1, "float32", True),
        ((900, 2), 7, 0, "float32", True),
        ((1, 1000), 3, 1, "int32", False),
        ((3, 4001), 9, 1, "float32", False),
        ((70, 64), 16, 1, "float16", True),
        ((2, 2, 65), 16, 2, "int16", False),
        ((5, 300), 40, 1, "uint8", True),
        ((4, 300), 75, 1, "float32", False),
    ],
)
def test_compiled(
    shape: tuple[int, ...], count: int, axis: int, dtype: str, descending: bool
) -> None:
    node = first_of(shape, dtype, count, axis, descending)
    rng = np.random.default_rng(1)
    x = rng.integers(-99, 99, shape).astype(dtype)
    if "float" in dtype:
        for number in (np.nan, -np.inf, np.inf, -0.0):
            x[rng.random(shape) < 0.3] = number
    [result] = compile_graph(Graph.of([node]))(x)
    np.testing.assert_array_equal(result, expected(x, count, axis, descending))


def test_few_are_picked_without_a_sort() -> None:
    for count, is_picked in ((100, True), (101, False)):
        program = compile_graph(Graph.of([first_of((3, 400), "float32", count, 1, True)]))
        names = [one.entry_point.split("_")[0] for one in program.kernels]
        assert ("select" in names, "argsort" in names) == (is_picked, not is_picked)


def test_an_open_batch() -> None:
    program = compile_graph(Graph.of([first_of((Var("batch", 1, 8), 800), "float32", 4, 1, True)]))
    for batch in (1, 5):
        x = np.random.default_rng(batch).integers(0, 50, (batch, 800)).astype(np.float32)
        np.testing.assert_array_equal(program(x)[0], expected(x, 4, 1, True))


def n_sorted(node: Node) -> int:
    graph = Graph.of([node])
    sizes = [one.shape[-1] for one in graph.nodes if one.op in ("argsort", "sort")]
    return sum(size for size in sizes if isinstance(size, int))


def test_few_of_many_sort_few() -> None:
    node = first_of((32_000,), "float32", 50, 0, True)
    assert n_sorted(node) == 32_000
    assert n_sorted(selection(node)) < 1_600


def test_what_gains_nothing_is_sorted() -> None:
    for count, descending in ((400, True), (5, False)):
        node = first_of((1000,), "float32", count, 0, descending)
        assert selection(node) is node
    last = ir.make("argsort", ir.graph_input("x", 0, (1000,), BY_NAME["float32"]), axis=0,
                   descending=True)  # fmt: skip
    tail = slice_axis(last, 0, 990, 1000)
    assert selection(tail) is tail
