"""ONNX Runtime's side of `bench.int8`: MatMulInteger, and QLinearConv with channels last."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from bench.int8_cases import (
    PRODUCTS,
    X_SCALE,
    Y_SCALE,
    Array,
    kind_of,
    layer_arrays,
    layer_of,
    product_arrays,
    zero_of,
)

_TYPES = {np.uint8: TensorProto.UINT8, np.int8: TensorProto.INT8}


def prepare(case: str, threads: int) -> Callable[[], None]:
    x, model = _product(case) if case in PRODUCTS else _layer(case)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_output("y")

    def work() -> None:
        session.run_with_iobinding(binding)

    return work


def _product(case: str) -> tuple[Array, bytes]:
    a, w = product_arrays(case)
    node = helper.make_node("MatMulInteger", ["x", "w"], ["y"])
    shape = (a.shape[0], w.shape[1])
    return a, _model(case, node, a, shape, TensorProto.INT32, {"w": w})


def _layer(case: str) -> tuple[Array, bytes]:
    layer, kind = layer_of(case), kind_of(case)
    x, w, scales, bias = layer_arrays(case)
    zero = np.asarray(zero_of(case), kind)
    names = ["x", "x_scale", "x_zero", "w", "w_scale", "w_zero", "y_scale", "y_zero", "b"]
    node = helper.make_node(
        "QLinearConv",
        names,
        ["y"],
        domain="com.microsoft",
        kernel_shape=[layer.kernel] * 2,
        strides=[layer.stride] * 2,
        pads=[layer.kernel // 2] * 4,
        group=layer.groups,
        channels_last=1,
    )
    shape = (1, layer.places, layer.places, layer.out)
    held = {
        "x_scale": X_SCALE,
        "x_zero": zero,
        "w": w,
        "w_scale": scales,
        "w_zero": np.zeros(layer.out, np.int8),
        "y_scale": Y_SCALE,
        "y_zero": zero,
        "b": bias,
    }
    return x, _model(case, node, x, shape, _TYPES[kind], held)


def _model(
    case: str, node: Any, x: Array, shape: tuple[int, ...], made: int, held: dict[str, Any]
) -> bytes:
    graph = helper.make_graph(
        [node],
        "layer",
        [helper.make_tensor_value_info("x", _TYPES[kind_of(case)], x.shape)],
        [helper.make_tensor_value_info("y", made, shape)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in held.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets)
    model.ir_version = 8
    return bytes(model.SerializeToString())
