"""Products made of register tiles: against NumPy in float64, within the bound of their rounding.

Whatever is written lies between guards, scratch too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arenite.tensor import Tensor
from tests.codegen.made import TARGETS, Array
from tests.codegen.products import BFLOAT16, Made, Shape, bound_of, check, numbers

sides = st.one_of(st.integers(1, 40), st.integers(1, 300))
shapes = st.builds(
    Shape,
    sides,
    sides,
    sides,
    st.sampled_from([(), (), (3,), (2, 2)]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.sampled_from([1, 1, 2]),
    st.sampled_from([1, 1, 3]),
)


@given(shapes, st.sampled_from(TARGETS))
@settings(max_examples=120, deadline=None, derandomize=True)
def test_products_of_any_shape(shape: Shape, target: str) -> None:
    check(shape, target=target)


@pytest.mark.parametrize("dtype", [np.float64, np.float16, BFLOAT16], ids=str)
@pytest.mark.parametrize("tb", [False, True])
@pytest.mark.parametrize(
    ("m", "n", "k"),
    [(1, 300, 70), (1, 150, 611), (5, 37, 129), (130, 70, 65), (33, 1, 40), (50, 41, 192)],
)
def test_other_floats(m: int, n: int, k: int, tb: bool, dtype: Any) -> None:
    check(Shape(m, n, k, tb=tb), dtype)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [np.float16, BFLOAT16], ids=str)
def test_a_narrow_left_side_is_widened_once(dtype: Any, target: str) -> None:
    """In chunks of K, which changes no bit: K that chunks do not divide is widened as it goes."""
    shape = Shape(40, 70, 96)
    a, b = shape.operands(dtype)
    [chunked] = check(shape, dtype, target).run([a, b])
    longer = Shape(40, 70, 97)
    zeros = np.zeros((40, 1), dtype), np.zeros((1, 70), dtype)
    more = [np.concatenate([a, zeros[0]], axis=1), np.concatenate([b, zeros[1]])]
    [whole] = Made(longer.product, [x.shape for x in more], dtype, target).run(more)
    np.testing.assert_array_equal(chunked.view(np.uint16), whole.view(np.uint16))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "shape",
    [
        Shape(1, 1, 1),
        Shape(1, 1, 50),
        Shape(50, 1, 1),
        Shape(1, 50, 1),
        Shape(7, 9, 1),
        Shape(300, 1, 200),
        Shape(1, 2000, 513),  # rows of B read as streams, the last one in part
        Shape(1, 5003, 101),  # more columns than are done at a time
        Shape(3, 1100, 600),
        Shape(8, 1040, 300),
        Shape(30, 1000, 200),
        Shape(130, 1024, 300),  # B is copied, for its rows share cache sets
        Shape(70, 40, 1024),  # so do the rows of A
        Shape(90, 50, 800, tb=True),  # row dots
        Shape(140, 50, 800, tb=True),  # B is transposed into panels
        Shape(1, 515, 128, tb=True),  # a row of A that stays in registers
        Shape(1, 130, 250, tb=True),
        Shape(1, 3, 37, (4,), tb=True),
        Shape(301, 1, 64),
    ],
    ids=str,
)
def test_every_form(shape: Shape, target: str) -> None:
    check(shape, target=target)


def test_forms_are_chosen() -> None:
    def product(shape: Shape) -> Any:
        a, b = shape.operands(np.float32)
        return Made(shape.product, [a.shape, b.shape]).loops.product

    assert product(Shape(1, 2000, 513)).gemv_form == "stream"
    assert product(Shape(1, 2000, 513)).gemv_heights == (1,)
    assert product(Shape(90, 50, 800, tb=True)).heights == ()
    assert product(Shape(140, 50, 800, tb=True)).copies_b
    assert product(Shape(140, 50, 800, tb=True)).gemv_heights == ()
    assert (
        product(Shape(1, 515, 800, tb=True)).gemv_columns
        > product(Shape(2, 515, 800, tb=True)).gemv_columns
    )
    assert not product(Shape(140, 48, 100)).copies_b
    assert product(Shape(70, 40, 1024)).heights[0] < product(Shape(70, 40, 1023)).heights[0]


@dataclass(frozen=True)
class Epilogue:
    name: str
    function: Callable[..., Any]  # of the product and two values of its shape, in tensors
    reference: Callable[..., Array]  # the same in NumPy
    slope: float = 1.0  # how much an error of the product may grow


def _gelu(x: Array) -> Array:
    from math import erf

    return np.asarray(x * 0.5 * (1 + np.vectorize(erf)(x / np.sqrt(2))))


EPILOGUES = [
    Epilogue("relu", lambda x, r, b: (x + b).relu(), lambda x, r, b: np.maximum(x + b, 0)),
    Epilogue("residual", lambda x, r, b: x * 0.5 + r, lambda x, r, b: x * 0.5 + r),
    Epilogue("gelu", lambda x, r, b: (x + b).gelu(), lambda x, r, b: _gelu(x + b), 1.2),
    Epilogue(
        "silu and residual",
        lambda x, r, b: (x + b).silu() + r,
        lambda x, r, b: (x + b) / (1 + np.exp(-(x + b))) + r,
        1.2,
    ),
]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("epilogue", EPILOGUES, ids=lambda e: e.name)
@pytest.mark.parametrize("tb", [False, True])
@pytest.mark.parametrize(
    ("m", "n", "k"), [(1, 700, 90), (6, 1030, 33), (45, 83, 60), (130, 70, 900)]
)
def test_epilogues(m: int, n: int, k: int, tb: bool, epilogue: Epilogue, target: str) -> None:
    shape = Shape(m, n, k, tb=tb)
    a, b = shape.operands(np.float32)
    residual, bias = numbers((m, n), 3), numbers((n,), 4)

    def function(x: Tensor, y: Tensor, r: Tensor, c: Tensor) -> Tensor:
        made: Tensor = epilogue.function(shape.product(x, y), r, c)
        return made

    made = Made(function, [a.shape, b.shape, (m, n), (n,)], target=target)
    assert made.loops
    [got] = made.run([a, b, residual, bias])
    left, right = shape.views(a.astype(np.float64), b.astype(np.float64))
    total = left @ right
    want = epilogue.reference(total, residual.astype(np.float64), bias.astype(np.float64))
    size = np.abs(total) + np.abs(residual) + np.abs(bias)
    limit = epilogue.slope * bound_of(left, right, 2.0**-24) + 16 * 2.0**-24 * (size + 1)
    assert (np.abs(got - want) <= limit).all()


def test_two_outputs_of_one_product() -> None:
    a, b = numbers((40, 30), 1), numbers((30, 50), 2)

    def function(x: Tensor, y: Tensor) -> list[Tensor]:
        total = x @ y
        return [total, (total * 2.0).astype("float16")]

    plain, half = Made(function, [a.shape, b.shape]).run([a, b])
    np.testing.assert_allclose(plain, a.astype(np.float64) @ b, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(half, (plain * 2).astype(np.float16))


@pytest.mark.parametrize("tb", [False, True])
@pytest.mark.parametrize("m", [1, 30, 150])
def test_nan_and_infinity_pass_through(m: int, tb: bool) -> None:
    shape = Shape(m, 41, 130, tb=tb)
    a, b = shape.operands(np.float32)
    a[0, 7] = np.inf
    b[(3, 7) if tb else (7, 3)] = 0
    b[(5, 9) if tb else (9, 5)] = np.nan
    made = Made(shape.product, [a.shape, b.shape])
    [got] = made.run([a, b])
    with np.errstate(invalid="ignore"):
        want = np.matmul(*shape.views(a.astype(np.float64), b.astype(np.float64)))
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(got == np.inf, want == np.inf)
    np.testing.assert_array_equal(got == -np.inf, want == -np.inf)
