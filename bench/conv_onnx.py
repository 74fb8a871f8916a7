"""ONNX Runtime's side of `bench.conv`: a model of Conv and Relu; its own layout is inside."""

from __future__ import annotations

from collections.abc import Callable

import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from bench.conv_cases import LAYERS


def prepare(case: str, threads: int) -> Callable[[], None]:
    layer = LAYERS[case]
    x, w, bias = layer.arrays()
    side = layer.kernel // 2
    conv = helper.make_node(
        "Conv",
        ["x", "w", "b"],
        ["t"],
        kernel_shape=[layer.kernel] * 2,
        strides=[layer.stride] * 2,
        pads=[side] * 4,
        group=layer.groups,
    )
    shape = (1, layer.out, layer.places, layer.places)
    graph = helper.make_graph(
        [conv, helper.make_node("Relu", ["t"], ["y"])],
        "layer",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(bias, "b")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.checker.check_model(model)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    binding = session.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_output("y")

    def work() -> None:
        session.run_with_iobinding(binding)

    return work
