"""Quantised operators of com.microsoft: QLinearAdd, QGemm, MatMulIntegerToFloat and their kin.

Each operand comes with a scale and a zero point. Products are of integers; the others compute on
real numbers and quantise these.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import add, mul

from arenite.dtype import FLOAT32, DType
from arenite.frontends.onnx.call import Call
from arenite.frontends.onnx.ops.quantised import (
    columns,
    dequantized,
    dynamically,
    product_of,
    requantized,
    rows,
    scaled,
    zero_point,
)
from arenite.frontends.onnx.registry import MICROSOFT, Handler, Result, operator
from arenite.ir import Dim, Node, make, product
from arenite.ir.compose import basic, convolution, neural
from arenite.ir.compose.basic import cast, reshape, swap_axes, where
from arenite.ir.compose.reductions import mean


def _scalar(call: Call, index: int) -> Node:
    """A scale that is one number."""
    node = call.numbers(index)
    if any(size != 1 for size in node.shape):
        call.refuse(f"input {index} has shape {node.shape}; one scale for all is supported")
    return reshape(node, ())


def _zero(call: Call, index: int) -> Node | None:
    zero = zero_point(call, index)
    return None if zero is None else reshape(zero, ())


def _real(call: Call, index: int) -> Node:
    """What stands at an input, with a scale and a zero point behind it."""
    return dequantized(call.node(index), _scalar(call, index + 1), _zero(call, index + 2))


def _quantised(call: Call, real: Node, index: int) -> Node:
    """By the scale and the zero point at an input; without the latter of the first input's type."""
    units = real / _scalar(call, index)
    if call.has(index + 1):
        return requantized(call, units, index + 1)
    return cast(make("round", units), call.value(0).dtype)


def _binary(function: Callable[[Node, Node], Node]) -> Handler:
    return lambda call: _quantised(call, function(_real(call, 0), _real(call, 3)), 6)


for _name, _function in {"QLinearAdd": add, "QLinearMul": mul}.items():
    operator(_name, domain=MICROSOFT)(_binary(_function))


@operator("QLinearSigmoid", domain=MICROSOFT)
def sigmoid(call: Call) -> Result:
    return _quantised(call, neural.sigmoid(_real(call, 0)), 3)


@operator("QLinearLeakyRelu", domain=MICROSOFT)
def leaky_relu(call: Call) -> Result:
    return _quantised(call, neural.leaky_relu(_real(call, 0), call.attr("alpha", 0.01)), 3)


@operator("QLinearSoftmax", domain=MICROSOFT)
def softmax(call: Call) -> Result:
    x = _real(call, 0)
    axis = call.axis(call.attr("axis", -1), x.ndim)
    if call.need_attr("opset") < 13:
        flat = reshape(x, (-1, product(x.shape[axis:])))
        return _quantised(call, reshape(neural.softmax(flat, 1), x.shape), 3)
    return _quantised(call, neural.softmax(x, axis), 3)


@operator("QLinearReduceMean", domain=MICROSOFT)
def reduce_mean(call: Call) -> Result:
    x = _real(call, 0)
    given = call.attr("axes") or list(range(x.ndim))
    made = mean(x, call.axes(given, x.ndim), bool(call.attr("keepdims", 1)))
    return _quantised(call, made, 3)


@operator("QLinearGlobalAveragePool", domain=MICROSOFT)
def global_average_pool(call: Call) -> Result:
    x = _real(call, 0)
    last = bool(call.attr("channels_last", 0))
    axes = list(range(1, x.ndim - 1)) if last else list(range(2, x.ndim))
    return _quantised(call, mean(x, axes, keep=True), 3)


@operator("QLinearAveragePool", domain=MICROSOFT)
def average_pool(call: Call) -> Result:
    x = _real(call, 0)
    if call.attr("channels_last", 0) or call.attr("ceil_mode", 0):
        call.refuse("channels_last and ceil_mode are not supported")
    n = x.ndim - 2
    sizes = call.need_attr("kernel_shape")
    strides = call.attr("strides", [1] * n)
    if not len(sizes) == len(strides) == n:
        call.fail(f"kernel_shape {sizes} and strides {strides} for {n} axes")
    ones = [1] * n
    padding = _padding(call, x, sizes, strides)
    counted = padding if call.attr("count_include_pad", 0) else [(0, 0)] * n
    return _quantised(call, neural.avg_pool(x, sizes, strides, padding, ones, counted), 3)


def _padding(call: Call, x: Node, sizes: list[int], strides: list[int]) -> list[tuple[Dim, Dim]]:
    mode, n = call.attr("auto_pad", "NOTSET"), len(sizes)
    if mode in ("NOTSET", "VALID"):
        given = call.attr("pads", [0] * 2 * n) if mode == "NOTSET" else [0] * 2 * n
        if len(given) != 2 * n:
            call.fail(f"pads {given} for {n} axes")
        return list(zip(given[:n], given[n:], strict=True))
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        call.fail(f"there is no auto_pad {mode!r}")
    found = convolution.pairs("same", x.shape[2:], sizes, strides, [1] * n)
    return [pair if mode == "SAME_UPPER" else pair[::-1] for pair in found]


@operator("QLinearConcat", domain=MICROSOFT)
def concat(call: Call) -> Result:
    """Scale and zero point of the result come first."""
    if len(call) < 5 or len(call) % 3 != 2:
        call.fail(f"{len(call)} inputs; two, and three for each tensor, are needed")
    parts = [_real(call, index) for index in range(2, len(call), 3)]
    joined = basic.concat(parts, call.axis(call.need_attr("axis"), parts[0].ndim))
    return requantized(call, joined / _scalar(call, 0), 1)


@operator("QLinearWhere", domain=MICROSOFT)
def choice(call: Call) -> Result:
    return _quantised(call, where(call.node(0), _real(call, 1), _real(call, 4)), 7)


# Products.


@operator("QGemm", domain=MICROSOFT)
def gemm(call: Call) -> Result:
    """Floats, where no scale of the result is given. The bias is in units of the sums."""
    a, b = call.node(0), call.node(3)
    a = swap_axes(a, 0, 1) if call.attr("transA", 0) else a
    b = swap_axes(b, 0, 1) if call.attr("transB", 0) else b
    alpha = float(call.attr("alpha", 1.0))
    sums = product_of(a, zero_point(call, 2), b, zero_point(call, 5))
    if call.has(6):
        sums = sums + call.numbers(6)
    scale = _scalar(call, 1) * _per_column(call.numbers(4))
    scale = scale if alpha == 1 else scale * alpha
    if not call.has(7):
        return scaled(sums, scale)
    return requantized(call, scaled(sums, scale / _scalar(call, 7)), 8)


def _per_column(scale: Node) -> Node:
    return reshape(scale, ()) if all(size == 1 for size in scale.shape) else scale


@operator("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float(call: Call) -> Result:
    a, b = call.node(0), call.node(1)
    sums = product_of(a, zero_point(call, 4), b, zero_point(call, 5))
    scale_a, scale_b = rows(call.numbers(2), a), columns(call.numbers(3), b)
    assert scale_a is not None
    assert scale_b is not None
    return _with_bias(call, scaled(sums, cast(scale_a * scale_b, FLOAT32)), 6, scale_a.dtype)


@operator("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_matmul(call: Call) -> Result:
    numbers, scale, zero = dynamically(call.node(0))
    b = call.node(1)
    sums = product_of(numbers, zero, b, zero_point(call, 3))
    real = scaled(sums, scale * _per_column(call.numbers(2)))
    return _with_bias(call, real, 4, FLOAT32)


def _with_bias(call: Call, real: Node, index: int, dtype: DType) -> Node:
    bias = call.optional(index)
    return cast(real if bias is None else real + cast(bias, FLOAT32), dtype)
