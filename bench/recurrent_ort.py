"""ONNX Runtime's side of `bench.recurrent`: a model of one LSTM node."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from bench.recurrent_cases import HIDDEN, inputs, weights

#: ONNX orders the gates i, o, f, g.
_ORDER = (0, 3, 1, 2)


def prepare(case: str, threads: int) -> Callable[[], None]:
    w, r, bias = (
        np.concatenate([np.split(array, 4)[k] for k in _ORDER])[None] for array in weights()
    )
    bias = np.concatenate([bias, np.zeros_like(bias)], axis=1)
    x, h, c = inputs(case)
    given = {"x": x, "h": h[None], "c": c[None]}
    node = helper.make_node(
        "LSTM", ["x", "W", "R", "B", "", "h", "c"], ["y", "yh", "yc"], hidden_size=HIDDEN
    )
    graph = helper.make_graph(
        [node],
        "lstm",
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
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)

    def work() -> None:
        session.run(None, given)

    return work
