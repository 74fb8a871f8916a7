"""Arrays to try things on: all kinds of dtypes, shapes, strides and edge values."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from arenite.tensor import Tensor

Array = NDArray[Any]

FLOATS = [np.dtype(name) for name in ("float16", "float32", "float64")]
INTS = [np.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)]
BOOL = np.dtype(bool)
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
NUMBERS = [*FLOATS, *INTS]
ALL = [BOOL, *NUMBERS]

_EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1e-3, 100.0, np.inf, -np.inf, np.nan]

shapes = st.lists(st.integers(0, 4), max_size=4).map(tuple)
full_shapes = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)


def array(dtype: np.dtype[Any], shape: Sequence[int], seed: int = 0, edges: bool = True) -> Array:
    """Random elements; floats have edge values among them, integers their limits."""
    rng = np.random.default_rng(seed)
    if dtype == BOOL:
        return np.asarray(rng.integers(0, 2, tuple(shape)).astype(bool))
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        low = max(limits.min, -20)
        values = rng.integers(low, 20, tuple(shape)).astype(dtype)
        if edges:
            where = rng.random(tuple(shape))
            values = np.where(where < 0.05, dtype.type(limits.max), values)
            values = np.where(where > 0.95, dtype.type(limits.min), values)
        return values
    values = (3 * rng.standard_normal(tuple(shape))).astype(dtype)
    if edges:
        picked = rng.choice(_EDGES, tuple(shape)).astype(dtype)
        values = np.where(rng.random(tuple(shape)) < 0.3, picked, values)
    return values


@st.composite
def arrays(
    draw: st.DrawFn,
    dtypes: Sequence[np.dtype[Any]] = ALL,
    shape: st.SearchStrategy[Any] = shapes,
    edges: bool = True,
) -> Array:
    """Contiguous, transposed, or every second element backwards."""
    made = array(draw(st.sampled_from(dtypes)), draw(shape), draw(st.integers(0, 999)), edges)
    how = draw(st.sampled_from(["plain", "transposed", "strided"]))
    if how == "transposed":
        return made.T
    if how == "strided" and made.ndim:
        return np.repeat(made, 2, axis=-1)[..., ::-2]
    return made


def seeds() -> st.SearchStrategy[int]:
    return st.integers(0, 9999)


def quiet() -> Any:
    """NumPy warns of what IEEE arithmetic defines."""
    return np.errstate(all="ignore")


def same(made: Any, expected: Any, tolerance: float | None = None) -> None:
    """Equal dtype, shape and elements; floats within a few units in the last place."""
    result = made.numpy() if isinstance(made, Tensor) else np.asarray(made)
    expected = np.asarray(expected)
    assert result.dtype == expected.dtype, (result.dtype, expected.dtype)
    assert result.shape == expected.shape, (result.shape, expected.shape)
    if expected.dtype.kind in "biu":
        np.testing.assert_array_equal(result, expected)
        return
    if tolerance is None:
        bits = {"float64": 52, "float32": 23, "float16": 10, "bfloat16": 7}
        tolerance = 8 * 2.0 ** -bits.get(expected.dtype.name, 23)
    kind = complex if expected.dtype.kind == "c" else float
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.testing.assert_allclose(
            result.astype(kind), expected.astype(kind), rtol=tolerance, atol=tolerance
        )
