"""An ONNX model of the kinds in `bench.models` as a graph of Arenite, for benchmarks alone.

Every convolution's origin carries its name in the model. What DequantizeLinear makes stays bytes
with a scale and a zero point, so that convolutions of it are done on integers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from arenite.dtype import BY_NAME
from arenite.ir import constant, graph_input
from arenite.ir.graph import Graph
from arenite.ir.node import Node, Origin, Origins
from arenite.tensor import Tensor, concatenate

Array = NDArray[Any]
FLOAT32 = BY_NAME["float32"]


@dataclass(frozen=True)
class Scaled:
    """A sum of integers times scales, and perhaps nothing below zero; the scales wait, so that what
    quantizes this divides them and not every element."""

    parts: tuple[tuple[Tensor, Array], ...]
    is_relu: bool = False

    def real(self, unit: float = 1.0) -> Tensor:
        """How many units."""
        terms = [
            numbers.astype(np.float32) * Tensor.of_node(constant((scale / unit).astype(np.float32)))
            for numbers, scale in self.parts
        ]
        total = terms[0] if len(terms) == 1 else terms[0] + terms[1]
        return total.relu() if self.is_relu else total


@dataclass(frozen=True)
class Quantized:
    """(bytes - zero) * scale; scale and zero along `axis` where they are not one number."""

    bytes: Tensor
    scale: Array
    zero: Array
    axis: int = 1

    def along(self, numbers: Array) -> Array:
        """Numbers in the shape that goes with the bytes."""
        if numbers.size == 1:
            return numbers.reshape(())
        shape = [1] * self.bytes.ndim
        shape[self.axis] = numbers.size
        return numbers.reshape(shape)

    def shifted(self) -> Tensor:
        """The integers that are scaled."""
        wide = self.bytes.astype(np.int32)
        zero = self.along(self.zero.astype(np.int32))
        return wide - Tensor(zero) if zero.any() else wide

    def scaled(self) -> Scaled:
        return Scaled(((self.shifted(), self.along(self.scale)),))

    def real(self) -> Tensor:
        return self.scaled().real()


Value = Any  # of a name in the model: Tensor, Scaled, Quantized, or an array that is constant


def read(model: onnx.ModelProto) -> Graph:
    """The graph of the one output."""
    [given] = model.graph.input
    shape = tuple(size.dim_value for size in given.type.tensor_type.shape.dim)
    values: dict[str, Value] = {"": None}
    values[given.name] = Tensor.of_node(graph_input(given.name, 0, shape, FLOAT32))
    values |= {one.name: numpy_helper.to_array(one) for one in model.graph.initializer}
    origins = Origins()
    for node in model.graph.node:
        attrs = {one.name: helper.get_attribute_value(one) for one in node.attribute}
        if node.op_type == "Constant":
            values[node.output[0]] = numpy_helper.to_array(attrs["value"])
            continue
        inputs = [values[name] for name in node.input]
        if node.op_type not in _OF_BYTES:
            inputs = [_real(one) for one in inputs]
        made = _OPS[node.op_type](*inputs, **attrs)
        values[node.output[0]] = made
        if node.op_type in ("Conv", "ConvTranspose"):
            made = made.parts[0][0] if isinstance(made, Scaled) else made
            origins.add(convolution_in(made.node), Origin("", 0, name_of(node)))
    [output] = model.graph.output
    return Graph.of([_real(values[output.name]).node], origins)


def _real(value: Value) -> Value:
    return value.real() if isinstance(value, Quantized | Scaled) else value


def name_of(node: onnx.NodeProto) -> str:
    """What a convolution is called on all sides."""
    return str(node.name or node.output[0])


def convolution_in(node: Node) -> Node:
    """The convolution at the bottom of a bias and scales."""
    while node.op not in ("conv", "conv_transpose"):
        node = next(one for one in node.inputs if one.op not in ("constant", "buffer", "expand"))
    return node


def _pairs(pads: list[int]) -> list[tuple[int, int]]:
    n = len(pads) // 2
    return list(zip(pads[:n], pads[n:], strict=True))


def _conv(x: Value, w: Value, b: Value = None, **attrs: Any) -> Value:
    more = {
        "stride": attrs["strides"],
        "padding": _pairs(attrs["pads"]),
        "dilation": attrs.get("dilations", 1),
        "groups": attrs["group"],
    }
    if not isinstance(x, Quantized):
        return x.conv(w, b, **more)
    sums = x.shifted().conv(w.bytes.astype(np.int32), **more)
    row = (1, -1, 1, 1)
    if b is not None:
        sums = sums + b.bytes.reshape(row)
    return Scaled(((sums, (x.scale * w.scale).reshape(row)),))


def _conv_transpose(x: Tensor, w: Array, b: Value = None, **attrs: Any) -> Tensor:
    assert not any(attrs["pads"])
    return x.conv_transpose(w, b, stride=attrs["strides"], groups=attrs["group"])


def _quantize(x: Value, scale: Array, zero: Array, axis: int = 1) -> Quantized:
    if isinstance(x, Quantized):
        assert (x.scale, x.zero) == (scale, zero)
        return x
    assert scale.size == 1
    units = x.real(float(scale)) if isinstance(x, Scaled) else x / Tensor(scale)
    info = np.iinfo(zero.dtype)
    whole = units.round() + float(zero)
    made = whole.clip(float(info.min), float(info.max)).astype(zero.dtype)
    return Quantized(made, scale, zero, axis)


def _dequantize(x: Value, scale: Array, zero: Array | None = None, axis: int = 1) -> Quantized:
    if isinstance(x, Quantized):
        return x
    if zero is None:
        zero = np.zeros((), np.int32)
    return Quantized(Tensor(x), scale, zero, axis)


def _resize(x: Tensor, _roi: Value, scales: Array, **attrs: Any) -> Tensor:
    assert (attrs["mode"], attrs["nearest_mode"]) == (b"nearest", b"floor")
    assert attrs["coordinate_transformation_mode"] == b"asymmetric"
    for axis, factor in enumerate(scales):
        if factor != 1:
            x = x.repeat(int(factor), axis)
    return x


def _gemm(a: Value, b: Value, c: Value, **attrs: Any) -> Value:
    assert attrs["transB"] == 1
    if not isinstance(a, Quantized):
        return a @ Tensor(b).T + Tensor(c)
    sums = a.shifted() @ b.bytes.T.astype(np.int32) + c.bytes
    return Scaled(((sums, a.scale * b.scale),))


def _add(a: Value, b: Value) -> Value:
    both = [one.scaled() if isinstance(one, Quantized) else one for one in (a, b)]
    if all(isinstance(one, Scaled) and not one.is_relu for one in both):
        return Scaled(both[0].parts + both[1].parts)
    return Tensor(_real(a)) + _real(b)


def _relu(x: Value) -> Value:
    x = x.scaled() if isinstance(x, Quantized) else x
    return replace(x, is_relu=True) if isinstance(x, Scaled) else x.relu()


def _max_pool(x: Value, kernel_shape: Any, strides: Any, pads: Any, **_: Any) -> Value:
    if isinstance(x, Quantized):
        return replace(x, bytes=x.bytes.max_pool(kernel_shape, strides, _pairs(pads)))
    return x.max_pool(kernel_shape, strides, _pairs(pads))


#: Ops that take bytes as they are.
_OF_BYTES = frozenset(
    {"Conv", "Gemm", "Add", "Relu", "MaxPool", "QuantizeLinear", "DequantizeLinear"}
)

_OPS: dict[str, Callable[..., Value]] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "BatchNormalization": lambda x, w, b, mean, var, epsilon, **_: x.batch_norm(
        mean, var, w, b, epsilon
    ),
    "Relu": _relu,
    "Clip": lambda x, low, high: x.clip(float(low), float(high)),
    "Sigmoid": lambda x: x.sigmoid(),
    "HardSigmoid": lambda x, alpha, beta: (x * float(alpha) + float(beta)).clip(0.0, 1.0),
    "Add": _add,
    "Mul": lambda a, b: Tensor(a) * b,
    "Div": lambda a, b: Tensor(a) / b,
    "Concat": lambda *parts, axis: concatenate(parts, axis),
    "Resize": _resize,
    "MaxPool": _max_pool,
    "GlobalAveragePool": lambda x: x.mean(axis=(2, 3), keepdims=True),
    "Flatten": lambda x, axis: x.flatten(axis),
    "Gemm": _gemm,
    "QuantizeLinear": _quantize,
    "DequantizeLinear": _dequantize,
}
