"""Reshaping, joining, splitting, padding and their like against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arenite.errors import InvalidArgument, NotSupported, ShapeMismatch
from arenite.ir import Graph, Var, evaluate
from arenite.tensor import (
    Tensor,
    broadcast_arrays,
    concatenate,
    hstack,
    meshgrid,
    spec,
    stack,
    vstack,
)
from tests.tensor.examples import Array, array, arrays, full_shapes, same

F32 = np.dtype("float32")
X = array(F32, (2, 3, 4))
T = Tensor(X)


@given(arrays(), st.data())
@settings(max_examples=60, deadline=None)
def test_reshape_and_transpose(x: Array, data: st.DataObject) -> None:
    t = Tensor(x)
    axes = data.draw(st.permutations(range(x.ndim)))
    same(t.transpose(axes) if x.ndim else t.transpose(), x.transpose(axes) if x.ndim else x)
    same(t.T, x.T)
    same(t.reshape(-1), x.reshape(-1))
    same(t.ravel(), x.ravel())
    same(t.T.reshape(x.shape), x.T.reshape(x.shape))
    if x.ndim:
        axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
        other = data.draw(st.integers(-x.ndim, x.ndim - 1))
        same(t.swapaxes(axis, other), x.swapaxes(axis, other))
        same(t.moveaxis(axis, other), np.moveaxis(x, axis, other))
        same(t.flip(axis), np.flip(x, axis))
        same(t.expand_dims(axis), np.expand_dims(x, axis))
        shift = data.draw(st.integers(-6, 6))
        same(t.roll(shift, axis), np.roll(x, shift, axis))
        same(t.repeat(2, axis), np.repeat(x, 2, axis))
    same(t.flip(), np.flip(x))
    same(t.roll(3), np.roll(x, 3))


def test_the_many_ways_to_say_it() -> None:
    same(T.reshape(6, 4), X.reshape(6, 4))
    same(T.reshape((-1, 2)), X.reshape(-1, 2))
    same(T.reshape([4, np.int64(6)]), X.reshape(4, 6))
    same(T.transpose(1, 0, 2), X.transpose(1, 0, 2))
    same(T.permute((2, 0, 1)), X.transpose(2, 0, 1))
    same(T.transpose(None), X.T)
    same(T.mT, X.swapaxes(1, 2))
    same(T.moveaxis((0, 1), (-1, 0)), np.moveaxis(X, (0, 1), (-1, 0)))
    same(T.flatten(), X.reshape(-1))
    same(T.flatten(1), X.reshape(2, 12))
    same(T.flatten(0, 1), X.reshape(6, 4))
    same(Tensor(3).flatten(), np.array([3]))
    same(T.unsqueeze((0, -1)), X.reshape(1, 2, 3, 4, 1))
    same(T.expand_dims([1]).squeeze(), X)
    same(T.expand_dims(1).squeeze(1), X)
    same(Tensor([[5]]).squeeze(), np.array(5))
    same(T.roll((1, 2), (0, 2)), np.roll(X, (1, 2), (0, 2)))
    same(T.repeat(3), X.repeat(3))
    same(T.tile(2), np.tile(X, 2))
    same(T.tile((2, 1, 3)), np.tile(X, (2, 1, 3)))
    same(T.tile(2, 1, 1, 2), np.tile(X, (2, 1, 1, 2)))
    same(Tensor([1, 2]).broadcast_to((3, 2)), np.broadcast_to([1, 2], (3, 2)))
    same(Tensor([[1], [2]]).expand(-1, 3), np.broadcast_to([[1], [2]], (2, 3)))
    same(Tensor([[1], [2]]).expand(4, -1, -1), np.broadcast_to([[1], [2]], (4, 2, 1)))


@pytest.mark.parametrize("padding", [1, (1, 2), [(1, 2)], [(0, 0), (2, 0), (0, 3)], 0])
@pytest.mark.parametrize("value", [0, 1.5, float("-inf")])
def test_pad(padding: Any, value: float) -> None:
    same(T.pad(padding, value), np.pad(X, padding, constant_values=value))


def test_joining() -> None:
    a, b = array(F32, (2, 3)), array(np.dtype("int16"), (2, 3))
    for axis in (0, 1, -1, None):
        same(concatenate([Tensor(a), b, a], axis), np.concatenate([a, b, a], axis))
    for axis in (0, 1, 2, -1):
        same(stack([Tensor(a), b], axis), np.stack([a, b], axis))
    same(vstack([Tensor(a), b]), np.vstack([a, b]))
    same(hstack([Tensor(a), b]), np.hstack([a, b]))
    same(vstack([[1, 2], Tensor([3, 4])]), np.vstack([[1, 2], [3, 4]]))
    same(hstack([[1, 2], Tensor([3])]), np.hstack([[1, 2], [3]]))
    same(hstack([Tensor(1), 2]), np.hstack([1, 2]))
    for made, expected in zip(
        broadcast_arrays(a, [[1.0]]), np.broadcast_arrays(a, [[1.0]]), strict=True
    ):
        same(made, expected)
    for indexing in ("xy", "ij"):
        ours = meshgrid(Tensor([1, 2]), [3.0, 4, 5], [6], indexing=indexing)
        theirs = np.meshgrid([1, 2], [3.0, 4, 5], [6], indexing=indexing)
        for made, expected in zip(ours, theirs, strict=True):
            same(made.astype("float64"), expected.astype(float))


@given(full_shapes, st.data())
@settings(max_examples=40, deadline=None)
def test_splitting(shape: tuple[int, ...], data: st.DataObject) -> None:
    x = array(F32, shape)
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    cuts = data.draw(st.lists(st.integers(-6, 6), max_size=3))
    for made, expected in zip(Tensor(x).split(cuts, axis), np.split(x, cuts, axis), strict=True):
        same(made, expected)
    parts = Tensor(x).split(shape[axis], axis)
    for made, expected in zip(parts, np.split(x, shape[axis], axis), strict=True):
        same(made, expected)


def test_chunk() -> None:
    assert [part.shape for part in Tensor(np.arange(7)).chunk(3)] == [(3,), (3,), (1,)]
    assert [part.shape for part in Tensor(np.arange(4)).chunk(3)] == [(2,), (2,)]
    same(Tensor(np.arange(7)).chunk(3)[2], np.array([6]))
    n = Var("n", 1, 9)
    assert [part.shape for part in spec((4 * n,)).argument("x", 0).chunk(2)] == [(2 * n,)] * 2


@pytest.mark.parametrize("k", [-5, -2, -1, 0, 1, 3, 5])
def test_diagonals_and_triangles(k: int) -> None:
    for shape in ((3, 3), (3, 5), (4, 2), (0, 3)):
        x = array(F32, shape)
        same(Tensor(x).diagonal(k), np.diagonal(x, k))
        same(Tensor(x).tril(k), np.tril(x, k))
        same(Tensor(x > 0).triu(k), np.triu(x > 0, k))
    same(T.diagonal(k, 2, 0), np.diagonal(X, k, 2, 0))
    same(T.tril(k), np.tril(X, k))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: T.reshape(5, 5), r"float32\[2, 3, 4\] has 24 elements, shape \(5, 5\) 25"),
        (lambda: T.reshape(-1, -1), "more than one -1"),
        (lambda: T.reshape(-1, 7), r"do not divide into shape \(-1, 7\)"),
        (lambda: T.reshape(0, -1), "do not divide"),
        (lambda: T.reshape(-2, -12), "may be negative"),
        (lambda: T.transpose(0, 1), r"axes \(0, 1\) do not match"),
        (lambda: T.transpose(0, 1, 1), "names an axis twice"),
        (lambda: T.swapaxes(0, 3), "axis 3 is out of bounds for 3 dimensions"),
        (lambda: T.moveaxis((0, 1), 0), "not equally many"),
        (lambda: T.squeeze(1), "axis 1 .* is not 1"),
        (lambda: T.broadcast_to(3, 4), "does not broadcast"),
        (lambda: T.broadcast_to(5, 3, 4), "does not stretch"),
        (lambda: T.pad([(1, 1)] * 2), "one pair for each of 3 axes"),
        (lambda: T.pad(-1), "neither of them negative"),
        (lambda: T.split(2, 1), "does not divide into 2"),
        (lambda: T.diagonal(0, 1, 1), "the same one"),
        (lambda: Tensor([1]).tril(), "needs two axes"),
        (lambda: concatenate([T, X[0]]), r"shapes \(2, 3, 4\) and \(3, 4\) differ"),
        (lambda: stack([T, X[:1]]), "shapes differ"),
        (lambda: T + np.ones(3), r"shapes \(2, 3, 4\) and \(3,\) do not broadcast together"),
    ],
)
def test_shapes_that_do_not_fit(wrong: Any, message: str) -> None:
    with pytest.raises(ShapeMismatch, match=message):
        wrong()


def test_arguments_that_make_no_sense() -> None:
    with pytest.raises(InvalidArgument, match="nothing to join"):
        concatenate([])
    with pytest.raises(InvalidArgument, match="axis is a number, not 'x'"):
        T.swapaxes("x", 0)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=r"whole numbers or Vars: \(1.5,\)"):
        T.reshape(1.5)
    with pytest.raises(NotSupported, match="only mode='constant'"):
        T.pad(1, mode="reflect")
    with pytest.raises(InvalidArgument, match="'xy' or 'ij'"):
        meshgrid([1], indexing="yx")


def test_open_sizes() -> None:
    n = Var("n", 1, 9)
    t = spec((n, 4), "float32").argument("x", 0)
    assert t.reshape(-1).shape == (4 * n,)
    assert t.reshape(2, -1).shape == (2, 2 * n)
    assert t.reshape(-1, 2 * n).shape == (2, 2 * n)
    with pytest.raises(ShapeMismatch, match=r"do not divide into shape \(3, -1\)"):
        t.reshape(3, -1)
    x = array(F32, (5, 4))
    graph = Graph.of([t.roll(2, 0).node, t.tile(2, 1).node, t.tril(1).node, t.flip(0).node])
    rolled, tiled, lower, flipped = evaluate(graph, [x])
    same(rolled, np.roll(x, 2, 0))
    same(tiled, np.tile(x, (2, 1)))
    same(lower, np.tril(x, 1))
    same(flipped, x[::-1])
    with pytest.raises(ShapeMismatch, match="sizes that are numbers"):
        t.diagonal()
