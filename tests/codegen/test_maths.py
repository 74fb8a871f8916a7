"""Error bounds of the mathematical functions, in units in the last place, against wider floats.

The bounds are promises: docs and error messages may quote them. float32 is judged by NumPy's
float64, float64 by its extended precision, erf by a series in that precision.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from arenite.codegen import loop_ir as ir
from arenite.dtype import BY_NAME
from tests.codegen.building import elementwise
from tests.codegen.run_kernels import RUNNABLE, compiled

Array = np.ndarray[Any, Any]

#: Greatest error allowed for float32 and float64; exact means bit for bit.
BOUNDS = {
    "exp": (1.1, 1.2),
    "exp2": (1.3, 1.4),
    "expm1": (1.8, 2.4),
    "log": (1.0, 1.1),
    "log2": (1.6, 1.7),
    "log1p": (1.6, 1.3),
    "sin": (1.9, 2.7),
    "cos": (1.9, 2.7),
    "tan": (3.0, 3.6),
    "asin": (2.5, 2.5),
    "acos": (1.5, 1.5),
    "atan": (1.8, 3.0),
    "sinh": (1.8, 1.8),
    "cosh": (1.6, 1.6),
    "tanh": (1.5, 1.5),
    "asinh": (2.0, 2.0),
    "acosh": (2.5, 2.6),
    "atanh": (2.3, 2.2),
    "erf": (1.8, 1.3),
    "erf1p": (3.0, 2.3),
    "sigmoid": (2.5, 2.5),
    "pow": (0.6, 1.5),
    "atan2": (1.8, 3.0),
}
#: 1 + erf is as good as numbers of 1 and more are, not relative to what is left near 0.
LEAST = {"erf1p": 1}
UNARY = [op for op in BOUNDS if op not in ("pow", "atan2")]
WIDER = {np.float32: np.float64, np.float64: np.longdouble}
NUMPY = {
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "pow": np.power,
    "atan2": np.arctan2,
}


def samples(dtype: Any, n: int) -> Array:
    """All magnitudes evenly, the ranges people use densely, multiples of pi/2, and the edges."""
    rng = np.random.default_rng(1)
    width = np.dtype(dtype).itemsize
    parts = [rng.integers(0, 256, n * width, np.uint8).view(dtype)]
    ranges = ((-1, 1), (-10, 10), (-100, 100), (-800, 800), (-1e6, 1e6), (0.5, 2), (-1e-3, 1e-3))
    parts += [rng.uniform(low, high, n // 4).astype(dtype) for low, high in ranges]
    turns = (np.arange(-3000, 3000) * (np.pi / 2)).astype(dtype)
    edges = [0.0, 1.0, 0.5, 2.0, 1e-40, 1e-45, 3e38, 88.7, 88.8, 87.4, 103.9, 104.5, 89.3, 89.5]
    edges += [709.7, 709.8, 710.4, 710.5, 745.1, 745.2, 5e-324, 1e308, 1e-310, np.inf, np.nan]
    with np.errstate(over="ignore"):
        both = np.array([*edges, *(-x for x in edges)]).astype(dtype)
    return np.concatenate([*parts, turns, np.nextafter(turns, dtype(9e9)), both])


def reference(op: str, *x: Array) -> Array:
    if op == "sigmoid":
        return 1 / (1 + np.exp(-x[0].astype(np.longdouble)))
    if op.startswith("erf"):
        return _erf(x[0]) + (op == "erf1p")
    wide = [value.astype(WIDER[value.dtype.type]) for value in x]
    function: Callable[..., Array] = NUMPY.get(op) or getattr(np, op)
    result: Array = function(*wide)
    return result


def _erf(x: Array) -> Array:
    """2/sqrt(pi) exp(-x^2) (x + 2x^3/3 + 4x^5/15 + ...): all terms have one sign."""
    wide: Array = np.clip(x.astype(np.longdouble), -6.5, 6.5)
    term: Array = wide.copy()
    total: Array = wide.copy()
    for n in range(1, 200):
        term = term * (2 * wide * wide) / (2 * n + 1)
        total = total + term
    root_pi = np.sqrt(np.longdouble(4) * np.arctan(np.longdouble(1)))
    result: Array = 2 / root_pi * np.exp(-wide * wide) * total
    return result


def units(exact: Array, dtype: Any, least: float = 0) -> Array:
    """Units of the last place of the exact values in a dtype, or of `least` where that is more."""
    limits = np.finfo(dtype)
    size = np.maximum(np.abs(exact.astype(np.longdouble)), least)
    _, exponent = np.frexp(np.where(np.isfinite(size), size, 1))
    exponent = np.clip(exponent - 1, limits.minexp, limits.maxexp - 1)
    unit: Array = np.ldexp(np.longdouble(1), exponent - limits.nmant)
    return unit


def errors(got: Array, exact: Array, unit: Array) -> Array:
    """Distance from the exact value in such units; infinite where it is wrong."""
    rounded = exact.astype(got.dtype)
    distance = np.abs(got.astype(np.longdouble) - exact) / unit
    alike = (np.isnan(rounded) & np.isnan(got)) | (rounded == got)
    finite = np.isfinite(rounded) & np.isfinite(got)
    return np.where(finite, distance, np.where(alike, 0, np.inf)).astype(float)


def run(op: str, target: str, *x: Array) -> Array:
    dtype = BY_NAME[x[0].dtype.name]

    def make(*loads: ir.Expr) -> ir.Expr:
        return ir.Unary(op, loads[0]) if len(loads) == 1 else ir.Binary(op, loads[0], loads[1])

    k = elementwise([dtype] * len(x), dtype, make)
    y = np.empty_like(x[0])
    arrays = dict(zip("ab", x, strict=False))
    compiled(k, target).run({**arrays, "y": y}, {"n": len(y)})
    return y


@pytest.mark.parametrize("op", UNARY)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_function_stays_within_its_bound(op: str, dtype: Any) -> None:
    x = samples(dtype, 20_000 if op.startswith("erf") else 60_000)
    bound = BOUNDS[op][0 if dtype == np.float32 else 1]
    with np.errstate(all="ignore"):
        exact = reference(op, x)
        unit = units(exact, dtype, LEAST.get(op, 0))
    zeros = (exact == 0) & (x == 0)
    for target in RUNNABLE:
        got = run(op, target, x)
        with np.errstate(all="ignore"):
            found = errors(got, exact, unit)
        worst = int(np.argmax(found))
        made = f"{op}({x[worst]!r}) = {got[worst]!r}, not {exact[worst]!r}, on {target}"
        assert found[worst] <= bound, made
        assert (np.signbit(got[zeros]) == np.signbit(x[zeros])).all(), target


@pytest.mark.parametrize("target", RUNNABLE)
@pytest.mark.parametrize(("dtype", "lowest", "bound"), [(np.float32, -11, 6), (np.float64, -28, 9)])
def test_what_erf_leaves_of_1_is_exact_relative_to_itself(
    target: str, dtype: type, lowest: float, bound: float
) -> None:
    x: np.ndarray = np.linspace(lowest, -2.26, 40_000).astype(dtype)
    exact = np.array([math.erfc(-float(value)) for value in x])
    got = run("erf1p", target, x)
    least = float(np.finfo(dtype).tiny)  # what is less is 0, for denormal numbers are slow
    is_normal = exact > 1.1 * least
    assert errors(got, exact, units(exact, dtype))[is_normal].max() <= bound
    assert (got[exact < least] == 0).all()


@pytest.mark.parametrize("target", RUNNABLE)
@pytest.mark.parametrize(("dtype", "low"), [(np.float32, -91), (np.float64, -713)])
def test_a_product_with_sigmoid_is_exact_where_it_is_a_normal_number(
    target: str, dtype: Any, low: float
) -> None:
    x = np.linspace(low, 40, 50_000).astype(dtype)
    a = np.random.default_rng(0).uniform(30, 100, len(x)).astype(dtype)
    exact = a / (1 + np.exp(-x.astype(np.longdouble)))
    got = run("times_sigmoid", target, a, x)
    is_normal = exact > np.finfo(dtype).tiny
    assert is_normal.mean() > 0.99
    assert errors(got, exact, units(exact, dtype))[is_normal].max() <= 2.6
    ends = np.array([-np.inf, np.inf, np.nan, -1e30], dtype)
    got = run("times_sigmoid", target, np.ones_like(ends), ends)
    np.testing.assert_array_equal(got, np.array([0, 1, np.nan, 0], dtype))


@pytest.mark.parametrize("op", ["exp", "log", "tanh", "erf", "sin"])
def test_float32_on_a_grid_over_all_floats(op: str) -> None:
    """Every 1499th of the 2^32 patterns."""
    step = 1499 if op != "erf" else 14_983
    x = np.arange(7, 2**32, step, dtype=np.uint64).astype(np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        exact = reference(op, x)
        found = errors(run(op, "host", x), exact, units(exact, np.float32))
    assert found.max() <= BOUNDS[op][0]


def pairs(dtype: Any, n: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(3)
    width = np.dtype(dtype).itemsize

    def bits() -> Array:
        patterns: Array = rng.integers(0, 256, n * width, np.uint8).view(dtype)
        return patterns

    def uniform(low: float, high: float) -> Array:
        return rng.uniform(low, high, n).astype(dtype)

    edges = [0.0, 1.0, np.inf, np.nan, 0.5, 2.0, 3.0, 1e-40, 1e30, 2.5, 1e-310, 4.0, 7.0, 1 + 1e-6]
    signed = np.array([*edges, *(-x for x in edges)]).astype(dtype)
    left, right = np.meshgrid(signed, signed)
    with np.errstate(over="ignore"):
        wide = np.exp(rng.uniform(-600, 600, n)).astype(dtype)
    whole = rng.integers(-50, 50, n).astype(dtype)
    x = [bits(), uniform(0, 10), uniform(0.9, 1.1), uniform(0, 2), left.ravel(), wide, whole]
    y = [bits(), uniform(-50, 50), uniform(-2000, 2000), uniform(-900, 900), right.ravel()]
    y += [uniform(-1.2, 1.2), rng.integers(-30, 30, n).astype(dtype)]
    return np.concatenate(x), np.concatenate(y)


@pytest.mark.parametrize("op", ["pow", "atan2"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_pow_and_atan2_stay_within_their_bounds(op: str, dtype: Any) -> None:
    x, y = pairs(dtype, 20_000)
    bound = BOUNDS[op][0 if dtype == np.float32 else 1]
    with np.errstate(all="ignore"):
        exact = reference(op, x, y)
        unit = units(exact, dtype, LEAST.get(op, 0))
    for target in RUNNABLE:
        got = run(op, target, x, y)
        with np.errstate(all="ignore"):
            found = errors(got, exact, unit)
        worst = int(np.argmax(found))
        assert found[worst] <= bound, (target, x[worst], y[worst])
        zeros = (exact == 0) & (got == 0)
        assert (np.signbit(got[zeros]) == np.signbit(exact[zeros])).all(), target


@pytest.mark.parametrize("target", RUNNABLE)
@pytest.mark.parametrize("op", ["fmod", "mod", "floordiv"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_remainders_are_exact(target: str, op: str, dtype: Any) -> None:
    x, y = pairs(dtype, 20_000)
    got = run(op, target, x, y)
    with np.errstate(all="ignore"):
        function = {"fmod": np.fmod, "mod": np.mod, "floordiv": np.floor_divide}[op]
        want = function(x, y)
    same = (got == want) & (np.signbit(got) == np.signbit(want))
    assert (same | (np.isnan(got) & np.isnan(want))).all()


@pytest.mark.parametrize("target", RUNNABLE)
def test_angles_next_to_multiples_of_a_right_angle(target: str) -> None:
    """The hardest float64 angles known, and great float32 ones."""
    hard = [6381956970095103.0 * 2.0**797, 5.319372648326541e255, 2.0**1000, 1e22, 355.0, 1e6 + 0.5]
    for dtype in (np.float32, np.float64):
        with np.errstate(over="ignore"):
            x = np.array([*hard, *(-v for v in hard)]).astype(dtype)
        x = x[np.isfinite(x)]
        for op in ("sin", "cos", "tan"):
            exact = reference(op, x)
            found = errors(run(op, target, x), exact, units(exact, dtype))
            assert found.max() <= BOUNDS[op][0 if dtype == np.float32 else 1], op
