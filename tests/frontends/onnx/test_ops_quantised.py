"""Quantised models compute in integers, and give what the standard's evaluator gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from arenite.backends.cpu.passes import PASSES
from arenite.ir import Var, evaluate
from arenite.passes import NEUTRAL, run
from arenite.passes.constants import is_known
from tests.frontends.onnx.one_node import Const, graph_of, judged, model_of, ran

RNG = np.random.default_rng(5)


def stored(name: str, values: Any, dtype: Any = np.float32) -> TensorProto:
    return numpy_helper.from_array(np.asarray(values, dtype), name)


def network(kind: Any) -> ModelProto:
    """As quantisers write it: a convolution, a pool, a residual, a product, between bytes."""
    zero = 3 if kind == np.int8 else 130
    channels = RNG.random(8).astype(np.float32) * 0.02 + 0.01
    w = RNG.integers(-127, 128, (8, 8, 3, 3)).astype(np.int8)
    nodes, tensors = (
        [],
        [
            stored("zero", zero, kind),
            stored("none", 0, kind),
            stored("w8", w, np.int8),
            stored("ws", channels),
            stored("wz", np.zeros(8), np.int8),
            stored("b8", RNG.integers(-900, 900, 8), np.int32),
            stored("bs", channels * np.float32(0.02)),
            stored("m8", RNG.integers(-127, 128, (8 * 16, 5)), np.int8),
            stored("shape", [0, -1], np.int64),
        ],
    )
    for name, scale in {"xs": 0.02, "cs": 0.03, "as": 0.05, "ms": 0.01, "ys": 0.2}.items():
        tensors.append(stored(name, scale))

    def node(op: str, inputs: str, output: str, **attrs: Any) -> None:
        nodes.append(helper.make_node(op, inputs.split(), [output], **attrs))

    def again(name: str, scale: str, zero: str) -> None:
        node("QuantizeLinear", f"{name} {scale} {zero}", f"{name}_q")
        node("DequantizeLinear", f"{name}_q {scale} {zero}", f"{name}_d")

    again("x", "xs", "zero")
    node("DequantizeLinear", "w8 ws wz", "w", axis=0)
    node("DequantizeLinear", "b8 bs", "b", axis=0)
    node("Conv", "x_d w b", "c", pads=[1, 1, 1, 1])
    again("c", "cs", "zero")
    node("Add", "c_d x_d", "a")
    node("Relu", "a", "r")
    again("r", "as", "none")
    node("MaxPool", "r_d", "p", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    again("p", "as", "none")
    node("Reshape", "p_d shape", "f")
    node("DequantizeLinear", "m8 ms", "m")
    node("MatMul", "f m", "y")
    again("y", "ys", "zero")
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8, 8, 8])],
        [helper.make_tensor_value_info("y_d", TensorProto.FLOAT, ["n", 5])],
        tensors,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)])


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("rows", [2, Var("n", 1, 4)])
def test_between_bytes_products_are_of_bytes(kind: Any, rows: Any) -> None:
    model = network(kind)
    x = RNG.standard_normal((2, 8, 8, 8)).astype(np.float32)
    graph = graph_of(model, {"x": x}, {"x": (rows, 8, 8, 8)})
    after, _ = run(graph, (*NEUTRAL, *PASSES))
    ops = [node.op for node in after.nodes if not is_known(node)]
    assert ops.count("conv_bytes") == ops.count("matmul_bytes") == 1
    assert not {"conv", "conv_last", "matmul", "matmul_panels"} & set(ops)
    [wanted] = judged(model, {"x": x})
    [made] = evaluate(run(graph, NEUTRAL)[0], [x])
    # A number that is half-way between two may go to the other one.
    assert np.abs(made - wanted).max() <= 0.2 * 1.01
    assert (made == wanted).mean() > 0.8


def test_a_pool_between_bytes_of_one_scale_is_of_bytes() -> None:
    graph = graph_of(network(np.uint8), {"x": np.zeros((1, 8, 8, 8), np.float32)})
    after, _ = run(graph, NEUTRAL)
    [pool] = [node for node in after.nodes if node.op == "max"]
    assert pool.dtype.name == "uint8"


U8 = RNG.integers(0, 256, (2, 3, 8)).astype(np.uint8)
W8 = RNG.integers(-128, 128, (8, 5)).astype(np.int8)


@pytest.mark.parametrize(
    ("op", "inputs", "attrs"),
    [
        ("MatMulInteger", [U8, Const(W8, np.int8), Const(9, np.uint8), Const(3, np.int8)], {}),
        ("MatMulInteger", [U8, Const(W8, np.int8), Const(9, np.uint8),
                           Const([1, 2, 3, 4, 5], np.int8)], {}),
        ("ConvInteger", [RNG.integers(0, 256, (1, 2, 5, 6)).astype(np.uint8),
                         Const(RNG.integers(0, 256, (4, 2, 3, 2)), np.uint8), Const(7, np.uint8)],
         {"pads": [1, 0, 1, 1], "strides": [2, 1]}),
        ("QuantizeLinear", [np.array([0.5, 1.5, -0.5, 1e9, -1e9, 2.49], np.float32),
                            Const(1, np.float32), Const(5, np.int8)], {}),
        ("QuantizeLinear", [U8.astype(np.float32), Const([0.5, 2, 4], np.float32),
                            Const([0, 7, 9], np.uint8)], {"axis": -2}),
        ("DequantizeLinear", [U8, Const([0.5, 2, 4], np.float32), Const([0, 7, 9], np.uint8)],
         {"axis": 1}),
        ("DynamicQuantizeLinear", [RNG.standard_normal((3, 4)).astype(np.float32)], {}),
        ("DynamicQuantizeLinear", [np.array([1, 2, 5], np.float32)], {}),
    ],
)  # fmt: skip
def test_integers_are_those_of_the_standard(
    op: str, inputs: list[Any], attrs: dict[str, Any]
) -> None:
    n_outputs = 3 if op == "DynamicQuantizeLinear" else 1
    model, arrays = model_of(op, inputs, 19, n_outputs, **attrs)
    for made, wanted in zip(
        evaluate(graph_of(model, arrays), list(arrays.values())), judged(model, arrays), strict=True
    ):
        assert (made.dtype, made.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_allclose(made, wanted, rtol=1e-6)


def test_an_image_quantised_in_the_run_is_convolved_in_bytes() -> None:
    x = RNG.integers(0, 256, (1, 2, 5, 6)).astype(np.uint8)
    w = RNG.integers(-128, 128, (3, 2, 3, 3)).astype(np.int8)
    model, arrays = model_of(
        "ConvInteger", [x, Const(w, np.int8), np.uint8(9)], 10, pads=[1, 1, 1, 1]
    )
    image = (1, 2, Var("height", 3, 99), Var("width", 3, 99))
    graph = graph_of(model, arrays, {"x0": image})
    ops = [node.op for node in run(graph, (*NEUTRAL, *PASSES))[0].nodes]
    assert "conv_bytes" in ops
    assert "conv" not in ops
    [made], [wanted] = evaluate(graph, list(arrays.values())), judged(model, arrays)
    np.testing.assert_array_equal(made, wanted)


def test_what_is_zero_everywhere_is_quantised_without_a_division_by_it() -> None:
    numbers, scale, zero = ran("DynamicQuantizeLinear", [np.zeros(3, np.float32)], 11, 3)
    assert ((numbers - zero) * scale == 0).all()
    assert scale > 0


@pytest.mark.parametrize("block", [3, 4])
def test_a_scale_may_belong_to_a_block_whose_last_is_shorter(block: int) -> None:
    x = RNG.integers(-8, 8, (10, 2)).astype(np.int8)
    scale = RNG.random((-(-10 // block), 2)).astype(np.float32)
    [made] = ran("DequantizeLinear", [x, Const(scale, np.float32)], 21, axis=0, block_size=block)
    np.testing.assert_array_equal(made, x * np.repeat(scale, block, 0)[:10])


def test_quantised_operators_of_microsoft_compute_on_what_the_bytes_mean() -> None:
    a, b = U8[0], U8[1]
    parts = [a, Const(0.02, np.float32), Const(120, np.uint8)]
    parts += [b, Const(0.03, np.float32), Const(3, np.uint8)]
    result = [Const(0.05, np.float32), Const(100, np.uint8)]
    real_a, real_b = (a.astype(float) - 120) * 0.02, (b.astype(float) - 3) * 0.03
    for op, real in {"QLinearAdd": real_a + real_b, "QLinearMul": real_a * real_b}.items():
        [made] = ran(op, [*parts, *result], 17, domain="com.microsoft")
        wanted = np.clip(np.rint(real / 0.05) + 100, 0, 255)
        assert np.abs(made - wanted).max() <= 1
        assert (made == wanted).mean() > 0.9
    bias = RNG.integers(-99, 99, 5).astype(np.int32)
    inputs = [*parts[:3], Const(W8, np.int8), Const(0.1, np.float32), Const(2, np.int8)]
    [made] = ran("QGemm", [*inputs, Const(bias, np.int32)], 17, domain="com.microsoft", alpha=0.5)
    sums = (a.astype(int) - 120) @ (W8.astype(int) - 2) + bias
    np.testing.assert_allclose(made, sums * (0.02 * 0.1 * 0.5), rtol=1e-6)
