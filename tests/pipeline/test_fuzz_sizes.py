"""Ops over axes of one element that may be none, and sizes that are products, judged by NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import arenite
from arenite import ir
from arenite.dtype import BY_NAME
from arenite.ir import Node, Var, bounds
from arenite.ir.graph import Graph
from arenite.pipeline import compile_graph
from arenite.tensor import Tensor

Array = NDArray[Any]
N = 600
INDICES = np.arange(N) % 5

#: Of x[5, n, 3] and x[5, 3, n], where n is 1 or 0.
OPS: dict[str, tuple[Callable[[Node], Node], Callable[[Array], Array]]] = {
    "gather": (
        lambda x: ir.make("gather", x, ir.constant(INDICES), axis=0),
        lambda x: x[INDICES],
    ),
    "gather the last": (
        lambda x: ir.make("gather", x, ir.constant(INDICES % 3), axis=x.shape.index(3)),
        lambda x: x.take(INDICES % 3, axis=x.shape.index(3)),
    ),
    "cumsum": (lambda x: ir.make("cumsum", x, axis=0), lambda x: x.cumsum(axis=0)),
    "sort": (
        lambda x: ir.make("sort", x, axis=0, descending=False),
        lambda x: np.sort(x, axis=0),
    ),
    "argsort": (
        lambda x: ir.make("argsort", x, axis=1, descending=True),
        lambda x: np.argsort(-x, axis=1, kind="stable"),
    ),
    "max": (lambda x: ir.make("max", x, axes=(0,)), lambda x: x.max(axis=0)),
    "concat": (
        lambda x: ir.make("concat", x, ir.make("neg", x), x, axis=2),
        lambda x: np.concatenate([x, -x, x], axis=2),
    ),
    "pad": (
        lambda x: ir.make("pad", x, padding=((1, 2), (0, 0), (0, 0)), value=4.0),
        lambda x: np.pad(x, ((1, 2), (0, 0), (0, 0)), constant_values=4),
    ),
}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("at", [1, 2])
def test_an_axis_of_one_or_none(name: str, at: int, threads: int) -> None:
    made, wanted = OPS[name]
    shape: list[Any] = [5, 3, 3]
    shape[at] = Var("n", 0, 1)
    x = ir.graph_input("x", 0, tuple(shape), BY_NAME["float32"])
    other = ir.graph_input("y", 1, (N,), BY_NAME["float32"])
    # Of another value something would be lost if more was written than there is.
    graph = Graph((x, other), (made(x), ir.make("cumsum", ir.make("neg", other), axis=0)))
    with compile_graph(graph, threads=threads) as exe:
        for n in (1, 0, 1):
            shape[at] = n
            given = np.random.default_rng(n).standard_normal(tuple(shape)).astype(np.float32)
            found, sums = exe(given, np.ones(N, np.float32))
            np.testing.assert_allclose(found, wanted(given), rtol=1e-6)
            np.testing.assert_array_equal(sums, -np.arange(1, N + 1))
            np.testing.assert_array_equal(exe.run_checked(given, -sums)[0], found)


@pytest.mark.parametrize("is_square", [False, True])
def test_places_of_an_image_become_tokens(is_square: bool) -> None:
    height = Var("h", 3, 40)
    width = height if is_square else Var("w", 3, 40)
    weights = np.random.default_rng(0).standard_normal((4, 2, 3, 3)).astype(np.float32)

    def tokens(x: Tensor) -> Tensor:
        made = x.conv(weights)
        images, channels, *places = made.shape
        return made.reshape(images, channels, places[0] * places[1]).swapaxes(1, 2)

    program = arenite.compile(tokens, arenite.spec((1, 2, height, width), "float32"))
    for shape in ((40, 40), (3, 3), (5, 5 if is_square else 17)):
        x = np.random.default_rng(1).standard_normal((1, 2, *shape)).astype(np.float32)
        windows = np.lib.stride_tricks.sliding_window_view(x[0], (3, 3), axis=(1, 2))
        wanted = np.einsum("cyxab,ocab->yxo", windows, weights).reshape(1, -1, 4)
        np.testing.assert_allclose(program(x), wanted, rtol=1e-3, atol=1e-4)


def test_a_launch_of_very_many_tiles() -> None:
    n_images = 70_000
    rng = np.random.default_rng(2)
    x = rng.standard_normal((n_images, 2, 2, 2)).astype(np.float32)
    weights = rng.standard_normal((3, 2, 2, 2)).astype(np.float32)
    program = arenite.compile(lambda x: x.conv(weights), x, threads=2)
    [kernel] = [one for one in program.kernels if one.entry_point.startswith("conv")]
    assert bounds(kernel.global_size[0])[0] > 2**16, "fewer than a word of 16 bits counts"
    wanted = np.einsum("ncab,ocab->no", x, weights).reshape(n_images, 3, 1, 1)
    np.testing.assert_allclose(program(x), wanted, rtol=1e-3, atol=1e-4)
