"""Composed functions against NumPy."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from arenite import ir
from arenite.dtype import BY_NAME
from arenite.errors import NotSupported
from arenite.ir.compose import fourier
from arenite.ir.compose.elimination import determinant
from arenite.ir.compose.neural import ceil_padding
from arenite.ir.dim import evaluate as size_of
from arenite.ir.graph import Graph
from arenite.ir.node import Node

Array = NDArray[Any]
DTYPE = BY_NAME["float64"]


def given(index: int, *shape: ir.Dim) -> Node:
    return ir.graph_input(f"x{index}", index, shape, DTYPE)


def random(*shape: int) -> Array:
    return np.random.default_rng(list(shape)).standard_normal(shape)


def run(inputs: list[Node], outputs: tuple[Node, ...], arrays: list[Array]) -> list[Array]:
    names = tuple(f"y{k}" for k in range(len(outputs)))
    return ir.evaluate(Graph(tuple(inputs), outputs, names), arrays)


#: Short, made of factors, long and prime.
LENGTHS = [1, 2, 5, 128, 131, 257, 360, 1031, 1200]


@pytest.mark.parametrize("n", LENGTHS)
def test_transforms(n: int) -> None:
    re, im = given(0, 2, n), given(1, 2, n)
    x = random(2, n) + 1j * random(2, n, 1)[..., 0]
    arrays = [x.real.copy(), x.imag.copy()]
    a, b, c, d = run(
        [re, im], (*fourier.transform((re, im)), *fourier.transform((re, im), inverse=True)), arrays
    )
    np.testing.assert_allclose(a + 1j * b, np.fft.fft(x), atol=1e-11 * n)
    np.testing.assert_allclose((c + 1j * d) / n, np.fft.ifft(x), atol=1e-11 * n)
    e, f = run([re], fourier.half_transform(re), arrays[:1])
    np.testing.assert_allclose(e + 1j * f, np.fft.rfft(x.real), atol=1e-11 * n)


@pytest.mark.parametrize(("kept", "n"), [(1, 1), (3, 4), (3, 5), (4, 11), (9, 5), (150, 298)])
def test_real_inverse(kept: int, n: int) -> None:
    re, im = given(0, 2, kept), given(1, 2, kept)
    x = random(2, kept) + 1j * random(2, kept, 1)[..., 0]
    [got] = run([re, im], (fourier.real_inverse(re, im, n),), [x.real.copy(), x.imag.copy()])
    np.testing.assert_allclose(got, np.fft.irfft(x, n), atol=1e-12)


def test_a_transform_of_an_open_length() -> None:
    n = ir.Var("n", 1, 64)
    re = given(0, 3, n)
    for length in (1, 6, 17):
        x = random(3, length)
        got, other = run([re], fourier.half_transform(re), [x])
        np.testing.assert_allclose(got + 1j * other, np.fft.rfft(x), atol=1e-12)


def test_a_transform_that_is_too_long() -> None:
    with pytest.raises(NotSupported, match="Fourier transform of 1000000000000000"):
        fourier.transform((given(0, 10**15), None))


@pytest.mark.parametrize("n", range(6))
def test_determinants(n: int) -> None:
    x = given(0, 3, n, n)
    array = random(3, n, n)
    if n > 1:
        array[1, 0, 0] = 0  # no pivot where one would look first
        array[2, 1] = array[2, 0]  # none at all
    [got] = run([x], (determinant(x),), [array])
    np.testing.assert_allclose(got, np.linalg.det(array), rtol=1e-10, atol=1e-12)


def test_determinants_of_what_is_no_number() -> None:
    x = given(0, 2, 3, 3)
    array = random(2, 3, 3)
    array[0, 1, 2] = np.nan
    [got] = run([x], (determinant(x),), [array])
    assert np.isnan(got[0])
    np.testing.assert_allclose(got[1], np.linalg.det(array[1]))


def test_windows_hang_over_the_end_of_open_sizes_as_of_others() -> None:
    size = ir.Var("size", 8, 40)
    for window, stride, before, after, dilation in itertools.product(
        (2, 3), (1, 2, 3), (0, 1), (0, 1), (1, 2)
    ):
        _, made = ceil_padding(size, window, stride, (before, after), dilation)
        for n in range(8, 41):
            reach = dilation * (window - 1) + 1
            count = -(-(n + before + after - reach) // stride) + 1
            if (count - 1) * stride >= n + before:  # it would start behind the end
                count -= 1
            padded = n + before + size_of(made, {"size": n})
            assert (padded - reach) // stride + 1 == count
