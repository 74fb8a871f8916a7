"""Scalers and linear models of ai.onnx.ml, as scikit-learn's converter writes them, against ONNX
Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, helper

from arenite.errors import InvalidFile, NotSupported
from arenite.model import Model
from tests.frontends.onnx.runtime import run_runtime

RNG = np.random.default_rng(8)
X = RNG.standard_normal((6, 4)).astype(np.float32)
X[2] = 0
FLOAT, INT64, STRING = 1, 7, 8


def model_of(op: str, outputs: dict[str, int], kind: int = FLOAT, **attrs: Any) -> ModelProto:
    node = helper.make_node(op, ["x"], list(outputs), domain="ai.onnx.ml", **attrs)
    x = helper.make_tensor_value_info("x", kind, ["rows", 4])
    results = [helper.make_tensor_value_info(name, one, None) for name, one in outputs.items()]
    graph = helper.make_graph([node], "g", [x], results)
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=sets, ir_version=9)


def check(model: ModelProto, x: Any = X) -> None:
    with Model.of_bytes(model.SerializeToString()).compile(threads=1) as program:
        results = list(program(x).values())
    for found, wanted in zip(results, run_runtime(model, {"x": x}), strict=True):
        assert found.shape == wanted.shape
        if wanted.dtype.kind == "f":
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
        else:
            assert found.tolist() == wanted.tolist()


def numbers(n: int) -> list[float]:
    return [float(one) for one in RNG.standard_normal(n).astype(np.float32)]


@pytest.mark.parametrize("n", [1, 4])
def test_scalers(n: int) -> None:
    check(model_of("Scaler", {"y": FLOAT}, offset=numbers(n), scale=numbers(n)))
    whole = model_of("Scaler", {"y": FLOAT}, INT64, offset=numbers(n), scale=numbers(n))
    check(whole, np.arange(8).reshape(2, 4))


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_normalizers_leave_rows_of_zeros(norm: str) -> None:
    check(model_of("Normalizer", {"y": FLOAT}, norm=norm))


@pytest.mark.parametrize("targets", [1, 3])
def test_regressors(targets: int) -> None:
    given: dict[str, Any] = {"coefficients": numbers(4 * targets), "intercepts": numbers(targets)}
    check(model_of("LinearRegressor", {"y": FLOAT}, targets=targets, **given))


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize(
    "labels",
    [
        {"classlabels_ints": [7, -2, 3]},
        {"classlabels_ints": [0, 1]},
        {"classlabels_strings": ["cat", "dog", "éléphant"]},
    ],
)
def test_classifiers(labels: dict[str, Any], transform: str) -> None:
    [(name, known)] = labels.items()
    kind = INT64 if name == "classlabels_ints" else STRING
    given: dict[str, Any] = {
        "coefficients": numbers(4 * len(known)),
        "intercepts": numbers(len(known)),
    }
    outputs = {"label": kind, "scores": FLOAT}
    check(model_of("LinearClassifier", outputs, post_transform=transform, **labels, **given))


def test_what_makes_no_sense_is_refused() -> None:
    outputs = {"label": INT64, "scores": FLOAT}
    wrong: dict[str, Any] = {"coefficients": numbers(4), "intercepts": [0.5]}
    model = model_of("LinearClassifier", outputs, classlabels_ints=[0, 1], **wrong)
    with pytest.raises(NotSupported, match="2 labels for 1 rows of coefficients"):
        Model.of_bytes(model.SerializeToString()).plan(rows=2)
    model = model_of("LinearRegressor", {"y": FLOAT}, coefficients=numbers(5))
    with pytest.raises(InvalidFile, match="5 coefficients for 1 rows"):
        Model.of_bytes(model.SerializeToString()).plan(rows=2)
    model = model_of("Scaler", {"y": FLOAT}, offset=numbers(3), scale=numbers(3))
    with pytest.raises(InvalidFile, match="offset has 3 numbers"):
        Model.of_bytes(model.SerializeToString()).plan(rows=2)
