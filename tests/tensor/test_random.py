"""Random tensors: repeatable, distinct, and distributed as they should be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from arenite.errors import InvalidArgument
from arenite.ir import Graph, evaluate
from arenite.tensor import Generator, Tensor, spec
from tests.tensor.examples import BFLOAT16, same


def test_the_same_seed_gives_the_same_numbers() -> None:
    a, b = Generator(5), Generator(5)
    assert a.random((3, 4)).node is b.random((3, 4)).node
    same(a.normal(shape=7), b.normal(shape=7).numpy())
    assert a.n_draws == b.n_draws == 2


def test_draws_never_merge() -> None:
    g, other = Generator(5), Generator(6)
    draws = [g.bits((8,)), g.bits((8,)), other.bits((8,))]
    assert len({draw.node for draw in draws}) == 3
    assert len({tuple(draw.numpy().tolist()) for draw in draws}) == 3
    assert Generator().bits((8,)).numpy().tolist() != Generator().bits((8,)).numpy().tolist()


@pytest.mark.parametrize("dtype", ["float16", BFLOAT16, "float32", "float64"])
def test_uniform(dtype: Any) -> None:
    values = Generator(1).random((200, 100), dtype).numpy()
    assert values.dtype == np.dtype(dtype)
    wide = values.astype(np.float64)
    assert wide.min() >= 0
    assert wide.max() <= 1
    counts, _ = np.histogram(wide, 10, (0, 1))
    assert abs(counts - 2000).max() < 250  # 5 sigma is 212
    if dtype in ("float32", "float64"):
        assert wide.max() < 1


def test_ranges() -> None:
    values = Generator(2).uniform(-3, 5, (5000,), "float32").numpy()
    assert values.min() >= -3
    assert values.max() < 5
    assert abs(values.mean() - 1) < 0.2


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_normal(dtype: str) -> None:
    values = Generator(3).normal(2.0, 0.5, (40_000,), dtype).numpy().astype(np.float64)
    z = (values - 2) / 0.5
    assert abs(z.mean()) < 0.03
    assert abs(z.std() - 1) < 0.02
    assert abs((np.abs(z) < 1).mean() - 0.6827) < 0.015
    assert np.isfinite(z).all()
    assert np.abs(z).max() > 3


@pytest.mark.parametrize(
    ("low", "high", "dtype"),
    [
        (0, 6, "int64"),
        (-3, 3, "int8"),
        (0, 256, "uint8"),
        (-(2**63), 2**63, "int64"),
        (0, 2**64, "uint64"),
        (0, 2**40, "int64"),
    ],
)
def test_integers(low: int, high: int, dtype: str) -> None:
    values = Generator(4).integers(low, high, (6000,), dtype).numpy()
    assert values.dtype == np.dtype(dtype)
    numbers = [int(value) for value in values]
    assert low <= min(numbers)
    assert max(numbers) < high
    middle = (low + high) / 2
    assert abs(sum(n < middle for n in numbers) - 3000) < 200
    if high - low == 6:
        assert abs(np.bincount(np.array(numbers) - low) - 1000).max() < 150


def test_the_rest() -> None:
    g = Generator(5)
    assert sorted(g.permutation(50).numpy().tolist()) == list(range(50))
    rows = np.arange(30).reshape(10, 3)
    shuffled = g.shuffled(Tensor(rows)).numpy()
    assert sorted(shuffled.tolist()) == rows.tolist()
    assert shuffled.tolist() != rows.tolist()
    assert abs(g.bernoulli(0.2, (5000,)).numpy().mean() - 0.2) < 0.03
    assert 0 <= g.integers(3).item() < 3  # type: ignore[operator]


def test_a_seed_may_come_with_the_run() -> None:
    seed = spec((), "int64").argument("seed", 0)
    graph = Graph.of([Generator(seed).random((4,)).node])
    made = evaluate(graph, [np.array(9)])[0]
    same(made, Generator(9).random((4,)).numpy())
    assert evaluate(graph, [np.array(8)])[0].tolist() != made.tolist()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: Generator(-1), "64 bits and no sign"),
        (lambda: Generator(Tensor([1])), "a seed is one integer"),
        (lambda: Generator(1).random(3, "int8"), r"in \[0, 1\) are floats, not int8"),
        (lambda: Generator(1).normal(shape=3, dtype="int8"), "normal numbers are floats"),
        (lambda: Generator(1).integers(3, 3), "no integers lie in"),
        (lambda: Generator(1).integers(0, 300, 3, "uint8"), "does not fit uint8"),
        (lambda: Generator(1).integers(3, dtype="float32"), "an integer dtype"),
    ],
)
def test_refusals(wrong: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        wrong()
