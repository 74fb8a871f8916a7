"""What PyTorch's file does not try: integers, small floats, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from arenite.errors import InvalidArgument, ShapeMismatch
from arenite.tensor import Tensor
from tests.tensor.examples import BFLOAT16, array, same

X = array(np.dtype("float32"), (3, 6, 5), edges=False)
T = Tensor(X)


@pytest.mark.parametrize(
    "name", ["gelu", "silu", "mish", "sigmoid", "softplus", "elu", "softmax", "log_softmax"]
)
def test_small_floats_are_rounded_once(name: str) -> None:
    half = X.astype(BFLOAT16)
    wide = getattr(Tensor(half.astype(np.float32)), name)().numpy()
    same(getattr(Tensor(half), name)(), wide.astype(BFLOAT16), 0)


@pytest.mark.parametrize(
    ("norm", "arguments"),
    [("layer_norm", ()), ("rms_norm", ()), ("group_norm", (2,)), ("instance_norm", ())],
)
def test_norms_of_half_floats(norm: str, arguments: Any) -> None:
    half = X.astype(np.float16)
    wide = getattr(Tensor(half.astype(np.float32)), norm)(*arguments).numpy()
    same(getattr(Tensor(half), norm)(*arguments), wide.astype(np.float16), 0)


def test_integers_become_floats_but_for_relu() -> None:
    same(Tensor([-2, 3]).relu(), np.array([0, 3]))
    assert Tensor([-2, 3]).gelu().dtype.name == "float64"
    assert Tensor(np.array([1], np.int8)).sigmoid().dtype.name == "float16"


def test_one_hot_and_embedding() -> None:
    same(Tensor([[0, 2], [5, -1]]).one_hot(3), np.eye(4, 3, dtype=np.float32)[[[0, 2], [3, 3]]])
    same(Tensor([1]).one_hot(2, "int8"), np.array([[0, 1]], np.int8))
    same(Tensor(X).embedding([[2, -1]]), X[[[2, -1]]])


def test_prelu_of_one_slope() -> None:
    same(T.prelu(0.5), np.where(X < 0, X * np.float32(0.5), X))
    same(T.prelu([0.5]), np.where(X < 0, X * np.float32(0.5), X))


def test_softmax_of_large_numbers_and_no_numbers() -> None:
    same(Tensor([1e4, 1e4]).softmax(), np.array([0.5, 0.5]))
    same(Tensor(np.zeros((0, 3))).softmax(), np.zeros((0, 3)))
    same(Tensor(np.zeros((2, 0))).log_softmax(), np.zeros((2, 0)))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: T.gelu("erf"), "approximate is 'none' or 'tanh', not 'erf'"),
        (lambda: T.glu(), r"axis 2 of float32\[3, 6, 5\] has no two halves"),
        (lambda: T.layer_norm(np.ones(6)), r"weight of shape \(6,\) for the last 1 axes"),
        (lambda: T.layer_norm(bias=np.ones(6)), r"bias of shape \(6,\)"),
        (lambda: T.layer_norm(n_axes=4), "a norm over 4 axes"),
        (
            lambda: T.batch_norm(np.ones(5), np.ones(6)),
            r"\(5,\) is not one number for each of the 6",
        ),
        (lambda: T.batch_norm(None, np.ones(6)), "needs the mean"),
        (lambda: T.group_norm(4), "4 groups do not divide the channels"),
        (lambda: Tensor([1.0]).instance_norm(), "has no known channels"),
        (lambda: T.one_hot(3), "one_hot is of integers"),
        (lambda: T.embedding(X), "indices are integers"),
        (lambda: Tensor(1.0).embedding([0]), "a table has rows"),
    ],
)
def test_refusals(wrong: Any, message: str) -> None:
    with pytest.raises((InvalidArgument, ShapeMismatch), match=message):
        wrong()
