"""ResNet-50 and MobileNetV2 as ONNX models: the published shapes, seeded random weights.

Norms are in the weights already, as every runtime would fold them. Weights are scaled so that
activations keep their size from layer to layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper


class Writer:
    """Nodes and weights, one after another; methods return the names of values."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.weights: list[TensorProto] = []
        self.rng = np.random.default_rng(0)

    def node(self, op: str, inputs: Sequence[str], **attrs: Any) -> str:
        name = f"{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attrs))
        return name

    def weight(self, shape: Sequence[int], scale: float) -> str:
        name = f"w{len(self.weights)}"
        values = self.rng.standard_normal(shape, np.float32) * np.float32(scale)
        self.weights.append(numpy_helper.from_array(values, name))
        return name

    def number(self, value: float) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value, np.float32), name))
        return name

    def conv(
        self, x: str, channels: int, out: int, kernel: int, stride: int = 1, groups: int = 1
    ) -> str:
        depth = channels // groups * kernel**2
        inputs = [
            x,
            self.weight((out, channels // groups, kernel, kernel), (2 / depth) ** 0.5),
            self.weight((out,), 0.1),
        ]
        return self.node(
            "Conv",
            inputs,
            kernel_shape=[kernel] * 2,
            strides=[stride] * 2,
            pads=[kernel // 2] * 4,
            group=groups,
        )

    def head(self, x: str, channels: int) -> str:
        """The mean over the image, and a thousand classes."""
        flat = self.node("Flatten", [self.node("GlobalAveragePool", [x])], axis=1)
        inputs = [flat, self.weight((1000, channels), channels**-0.5), self.weight((1000,), 0.1)]
        return self.node("Gemm", inputs, transB=1)

    def model(self, output: str) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "model",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, 224, 224))],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, (1, 1000))],
            self.weights,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        model.ir_version = 8
        onnx.checker.check_model(model)
        return model


def resnet50() -> onnx.ModelProto:
    """He et al., "Deep residual learning" (2015), with the stride on the 3x3 convolutions."""
    to = Writer()
    x = to.node("Relu", [to.conv("x", 3, 64, 7, 2)])
    x = to.node("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    channels = 64
    for width, depth, first in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(depth):
            stride = first if block == 0 else 1
            kept = to.conv(x, channels, width * 4, 1, stride) if block == 0 else x
            y = to.node("Relu", [to.conv(x, channels, width, 1)])
            y = to.node("Relu", [to.conv(y, width, width, 3, stride)])
            y = to.conv(y, width, width * 4, 1)
            x = to.node("Relu", [to.node("Add", [y, kept])])
            channels = width * 4
    return to.model(to.head(x, channels))


def mobilenetv2() -> onnx.ModelProto:
    """Sandler et al., "MobileNetV2" (2018)."""
    to = Writer()
    bounds = [to.number(0.0), to.number(6.0)]

    def relu6(x: str) -> str:
        return to.node("Clip", [x, *bounds])

    x = relu6(to.conv("x", 3, 32, 3, 2))
    channels = 32
    for factor, out, depth, first in (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):
        for block in range(depth):
            stride = first if block == 0 else 1
            wide = channels * factor
            y = relu6(to.conv(x, channels, wide, 1)) if factor > 1 else x
            y = relu6(to.conv(y, wide, wide, 3, stride, wide))
            y = to.conv(y, wide, out, 1)
            x = to.node("Add", [x, y]) if stride == 1 and channels == out else y
            channels = out
    x = relu6(to.conv(x, channels, 1280, 1))
    return to.model(to.head(x, 1280))
