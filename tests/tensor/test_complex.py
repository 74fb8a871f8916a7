"""Functions of complex tensors, against NumPy, edge values of both parts among them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import arenite
from arenite import Tensor
from arenite.errors import TypeMismatch

Array = NDArray[Any]

DTYPES = [np.dtype("complex64"), np.dtype("complex128")]
RNG = np.random.default_rng(4)
PARTS = np.concatenate([[0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 1e-3, 30.0], RNG.standard_normal(9)])
GRID = (PARTS[:, None] + 0j) + 1j * PARTS[None, :]
GRID.real[:] = PARTS[:, None]  # -0.0 + 0.0 lost its sign
GRID.imag[:] = PARTS[None, :]

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": np.abs,
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "reciprocal": np.reciprocal,
    "square": np.square,
    "angle": np.angle,
    "conj": np.conj,
}


def near(made: Array, wanted: Array, ulps: float = 32) -> None:
    """Near by the size of the whole number; infinite or no number in the same places."""
    assert made.dtype == wanted.dtype
    assert made.shape == wanted.shape
    is_finite = np.isfinite(wanted)
    unit = np.finfo(wanted.dtype).eps * np.maximum(np.abs(wanted[is_finite]), 1e-30)
    assert (np.abs(made[is_finite] - wanted[is_finite]) <= ulps * unit).all()
    assert not np.isfinite(made[~is_finite]).any()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str, dtype: np.dtype[Any]) -> None:
    array = GRID.astype(dtype)
    if name in ("tan", "tanh"):
        array = array[np.abs(array) < 20]  # NumPy's own overflow beyond
    with np.errstate(all="ignore"):
        wanted = FUNCTIONS[name](array)
        near(getattr(arenite.from_numpy(array), name)().numpy(), np.asarray(wanted))
        if name != "angle":
            near(FUNCTIONS[name](arenite.from_numpy(array)).numpy(), np.asarray(wanted))


def test_roots_and_angles_are_on_the_right_side_of_the_cut() -> None:
    array = np.array(
        [complex(-4.0, 0.0), complex(-4.0, -0.0), complex(0.0, -0.0), complex(4, -0.0)]
    )
    t = Tensor(array)
    for made, wanted in ((t.sqrt(), np.sqrt(array)), (t.log(), np.log(array[[0, 1, 3]]))):
        got = made.numpy() if made.shape == wanted.shape else made.numpy()[[0, 1, 3]]
        np.testing.assert_array_equal(got.imag, wanted.imag)
        np.testing.assert_array_equal(np.signbit(got.imag), np.signbit(wanted.imag))
    np.testing.assert_array_equal(t.angle().numpy(), np.angle(array))


def test_infinite_and_huge_numbers() -> None:
    inf, nan = np.inf, np.nan
    array = np.array(
        [complex(inf, 0), complex(-inf, 0), complex(0, inf), complex(nan, inf), complex(nan, 1)]
    )
    t = Tensor(array)
    np.testing.assert_array_equal(t.abs().numpy(), np.abs(array))
    np.testing.assert_array_equal(t.isnan().numpy(), np.isnan(array))
    np.testing.assert_array_equal(t.isinf().numpy(), np.isinf(array))
    np.testing.assert_array_equal(t.isfinite().numpy(), np.isfinite(array))
    np.testing.assert_array_equal(t[:2].exp().numpy(), np.exp(array[:2]))
    np.testing.assert_array_equal(t[2:4].sqrt().real.numpy(), [inf, inf])
    large = np.array([complex(3e38, 3e38), complex(1e-38, 1e-38)], np.complex64)
    near(Tensor(large).sqrt().numpy(), np.sqrt(large))
    near(Tensor(large / 2).abs().numpy(), np.abs(large / 2))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ["exp2", "expm1", "log1p", "log2", "log10"])
def test_functions_that_keep_digits(name: str, dtype: np.dtype[Any]) -> None:
    small = (GRID[2:, 2:] * 1e-5).ravel()
    array = np.concatenate([GRID[np.abs(GRID) < 20].ravel(), small]).astype(dtype)
    if name.startswith("log"):
        array = array[(array != 0) & (array != -1)]
    function = getattr(np, name)
    wide = array.astype(np.clongdouble)
    wanted = function(wide)
    if name == "log1p":  # NumPy's own has lost digits near 0
        a, b = wide.real, wide.imag
        near_zero = np.log1p(a * (2 + a) + b * b) / 2 + 1j * np.arctan2(b, 1 + a)
        wanted = np.where(np.abs(wide) < 0.5, near_zero, wanted)
    near(getattr(arenite.from_numpy(array), name)().numpy(), wanted.astype(dtype))
    near(function(arenite.from_numpy(array)).numpy(), wanted.astype(dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_powers(dtype: np.dtype[Any]) -> None:
    base = GRID[2:, 2:].ravel().astype(dtype)
    exponents = np.array([0.5, 1.5, -2.25, 3, 1j, -0.75 + 2j, 2 - 1j], dtype)
    wanted = base.astype(np.clongdouble)[:, None] ** exponents.astype(np.clongdouble)
    made = arenite.from_numpy(base)[:, None] ** arenite.from_numpy(exponents)
    near(made.numpy(), wanted.astype(dtype), 64)
    near((arenite.from_numpy(base) ** 0.5).numpy(), np.sqrt(base), 64)
    real = np.linspace(-1, 1, len(base)).astype(dtype.type(0).real.dtype)
    near((arenite.from_numpy(base) ** arenite.from_numpy(real)).numpy(), base**real, 64)
    near((2 ** arenite.from_numpy(base)).numpy(), 2**base, 64)


def test_powers_of_zero_are_numpys() -> None:
    exponents = np.array([0, 1, 2.5, -1, 1j, 1 + 1j, -1j])
    zeros = np.zeros(len(exponents), complex)
    with np.errstate(all="ignore"):
        wanted = zeros**exponents
    made = (arenite.from_numpy(zeros) ** arenite.from_numpy(exponents)).numpy()
    np.testing.assert_array_equal(made, wanted)


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 7, -1, -4])
def test_whole_powers(exponent: int) -> None:
    array = GRID[2:, 2:].astype(np.complex64)
    near((arenite.from_numpy(array) ** exponent).numpy(), array**exponent, 64)


def test_parts_of_real_and_complex_tensors() -> None:
    for array in (GRID, np.array([-2.0, 3.0]), np.array([-2, 3])):
        t = arenite.from_numpy(array)
        for made, wanted in (
            (t.real, array.real),
            (t.imag, array.imag),
            (t.conj(), array.conj()),
            (t.conjugate(), array.conj()),
            (np.real(t), np.real(array)),
            (np.imag(t), np.imag(array)),
            (np.conj(t), np.conj(array)),
            (np.angle(t), np.angle(array)),
        ):
            assert isinstance(made, Tensor)
            assert made.numpy().dtype == wanted.dtype
            np.testing.assert_allclose(made.numpy(), wanted, rtol=1e-14)


def test_statistics() -> None:
    array = GRID.astype(np.complex128)
    t = arenite.from_numpy(array)
    for made, wanted in (
        (t.mean(0), array.mean(0)),
        (t.var(1), array.var(1)),
        (t.std(ddof=1), array.std(ddof=1)),
        (t.norm(), np.linalg.norm(array)),
        (t.sum(), array.sum()),
        (t @ t.T.conj(), array @ array.conj().T),
    ):
        np.testing.assert_allclose(made.numpy(), wanted, rtol=1e-12, atol=1e-10)


def test_what_has_no_order_or_no_meaning_is_refused_at_once() -> None:
    t = Tensor(GRID)
    calls: tuple[Callable[[], object], ...] = (
        lambda: t.max(),
        lambda: t.sort(),
        lambda: t < t,
        lambda: t.floor(),
        lambda: t // t,
        lambda: ~t,
        lambda: t.erf(),
    )
    for call in calls:
        with pytest.raises(TypeMismatch, match=r"complex128"):
            call()


def test_compiled_functions_of_complex_arguments() -> None:
    rows = arenite.Var("rows", 1, 9)

    def turned(x: Tensor, angle: Tensor) -> Any:
        z = x * (angle * 1j).exp()
        return z, z.abs(), z.real.sum()

    program = arenite.compile(turned, arenite.spec((rows, 3), "complex64"), arenite.spec((3,)))
    with program:
        for n in (2, 9, 1):
            x = (RNG.standard_normal((n, 3)) + 1j * RNG.standard_normal((n, 3))).astype("c8")
            angle = RNG.standard_normal(3).astype(np.float32)
            z, size, total = program(x, angle)
            wanted = x * np.exp(1j * angle)
            assert z.dtype == np.complex64
            assert size.dtype == np.float32
            np.testing.assert_allclose(z, wanted, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(size, np.abs(x), rtol=1e-5)
            np.testing.assert_allclose(total, wanted.real.sum(), rtol=1e-4, atol=1e-5)
        with pytest.raises(TypeMismatch, match="complex64"):
            program(np.zeros((2, 3), np.complex128), np.zeros(3, np.float32))
