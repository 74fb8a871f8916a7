"""Reductions, running sums and sorting against NumPy."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arenite.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from arenite.ir import Graph, Var, evaluate
from arenite.tensor import Tensor, spec
from tests.tensor.examples import (
    ALL,
    BFLOAT16,
    NUMBERS,
    Array,
    array,
    arrays,
    full_shapes,
    quiet,
    same,
)

F32 = np.dtype("float32")


@st.composite
def with_axis(draw: st.DrawFn, dtypes: Any = ALL, many: bool = True) -> tuple[Array, Any, bool]:
    x = draw(arrays(dtypes, full_shapes))
    one = st.integers(-x.ndim, x.ndim - 1)
    several = st.lists(st.integers(0, x.ndim - 1), unique=True, min_size=1).map(tuple)
    axis = draw(st.none() | one | several if many else st.none() | one)
    return x, axis, draw(st.booleans())


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "any", "all", "ptp"])
@given(case=with_axis())
@settings(max_examples=50, deadline=None)
def test_as_numpy(name: str, case: tuple[Array, Any, bool]) -> None:
    x, axis, keepdims = case
    if name == "ptp" and x.dtype == bool:
        with pytest.raises(TypeMismatch):
            Tensor(x).ptp()
        return
    with quiet():
        # float32 sums differ in their order of adding; both are held against float64.
        wide = x.astype(np.float64) if name in ("sum", "prod") and x.dtype.kind == "f" else x
        expected = np.asarray(getattr(np, name)(wide, axis=axis, keepdims=keepdims))
        made = getattr(Tensor(x), name)(axis=axis, keepdims=keepdims)
        same(made, expected.astype(x.dtype) if wide is not x else expected)


@pytest.mark.parametrize("name", ["mean", "var", "std"])
@pytest.mark.parametrize("ddof", [0, 1])
@given(case=with_axis(NUMBERS))
@settings(max_examples=30, deadline=None)
def test_means_as_numpy(name: str, ddof: int, case: tuple[Array, Any, bool]) -> None:
    x, axis, keepdims = case
    if x.dtype.kind == "f":
        x = np.clip(np.nan_to_num(x, posinf=9, neginf=-9), -9, 9)
    if x.dtype.itemsize == 8 and x.dtype.kind in "iu":
        x = x % 50
    options: dict[str, Any] = {} if name == "mean" else {"ddof": ddof}
    with quiet(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy warns of a divisor of zero
        wide = x.astype(np.float64)
        expected = np.asarray(getattr(np, name)(wide, axis=axis, keepdims=keepdims, **options))
        made = getattr(Tensor(x), name)(axis=axis, keepdims=keepdims, **options)
        # A variance of 0 shows the rounding of the mean.
        tolerance = {"float16": 1e-2, "float32": 1e-5}.get(made.dtype.name, 1e-9)
        same(made, expected.astype(x.dtype if x.dtype.kind == "f" else float), tolerance)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@given(case=with_axis(many=False))
@settings(max_examples=60, deadline=None)
def test_places_as_numpy(name: str, case: tuple[Array, Any, bool]) -> None:
    x, axis, keepdims = case
    expected = getattr(np, name)(x, axis=axis, keepdims=keepdims)
    same(getattr(Tensor(x), name)(axis=axis, keepdims=keepdims), expected)


@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
@given(case=with_axis(many=False), reverse=st.booleans())
@settings(max_examples=40, deadline=None)
def test_running_as_numpy(name: str, case: tuple[Array, Any, bool], reverse: bool) -> None:
    x, axis, _ = case
    with quiet():
        wide = x.astype(np.float64) if x.dtype.kind == "f" else x
        at = 0 if axis is None else axis
        flat = wide.reshape(-1) if axis is None else wide
        flat = np.flip(flat, at) if reverse else flat
        expected = getattr(np, name)(flat, axis=at)
        expected = np.flip(expected, at) if reverse else expected
        made = getattr(Tensor(x), name)(axis=axis, reverse=reverse)
        same(made, expected.astype(x.dtype) if x.dtype.kind == "f" else expected)


@pytest.mark.parametrize(("name", "ufunc"), [("cummax", np.maximum), ("cummin", np.minimum)])
@given(case=with_axis(many=False))
@settings(max_examples=30, deadline=None)
def test_running_extremes(name: str, ufunc: np.ufunc, case: tuple[Array, Any, bool]) -> None:
    x, axis, _ = case
    flat, at = (x.reshape(-1), 0) if axis is None else (x, axis)
    same(getattr(Tensor(x), name)(axis), ufunc.accumulate(flat, axis=at))


@given(case=with_axis(many=False))
@settings(max_examples=60, deadline=None)
def test_sorting_as_numpy(case: tuple[Array, Any, bool]) -> None:
    x, axis, _ = case
    same(Tensor(x).sort(axis), np.sort(x, axis=axis))
    same(Tensor(x).argsort(axis), np.argsort(x, axis=axis, kind="stable"))
    down = np.take_along_axis(
        x.reshape(-1) if axis is None else x,
        Tensor(x).argsort(axis, descending=True).numpy(),
        axis=0 if axis is None else axis,
    )
    same(down, np.flip(np.sort(x, axis=axis), 0 if axis is None else axis))


def test_of_no_elements() -> None:
    empty = Tensor(np.zeros((0, 3), np.float32))
    same(empty.sum(0), np.zeros(3, np.float32))
    same(empty.prod(), np.float32(1))
    same(empty.any(), np.False_)
    same(empty.all(1), np.ones(0, bool))
    same(empty.max(1), np.zeros(0, np.float32))
    same(empty.sort(0).cumsum(0), np.zeros((0, 3), np.float32))
    with quiet():
        same(empty.mean(), np.float32(np.nan))
    for wrong in (empty.max, empty.min, empty.argmax, empty.argmin):
        with pytest.raises(ShapeMismatch, match="of no elements"):
            wrong()


def test_dtypes_and_the_rest() -> None:
    x = array(np.dtype("int8"), (4, 5))
    t = Tensor(x)
    same(t.sum(dtype="int8"), x.sum(dtype=np.int8))
    same(t.sum(0, "float32"), x.sum(0, np.float32))
    same(t.cumsum(0, "int8"), x.cumsum(0, np.int8))
    same(t.count_nonzero(), np.int64(np.count_nonzero(x)))
    same(t.count_nonzero(1, keepdims=True), np.count_nonzero(x, 1, keepdims=True))
    same(t.sum(axis=()), x.sum(axis=()))
    same(t.norm(1), np.linalg.norm(x.astype(float), axis=1))
    same(Tensor(x > 0).sum(), (x > 0).sum())
    same(Tensor([3.0, 4.0]).norm(), np.float64(5))
    half = Tensor(array(np.dtype("float32"), (50,), edges=False).astype(BFLOAT16))
    same(half.sum(), half.numpy().astype(np.float64).sum().astype(BFLOAT16))
    same(half.argmax(), np.int64(np.argmax(half.numpy().astype(np.float32))))
    same(half.sort(), np.sort(half.numpy().astype(np.float32)).astype(BFLOAT16))
    same(
        half.max() + half.cummax(0)[-1], 2 * half.numpy().astype(np.float32).max().astype(BFLOAT16)
    )


def test_logsumexp_of_infinities() -> None:
    x = np.array([[-np.inf, -np.inf], [np.inf, 0], [1000.0, 1000.0], [0.0, -np.inf]])
    with quiet():
        same(Tensor(x).logsumexp(1), np.array([-np.inf, np.inf, 1000 + np.log(2), 0.0]))
    same(Tensor(x).logsumexp(1, keepdims=True).squeeze(), Tensor(x).logsumexp(1).numpy())
    same(Tensor(3).logsumexp(), np.float64(3))


def test_topk_orders() -> None:
    x = np.array([[3, 1, 3, 2], [0, 5, 5, 5]])
    values, places = Tensor(x).topk(3)
    same(values, np.array([[3, 3, 2], [5, 5, 5]]))
    same(places, np.array([[0, 2, 3], [1, 2, 3]]))
    with pytest.raises(ShapeMismatch, match=r"topk: 5 of axis 1 of int64\[2, 4\]"):
        Tensor(x).topk(5)


def test_wrong_axes_and_types() -> None:
    t = Tensor(np.zeros((2, 3)))
    with pytest.raises(ShapeMismatch, match="axis 2 is out of bounds for 2 dimensions"):
        t.sum(2)
    with pytest.raises(ShapeMismatch, match="names an axis twice"):
        t.sum((0, -2))
    with pytest.raises(TypeMismatch, match="needs an order"):
        t.astype("complex64").sort()
    with pytest.raises(TypeMismatch, match=r"max takes .* not complex64\[2, 3\]"):
        t.astype("complex64").max()
    with pytest.raises(InvalidArgument, match="no dtype is called"):
        t.sum(dtype="int7")
    same(t.astype("complex64").sum(0).mean(), np.complex64(0))


def test_means_where_the_size_is_open() -> None:
    t = spec((Var("n", 1, 9), 3)).argument("x", 0)
    x = array(F32, (7, 3), edges=False)
    results = [t.mean(), t.var(0, ddof=1), t.softmax(0), t.argmax(0), t.cumsum(0)]
    made = evaluate(Graph.of([result.node for result in results]), [x])
    soft = np.exp(x) / np.exp(x).sum(0)
    for result, expected in zip(
        made, [x.mean(), x.var(0, ddof=1), soft, x.argmax(0), x.cumsum(0)], strict=True
    ):
        same(result, expected, 1e-5)
