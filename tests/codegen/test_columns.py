"""Rows whose last pass walks columns first: against NumPy, and bit for bit like the plain order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from arenite.backends.cpu.columns import Columns
from arenite.ir.dim import Dim, Var
from arenite.tensor import Tensor
from tests.codegen import targets
from tests.codegen.products import Made
from tests.codegen.run_kernels import RUNNABLE

Function = Callable[..., Any]
NAMED = targets.named


@pytest.fixture(autouse=True)
def small_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first cache of every target has 32 KiB, whatever this machine has."""
    monkeypatch.setattr(targets, "named", lambda name: replace(NAMED(name), l1d_nbytes=32 << 10))


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return x.layer_norm(weight, bias)


def with_sums(x: Tensor, weight: Tensor, bias: Tensor) -> list[Tensor]:
    """A reduction that is a result too, and one of another dtype."""
    total, where = x.sum(1), x.argmax(1, keepdims=True)
    rows = total.reshape(-1, 1) / (where.astype("float32") + 1.0)
    return [total, x * weight + bias - rows]


def exact(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Small whole numbers, whose sums are exact in any order."""
    return (x - x.sum(1, keepdims=True)) * weight + bias


def is_blocked(made: Made) -> bool:
    return any(array.name == "scratch0" for array in made.built.loops.arrays)


@pytest.mark.parametrize("target", RUNNABLE)
@pytest.mark.parametrize("n_columns", [4096, 4099, 5001])
def test_layer_norm_of_long_rows(target: str, n_columns: int) -> None:
    rows = 21  # the last tile is not full
    made = Made(layer_norm, [(rows, n_columns), (n_columns,), (n_columns,)], target=target)
    assert is_blocked(made)
    rng = np.random.default_rng(n_columns)
    x, w, b = (
        rng.standard_normal(s, np.float32) for s in ((rows, n_columns), n_columns, n_columns)
    )
    [got] = made.run([x, w, b])
    wide = x.astype(np.float64)
    moved = wide - wide.mean(1, keepdims=True)
    want = moved / np.sqrt((moved**2).mean(1, keepdims=True) + 1e-5) * w + b
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


def test_whole_numbers_are_exact_with_any_number_of_rows_and_columns() -> None:
    n, m = Var("n", 1, 40), Var("m", 1, 4500)
    made = Made(exact, [(n, m), (m,), (m,)])
    assert is_blocked(made)
    rng = np.random.default_rng(3)
    for rows, columns in ((1, 1), (1, 4500), (7, 1023), (8, 1024), (9, 1025), (40, 4097)):
        x = rng.integers(-3, 4, (rows, columns)).astype(np.float32)
        w, b = (rng.integers(-3, 4, columns).astype(np.float32) for _ in range(2))
        [got] = made.run([x, w, b], {"n": rows, "m": columns})
        assert np.array_equal(got, (x - x.sum(1, keepdims=True)) * w + b), (rows, columns)


@pytest.mark.parametrize("function", [layer_norm, with_sums])
@pytest.mark.parametrize("l1d_nbytes", [8 << 10, 32 << 10, 64 << 10])
def test_the_same_bits_as_in_the_plain_order(
    monkeypatch: pytest.MonkeyPatch, function: Function, l1d_nbytes: int
) -> None:
    """Whatever the blocks are, and in whatever order the tiles run."""
    shapes: list[tuple[Dim, ...]] = [(19, 5003), (5003,), (5003,)]
    rng = np.random.default_rng(7)
    arrays = [rng.standard_normal(shape, np.float32) for shape in ((19, 5003), 5003, 5003)]
    host = replace(targets.host(), l1d_nbytes=l1d_nbytes)
    monkeypatch.setattr(targets, "named", lambda name: host)
    blocked = Made(function, shapes)
    assert is_blocked(blocked)
    n_tiles = -(-19 // 6)
    first = blocked.run(arrays)
    again = blocked.run(arrays, tiles=list(reversed(range(n_tiles))))
    monkeypatch.setattr(Columns, "are_worth_it", False)
    plain = Made(function, shapes)
    assert not is_blocked(plain)
    for results in (again, plain.run(arrays)):
        for got, want in zip(results, first, strict=True):
            assert np.array_equal(got, want)


@pytest.mark.parametrize(
    ("why", "function", "shapes"),
    [
        ("nothing is shared", lambda x: x.softmax(-1), [(64, 4096)]),
        ("rows are as long as what they share", lambda x, w: x.rms_norm(w), [(64, 4096), (4096,)]),
        ("it all fits", layer_norm, [(64, 1024), (1024,), (1024,)]),
        ("there is one row", layer_norm, [(1, 4096), (4096,), (4096,)]),
        ("a row is a tile", layer_norm, [(64, 32768), (32768,), (32768,)]),
        ("the last pass reduces", lambda x, w: ((x - x.max(1, keepdims=True)) * w).sum(1),
         [(64, 8192), (8192,)]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_otherwise_rows_are_walked_one_after_another(
    why: str, function: Function, shapes: list[tuple[Dim, ...]]
) -> None:
    assert not Made(function, shapes).built.scratch, why
