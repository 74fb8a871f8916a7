"""Proposals of nodes for random models: quantisation, integers, and types narrower than a byte."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from tests.frontends.onnx.random_models import Dropped, ModelBuilder, Value
from tests.frontends.onnx.random_nodes import is_small


def quantise(b: ModelBuilder) -> None:
    x = b.pick(lambda one: one.is_exact and one.array.dtype == np.float32)
    if b.opset < 10:
        raise Dropped
    dtype = b.rng.choice([np.uint8, np.int8])
    scale = b.const(b.rng.choice([0.25, 0.5, 1.0]), np.float32)
    zero = b.const(b.rng.choice([0, 3, 10]), dtype)
    [q] = b.add("QuantizeLinear", [x, scale, zero], exact=True)
    if b.rng.random() < 0.8:
        b.add("DequantizeLinear", [q, scale, zero], exact=True)


def integer_product(b: ModelBuilder) -> None:
    x = b.pick(lambda one: one.array.dtype in (np.uint8, np.int8) and one.array.ndim > 1)
    if not all(x.least):
        raise Dropped  # ONNX Runtime leaves sums of nothing as they were in memory
    w = b.const(b.data((x.array.shape[-1], 3), np.int8), np.int8)
    given: list[Value | str] = [x, w, b.const(2, x.array.dtype)] if b.rng.random() < 0.5 else [x, w]
    b.add("MatMulInteger", given, exact=True)


def qdq_product(b: ModelBuilder) -> None:
    """A product between quantised sides, as quantisers write it."""
    x = b.pick(lambda one: one.is_exact and one.array.dtype == np.float32 and one.array.ndim > 1)
    if b.opset < 13:
        raise Dropped
    dtype = b.rng.choice([np.uint8, np.int8])
    scale, zero = b.const(0.25, np.float32), b.const(b.rng.choice([0, 3]), dtype)
    [q] = b.add("QuantizeLinear", [x, scale, zero], exact=True)
    [side] = b.add("DequantizeLinear", [q, scale, zero], exact=True)
    width = x.array.shape[-1]
    weights = b.const(b.data((width, 4), np.int8), np.int8)
    if b.rng.random() < 0.5:
        steps = b.const(np.asarray([0.125, 0.25, 0.5, 0.0625]), np.float32)
        zeros = b.const(np.zeros(4), np.int8)
        [other] = b.add("DequantizeLinear", [weights, steps, zeros], axis=1)
    else:
        [other] = b.add("DequantizeLinear", [weights, b.const(0.125, np.float32)])
    b.add("MatMul", [side, other])


def qdq_conv(b: ModelBuilder) -> None:
    x = b.pick(lambda one: one.is_exact and one.array.dtype == np.float32 and one.array.ndim == 4)
    if b.opset < 13 or not all(x.least) or min(x.least[2:]) < 2:
        raise Dropped
    scale, zero = b.const(0.125, np.float32), b.const(128, np.uint8)
    [q] = b.add("QuantizeLinear", [x, scale, zero], exact=True)
    [side] = b.add("DequantizeLinear", [q, scale, zero], exact=True)
    weights = b.const(b.data((3, x.array.shape[1], 2, 2), np.int8), np.int8)
    [other] = b.add("DequantizeLinear", [weights, b.const([0.125, 0.25, 0.5], np.float32),
                                         b.const([0, 0, 0], np.int8)], axis=0)  # fmt: skip
    b.add("Conv", [side, other], pads=[1, 0, 0, 1])


def _integers(b: ModelBuilder, least: int) -> Value:
    return b.pick(
        lambda one: (
            one.array.dtype in (np.uint8, np.int8) and one.array.ndim >= least and all(one.least)
        )
    )


def q_linear(b: ModelBuilder) -> None:
    """Products of quantised numbers that give quantised ones. Scales are powers of two that leave a
    sixteenth over, so that no result lies in the middle of two and all agree how it rounds."""
    op = b.rng.choice(["QLinearMatMul", "QLinearConv", "ConvInteger"])
    x = _integers(b, 2 if op == "QLinearMatMul" else 4)
    if b.opset < 10 or (op != "QLinearMatMul" and min(x.least[2:]) < 2):
        raise Dropped
    dtype = x.array.dtype
    one, zero = b.const(1.0, np.float32), b.const(b.rng.choice([0, 2]), dtype)
    if op == "QLinearMatMul":
        w = b.const(b.data((x.array.shape[-1], 3), np.int8), np.int8)
    else:
        w = b.const(b.data((2, x.array.shape[1], 2, 2), np.int8), np.int8)
    w_zero = b.const(0, np.int8)
    if op == "ConvInteger":
        if dtype == np.int8:
            raise Dropped  # the standard has it, ONNX Runtime and its own evaluator have not
        b.add(op, [x, w, zero], exact=True, pads=[0, 1, 1, 0])
        return
    out, out_zero = b.const(17.0, np.float32), b.const(b.rng.choice([0, 5]), dtype)
    b.add(op, [x, one, zero, w, one, w_zero, out, out_zero], exact=True)


def dynamic(b: ModelBuilder) -> None:
    """Quantised by the range that a run finds; numbers beside the middle of two steps may go
    either way, so what is let out is near, not equal."""
    x = b.pick(lambda one: one.is_exact and one.array.dtype == np.float32 and all(one.least))
    if b.opset < 11 or any(not one.size or not one.any() for one in x.arrays):
        raise Dropped
    names = [b.fresh() for _ in range(4)]
    nodes = [
        helper.make_node("DynamicQuantizeLinear", [x.name], names[:3]),
        helper.make_node("DequantizeLinear", names[:3], [names[3]]),
    ]
    [found] = b.add_nodes(nodes, names[3:], exact=False)
    found.scale *= 2.0**17 / 255  # one step either way


#: Narrow types, with the operator set that has them.
NARROW = {
    TensorProto.INT4: 21, TensorProto.UINT4: 21, TensorProto.FLOAT8E4M3FN: 19,
    TensorProto.FLOAT8E5M2: 19, TensorProto.FLOAT8E4M3FNUZ: 19, TensorProto.FLOAT8E5M2FNUZ: 19,
    TensorProto.FLOAT4E2M1: 23, TensorProto.INT2: 25, TensorProto.UINT2: 25,
}  # fmt: skip


def narrow(b: ModelBuilder) -> None:
    """Into four or eight bits and back, moved on the way."""
    x = b.pick(lambda one: one.is_exact and one.array.dtype == np.float32 and one.array.ndim > 0)
    kind = b.rng.choice([one for one, since in NARROW.items() if b.opset >= since] or [0])
    if not kind or b.opset < 19:
        raise Dropped
    names = [b.fresh() for _ in range(3)]
    is_integer = kind in (TensorProto.INT4, TensorProto.UINT4, TensorProto.INT2, TensorProto.UINT2)
    if is_integer or b.rng.random() < 0.5:
        scale = b.const(b.rng.choice([0.5, 1.0]), np.float32)
        zero = helper.make_tensor(b.fresh("c"), kind, [], [0])
        b.stored.append(zero)
        b.arrays[zero.name] = np.asarray(numpy_helper.to_array(zero))
        nodes = [helper.make_node("QuantizeLinear", [x.name, scale, zero.name], names[:1])]
        back: dict[str, Any] = {"op_type": "DequantizeLinear"}
        ends = [scale, zero.name]
    else:
        nodes = [helper.make_node("Cast", [x.name], names[:1], to=kind)]
        back, ends = {"op_type": "Cast", "to": TensorProto.FLOAT}, []
    move = b.rng.choice(["Transpose", "Reshape", "Identity", ""])
    if move == "Reshape":
        nodes.append(helper.make_node(move, [names[0], b.const([-1])], [names[1]]))
    elif move:
        nodes.append(helper.make_node(move, names[:1], [names[1]]))
    middle = names[1] if move else names[0]
    nodes.append(helper.make_node(inputs=[middle, *ends], outputs=names[2:], **back))
    b.add_nodes(nodes, names[2:], exact=True)


def blocked(b: ModelBuilder) -> None:
    """Weights in blocks, each with a scale of its own."""
    x = b.pick(lambda one: is_small(one) and one.array.dtype == np.float32 and one.array.ndim > 1)
    width = x.array.shape[-1]
    if b.opset < 21 or width % 2 or not width:
        raise Dropped
    kind = b.rng.choice([TensorProto.INT4, TensorProto.UINT4, TensorProto.INT8])
    numbers = b.numbers.integers(0, 7, (width, 3))
    weights = helper.make_tensor(b.fresh("c"), kind, [width, 3], numbers.reshape(-1).tolist())
    b.stored.append(weights)
    b.arrays[weights.name] = np.asarray(numpy_helper.to_array(weights))
    scales = b.const(b.numbers.integers(1, 8, (2, 3)) / 32, np.float32)
    name = b.fresh()
    node = helper.make_node("DequantizeLinear", [weights.name, scales], [name], axis=0,
                            block_size=width // 2)  # fmt: skip
    [found] = b.add_nodes([node], [name], exact=False)
    b.add("MatMul", [x, found])
