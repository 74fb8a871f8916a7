"""Norms: of batches, layers, groups, instances; softmax and its kin."""

from __future__ import annotations

from collections.abc import Callable

from arenite.dtype import FLOAT32, DType
from arenite.frontends.onnx.call import Call
from arenite.frontends.onnx.registry import Result, operator
from arenite.ir import Node, bounds, make, product
from arenite.ir.compose import neural
from arenite.ir.compose.basic import (
    along,
    binary,
    broadcast_to,
    cast,
    computing,
    pad,
    reshape,
    where,
)
from arenite.ir.compose.reductions import mean, reduce


def _stash(call: Call, x: Node) -> DType:
    """What the statistics are computed in: never less than asked for, and float32 at least."""
    asked = call.dtype_attr("stash_type", FLOAT32)
    return max((asked, x.dtype, FLOAT32), key=lambda one: one.bits)


def _normalized(x: Node, axes: range | list[int], eps: float) -> tuple[Node, Node, Node]:
    """What has mean 0 and variance 1, the mean, and one over the standard deviation."""
    average = mean(x, list(axes), keep=True)
    away = x - average
    spread = mean(away * away, list(axes), keep=True)
    factor = make("rsqrt", spread + eps)
    return away * factor, average, factor


@operator("BatchNormalization", since=7)
def batch_normalization(call: Call) -> Result:
    if call.version < 9 and not call.attr("spatial", 1):
        call.refuse("spatial = 0, statistics for each element, which the standard dropped")
    x, scale, bias, average, spread = (call.node(k) for k in range(5))
    eps = call.attr("epsilon", 1e-5)
    if x.ndim == 1:
        x = reshape(x, (x.shape[0], 1))
    wide = max((x.dtype, FLOAT32), key=lambda one: one.bits)
    scale, bias, before, old = (cast(one, wide) for one in (scale, bias, average, spread))
    if not call.attr("training_mode", 0):
        if any(call.wants(k) for k in range(1, 5)):
            call.refuse("outputs of training in a model that is not trained")
        made = neural.batch_norm(x, before, old, scale, bias, eps)
        return reshape(made, call.value(0).shape)
    axes = [axis for axis in range(x.ndim) if axis != 1]
    now = cast(x, wide)
    current = mean(now, axes)
    away = now - along(current, 1, x.ndim)
    variance = mean(away * away, axes)
    made = neural.batch_norm(x, current, variance, scale, bias, eps)
    share = call.attr("momentum", 0.9)
    kept = [
        cast(held * share + new * (1 - share), average.dtype)
        for held, new in ((before, current), (old, variance))
    ]
    return reshape(made, call.value(0).shape), *kept


@operator("InstanceNormalization", since=6)
def instance_normalization(call: Call) -> Result:
    x, scale, bias = (call.node(k) for k in range(3))
    wide = computing(x)
    made, _, _ = _normalized(wide, range(2, x.ndim), call.attr("epsilon", 1e-5))
    rows = (along(cast(one, wide.dtype), 1, x.ndim) for one in (scale, bias))
    factor, shift = rows
    return cast(made * factor + shift, x.dtype)


@operator("LayerNormalization")  # the optimiser of ONNX Runtime writes it into older files too
def layer_normalization(call: Call) -> Result:
    x, scale, bias = call.node(0), call.node(1), call.optional(2)
    axis = call.axis(call.attr("axis", -1), x.ndim)
    stash, eps = _stash(call, x), call.attr("epsilon", 1e-5)
    parameters = [one for one in (scale, bias) if one is not None]
    if call.n_outputs == 1 and all(one.shape == x.shape[axis:] for one in parameters):
        shift = None if bias is None else cast(bias, stash)
        made = neural.layer_norm(cast(x, stash), x.ndim - axis, cast(scale, stash), shift, eps)
        return cast(made, x.dtype)
    made, average, factor = _normalized(cast(x, stash), range(axis, x.ndim), eps)
    made = made * _spread(call, scale, stash, x)
    if bias is not None:
        made = made + _spread(call, bias, stash, x)
    asked = call.dtype_attr("stash_type", FLOAT32)
    return cast(made, x.dtype), cast(average, asked), cast(factor, asked)


def _spread(call: Call, given: Node, dtype: DType, x: Node) -> Node:
    if given.ndim > x.ndim:
        call.fail(f"{given.shape} does not stretch to the input's {x.shape}")
    return broadcast_to(cast(given, dtype), x.shape)


@operator("RMSNormalization", since=23)
def rms_normalization(call: Call) -> Result:
    x, scale = call.node(0), call.node(1)
    axis = call.axis(call.attr("axis", -1), x.ndim)
    wide, eps = cast(x, _stash(call, x)), call.attr("epsilon", 1e-5)
    if scale.shape == x.shape[axis:]:
        made = neural.rms_norm(wide, x.ndim - axis, cast(scale, wide.dtype), eps)
        return cast(made, scale.dtype)
    spread = mean(wide * wide, list(range(axis, x.ndim)), keep=True)
    made = wide * make("rsqrt", spread + eps)
    return cast(made * _spread(call, scale, wide.dtype, x), scale.dtype)


@operator("GroupNormalization", since=21)
def group_normalization(call: Call) -> Result:
    x, scale, bias = (call.node(k) for k in range(3))
    wide = cast(x, _stash(call, x))
    groups, eps = call.need_attr("num_groups"), call.attr("epsilon", 1e-5)
    factor, shift = (cast(p, wide.dtype) for p in (scale, bias))
    made = neural.group_norm(wide, groups, factor, shift, eps)
    return cast(made, x.dtype)


@operator("GroupNormalization", since=18)
def group_normalization_18(call: Call) -> Result:
    """With a scale and a bias for each group."""
    x = call.node(0)
    groups, eps = call.need_attr("num_groups"), call.attr("epsilon", 1e-5)
    if x.ndim < 2 or groups < 1 or x.shape[1] % groups != 0:
        call.fail(f"{groups} groups do not divide the channels of shape {x.shape}")
    per_group = x.shape[1] // groups
    rows = [
        reshape(broadcast_to(reshape(computing(call.node(k)), (groups, 1)), (groups, per_group)),
                (x.shape[1],))
        for k in (1, 2)
    ]  # fmt: skip
    wide = computing(x)
    factor, shift = (cast(p, wide.dtype) for p in rows)
    made = neural.group_norm(wide, groups, factor, shift, eps)
    return cast(made, x.dtype)


@operator("LRN")
def lrn(call: Call) -> Result:
    x, size = call.node(0), call.need_attr("size")
    wide = computing(x)
    if size < 1:
        call.fail(f"its size is {size}, and is at least 1")
    # Beyond all channels there is nothing to sum, however far it reaches.
    most = max(bounds(x.shape[1])[1] - 1, 0)
    before, after = min((size - 1) // 2, most), min(size // 2, most)
    padding = [(0, 0)] * x.ndim
    padding[1] = (before, after)
    squares = pad(wide * wide, padding, 0.0)
    reach = before + 1 + after
    near = make("window", squares, axes=(1,), sizes=(reach,), strides=(1,), dilations=(1,))
    total = reduce("sum", near, [x.ndim])
    inner = total * (call.attr("alpha", 1e-4) / size) + call.attr("bias", 1.0)
    return cast(wide / binary("pow", inner, call.attr("beta", 0.75)), x.dtype)


@operator("LpNormalization")
def lp_normalization(call: Call) -> Result:
    x, p = call.node(0), call.attr("p", 2)
    axis = call.axis(call.attr("axis", -1), x.ndim)
    wide = computing(x)
    if p not in (1, 2):
        call.fail(f"p is {p}, not 1 or 2")
    if p == 1:
        size = reduce("sum", abs(wide), [axis], keep=True)
    else:
        size = make("sqrt", reduce("sum", wide * wide, [axis], keep=True))
    is_zero = binary("eq", size, 0.0)
    return cast(where(is_zero, 0.0, wide / where(is_zero, 1.0, size)), x.dtype)


@operator("MeanVarianceNormalization", since=9)
def mean_variance_normalization(call: Call) -> Result:
    x = call.node(0)
    axes = call.axes(call.attr("axes", [0, 2, 3]), x.ndim)
    wide = computing(x)
    away = wide - mean(wide, axes, keep=True)
    spread = mean(away * away, axes, keep=True)
    return cast(away / (make("sqrt", spread) + 1e-9), x.dtype)


def _along_axis(function: Callable[[Node, int], Node]) -> Callable[[Call], Result]:
    def handler(call: Call) -> Result:
        x = call.node(0)
        return function(x, call.axis(call.attr("axis", -1), x.ndim))

    return handler


def _over_the_rest(function: Callable[[Node, int], Node]) -> Callable[[Call], Result]:
    """Before version 13: over an axis and all after it together."""

    def handler(call: Call) -> Result:
        x = call.node(0)
        axis = call.axis(call.attr("axis", 1), x.ndim)
        if product(x.shape[axis + 1 :]) == 1:
            return function(x, axis)
        flat = reshape(x, (*x.shape[:axis], product(x.shape[axis:])))
        return reshape(function(flat, axis), x.shape)

    return handler


operator("Softmax", since=13)(_along_axis(neural.softmax))
operator("LogSoftmax", since=13)(_along_axis(neural.log_softmax))
operator("Softmax")(_over_the_rest(neural.softmax))
operator("LogSoftmax")(_over_the_rest(neural.log_softmax))
