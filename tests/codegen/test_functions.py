"""Activations in their tails: exact relative to themselves wherever the result is a normal number,
by Python's own erfc and exp of float64, however they are spelled."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import arenite
from arenite.tensor import Tensor

X = np.concatenate([np.linspace(-100, 100, 8_001), np.linspace(-14, -3.2, 2_000)]).astype(
    np.float32
)


def _cubic(x: Any) -> Any:
    return math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)


#: What is computed, what it must be, and the bound in units in the last place.
CASES: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[float], float], float]] = {
    "sigmoid": (lambda x: x.sigmoid(), lambda x: 1 / (1 + math.exp(-x)), 3),
    "sigmoid spelled out": (lambda x: 1 / (1 + (-x).exp()), lambda x: 1 / (1 + math.exp(-x)), 3),
    "silu": (lambda x: x.silu(), lambda x: x / (1 + math.exp(-x)), 3),
    "silu spelled out": (lambda x: x / (1 + (-x).exp()), lambda x: x / (1 + math.exp(-x)), 3),
    "gelu": (lambda x: x.gelu(), lambda x: x * math.erfc(-x * math.sqrt(0.5)) / 2, 8),
    "gelu by tanh": (lambda x: x.gelu("tanh"), lambda x: x / (1 + math.exp(-2 * _cubic(x))), 40),
}


@pytest.mark.parametrize("name", CASES)
def test_tails_are_exact_relative_to_themselves(name: str) -> None:
    function, judge, bound = CASES[name]
    got = arenite.compile(function, X)(X)
    with np.errstate(over="ignore"):
        exact = np.array([judge(float(x)) if x > -15 or "gelu" not in name else 0.0 for x in X])
    # Between 0 and the tail of gelu the error is bounded by that of numbers near x.
    # What erf leaves of 1 is 0 where that would be a denormal number, at x = -13.
    least = np.finfo(np.float32).tiny * (8 if name == "gelu" else 1)
    looked = (np.abs(exact) > least) & ((X < -3.2) | (X > 0))
    assert looked.mean() > 0.5
    # The argument of exp or erfc is rounded: by half a unit, which x^2 carries over.
    slack = X[looked].astype(np.float64) ** 2 if name.startswith("gelu") else 0
    units = np.abs(got[looked] - exact[looked]) / (np.abs(exact[looked]) * 2.0**-23)
    assert (units <= bound + slack).all(), float(units.max())


def test_the_tail_of_gelu_in_float64() -> None:
    x = np.linspace(-37, -3.2, 4_001)
    got = arenite.compile(lambda x: x.gelu(), x)(x)
    exact = np.array([value * math.erfc(-value * math.sqrt(0.5)) / 2 for value in x])
    np.testing.assert_allclose(got, exact, rtol=1e-12)


def test_a_sigmoid_that_is_needed_too_is_computed_once() -> None:
    x = np.linspace(-80, 80, 1_000, dtype=np.float32)

    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        gate = x.sigmoid()
        return gate, gate * 3

    compiled = arenite.compile(function, x)
    assert sum(kernel.code.count("sigmoid") for kernel in compiled.kernels) == 1
    gate, scaled = compiled(x)
    exact = 1 / (1 + np.exp(-x.astype(np.float64)))
    np.testing.assert_allclose(gate, exact, rtol=1e-6)
    np.testing.assert_allclose(scaled, 3 * exact, rtol=1e-6)


#: x/2 (1 + erf(x sqrt(1/2))) in the orders that people and exporters write it in.
SPELLINGS: list[Callable[[Tensor], Tensor]] = [
    lambda x: x.gelu(),
    lambda x: 0.5 * x * (1 + (x * math.sqrt(0.5)).erf()),
    lambda x: x * (0.5 * (1 + (x / math.sqrt(2)).erf())),
    lambda x: x * ((x / math.sqrt(2)).erf() + 1) * 0.5,
    lambda x: 0.5 * ((math.sqrt(0.5) * x).erf() + 1) * x,
]


@pytest.mark.parametrize("spelled", SPELLINGS)
def test_gelu_is_one_function_however_it_is_spelled(spelled: Callable[[Tensor], Tensor]) -> None:
    edges = [0.0, -0.0, 1e-30, -1e-30, 1e30, -1e30, math.inf, math.nan, 5.39, 5.41, -3.181, -3.183]
    x = np.concatenate([np.linspace(-6, 8, 20_001), edges]).astype(np.float32)
    compiled = arenite.compile(spelled, x)
    code = "".join(kernel.code for kernel in compiled.kernels)
    assert code.count("gelu(") == 1
    assert "erf(" not in code
    assert "erf1p(" not in code
    got = compiled(x)
    exact = np.array([value / 2 * math.erfc(-value * math.sqrt(0.5)) for value in x.tolist()])
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(exact))
    np.testing.assert_array_equal(np.signbit(got[x == 0]), np.signbit(x[x == 0]))
    looked = np.isfinite(exact) & (x != 0)
    assert (np.abs(got[looked] - exact[looked]) <= 3 * 2.0**-23 * np.abs(x[looked])).all()


@pytest.mark.parametrize(
    "other",
    [
        lambda x: x * 0.5 * (1 + (x * 0.7).erf()),
        lambda x: x * 0.25 * (1 + (x * math.sqrt(0.5)).erf()),
        lambda x: (x + 1) * 0.5 * (1 + (x * math.sqrt(0.5)).erf()),
        lambda x: x * 0.5 * (2 + (x * math.sqrt(0.5)).erf()),
        lambda x: x * 0.5 * (1 + (math.sqrt(2) / x).erf()),
    ],
)
def test_what_is_almost_gelu_is_not_taken_for_it(other: Callable[[Tensor], Tensor]) -> None:
    x = np.linspace(0.1, 3, 1_000, dtype=np.float32)
    compiled = arenite.compile(other, x)
    assert all("gelu(" not in kernel.code for kernel in compiled.kernels)


def test_an_erf_that_is_needed_too_is_computed_once() -> None:
    x = np.linspace(-3, 3, 1_000, dtype=np.float32)

    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        share = 0.5 * (1 + (x * math.sqrt(0.5)).erf())
        return share, x * share

    compiled = arenite.compile(function, x)
    code = "".join(kernel.code for kernel in compiled.kernels)
    assert code.count("erf1p(") == 1
    assert "gelu(" not in code
    share, product = compiled(x)
    np.testing.assert_array_equal(product, x * share)
