"""Indexing against NumPy: random indices of every kind, updates, gathers, scatters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arenite.errors import IndexOutOfRange, InvalidArgument, NotSupported, ShapeMismatch
from arenite.ir import Graph, Var, evaluate
from arenite.ir.dim import Found
from arenite.tensor import Tensor, spec
from tests.tensor.examples import Array, array, same

F32, I64 = np.dtype("float32"), np.dtype("int64")


@st.composite
def slices(draw: st.DrawFn, size: int) -> slice:
    bound = st.none() | st.integers(-size - 2, size + 2)
    step = draw(st.none() | st.integers(-3, 3).filter(bool))
    return slice(draw(bound), draw(bound), step)


@st.composite
def indexed(draw: st.DrawFn, advanced: bool) -> tuple[Array, tuple[Any, ...]]:
    """An array and an index NumPy accepts."""
    shape = draw(st.lists(st.integers(1 if advanced else 0, 4), max_size=4))
    x = array(F32, shape, draw(st.integers(0, 99)))
    rows = draw(st.lists(st.integers(1, 3), max_size=2))
    index: list[Any] = []
    axis = 0
    while axis < len(shape) and draw(st.integers(0, 7)):
        kinds = ["slice", "slice", "none"]
        kinds += ["int"] if shape[axis] else []
        kinds += ["array", "array", "mask"] if advanced else []
        kind = draw(st.sampled_from(kinds))
        if kind == "none":
            index.append(None)
            continue
        size = shape[axis]
        if kind == "slice":
            index.append(draw(slices(size)))
        elif kind == "int":
            index.append(draw(st.integers(-size, size - 1)))
        elif kind == "array":
            cut = draw(st.integers(0, len(rows)))
            rng = np.random.default_rng(draw(st.integers(0, 99)))
            index.append(rng.integers(-size, size, rows[cut:]))
        else:  # a mask selects as many as the other arrays broadcast with
            mask = np.zeros(size, bool)
            mask[draw(st.integers(0, size - 1))] = True
            index.append(mask)
        axis += 1
    if draw(st.booleans()):
        # Behind the dots the last axes are meant, whose sizes the items above need not fit.
        index.append(Ellipsis)
    return x, tuple(index)


@given(indexed(advanced=False))
@settings(max_examples=150, deadline=None)
def test_basic_indexing_as_numpy(case: tuple[Array, tuple[Any, ...]]) -> None:
    x, index = case
    same(Tensor(x)[index], x[index])


@given(indexed(advanced=True), st.booleans())
@settings(max_examples=250, deadline=None)
def test_advanced_indexing_as_numpy(case: tuple[Array, tuple[Any, ...]], lazy: bool) -> None:
    x, index = case
    ours = tuple(
        Tensor(item) + 0 if lazy and isinstance(item, np.ndarray) and item.dtype == I64 else item
        for item in index
    )
    same(Tensor(x)[ours], x[index])


@given(indexed(advanced=True), st.integers(0, 99))
@settings(max_examples=100, deadline=None)
def test_set_writes_where_indexing_reads(case: tuple[Array, tuple[Any, ...]], seed: int) -> None:
    x, index = case
    expected, value = x.copy(), array(F32, x[index].shape, seed)
    if len(np.unique(np.arange(x.size).reshape(x.shape)[index])) != value.size:
        value = np.asarray(F32.type(7))  # places come twice: NumPy does not say which stays
    expected[index] = value
    same(Tensor(x).set(index, value), expected)


@pytest.mark.parametrize(
    "index",
    [
        0,
        -1,
        (0, 1),
        (slice(None), 1, [0, 2]),
        (0, slice(None), [0, 2]),
        ([[0], [1]], slice(None), [0, 3]),
        (..., [1, 0], None),
        (None, ..., np.int32(1)),
        [True, False],
        (slice(None), np.array([[True, False, True, False]] * 3)),
        (np.ones((2, 3), bool), slice(1, 3)),
        (..., [True, False, False, True]),
        [],
        (slice(None), []),
        np.array([[1, 0]], np.uint8),
        (1, [1], 2),
    ],
)
def test_indices_people_write(index: Any) -> None:
    x = np.arange(24).reshape(2, 3, 4)
    same(Tensor(x)[index], x[index])


def test_a_tensor_is_an_index() -> None:
    x = np.arange(12).reshape(3, 4)
    t = Tensor(x)
    same(t[Tensor([2, -1, 0])], x[[2, -1, 0]])
    same(t[Tensor([2, -1, 0]) + 0], x[[2, -1, 0]])
    same(t[Tensor(np.array([1, 2], np.uint8)) + 0], x[[1, 2]])
    same(t[Tensor(1) + 0], x[1])
    same(t[:, Tensor([True, False, False, True])], x[:, [0, 3]])
    same(t[(t > 3).realize()], x[x > 3])
    assert isinstance(t[t > 3].shape[0], Found)  # its numbers are in tests/pipeline/test_found.py
    with pytest.raises(IndexOutOfRange, match=r"integers or a mask, not float64\[1\]"):
        _ = t[Tensor([1.0])]


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (3, r"index 3 is outside axis 0 of int64\[3, 4\]"),
        ((0, -5), "index -5 is outside axis 1"),
        ((0, 0, 0), r"3 indices for int64\[3, 4\]: too many"),
        ((..., 0, ...), "at most one ellipsis"),
        ([0, 3], r"index 3 is outside axis 0"),
        (([0, 1], [0, -5]), r"index -5 is outside axis 1"),
        ([0.5], "integers or a mask, not float64"),
        (np.ones((2, 4), bool), r"a mask of shape \(2, 4\) does not match axes 0 to 1"),
        (slice(0.5, 1), "parts of a slice are whole numbers"),
        (([0, 1], [0, 1, 2]), "do not broadcast"),
    ],
)
def test_a_wrong_index_is_refused_at_once(index: Any, message: str) -> None:
    t = Tensor(np.arange(12).reshape(3, 4))
    with pytest.raises((IndexOutOfRange, ShapeMismatch), match=message):
        t[index]


def test_other_refusals() -> None:
    t = Tensor(np.arange(12).reshape(3, 4))
    with pytest.raises(NotSupported, match=r"t = t\.set"):
        t[0] = 1
    with pytest.raises(NotSupported, match="a single bool"):
        _ = t[True]
    with pytest.raises(InvalidArgument, match="step of a slice"):
        _ = t[::0]
    with pytest.raises(ShapeMismatch, match=r"shape \(3,\) does not broadcast to the \(4,\)"):
        t.set(0, [1, 2, 3])
    with pytest.raises(OverflowError):
        t.astype("int8").set(0, 300)


@pytest.mark.parametrize("places", [[0, 3], [-4, 0]])
def test_a_computed_index_is_checked_by_the_run(places: list[int]) -> None:
    t = Tensor(np.arange(12).reshape(3, 4))
    lazy = Tensor(places) + 0
    with pytest.raises(IndexOutOfRange, match=r"gather: index (3|-1) is not within 0\.\.2"):
        t[lazy].realize()
    # Over two axes a wrong place must not become another, right one.
    with pytest.raises(IndexOutOfRange, match="index -1 is not within"):
        t[lazy, Tensor([0, 1]) + 0].realize()


def test_set_reduces() -> None:
    x = np.array([[1.0, 2, 3], [4, 5, 6]])
    expected = x.copy()
    np.add.at(expected, ([0, 0, 1], [1, 1, 2]), [10, 20, 30])
    same(Tensor(x).set(([0, 0, 1], [1, 1, 2]), [10, 20, 30], "add"), expected)
    same(Tensor(x).set(0, 4, "max"), np.array([[4.0, 4, 4], [4, 5, 6]]))
    same(Tensor(x).set((0, slice(None)), np.ones((1, 3)), "mul"), x)


def test_take_and_along_axis() -> None:
    x = array(F32, (3, 4, 2))
    same(Tensor(x).take([5, 0, -1]), x.take([5, 0, -1]))
    same(Tensor(x).take([[1, 0]], axis=1), x.take([[1, 0]], axis=1))
    same(Tensor(x).take(2, axis=1), x.take(2, axis=1))
    order = np.argsort(x, axis=1)
    same(Tensor(x).take_along_axis(order, 1), np.take_along_axis(x, order, 1))
    same(Tensor(x).take_along_axis(order[:1] - 4, 1), np.take_along_axis(x, order[:1] - 4, 1))
    with pytest.raises(ShapeMismatch, match="as many axes"):
        Tensor(x).take_along_axis([1], 1)
    with pytest.raises(IndexOutOfRange, match="indices are integers"):
        Tensor(x).take_along_axis(x, 1)


def test_scatter_puts_along_an_axis() -> None:
    x, order = array(F32, (3, 4)), np.array([[1], [0], [-1]])
    expected = x.copy()
    np.put_along_axis(expected, order, 9.0, 1)
    same(Tensor(x).scatter(order, 9.0, 1), expected)
    with pytest.raises(ShapeMismatch, match="elsewhere than on axis 1"):
        Tensor(x).scatter(order[:2], 1.0, 1)
    with pytest.raises(IndexOutOfRange, match="index 5 is not within"):
        Tensor(x).scatter(order + 4, 1.0, 1).realize()


def run(function: Any, x: Array) -> Array:
    """A function of one tensor whose first size is a variable n in 2..9."""
    t = spec((Var("n", 2, 9), *x.shape[1:]), x.dtype).argument("x", 0)
    return evaluate(Graph.of([function(t).node]), [x])[0]


@pytest.mark.parametrize(
    "index",
    [
        slice(1, None),
        slice(-3, None),
        slice(None, -1),
        slice(None, None, -1),
        slice(None, None, 2),
        slice(5, 1, -2),
        slice(3, 7),
        slice(-1, 0),
        (1, slice(None)),
        (-2, 0),
        (slice(None), [0, 2]),
        ([0, -1], [0, 1]),
        [0, -2],
    ],
    ids=str,
)
@pytest.mark.parametrize("n", [2, 3, 5, 9])
def test_indexing_where_the_size_is_open(index: Any, n: int) -> None:
    x = array(F32, (n, 3))
    same(run(lambda t: t[index], x), x[index])


def test_an_index_that_is_outside_for_every_size_is_refused() -> None:
    t = spec((Var("n", 2, 9), 3)).argument("x", 0)
    with pytest.raises(IndexOutOfRange, match="index 9 is outside axis 0"):
        _ = t[9]
    assert t[2].shape == (3,)  # the program looks whether it is there
    n = t.shape[0]
    x = array(F32, (4, 3))
    same(run(lambda t: t[t.shape[0] - 1], x), x[3])
    same(run(lambda t: t[: t.shape[0] - 1], x), x[:3])
    assert t[: n - 1].shape == (n - 1, 3)
