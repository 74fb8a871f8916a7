"""Boxes of which those that overlap a better one are left out. Judged by brute force in exact
arithmetic: corners are whole numbers, and what is shared is compared as fractions."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from arenite import ir
from arenite.dtype import of as dtype_of
from arenite.ir.dim import Var
from arenite.ir.graph import Graph
from arenite.ir.node import Node
from arenite.pipeline import compile_graph

Array = NDArray[Any]
#: A half is a float, so that a share of a half is on the same side of it for everyone.
OVERLAP = 0.5


def inputs(images: Any, classes: Any, n: Any) -> list[Node]:
    shapes = ((images, 4, n), (images, classes, n), (images, classes, n), ())
    dtypes = (np.float32, np.float32, np.bool_, np.float32)
    return [
        ir.graph_input(f"x{k}", k, shape, dtype_of(np.dtype(dtype)))
        for k, (shape, dtype) in enumerate(zip(shapes, dtypes, strict=True))
    ]


def arrays(images: int, classes: int, n: int, seed: int) -> list[Array]:
    """Boxes close to each other, some without an area; equal scores, NaN and both infinities."""
    rng = np.random.default_rng(seed)
    low = rng.integers(0, 40, (images, 2, n))
    corners = np.concatenate([low, low + rng.integers(0, 12, (images, 2, n))], 1)
    scores = rng.integers(0, 30, (images, classes, n)).astype(np.float32)
    odd = rng.random(scores.shape)
    for k, number in enumerate((np.nan, -np.inf, np.inf, -0.0)):
        scores[(odd > k / 40) & (odd < (k + 1) / 40)] = number
    is_open = rng.random(scores.shape) < 0.9
    return [corners.astype(np.float32), scores, is_open, np.array(OVERLAP, np.float32)]


def kept(corners: Array, scores: Array, is_open: Array, count: int) -> list[int]:
    """Of one class: the best box that is left, again and again."""
    left = {k for k in range(len(scores)) if is_open[k]}
    found: list[int] = []

    def rank(k: int) -> tuple[float, int]:
        return (-np.inf if np.isnan(scores[k]) else float(scores[k]), -k)

    def is_near(a: int, b: int) -> bool:
        (a0, a1, a2, a3), (b0, b1, b2, b3) = (map(int, corners[:, k]) for k in (a, b))
        inner = max(0, min(a2, b2) - max(a0, b0)) * max(0, min(a3, b3) - max(a1, b1))
        areas = (a2 - a0) * (a3 - a1), (b2 - b0) * (b3 - b1)
        return min(areas) > 0 and Fraction(inner, sum(areas) - inner) > Fraction(OVERLAP)

    while left and len(found) < count:
        best = max(left, key=rank)
        found.append(best)
        left = {k for k in left if k != best and not is_near(best, k)}
    return found


def wanted(given: list[Array], count: int) -> Array:
    images, classes, _ = given[1].shape
    made = np.full((images, classes, count), -1, np.int64)
    for image, kind in np.ndindex(images, classes):
        found = kept(given[0][image], given[1][image, kind], given[2][image, kind], count)
        made[image, kind, : len(found)] = found
    return made


@pytest.mark.parametrize("n", [0, 1, 63, 64, 65, 300])
@pytest.mark.parametrize("count", [1, 7, 300])
def test_boxes_are_those_of_brute_force(n: int, count: int) -> None:
    given = arrays(2, 3, n, seed=n + count)
    node = ir.make("suppress", *inputs(2, 3, n), count=count)
    want = wanted(given, count)
    np.testing.assert_array_equal(ir.evaluate(Graph.of([node]), given)[0], want)
    with compile_graph(Graph.of([node])) as program:
        [got] = program(*given)
        np.testing.assert_array_equal(got, want)
        [checked] = program.run_checked(*given)
        np.testing.assert_array_equal(checked, want)


def test_boxes_that_are_counted_later() -> None:
    sizes = Var("images", 1, 8), Var("classes", 1, 200), Var("n", 0, 500)
    node = ir.make("suppress", *inputs(*sizes), count=20)
    with compile_graph(Graph.of([node])) as program:
        for images, classes, n in ((1, 1, 0), (2, 3, 70), (1, 150, 20), (1, 2, 400)):
            given = arrays(images, classes, n, seed=n)
            np.testing.assert_array_equal(program(*given)[0], wanted(given, 20))
