"""DynamicQuantizeLSTM, which ONNX Runtime's quantiser makes of every LSTM, against that runtime:
its own operator, whose states are rounded to 8 bits, and its LSTM of the weights that are meant."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, helper, numpy_helper

from arenite.model import Model
from tests.frontends.onnx.runtime import run_runtime

RNG = np.random.default_rng(3)
TIME, BATCH, INPUTS, HIDDEN = 5, 3, 6, 8
OUTPUTS = ["y", "h", "c"]


def model_of(op: str, domain: str, stored: dict[str, Any], inputs: list[str]) -> ModelProto:
    node = helper.make_node(
        op, inputs, OUTPUTS, domain=domain, hidden_size=HIDDEN, direction="bidirectional"
    )
    tensors = [numpy_helper.from_array(array, name) for name, array in stored.items()]
    x = helper.make_tensor_value_info("x", 1, ["time", BATCH, INPUTS])
    results = [helper.make_tensor_value_info(name, 1, None) for name in OUTPUTS]
    graph = helper.make_graph([node], "g", [x], results, tensors)
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=sets, ir_version=9)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("is_per_gate", [False, True])
def test_it_is_an_lstm_of_what_its_weights_stand_for(dtype: Any, is_per_gate: bool) -> None:
    gates = 4 * HIDDEN
    bounds = np.iinfo(dtype)
    state = RNG.standard_normal((2, BATCH, HIDDEN)).astype(np.float32)
    given: dict[str, Any] = {
        "b": RNG.standard_normal((2, 2 * gates)).astype(np.float32),
        "lengths": np.array([5, 2, 4], np.int32),
        "h0": state,
        "c0": state[::-1].copy(),
    }
    shape = (2, gates) if is_per_gate else (2,)
    integers: dict[str, Any] = {}
    real: dict[str, Any] = {}
    for name, depth in {"w": INPUTS, "r": HIDDEN}.items():
        numbers = RNG.integers(bounds.min, bounds.max, (2, depth, gates), dtype, endpoint=True)
        scale = (RNG.random(shape) * 0.004 + 0.002).astype(np.float32)
        zero = np.full(shape, 128 if dtype == np.uint8 else 0 if is_per_gate else 3, dtype)
        integers |= {name: numbers, f"{name}s": scale, f"{name}z": zero}
        wide = [one.reshape(2, 1, -1).astype(np.float32) for one in (zero, scale)]
        real[name] = ((numbers.astype(np.float32) - wide[0]) * wide[1]).transpose(0, 2, 1).copy()
    names = ["x", "w", "r", *given]
    model = model_of(
        "DynamicQuantizeLSTM",
        "com.microsoft",
        integers | given,
        [*names, "", "ws", "wz", "rs", "rz"],
    )
    exact = model_of("LSTM", "", real | given, names)
    feed = {"x": RNG.standard_normal((TIME, BATCH, INPUTS)).astype(np.float32)}
    with Model.of_bytes(model.SerializeToString()).compile(threads=1) as program:
        results = program(feed)
    for judge, tolerance in ((exact, 1e-5), (model, 0.03)):
        for name, wanted in zip(OUTPUTS, run_runtime(judge, feed), strict=True):
            np.testing.assert_allclose(results[name], wanted, rtol=0, atol=tolerance)
