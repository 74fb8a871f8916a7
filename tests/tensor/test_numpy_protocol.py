"""NumPy's own functions on tensors stay lazy, or say why not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from arenite.errors import NotSupported
from arenite.tensor import Tensor
from arenite.tensor.numpy_protocol import _FUNCTIONS, _METHODS, _OWN_FUNCTIONS
from tests.tensor.examples import array, same

X = array(np.dtype("float64"), (3, 4), edges=False)
Y = array(np.dtype("float64"), (3, 4), 1, edges=False)

CALLS: dict[str, Any] = {
    "angle": np.angle,
    "diff": lambda x: np.diff(x, 2, axis=0),
    "fliplr": np.fliplr,
    "flipud": np.flipud,
    "inner": lambda x: np.inner(x, X[:2]),
    "isclose": lambda x: np.isclose(x, X + 1e-7 * (X > 0)),
    "median": lambda x: np.median(x, 1, keepdims=True),
    "nan_to_num": lambda x: np.nan_to_num(np.where(x > 0, np.where(x > 1, np.inf, np.nan), x)),
    "nonzero": lambda x: np.nonzero(x > 0)[1],
    "vdot": lambda x: np.vdot(x, Y),
    "imag": np.imag,
    "real": np.real,
    "all": lambda x: np.all(x, axis=0),
    "any": lambda x: np.any(x),
    "amax": lambda x: np.amax(x, 1),
    "amin": lambda x: np.amin(x, 1),
    "argmax": lambda x: np.argmax(x, axis=1),
    "argmin": lambda x: np.argmin(x),
    "argsort": lambda x: np.argsort(x, axis=0),
    "around": lambda x: np.around(x, 1),
    "broadcast_arrays": lambda x: np.broadcast_arrays(x, x[0])[1],
    "broadcast_to": lambda x: np.broadcast_to(x, (2, 3, 4)),
    "clip": lambda x: np.clip(x, -1, 1),
    "concatenate": lambda x: np.concatenate([x, X], axis=1),
    "count_nonzero": lambda x: np.count_nonzero(x),
    "cumprod": lambda x: np.cumprod(x, axis=1),
    "cumsum": lambda x: np.cumsum(x),
    "diagonal": lambda x: np.diagonal(x, 1),
    "dot": lambda x: np.dot(x, Y.T),
    "einsum": lambda x: np.einsum("ij,kj->ik", x, x),
    "expand_dims": lambda x: np.expand_dims(x, 1),
    "flip": lambda x: np.flip(x, 1),
    "full_like": lambda x: np.full_like(x, 3),
    "hstack": lambda x: np.hstack([x, x]),
    "max": lambda x: np.max(x),
    "mean": lambda x: np.mean(x, axis=0, keepdims=True),
    "meshgrid": lambda x: np.meshgrid(x[0], x[1])[0],
    "min": lambda x: np.min(x, axis=(0, 1)),
    "moveaxis": lambda x: np.moveaxis(x, 0, 1),
    "ndim": lambda x: np.int64(np.ndim(x)),
    "ones_like": lambda x: np.ones_like(x),
    "outer": lambda x: np.outer(x, x[0]),
    "pad": lambda x: np.pad(x, 1),
    "prod": lambda x: np.prod(x, axis=1),
    "ptp": lambda x: np.ptp(x, axis=1),
    "ravel": lambda x: np.ravel(x),
    "repeat": lambda x: np.repeat(x, 2, axis=1),
    "reshape": lambda x: np.reshape(x, (4, 3)),
    "roll": lambda x: np.roll(x, 1, axis=1),
    "round": lambda x: np.round(x),
    "shape": lambda x: np.array(np.shape(x)),
    "size": lambda x: np.int64(np.size(x)),
    "sort": lambda x: np.sort(x, axis=0),
    "split": lambda x: np.split(x, 2, axis=1)[1],
    "squeeze": lambda x: np.squeeze(x[:1]),
    "stack": lambda x: np.stack([x, X], axis=1),
    "std": lambda x: np.std(x, axis=0),
    "sum": lambda x: np.sum(x, axis=0),
    "swapaxes": lambda x: np.swapaxes(x, 0, 1),
    "take": lambda x: np.take(x, [1, 0], axis=1),
    "take_along_axis": lambda x: np.take_along_axis(x, np.array([[1], [0], [2]]), axis=1),
    "tensordot": lambda x: np.tensordot(x, Y, axes=2),
    "tile": lambda x: np.tile(x, (2, 1)),
    "trace": lambda x: np.trace(x),
    "transpose": lambda x: np.transpose(x),
    "tril": lambda x: np.tril(x),
    "triu": lambda x: np.triu(x, 1),
    "var": lambda x: np.var(x, axis=0, ddof=1),
    "vstack": lambda x: np.vstack([x, x]),
    "where": lambda x: np.where(x > 0, x, 0),
    "zeros_like": lambda x: np.zeros_like(x),
}


def test_every_function_is_tried() -> None:
    # Those that give one truth value are tried with what else compares, in test_manners.
    assert {*CALLS, "allclose", "array_equal"} == {*_FUNCTIONS, *_METHODS, *_OWN_FUNCTIONS}


@pytest.mark.parametrize("name", CALLS)
def test_functions_stay_lazy_and_agree(name: str) -> None:
    made = CALLS[name](Tensor(X))
    if name not in ("ndim", "shape", "size"):
        assert isinstance(made, Tensor)
    same(made, CALLS[name](X), 1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: np.add.reduce(t), r"numpy\.add\.reduce has no lazy form"),
        (lambda t: np.add(t, t, out=np.zeros((3, 4))), r"numpy\.add on tensors takes no out"),
        (lambda t: np.add(t, 1, dtype=np.float32), "takes no dtype"),
        (lambda t: np.nextafter(t, 1), r"use numpy\.nextafter\(t\.numpy\(\)\)"),
        (lambda t: np.linalg.inv(t), r"numpy\.inv has no lazy form; call it on t\.numpy\(\)"),
        (lambda t: np.unique(t), r"numpy\.unique has no lazy form"),
        (lambda t: np.add(np.zeros(4), t, out=(np.zeros((3, 4)),)), "never written to"),
    ],
)
def test_what_is_not_lazy_says_so(call: Any, message: str) -> None:
    with pytest.raises(NotSupported, match=message):
        call(Tensor(X))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "bool"])
def test_functions_made_of_others_at_edge_values(dtype: str) -> None:
    x = np.array([[0, 1, 3, 3], [5, 2, 0, 9], [7, 7, 1, 4]]).astype(dtype)
    if dtype.startswith("float"):
        x[0, 1], x[1, 2], x[2, 3] = np.nan, np.inf, -np.inf
    t = Tensor(x)
    y = np.roll(x, 1)
    with np.errstate(all="ignore"):
        for made, wanted in (
            (np.diff(t), np.diff(x)),
            (np.nan_to_num(t, nan=2.0, posinf=9.0), np.nan_to_num(x, nan=2.0, posinf=9.0)),
            (np.nan_to_num(t), np.nan_to_num(x)),
            (np.median(t), np.median(x)),
            (np.median(t[:, :3], 1), np.median(x[:, :3], 1)),
        ):
            np.testing.assert_allclose(np.asarray(made), wanted)
        if dtype != "bool":
            np.testing.assert_array_equal(np.isclose(t, x), np.isclose(x, x))
            wanted = np.isclose(x, y, equal_nan=True)
            np.testing.assert_array_equal(np.isclose(t, y, equal_nan=True), wanted)
