"""Elements that come several times, and elements around an axis: in one kernel, where they are
written as views. Judged by NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from arenite import ir
from arenite.dtype import of as dtype_of
from arenite.ir.compose.interpolation import Axis, Method, resize
from arenite.ir.compose.padding import repeated
from arenite.ir.dim import Dim, Var
from arenite.ir.graph import Graph
from arenite.ir.node import Node
from arenite.pipeline import compile_graph

Array = NDArray[Any]


def numbers(*shape: int, dtype: Any = np.float32) -> Array:
    return np.random.default_rng(sum(shape)).integers(-50, 50, shape).astype(dtype)


def given(shape: tuple[Dim, ...], dtype: Any = np.float32) -> Node:
    return ir.graph_input("x", 0, shape, dtype_of(np.dtype(dtype)))


def larger(x: Node, times: tuple[int, int]) -> Node:
    """The last two axes, each element so often."""
    axes = [Axis(x.ndim - 2 + k, x.shape[k - 2] * n, float(n)) for k, n in enumerate(times)]
    return resize(x, axes, Method("nearest", "asymmetric", "floor"))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8, np.float16])
@pytest.mark.parametrize("times", [(2, 2), (1, 4), (3, 8), (2, 3)], ids=str)
def test_elements_that_come_several_times(times: tuple[int, int], dtype: Any) -> None:
    for width in (1, 7, 16, 45):
        x = numbers(2, 5, width, dtype=dtype)
        with compile_graph(Graph.of([larger(given(x.shape, dtype), times)])) as program:
            assert len(program.kernels) == 1
            [got] = program(x)
        np.testing.assert_array_equal(got, x.repeat(times[0], 1).repeat(times[1], 2))


def test_elements_that_come_several_times_in_what_follows() -> None:
    """Where the larger image is an operand, of a sum and of a reduction."""
    x, y = numbers(3, 20, 33), numbers(3, 40, 66)
    wide = larger(given(x.shape), (2, 2))
    other = ir.graph_input("y", 1, y.shape, dtype_of(y.dtype))
    total = ir.make("add", wide, other)
    with compile_graph(Graph.of([total, ir.make("sum", total, axes=(1,))])) as program:
        got, summed = program(x, y)
    want = x.repeat(2, 1).repeat(2, 2) + y
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(summed, want.sum(1))


def test_elements_that_come_several_times_of_sizes_known_later() -> None:
    x = given((Var("n", 1, 9), Var("h", 1, 99), Var("w", 1, 99)))
    with compile_graph(Graph.of([larger(x, (2, 4))])) as program:
        for shape in ((1, 1, 1), (3, 4, 17), (2, 30, 64)):
            array = numbers(*shape)
            [got] = program(array)
            np.testing.assert_array_equal(got, array.repeat(2, 1).repeat(4, 2))


def test_an_output_that_is_cut_is_written_once() -> None:
    """A tiled image: the axes of its kernel are cut where the copies meet."""
    x = numbers(2, 6, 10)
    wide = ir.make("expand", ir.make("reshape", given(x.shape), shape=(2, 1, 6, 1, 10)),
                   shape=(2, 3, 6, 4, 10))  # fmt: skip
    with compile_graph(Graph.of([ir.make("reshape", wide, shape=(2, 18, 40))])) as program:
        assert len(program.kernels) == 1
        assert "floordiv(_s" not in program.kernels[0].code
        [got] = program(x)
    np.testing.assert_array_equal(got, np.tile(x, (1, 3, 4)))


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
def test_elements_around_an_axis(mode: Any) -> None:
    pads = [(0, 0), (2, 3), (5, 0)]
    for shape in ((2, 4, 6), (1, 9, 40)):
        x = numbers(*shape)
        with compile_graph(Graph.of([repeated(given(shape), pads, mode)])) as program:
            assert all(one.entry_point.startswith("concat") for one in program.kernels)
            assert len(program.kernels) == 2
            [got] = program(x)
        np.testing.assert_array_equal(got, np.pad(x, pads, mode))


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
def test_elements_around_an_axis_whose_size_is_known_later(mode: Any) -> None:
    """Also more of them than the axis has."""
    pads = [(0, 0), (4, 7)]
    x = given((3, Var("n", 1, 500)))
    with compile_graph(Graph.of([repeated(x, pads, mode)])) as program:
        for size in (1, 2, 3, 5, 300):
            array = numbers(3, size)
            [got] = program(array)
            np.testing.assert_array_equal(got, np.pad(array, pads, mode))
