"""What neural networks are made of: activations, softmax, norms, pooling, attention.

Floats smaller than 32 bits are computed in float32 and rounded once at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from arenite.dtype import FLOAT32, INT8, DType
from arenite.errors import InvalidArgument, NotSupported, ShapeMismatch
from arenite.ir.compose.basic import Operand, along, binary, cast, computing, pad, reshape, where
from arenite.ir.compose.reductions import mean, reduce
from arenite.ir.dim import Dim, bounds, known_le, maximum, minimum
from arenite.ir.node import Node
from arenite.ir.ops import full, make
from arenite.ir.ops.attention import Operands
from arenite.ir.ops.reductions import least


def _wide(function: Callable[[Node], Node]) -> Callable[[Node], Node]:
    def apply(x: Node) -> Node:
        return cast(function(computing(x)), x.dtype)

    return apply


def _sigmoid(x: Node) -> Node:
    return make("reciprocal", make("exp", -x) + 1.0)


def _softplus(x: Node) -> Node:
    tail = make("log1p", make("exp", -abs(x)))
    return binary("maximum", x, 0.0) + tail


def _gelu(x: Node) -> Node:
    return x * 0.5 * (make("erf", x * math.sqrt(0.5)) + 1.0)


def _gelu_tanh(x: Node) -> Node:
    cubed = x * x * x * 0.044715
    inner = (x + cubed) * math.sqrt(2 / math.pi)
    return x * 0.5 * (make("tanh", inner) + 1.0)


def clip(x: Node, low: Operand | None, high: Operand | None) -> Node:
    if low is not None:
        x = binary("maximum", x, low)
    return x if high is None else binary("minimum", x, high)


def _hard_sigmoid(x: Node) -> Node:
    return clip(x + 3.0, 0.0, 6.0) / 6.0


sigmoid = _wide(_sigmoid)
softplus = _wide(_softplus)
log_sigmoid = _wide(lambda x: -_softplus(-x))
gelu = _wide(_gelu)
gelu_tanh = _wide(_gelu_tanh)
silu = _wide(lambda x: x * _sigmoid(x))
mish = _wide(lambda x: x * make("tanh", _softplus(x)))
hard_sigmoid = _wide(_hard_sigmoid)
hard_swish = _wide(lambda x: x * _hard_sigmoid(x))
softsign = _wide(lambda x: x / (abs(x) + 1.0))


def elu(x: Node, alpha: float = 1.0, scale: float = 1.0, beta: float = 1.0) -> Node:
    """scale * (x above 0, alpha * expm1(x / beta) below): elu, celu and selu."""
    wide = computing(x)
    negative = binary("minimum", wide, 0.0)
    below = make("expm1", negative if beta == 1 else negative / beta)
    result = where(wide > 0.0, wide, below * alpha)
    return cast(result if scale == 1 else result * scale, x.dtype)


def leaky_relu(x: Node, slope: Operand) -> Node:
    return where(x < 0.0, x * slope, x)


def softmax(x: Node, axis: int) -> Node:
    wide = computing(x)
    raised = make("exp", wide - reduce("max", wide, [axis], keep=True))
    return cast(raised / reduce("sum", raised, [axis], keep=True), x.dtype)


def log_softmax(x: Node, axis: int) -> Node:
    wide = computing(x)
    lowered = wide - reduce("max", wide, [axis], keep=True)
    total = reduce("sum", make("exp", lowered), [axis], keep=True)
    return cast(lowered - make("log", total), x.dtype)


def _normalized(wide: Node, axes: Sequence[int], eps: float) -> Node:
    away = wide - mean(wide, axes, keep=True)
    spread = mean(away * away, axes, keep=True)
    return away * make("rsqrt", spread + eps)


def _affine(x: Node, weight: Node | None, bias: Node | None) -> Node:
    if weight is not None:
        x = x * computing(weight)
    return x if bias is None else x + computing(bias)


def layer_norm(x: Node, n_axes: int, weight: Node | None, bias: Node | None, eps: float) -> Node:
    """Over the last axes."""
    axes = range(x.ndim - n_axes, x.ndim)
    for name, given in (("weight", weight), ("bias", bias)):
        if given is not None and given.shape != x.shape[x.ndim - n_axes :]:
            raise ShapeMismatch(
                f"layer_norm: {name} of shape {given.shape} for the last {n_axes} axes of "
                f"{x.type_text}"
            )
    return cast(_affine(_normalized(computing(x), axes, eps), weight, bias), x.dtype)


def rms_norm(x: Node, n_axes: int, weight: Node | None, eps: float) -> Node:
    wide = computing(x)
    axes = range(x.ndim - n_axes, x.ndim)
    spread = mean(wide * wide, axes, keep=True)
    return cast(_affine(wide * make("rsqrt", spread + eps), weight, None), x.dtype)


def batch_norm(
    x: Node,
    average: Node,
    spread: Node,
    weight: Node | None,
    bias: Node | None,
    eps: float,
    axis: int = 1,
) -> Node:
    """By statistics that are known: (x - average) / sqrt(spread + eps), channel by channel."""
    wide = computing(x)

    def channels(given: Node) -> Node:
        if given.ndim != 1 or given.shape[0] != x.shape[axis]:
            raise ShapeMismatch(
                f"batch_norm: {given.shape} is not one number for each of the {x.shape[axis]} "
                f"channels of {x.type_text}"
            )
        return along(computing(given), axis, x.ndim)

    factor = make("rsqrt", channels(spread) + eps)
    if weight is not None:
        factor = factor * channels(weight)
    result = (wide - channels(average)) * factor
    return cast(result if bias is None else result + channels(bias), x.dtype)


def group_norm(x: Node, groups: int, weight: Node | None, bias: Node | None, eps: float) -> Node:
    """Over the channels (axis 1) of a group and all axes after them."""
    if x.ndim < 2 or groups < 1 or x.shape[1] % groups != 0:
        raise ShapeMismatch(
            f"group_norm: {groups} groups do not divide the channels of {x.type_text}"
        )
    n, channels, *spatial = x.shape
    split = reshape(computing(x), (n, groups, channels // groups, *spatial))
    result = reshape(_normalized(split, range(2, split.ndim), eps), x.shape)
    rows = [None if given is None else along(given, 1, x.ndim) for given in (weight, bias)]
    return cast(_affine(result, *rows), x.dtype)


def attention(
    q: Node,
    k: Node,
    v: Node,
    mask: Node | None = None,
    *,
    scale: float | None = None,
    causal: bool = False,
    offset: Dim = 0,
    window: int | None = None,
    k_scale: Node | None = None,
    v_scale: Node | None = None,
) -> Node:
    """Of q[..., heads, queries, width] over k and v[..., groups, keys, width]; see `ops.attention`.

    Of keys up to i + offset query i sees the last `window`, where there is one. int8 keys and
    values come with scales[..., groups, keys], as `quantised_rows` makes them. The scale of scores
    is 1/sqrt(width).
    """
    if scale is None:
        width = q.shape[-1] if q.ndim else 0
        if not isinstance(width, int) or width == 0:
            raise NotSupported(f"attention: give a scale for {q.type_text}")
        scale = float(width) ** -0.5
    if (k_scale is None) != (v_scale is None):
        raise InvalidArgument("attention takes scales of keys and of values, or neither")
    if window is not None and window < 1:
        raise InvalidArgument(f"attention: a window of {window} keys shows none; use None for all")
    given = Operands(q, k, v, mask, k_scale, v_scale)
    attrs = {"causal": causal, "offset": offset, "window": window or 0}
    return make("attention", *given.inputs, scale=float(scale), **attrs)


def quantised_rows(x: Node, scale_dtype: DType = FLOAT32) -> tuple[Node, Node]:
    """Floats as int8 and the scale of each row, an axis less: the greatest of a row is 127 or -127.

    Numbers are x / scale to the nearest integer, halves to even, with the scale as it is kept.
    Where it is 0 they are 0.
    """
    wide = computing(x)
    last = x.ndim - 1
    greatest = reduce("max", abs(wide), [last], keep=True)
    scale = cast(greatest * (1 / 127), scale_dtype)
    divisor = cast(scale, wide.dtype)
    is_none = binary("eq", divisor, 0.0)
    ratio = wide / where(is_none, 1.0, divisor)
    numbers = cast(make("round", clip(ratio, -127.0, 127.0)), INT8)
    return numbers, reshape(scale, x.shape[:-1])


def windows(
    x: Node,
    sizes: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[tuple[Dim, Dim]],
    dilations: Sequence[int],
    value: bool | int | float,
) -> Node:
    """Windows over the last axes of x, padded with `value`; their axes come last."""
    first = x.ndim - len(sizes)
    padded = pad(x, [(0, 0)] * first + list(padding), value)
    return make(
        "window",
        padded,
        axes=tuple(range(first, x.ndim)),
        sizes=tuple(sizes),
        strides=tuple(strides),
        dilations=tuple(dilations),
    )


def ceil_padding(
    size: Dim, window: int, stride: int, pair: tuple[Dim, Dim], dilation: int
) -> tuple[Dim, Dim]:
    """Padding with which the last window may hang over the end, but does not start beyond it."""
    before, after = pair
    reach = dilation * (window - 1) + 1
    span = size + before + after - reach
    extra = -span % stride if isinstance(span, int) else (stride - span % stride) % stride
    starts_inside = known_le(span + extra + 1, size + before)
    if not starts_inside and bounds(extra)[1] > 0:
        last = minimum(span + extra, (size + before - 1) // stride * stride)
        extra = maximum(last - span, 0)
    return before, after + extra


def max_pool(
    x: Node,
    sizes: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[tuple[Dim, Dim]],
    dilations: Sequence[int],
) -> Node:
    view = windows(x, sizes, strides, padding, dilations, least(x.dtype))
    return reduce("max", view, range(view.ndim - len(sizes), view.ndim))


def avg_pool(
    x: Node,
    sizes: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[tuple[Dim, Dim]],
    dilations: Sequence[int],
    counted: Sequence[tuple[Dim, Dim]],
) -> Node:
    """The mean over each window; elements of the padding that lie within `counted` count."""
    axes = range(x.ndim, x.ndim + len(sizes))
    wide = computing(x)
    total = reduce("sum", windows(wide, sizes, strides, padding, dilations, 0.0), axes)
    if list(padding) == list(counted) and all(p == (0, 0) for p in padding):
        return cast(total * (1 / math.prod(sizes)), x.dtype)
    spatial = x.shape[x.ndim - len(sizes) :]
    inside = [s + before + after for s, (before, after) in zip(spatial, counted, strict=True)]
    rest = [
        (before - c_before, after - c_after)
        for (before, after), (c_before, c_after) in zip(padding, counted, strict=True)
    ]
    ones = full(inside, 1.0, wide.dtype)
    counts = windows(ones, sizes, strides, rest, dilations, 0.0)
    counts = reduce("sum", counts, range(len(sizes), 2 * len(sizes)))
    return cast(total / counts, x.dtype)
