"""Products that read their weights from panels: exact on small whole numbers, against NumPy.

Floats hold such numbers exactly however they are summed. Whatever is written lies between guards.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from arenite import ir
from arenite.backends.cpu.conv.kernel import Conv
from arenite.ir.dim import Dim, Var
from arenite.tensor import Tensor
from tests.codegen.made import TARGETS
from tests.codegen.products import Made

Array = NDArray[Any]
ENDS = ["none", "bias", "residual", "long"]


def whole(shape: tuple[int, ...], seed: int) -> Array:
    return np.random.default_rng(seed).integers(-4, 5, shape)


def packed(w: Array) -> Array:
    """Columns side by side in panels of 16, the last one filled up with what must not be seen."""
    depth, columns = w.shape
    n_panels = -(-columns // 16)
    room = np.full((depth, n_panels * 16), 77)
    room[:, :columns] = w
    return np.stack([room[:, 16 * p : 16 * p + 16] for p in range(n_panels)])


def ended(end: str, y: Any, bias: Any = 0, other: Any = 0) -> Any:
    """What follows the sums: the same on tensors and on arrays."""
    if end == "bias":
        return abs(y + bias)
    if end == "residual":
        return abs(y + bias) + other
    if end == "long":
        for number in range(1, 9):
            y = abs(y - number) + other
    return y


def made_of(
    rows: tuple[Dim, ...],
    columns: int,
    depth: int,
    end: str,
    target: str = "host",
    dtype: Any = np.float32,
) -> Made:
    def function(x: Tensor, panels: Tensor, bias: Tensor, other: Tensor) -> Tensor:
        made = ir.make("matmul_panels", x.node, panels.node, columns=columns)
        used = {"none": (), "bias": (bias,)}.get(end, (bias, other))
        result: Tensor = ended(end, Tensor.of_node(made), *used)
        return result

    n_panels = -(-columns // 16)
    shapes = [(*rows, depth), (n_panels, depth, 16), (columns,), (*rows, columns)]
    return Made(function, shapes, dtype, target)


def check(
    made: Made, rows: tuple[int, ...], columns: int, depth: int, end: str, dtype: Any, **sizes: int
) -> None:
    x, w = whole((*rows, depth), 1), whole((depth, columns), 2)
    bias, other = whole((columns,), 3), whole((*rows, columns), 4)
    expected = ended(end, x @ w, bias, other)
    arrays = [array.astype(dtype) for array in (x, packed(w), bias, other)]
    [got] = made.run(arrays, sizes)
    np.testing.assert_array_equal(got.astype(np.float64), expected)
    n_tiles = made.built.tiles
    if isinstance(n_tiles, int):
        [backward] = made.run(arrays, sizes, tiles=range(n_tiles - 1, -1, -1))
        assert backward.tobytes() == got.tobytes()
        [at_once] = made.run(arrays, sizes, splits=[(0, n_tiles)])
        assert at_once.tobytes() == got.tobytes()


@pytest.mark.parametrize("target", TARGETS)
@settings(max_examples=40, deadline=None)
@given(
    rows=st.lists(st.integers(1, 40), min_size=1, max_size=2).map(tuple),
    columns=st.integers(1, 150),
    depth=st.integers(1, 90),
    end=st.sampled_from(ENDS),
)
def test_products_of_any_shape(
    target: str, rows: tuple[int, ...], columns: int, depth: int, end: str
) -> None:
    made = made_of(rows, columns, depth, end, target)
    assert isinstance(made.loops.details, Conv)
    check(made, rows, columns, depth, end, np.float32)


@pytest.mark.parametrize("dtype", [np.float64, np.float16])
def test_other_floats(dtype: Any) -> None:
    check(made_of((9,), 37, 20, "bias", dtype=dtype), (9,), 37, 20, "bias", dtype)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("columns", [7, 24, 40, 50, 84, 96, 150, 300])
def test_a_number_of_rows_that_is_known_later(columns: int, dtype: Any, target: str) -> None:
    made = made_of((Var("tokens", 1, 200),), columns, 33, "residual", target, dtype)
    assert isinstance(made.loops.details, Conv)
    for n_rows in (1, 2, 3, 4, 5, 13, 14, 15, 64, 200):
        check(made, (n_rows,), columns, 33, "residual", dtype, tokens=n_rows)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("rows", [(4,), (5,), (2, 3), (16,), (27,)])
def test_halves_of_the_rows_of_a_small_product(
    rows: tuple[int, ...], end: str, target: str
) -> None:
    made = made_of(rows, 500, 128, end, target)
    assert made.built.tiles == 2
    check(made, rows, 500, 128, end, np.float32)


@pytest.mark.parametrize(("rows", "columns"), [(3, 1024), (4, 300), (1200, 512)])
def test_products_that_are_too_low_too_small_or_large_are_not_halved(
    rows: int, columns: int
) -> None:
    assert made_of((rows,), columns, 128, "none").built.tiles != 2


def test_rows_that_share_sets_of_the_cache() -> None:
    check(made_of((30,), 48, 1024, "none"), (30,), 48, 1024, "none", np.float32)
