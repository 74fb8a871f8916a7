"""Pools over one axis after the other, and loops that end where the padding begins: against windows
cut out one by one."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arenite import ir
from arenite.backends.cpu.passes.pools import pools
from arenite.dtype import BY_NAME
from arenite.ir import Var, reference
from arenite.ir.compose.basic import pad
from arenite.ir.compose.reductions import reduce
from arenite.ir.graph import Graph
from arenite.ir.node import Node
from arenite.pipeline import compile_graph

FLOAT32 = BY_NAME["float32"]
VALUES = {"max": -np.inf, "min": np.inf, "sum": 0.0}
#: Axes, then for each of them: size, stride, dilation, padding before and after.
Windows = dict[int, tuple[int, int, int, tuple[int, int]]]


def pool_of(op: str, shape: Any, windows: Windows, value: float) -> Node:
    x = ir.graph_input("x", 0, shape, FLOAT32)
    pads = [windows[axis][3] if axis in windows else (0, 0) for axis in range(len(shape))]
    sizes, strides, dilations, _ = zip(*windows.values(), strict=True)
    attrs = {"sizes": sizes, "strides": strides, "dilations": dilations}
    view = ir.make("window", pad(x, pads, value), axes=tuple(windows), **attrs)
    return reduce(op, view, range(len(shape), view.ndim))


def brute_force(op: str, x: Any, windows: Windows, value: float) -> Any:
    pads = [windows[axis][3] if axis in windows else (0, 0) for axis in range(x.ndim)]
    padded = np.pad(x, pads, constant_values=value)
    ranges = []
    for axis, length in enumerate(padded.shape):
        size, stride, dilation, _ = windows.get(axis, (1, 1, 1, (0, 0)))
        reach = dilation * (size - 1) + 1
        starts = range(0, length - reach + 1, stride)
        ranges.append([slice(at, at + reach, dilation) for at in starts])
    out = np.empty([len(one) for one in ranges], x.dtype)
    for place in product(*(range(len(one)) for one in ranges)):
        window = padded[tuple(one[at] for one, at in zip(ranges, place, strict=True))]
        out[place] = getattr(np, op)(window)
    return out


def whole(shape: Any, seed: int = 1) -> Any:
    return np.random.default_rng(seed).integers(-9, 10, shape).astype(np.float32)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_window(data: st.DataObject) -> None:
    draw = data.draw
    shape = tuple(draw(st.integers(1, 7)) for _ in range(draw(st.integers(2, 4))))
    axes = draw(st.permutations(range(len(shape))))[: draw(st.integers(1, 3))]
    op = draw(st.sampled_from(sorted(VALUES)))
    windows: Windows = {}
    for axis in axes:
        before, after = draw(st.integers(0, 3)), draw(st.integers(0, 3))
        size = draw(st.integers(1, 4))
        most = shape[axis] + before + after - 1
        dilation = draw(st.integers(1, 2)) if 2 * (size - 1) <= most else 1
        size = size if dilation * (size - 1) <= most else 1
        windows[axis] = size, draw(st.integers(1, 3)), dilation, (before, after)
    value = draw(st.sampled_from([VALUES[op], 2.0]))
    node = pool_of(op, shape, windows, value)
    x = whole(shape)
    [result] = reference.evaluate(Graph.of([pools(node)]), [x])
    np.testing.assert_array_equal(result, brute_force(op, x, windows, value))


@pytest.mark.parametrize("op", sorted(VALUES))
@pytest.mark.parametrize(
    ("shape", "windows"),
    [
        ((3, 20, 37), {1: (5, 1, 1, (2, 2)), 2: (5, 1, 1, (2, 2))}),
        ((2, 21, 70), {1: (3, 2, 1, (1, 1)), 2: (3, 2, 1, (1, 1))}),
        ((2, 9, 50), {1: (3, 1, 3, (4, 5)), 2: (2, 3, 2, (0, 2))}),
        ((2, 12, 11, 24), {1: (5, 1, 1, (4, 0)), 2: (5, 2, 1, (1, 4))}),
        ((2, 6, 30), {1: (2, 1, 1, (5, 4)), 2: (2, 2, 1, (0, 0))}),
        ((5, 131), {1: (3, 3, 1, (0, 0))}),
    ],
)
def test_compiled(op: str, shape: tuple[int, ...], windows: Windows) -> None:
    """Also windows of nothing but padding, steps of three, and dilated taps."""
    program = compile_graph(Graph.of([pool_of(op, shape, windows, VALUES[op])]))
    x = whole(shape)
    np.testing.assert_array_equal(program(x)[0], brute_force(op, x, windows, VALUES[op]))


def test_open_sizes() -> None:
    windows: Windows = {1: (3, 2, 1, (1, 1)), 2: (3, 1, 1, (1, 1))}
    rows, columns = Var("rows", 1, 64), Var("columns", 1, 64)
    program = compile_graph(Graph.of([pool_of("max", (2, rows, columns), windows, -np.inf)]))
    for shape in ((2, 1, 1), (2, 7, 33), (2, 64, 2)):
        x = whole(shape)
        np.testing.assert_array_equal(program(x)[0], brute_force("max", x, windows, -np.inf))


def test_a_nan_stays_in_its_windows() -> None:
    windows: Windows = {1: (3, 1, 1, (1, 1)), 2: (3, 1, 1, (1, 1))}
    x = whole((1, 8, 20))
    x[0, 4, 10] = np.nan
    program = compile_graph(Graph.of([pool_of("max", x.shape, windows, -np.inf)]))
    np.testing.assert_array_equal(program(x)[0], brute_force("max", x, windows, -np.inf))


def test_padding_that_changes_nothing_is_not_read() -> None:
    """The loop over rows of a window ends at the image: no mask but that of the columns is left."""
    windows: Windows = {1: (3, 1, 1, (1, 1))}
    program = compile_graph(Graph.of([pool_of("max", (2, 20, 32), windows, -np.inf)]))
    assert "?" not in program.kernels[0].code
    other = compile_graph(Graph.of([pool_of("max", (2, 20, 32), windows, 0.5)]))
    assert "?" in other.kernels[0].code, "a padding that counts is read"


def test_large_windows_are_pooled_axis_by_axis_wherever_channels_are() -> None:
    size = (5, 1, 1, (2, 2))
    small = (3, 1, 1, (1, 1))
    for windows, is_split in (({1: size, 2: size}, True), ({1: small, 2: small}, False)):
        node = pool_of("max", (2, 9, 9, 16), windows, -np.inf)
        assert (pools(node) is not node) == is_split
        first = pool_of("max", (2, 16, 9, 9), {a + 1: one for a, one in windows.items()}, -np.inf)
        assert pools(first) is not first, "of rows, always"


def test_sums_of_small_floats_are_rounded_once() -> None:
    x = ir.graph_input("x", 0, (2, 9, 9), BY_NAME["float16"])
    attrs = {"sizes": (3, 3), "strides": (1, 1), "dilations": (1, 1)}
    node = reduce("sum", ir.make("window", x, axes=(1, 2), **attrs), (3, 4))
    assert pools(node) is node
