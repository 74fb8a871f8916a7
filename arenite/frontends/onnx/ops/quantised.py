"""Operators on quantised numbers: QuantizeLinear, QLinearMatMul, ConvInteger and their kin.

Products are of integers less their zero points, `matmul(cast(a, int32) - za, cast(b, int32) - zb)`,
and scales come after: the form that back ends make products of bytes of. What DequantizeLinear
makes is `cast(integers, float32) * scale`, by which `passes.quantised` knows it.
"""

from __future__ import annotations

from arenite.dtype import FLOAT32, INT32, UINT8, DType
from arenite.frontends.onnx.call import Call
from arenite.frontends.onnx.ops.casts import numbers
from arenite.frontends.onnx.registry import Result, operator
from arenite.frontends.onnx.types import dtype_of
from arenite.ir import Dim, Node, full, make
from arenite.ir.compose.basic import (
    Operand,
    along,
    binary,
    broadcast_to,
    cast,
    expand_dims,
    permute,
    reshape,
    slice_axis,
    where,
)
from arenite.ir.compose.blocks import blocks_of, has_blocks
from arenite.ir.compose.convolution import pairs
from arenite.ir.compose.linear import matmul
from arenite.ir.compose.padding import filled
from arenite.ir.compose.reductions import reduce
from arenite.ir.element import widened
from arenite.ir.ops.blocks import RUN, dequantise
from arenite.ir.ops.define import INTEGER

# One number after the other.


def quantized(x: Node, zero: Node | None, dtype: DType, saturate: bool = True) -> Node:
    """Numbers of units as elements of a quantised type: to the nearest, within its range."""
    if dtype.kind not in INTEGER:
        return numbers(x if zero is None else x + cast(zero, x.dtype), dtype, saturate)
    whole = cast(make("round", x), FLOAT32 if x.dtype.bits < 32 else x.dtype)
    if zero is not None:
        whole = whole + _operand(zero, whole.dtype)
    return cast(whole, dtype)  # which keeps within the range


def shifted(x: Node, zero: Node | None) -> Node:
    """Integers less their zero point."""
    wide = cast(x, INT32)
    return wide if zero is None else wide - _operand(zero, INT32)


def _operand(zero: Node, dtype: DType) -> Operand:
    """A zero point in another type; one number as that."""
    return zero.attr("value") if zero.op == "full" else cast(zero, dtype)


def dequantized(x: Node, scale: Node, zero: Node | None) -> Node:
    """Real numbers, in float32 or the scale's wider type."""
    dtype = scale.dtype if scale.dtype.bits > 32 else FLOAT32
    if x.dtype.kind in INTEGER:
        real = cast(shifted(x, zero), dtype)
    else:
        real = cast(x, dtype)
        real = real if zero is None else real - cast(zero, dtype)
    return real * cast(scale, dtype)


def zero_point(call: Call, index: int) -> Node | None:
    """A zero point, unless it is known to be 0 everywhere; one number that is known as that."""
    if not call.has(index):
        return None
    value = call.value(index)
    known = value.known
    if known is None:
        return value.node
    wide = widened(known, value.dtype)
    if not wide.any():
        return None
    return full((), wide.item(), value.dtype) if wide.size == 1 else call.numbers(index)


def _spread(call: Call, given: Node, x: Node) -> Node:
    """A scale or a zero point so that it broadcasts with x: one, one for each place of an axis, or
    one for each block along it."""
    if all(size == 1 for size in given.shape):
        return reshape(given, ())
    axis = call.axis(call.attr("axis", 1), x.ndim)
    block: int = call.attr("block_size", 0)
    if not block:
        if given.ndim != 1 or given.shape[0] != x.shape[axis]:
            call.fail(
                f"a scale or zero point of shape {given.shape} for axis {axis} of shape {x.shape}"
            )
        return along(given, axis, x.ndim)
    size, n_blocks = x.shape[axis], given.shape[axis] if given.ndim == x.ndim else 0
    others = [k for k in range(x.ndim) if k != axis]
    is_enough = (
        block > 0
        and isinstance(size, int)
        and isinstance(n_blocks, int)
        and (n_blocks - 1) * block < size <= n_blocks * block
    )
    if not is_enough or any(given.shape[k] != x.shape[k] for k in others):
        call.fail(
            f"a scale or zero point of shape {given.shape} for blocks of {block} along axis {axis} "
            f"of shape {x.shape}"
        )
    shape = list(given.shape)
    apart = reshape(given, (*shape[: axis + 1], 1, *shape[axis + 1 :]))
    each = broadcast_to(apart, (*shape[: axis + 1], block, *shape[axis + 1 :]))
    shape[axis] = n_blocks * block
    return slice_axis(reshape(each, shape), axis, 0, size)


@operator("QuantizeLinear", since=10)
@operator("QuantizeLinear", domain="com.microsoft")
def quantize_linear(call: Call) -> Result:
    x, scale = call.node(0), call.numbers(1)
    dtype = _quantised_dtype(call)
    number = call.attr("precision", 0)
    precision = dtype_of(number, call.where) if number else scale.dtype
    zero = zero_point(call, 2)
    units = cast(x, precision) / _spread(call, cast(scale, precision), x)
    zero = None if zero is None else _spread(call, zero, x)
    return quantized(units, zero, dtype, bool(call.attr("saturate", 1)))


def _quantised_dtype(call: Call) -> DType:
    number = call.attr("output_dtype", 0)
    if not call.has(2):
        return dtype_of(number, call.where) if number else UINT8
    dtype = call.value(2).dtype
    if number and dtype_of(number, call.where) != dtype:
        call.fail(f"output_dtype is not {dtype}, which the zero point is")
    return dtype


@operator("DequantizeLinear", since=10)
@operator("DequantizeLinear", domain="com.microsoft")
def dequantize_linear(call: Call) -> Result:
    # Integers of 32 bits are a bias: whether sums have room for it is seen by its numbers.
    x = call.numbers(0) if call.value(0).dtype == INT32 else call.node(0)
    scale, zero = call.numbers(1), zero_point(call, 2)
    number = call.attr("output_dtype", 0)
    dtype = dtype_of(number, call.where) if number else scale.dtype
    if x.dtype.name in ("int4", "uint4") and call.value(0).is_constant and dtype == FLOAT32:
        weights = _in_blocks(call, x, scale)
        if weights is not None:
            return weights
    zero = None if zero is None else _spread(call, zero, x)
    return cast(dequantized(x, _spread(call, scale, x), zero), dtype)


def _in_blocks(call: Call, x: Node, scale: Node) -> Node | None:
    """A matrix of 4 bits that stays so: a product reads it block by block. None where there are no
    such blocks; what is scaled together lies along an axis, or along the other one in blocks."""
    block: int = call.attr("block_size", 0)
    if x.ndim != 2 or scale.ndim != (2 if block else 1):
        return None
    axis = call.axis(call.attr("axis", 1), 2)
    along_axis = axis if block else 1 - axis
    width, depth = x.shape[1 - along_axis], x.shape[along_axis]
    if not isinstance(depth, int) or not has_blocks(4, block or RUN, depth):
        return None
    _spread(call, scale, x)  # which says what does not fit

    def in_rows(node: Node) -> Node:
        """[width, blocks], or [width, depth]."""
        node = node if node.ndim == 2 else expand_dims(node, along_axis)
        return node if along_axis == 1 else permute(node, (1, 0))

    # Nibbles without a sign: those of signed numbers count from -8.
    first = -8 if x.dtype.name == "int4" else 0
    pairs_ = reshape(cast(in_rows(x), INT32) - first, (width, depth // 2, 2))
    low, high = (reshape(slice_axis(pairs_, 2, k, k + 1), (width, depth // 2)) for k in (0, 1))
    numbers_ = cast(low + high * 16, UINT8)
    zeros = full((1, 1), float(-first), FLOAT32)
    if call.has(2):
        zeros = in_rows(cast(call.node(2), FLOAT32) - float(first))
    is_half = first == -8 and not call.has(2)
    scales = cast(in_rows(scale), FLOAT32)
    blocks = blocks_of(numbers_, scales, None if is_half else zeros, 4, block or depth)
    return dequantise(blocks) if along_axis == 1 else permute(dequantise(blocks), (1, 0))


@operator("DynamicQuantizeLinear", since=11)
def dynamic_quantize_linear(call: Call) -> Result:
    return dynamically(call.node(0))


def dynamically(x: Node) -> tuple[Node, Node, Node]:
    """uint8 by the least and the greatest element, and the scale and zero point of it."""
    axes = list(range(x.ndim))
    low = binary("minimum", reduce("min", x, axes), 0.0)
    high = binary("maximum", reduce("max", x, axes), 0.0)
    span = high - low
    is_flat = binary("eq", span, 0.0)  # all are 0: any scale does
    scale = where(is_flat, 1.0, span / 255.0)
    zero = cast(make("round", -low / scale), UINT8)
    return quantized(x / scale, zero, UINT8), scale, zero


# Products.


@operator("MatMulInteger", since=10)
def matmul_integer(call: Call) -> Result:
    return product_of(call.node(0), zero_point(call, 2), call.node(1), zero_point(call, 3))


def product_of(a: Node, za: Node | None, b: Node, zb: Node | None) -> Node:
    """int32 sums of products; zero points are one, or one for each row of a or column of b."""
    return matmul(shifted(a, rows(za, a)), shifted(b, columns(zb, b)))


def rows(given: Node | None, a: Node) -> Node | None:
    """What belongs to the rows of a matrix, or to all of it."""
    if given is None or all(size == 1 for size in given.shape):
        return None if given is None else reshape(given, ())
    return reshape(given, (given.shape[0], 1)) if given.ndim == 1 and a.ndim > 1 else given


def columns(given: Node | None, b: Node) -> Node | None:
    """What belongs to the columns of a matrix, or to all of it."""
    if given is None or all(size == 1 for size in given.shape):
        return None if given is None else reshape(given, ())
    return given


@operator("QLinearMatMul", since=10)
def qlinear_matmul(call: Call) -> Result:
    a, b = call.node(0), call.node(3)
    scale_a, scale_b = rows(call.numbers(1), a), columns(call.numbers(4), b)
    assert scale_a is not None
    assert scale_b is not None
    za, zb = zero_point(call, 2), zero_point(call, 5)
    if a.dtype.kind not in INTEGER:
        real = matmul(dequantized(a, scale_a, rows(za, a)), dequantized(b, scale_b, columns(zb, b)))
        units = real / cast(reshape(call.numbers(6), ()), FLOAT32)
    else:
        sums = product_of(a, za, b, zb)
        scale = cast(scale_a, FLOAT32) * cast(scale_b, FLOAT32)
        units = scaled(sums, scale / cast(reshape(call.numbers(6), ()), FLOAT32))
    return requantized(call, units, 7)


def scaled(sums: Node, scale: Node) -> Node:
    return cast(sums, FLOAT32) * scale


def requantized(call: Call, units: Node, zero_index: int) -> Node:
    """As the type of a zero point, which is one number or one for each column."""
    dtype = call.value(zero_index).dtype
    zero = zero_point(call, zero_index)
    if zero is not None and all(size == 1 for size in zero.shape):
        zero = reshape(zero, ())
    return quantized(units, zero, dtype)


# Convolutions.


@operator("ConvInteger", since=10)
def conv_integer(call: Call) -> Result:
    return sums_of_conv(call, call.node(0), zero_point(call, 2), call.node(1), zero_point(call, 3))


def sums_of_conv(call: Call, x: Node, zx: Node | None, w: Node, zw: Node | None) -> Node:
    """int32 sums; the zero point of the weights is one, or one for each channel of the result."""
    n = x.ndim - 2
    if n < 1 or w.ndim != x.ndim:
        call.fail(f"weights of shape {w.shape} for an image of shape {x.shape}")
    strides, dilations = call.attr("strides", [1] * n), call.attr("dilations", [1] * n)
    if not len(strides) == len(dilations) == n:
        call.fail(f"strides {strides} and dilations {dilations} for {n} axes")
    padding = _padding(call, x, w, strides, dilations)
    if zx is not None:
        zx = reshape(zx, ())
        if zx.op != "full":
            # Around the image is its zero point. Products of bytes take one that is a number; one
            # that a run finds is put there before.
            x = filled(x, [(0, 0), (0, 0), *padding], zx)
            padding = ((0, 0),) * n
    if zw is not None:
        zw = along(zw, 0, w.ndim) if zw.ndim == 1 and zw.shape[0] != 1 else reshape(zw, ())
    return make(
        "conv",
        shifted(x, zx),
        shifted(w, zw),
        strides=tuple(strides),
        padding=padding,
        dilations=tuple(dilations),
        groups=call.attr("group", 1),
    )


def _padding(
    call: Call, x: Node, w: Node, strides: list[int], dilations: list[int]
) -> tuple[tuple[Dim, Dim], ...]:
    mode = call.attr("auto_pad", "NOTSET")
    n = x.ndim - 2
    if mode == "NOTSET":
        given = call.attr("pads", [0] * 2 * n)
        if len(given) != 2 * n:
            call.fail(f"pads {given} for {n} axes")
        return tuple(zip(given[:n], given[n:], strict=True))
    if mode == "VALID":
        return ((0, 0),) * n
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        call.fail(f"there is no auto_pad {mode!r}")
    found = pairs("same", x.shape[2:], w.shape[2:], strides, dilations)
    return found if mode == "SAME_UPPER" else tuple((after, before) for before, after in found)


@operator("QLinearConv", since=10)
def qlinear_conv(call: Call) -> Result:
    x, w = call.node(0), call.node(3)
    sums = sums_of_conv(call, x, zero_point(call, 2), w, zero_point(call, 5))
    if call.has(8):
        sums = sums + along(call.numbers(8), 1, x.ndim)
    scale = call.numbers(4)
    scale = (
        along(scale, 1, x.ndim) if scale.ndim == 1 and scale.shape[0] != 1 else reshape(scale, ())
    )
    unit = reshape(call.numbers(1), ()) * scale / reshape(call.numbers(6), ())
    return requantized(call, scaled(sums, unit), 7)
