"""Long sums of float32: no less exact than NumPy's products, by NumPy's float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

import arenite
from arenite.tensor import asarray

Array = NDArray[Any]

#: How far above NumPy's error, which depends on how its library cuts K, ours may be.
SLACK = 1.6


def uniform(*shape: int, seed: int = 0) -> Array:
    """All of one sign: every rounding of a long sum is one of a large number."""
    return np.random.default_rng(seed).uniform(size=shape).astype(np.float32)


def rms(x: Array) -> float:
    return float(np.sqrt(np.mean(np.square(x, dtype=np.float64))))


def need_exact(got: Array, a: Array, b: Array) -> None:
    exact = a.astype(np.float64) @ b.astype(np.float64)
    assert rms(got - exact) <= SLACK * rms(a @ b - exact)


@pytest.mark.parametrize(
    ("rows", "depth", "columns"),
    [(1, 4096, 64), (1, 4096, 1024), (3, 16384, 64), (4, 6000, 1024), (70, 4096, 64)],
)
@pytest.mark.parametrize("form", ["given", "constant", "turned"])
def test_products_with_a_long_k(rows: int, depth: int, columns: int, form: str) -> None:
    a, b = uniform(rows, depth), uniform(depth, columns, seed=1)
    if form == "given":
        got = arenite.compile(lambda x, y: x @ y, a, b)(a, b)
    elif form == "constant":
        got = arenite.compile(lambda x: x @ asarray(b), a)(a)
    else:
        turned = np.ascontiguousarray(b.T)
        got = arenite.compile(lambda x, y: x @ y.T, a, turned)(a, turned)
    need_exact(got, a, b)


def test_a_product_in_slices() -> None:
    a, b = uniform(64, 4096), uniform(4096, 1024, seed=1)
    compiled = arenite.compile(lambda x, y: x @ y, a, b)
    need_exact(compiled(a, b), a, b)


def test_small_floats_are_summed_as_exactly() -> None:
    a, b = uniform(24, 8192).astype(np.float16), uniform(8192, 48, seed=1)
    got = arenite.compile(lambda x, y: x.astype("float32") @ y, a, b)(a, b)
    need_exact(got, a.astype(np.float32), b)


def test_a_convolution_of_many_channels() -> None:
    x, w = uniform(1, 512, 9, 9), uniform(32, 512, 3, 3, seed=1)
    compiled = arenite.compile(lambda x: x.conv(asarray(w)), x, winograd=False)
    windows = sliding_window_view(x[0], (3, 3), axis=(1, 2)).transpose(1, 2, 0, 3, 4)
    got = compiled(x)[0].reshape(32, 49).T
    need_exact(got, windows.reshape(49, -1), w.reshape(32, -1).T)


def test_blocks_end_anywhere() -> None:
    for depth in (383, 385, 511, 512, 513, 769, 1025):
        a, b = uniform(5, depth) - 0.5, uniform(depth, 50, seed=1) - 0.5
        got = arenite.compile(lambda x, y: x @ y, a, b)(a, b)
        np.testing.assert_allclose(got, a.astype(np.float64) @ b, atol=1e-5)
