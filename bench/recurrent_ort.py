"""ONNX Runtime's side of `bench.recurrent`: a model of one LSTM or GRU node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from bench.recurrent_cases import CASES, HIDDEN, Case, inputs, weights

#: Where ONNX has our gates: an LSTM's in the order i, o, f, g, a GRU's z, r, n.
_ORDER = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2)}


def prepare(case: str, threads: int) -> Callable[[], None]:
    session, given = made(CASES[case], threads)

    def work() -> None:
        session.run(None, given)

    return work


def made(case: Case, threads: int) -> tuple[onnxruntime.InferenceSession, dict[str, Any]]:
    """A session, and what its model is given."""
    w, r, bias = (
        np.concatenate([np.split(array, case.gates)[k] for k in _ORDER[case.kind]])[None]
        for array in weights(case)
    )
    bias = np.concatenate([bias, np.zeros_like(bias)], axis=1)
    x, *state = inputs(case)
    given = {"x": x} | {name: one[None] for name, one in zip("hc", state, strict=False)}
    results = ["y", *(f"y{name}" for name in given if name != "x")]
    options_of: dict[str, Any] = {} if case.kind == "LSTM" else {"linear_before_reset": 1}
    taken = ["x", "W", "R", "B", "", *(name for name in given if name != "x")]
    node = helper.make_node(case.kind, taken, results, hidden_size=HIDDEN, **options_of)
    graph = helper.make_graph(
        [node],
        "recurrent",
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape)
            for name, array in given.items()
        ],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in node.output],
        [numpy_helper.from_array(a, name) for name, a in (("W", w), ("R", r), ("B", bias))],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(model.SerializeToString(), options), given
