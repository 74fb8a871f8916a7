"""Operators of ai.onnx.ml that scikit-learn's scalers and linear models become."""

from __future__ import annotations

import numpy as np

from arenite.dtype import FLOAT32, FLOAT64
from arenite.frontends.onnx.call import Call
from arenite.frontends.onnx.ops.class_scores import label, labels_of, transformed
from arenite.frontends.onnx.registry import ML, Result, operator
from arenite.ir import Node, constant, make
from arenite.ir.compose import basic, linear
from arenite.ir.compose.reductions import reduce


@operator("Scaler", domain=ML)
def scaler(call: Call) -> Result:
    x = basic.cast(call.node(0), FLOAT32)
    return (x - _numbers(call, "offset", x)) * _numbers(call, "scale", x)


def _numbers(call: Call, name: str, x: Node) -> Node:
    """One for each feature, or one for all."""
    given = np.asarray(call.need_attr(name), np.float32)
    if len(given) != 1 and len(given) != x.shape[-1]:
        call.fail(f"{name} has {len(given)} numbers for an input of shape {x.shape}")
    return constant(given)


@operator("Normalizer", domain=ML)
def normalizer(call: Call) -> Result:
    x = basic.cast(call.node(0), FLOAT32)
    norm, axis = call.attr("norm", "MAX"), [x.ndim - 1]
    if norm == "MAX":
        size = reduce("max", x, axis, keep=True)
    elif norm == "L1":
        size = reduce("sum", make("abs", x), axis, keep=True)
    elif norm == "L2":
        size = make("sqrt", reduce("sum", x * x, axis, keep=True))
    else:
        call.fail(f"norm is {norm!r}, not MAX, L1 or L2")
    return x / basic.where(basic.binary("eq", size, 0.0), 1.0, size)


@operator("LinearRegressor", domain=ML)
def linear_regressor(call: Call) -> Result:
    scores = _scores(call, call.attr("targets", 1))
    return transformed(call, scores, call.attr("post_transform", "NONE"))


@operator("LinearClassifier", domain=ML)
def linear_classifier(call: Call) -> Result:
    labels = labels_of(call, "classlabels_ints")
    scores = _scores(call, len(call.need_attr("coefficients")) // _n_features(call))
    if scores.shape[1] != len(labels):
        call.refuse(f"{len(labels)} labels for {scores.shape[1]} rows of coefficients")
    best = label(call, labels, make("argmax", scores, axis=1))
    return best, transformed(call, scores, call.attr("post_transform", "NONE"))


def _n_features(call: Call) -> int:
    shape = call.node(0).shape
    if len(shape) != 2 or not isinstance(shape[1], int) or not shape[1]:
        call.fail(f"an input of shape {shape}, not [rows, features]")
    return shape[1]


def _scores(call: Call, n_rows: int) -> Node:
    """The input times a row of coefficients for each score."""
    x, given = call.node(0), np.asarray(call.need_attr("coefficients"), np.float32)
    if len(given) != n_rows * _n_features(call):
        call.fail(f"{len(given)} coefficients for {n_rows} rows and an input of shape {x.shape}")
    wide = FLOAT64 if x.dtype == FLOAT64 else FLOAT32
    weights = constant(given.reshape(n_rows, -1).T.copy())
    made = linear.matmul(basic.cast(x, wide), basic.cast(weights, wide))
    intercepts = np.asarray(call.attr("intercepts") or [0.0], np.float32)
    if len(intercepts) not in (1, n_rows):
        call.fail(f"{len(intercepts)} intercepts for {n_rows} rows of coefficients")
    return basic.cast(made + basic.cast(constant(intercepts), wide), FLOAT32)
