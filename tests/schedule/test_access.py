"""Where views find their elements: index expressions against NumPy, for all values of sizes."""

from __future__ import annotations

from itertools import product as all_of
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from arenite import dtype
from arenite.ir.dim import Dim, Var, evaluate, product
from arenite.ir.node import Node
from arenite.ir.ops import graph_input
from arenite.ir.ops.access import reshaped_index, sources
from arenite.ir.ops.define import make

NUMBERS = [1, 2, 3, 6]
VARS = [Var("a", 0, 3), Var("b", 1, 3), Var("c", 0, 2)]


def regrouped(sizes: list[Dim], cuts: list[bool]) -> tuple[Dim, ...]:
    """Neighbours joined, but where they are cut."""
    groups: list[list[Dim]] = [[]]
    for size, is_cut in zip(sizes, cuts, strict=True):
        if is_cut:
            groups.append([])
        groups[-1].append(size)
    return tuple(product(group) for group in groups)


@given(
    sizes=st.lists(st.sampled_from([*NUMBERS, *VARS]), min_size=1, max_size=4),
    data=st.data(),
)
@settings(max_examples=150)
def test_reshapes_find_the_elements_numpy_finds(sizes: list[Dim], data: st.DataObject) -> None:
    cuts = st.lists(st.booleans(), min_size=len(sizes), max_size=len(sizes))
    outer, inner = (regrouped(sizes, data.draw(cuts)) for _ in range(2))
    places = [Var(f"_i{k}", 0, 10_000) for k in range(len(outer))]
    index = reshaped_index(tuple(places), outer, inner)
    for values in all_of(*(range(var.low, var.high + 1) for var in VARS)):
        bound = dict(zip("abc", values, strict=True))
        shape, within = (tuple(evaluate(d, bound) for d in dims) for dims in (outer, inner))
        for flat, at in enumerate(np.ndindex(*shape)):
            named = bound | {f"_i{k}": place for k, place in enumerate(at)}
            found = tuple(evaluate(place, named) for place in index)
            assert found == tuple(map(int, np.unravel_index(flat, within)))


X = np.arange(1, 1 + 4 * 5 * 6).reshape(4, 5, 6)
Y = -np.arange(1, 1 + 4 * 2 * 6).reshape(4, 2, 6)
FRAMES = np.lib.stride_tricks.sliding_window_view(X, (3, 3), (2, 0))
ARRAYS = {
    graph_input(name, k, array.shape, dtype.of("int64")): array
    for k, (name, array) in enumerate({"x": X, "y": Y}.items())
}
IN_X, IN_Y = ARRAYS
CUT = {"start": (1, 0, 5), "stop": (4, 5, -1), "step": (2, 1, -2)}


@pytest.mark.parametrize(
    ("view", "wanted"),
    [
        (make("permute", IN_X, axes=(2, 0, 1)), X.transpose(2, 0, 1)),
        (make("reshape", IN_X, shape=(10, 12)), X.reshape(10, 12)),
        (make("slice", IN_X, **CUT), X[1:4:2, :, ::-2]),
        (make("concat", IN_X, IN_Y, IN_X, axis=1), np.concatenate([X, Y, X], 1)),
        (
            make("pad", IN_X, padding=((1, 0), (0, 1), (0, 2)), value=0),
            np.pad(X, ((1, 0), (0, 1), (0, 2))),
        ),
        (
            make("window", IN_X, axes=(2, 0), sizes=(2, 2), strides=(3, 1), dilations=(2, 2)),
            FRAMES[:, :, ::3, ::2, ::2],
        ),
        (
            make("expand", make("reshape", IN_Y, shape=(4, 1, 12)), shape=(4, 3, 12)),
            np.broadcast_to(Y.reshape(4, 1, 12), (4, 3, 12)),
        ),
        (make("front", IN_X, IN_Y, axis=1), X[:, :4]),
    ],
    ids=lambda one: one.op if isinstance(one, Node) else "",
)
def test_views_find_the_elements_numpy_finds(view: Node, wanted: NDArray[Any]) -> None:
    assert view.shape == wanted.shape
    for at in np.ndindex(*wanted.shape):
        found = [elements_of(one.node, one.index, one.guards) for one in sources(view, at)]
        assert sum(found) == wanted[at]


def elements_of(node: Node, index: tuple[Any, ...], guards: tuple[Any, ...]) -> int:
    """The element there, 0 where a guard says that there is none."""
    if any(not 0 <= guard.position < guard.size for guard in guards):
        return 0
    if node in ARRAYS:
        assert all(0 <= k < size for k, size in zip(index, node.shape, strict=True))
        return int(ARRAYS[node][index])
    [inner] = sources(node, index)
    return elements_of(inner.node, inner.index, inner.guards)
