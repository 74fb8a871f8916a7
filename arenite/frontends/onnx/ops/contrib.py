"""Operators of com.microsoft, which optimisers of models write: activations and norms with what
stands before them, and others that are operators of the standard under another name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from arenite.dtype import INT32
from arenite.frontends.onnx.call import Call
from arenite.frontends.onnx.ops.linear import square_matrices
from arenite.frontends.onnx.registry import MICROSOFT, Handler, Result, handler_of, operator
from arenite.frontends.onnx.values import Value
from arenite.ir import Node, full, make
from arenite.ir.compose import neural
from arenite.ir.compose.basic import (
    binary,
    cast,
    computing,
    expand_dims,
    permute,
    reshape,
    slice_axis,
)
from arenite.ir.compose.elimination import inverse
from arenite.ir.compose.indexing import counted_from_front
from arenite.ir.compose.reductions import mean, reduce

#: Operators of the standard, and the version in which they mean what those here do.
SAME = {"Trilu": 14, "GatherND": 13, "GridSample": 16, "TorchEmbedding": 13}


def standard(call: Call, op: str, version: int, **others: Any) -> Result:
    """What an operator of the standard makes of a call, with `others` for what the call has."""
    handler = handler_of("", op, version)
    assert handler is not None
    return handler(replace(call, op=op, domain="", version=version, **others))


def only(made: Result) -> Node:
    """The output of an operator that has one tensor."""
    one = made[0] if isinstance(made, Sequence) else made
    assert isinstance(one, Node | Value)
    return one.node if isinstance(one, Value) else one


def _as_standard(op: str, version: int) -> Handler:
    return lambda call: standard(call, op, version)


for _name, _version in SAME.items():
    _op = "Gather" if _name == "TorchEmbedding" else _name
    operator(_name, domain=MICROSOFT)(_as_standard(_op, _version))


# Activations.


def _behind_bias(function: Callable[[Node], Node]) -> Handler:
    """Of x, or of the sum of x and a bias."""

    def handler(call: Call) -> Result:
        x, bias = call.node(0), call.optional(1)
        wide = computing(x)
        if bias is not None:
            wide = wide + computing(bias)
        return cast(function(wide), x.dtype)

    return handler


operator("Gelu", "BiasGelu", domain=MICROSOFT)(_behind_bias(neural.gelu))
operator("FastGelu", domain=MICROSOFT)(_behind_bias(neural.gelu_tanh))


@operator("QuickGelu", domain=MICROSOFT)
def quick_gelu(call: Call) -> Result:
    x = computing(call.node(0))
    factor = float(call.attr("alpha", 1.702))
    return cast(x * neural.sigmoid(x * factor), call.value(0).dtype)


@operator("BiasSplitGelu", domain=MICROSOFT)
def bias_split_gelu(call: Call) -> Result:
    """The first half of the last axis, times the gelu of the second."""
    given = call.node(0)
    x = computing(given) + computing(call.node(1))
    last, width = x.ndim - 1, x.shape[-1]
    if width % 2 != 0:
        call.fail(f"the last axis of shape {x.shape} has no halves")
    left, right = slice_axis(x, last, 0, width // 2), slice_axis(x, last, width // 2, width)
    return cast(left * neural.gelu(right), given.dtype)


@operator("BiasAdd", domain=MICROSOFT)
def bias_add(call: Call) -> Result:
    x, bias, skip = (computing(node) for node in call.nodes)
    return cast(x + bias + skip, call.value(0).dtype)


# Norms.


@operator("SimplifiedLayerNormalization")
@operator("SimplifiedLayerNormalization", domain=MICROSOFT)
def simplified_layer_normalization(call: Call) -> Result:
    """By the root of the mean of squares; and one over that."""
    x, scale = call.node(0), call.node(1)
    axis = call.axis(call.attr("axis", -1), x.ndim)
    eps = float(call.attr("epsilon", 1e-5))
    wide = computing(x)
    made = neural.rms_norm(wide, x.ndim - axis, cast(scale, wide.dtype), eps)
    if not call.wants(1):
        return cast(made, scale.dtype)
    spread = mean(wide * wide, list(range(axis, x.ndim)), keep=True)
    return cast(made, scale.dtype), make("rsqrt", spread + eps)


@operator("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_normalization(call: Call) -> Result:
    total = _with_skip(call, 4)
    scale, shift = computing(call.node(2)), call.optional(3)
    bias = None if shift is None else computing(shift)
    made = neural.layer_norm(total, 1, scale, bias, float(call.attr("epsilon", 1e-12)))
    return _normalized(call, made, total)


@operator("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_simplified_layer_normalization(call: Call) -> Result:
    total = _with_skip(call, 3)
    scale, eps = computing(call.node(2)), float(call.attr("epsilon", 1e-12))
    return _normalized(call, neural.rms_norm(total, 1, scale, eps), total)


def _with_skip(call: Call, bias_at: int) -> Node:
    """input + skip + bias."""
    if call.wants(1) or call.wants(2):
        call.refuse("the mean and the deviation, which only training needs")
    total = computing(call.node(0)) + computing(call.node(1))
    bias = call.optional(bias_at)
    return total if bias is None else total + computing(bias)


def _normalized(call: Call, made: Node, total: Node) -> Result:
    dtype = call.value(0).dtype
    return cast(made, dtype), None, None, cast(total, dtype)


@operator("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_normalization(call: Call) -> Result:
    ids = call.node(0)
    if ids.ndim != 2:
        call.fail(f"input_ids have two axes, not shape {ids.shape}")
    words = _rows(call.node(2), ids)
    if call.has(8):
        places = _rows(call.node(3), call.node(8))
    else:
        places = slice_axis(call.node(3), 0, 0, ids.shape[1])
    total = computing(words) + computing(places)
    if call.has(1) != call.has(4):
        call.fail("segment_ids and segment_embedding come together")
    if call.has(1):
        total = total + computing(_rows(call.node(4), call.node(1)))
    scale, shift = computing(call.node(5)), computing(call.node(6))
    made = neural.layer_norm(total, 1, scale, shift, float(call.attr("epsilon", 1e-12)))
    if call.has(7):
        counts = reduce("sum", cast(binary("eq", call.node(7), 1), INT32), [1])
    else:
        counts = full((ids.shape[0],), 0, INT32)
    return cast(made, words.dtype), counts, cast(total, words.dtype)


def _rows(table: Node, indices: Node) -> Node:
    return make("gather", table, counted_from_front(indices, table.shape[0]), axis=0)


@operator("GroupNorm", domain=MICROSOFT)
def group_norm(call: Call) -> Result:
    x = computing(_channels_first(call, call.node(0)))
    return _grouped(call, x, 1)


@operator("SkipGroupNorm", domain=MICROSOFT)
def skip_group_norm(call: Call) -> Result:
    x = computing(_channels_first(call, call.node(0)))
    skip = call.node(3)
    if skip.ndim == 2:
        skip = reshape(skip, (*skip.shape, 1, 1))
    elif call.attr("channels_last", 1):
        skip = permute(skip, (0, 3, 1, 2))
    total = x + computing(skip)
    if call.has(4):
        bias = computing(call.node(4))
        total = total + reshape(bias, (1, bias.shape[0], 1, 1))
    shown = cast(_channels_again(call, total), call.value(0).dtype)
    return _grouped(call, total, 1), shown


def _channels_first(call: Call, x: Node) -> Node:
    if x.ndim != 4:
        call.fail(f"an input of shape {x.shape} does not have four axes")
    return permute(x, (0, 3, 1, 2)) if call.attr("channels_last", 1) else x


def _channels_again(call: Call, x: Node) -> Node:
    return permute(x, (0, 2, 3, 1)) if call.attr("channels_last", 1) else x


def _grouped(call: Call, x: Node, parameters_at: int) -> Node:
    scale, shift = (computing(call.node(parameters_at + k)) for k in range(2))
    eps = float(call.attr("epsilon", 1e-5))
    made = neural.group_norm(x, call.need_attr("groups"), scale, shift, eps)
    activation = call.need_attr("activation")
    if activation not in (0, 1):
        call.fail(f"activation is {activation}, not 0 or 1")
    made = neural.silu(made) if activation else made
    return cast(_channels_again(call, made), call.value(0).dtype)


# Shapes, places, distances.


@operator("Inverse", domain=MICROSOFT)
def inverse_of(call: Call) -> Result:
    x = square_matrices(call)
    return cast(inverse(computing(x)), x.dtype)


@operator("Unique", domain=MICROSOFT)
def unique(call: Call) -> Result:
    """In the order in which they come."""
    names = ["y", "first", "idx", "counts"]
    made = standard(call, "Unique", 11, attrs={"sorted": 0}, outputs=names)
    assert isinstance(made, Sequence)
    values, _, places, counts = made
    return values, places, counts


@operator("Pad", domain=MICROSOFT)
def pad(call: Call) -> Result:
    return standard(call, "Pad", 13)


@operator("Range", domain=MICROSOFT)
def counted(call: Call) -> Result:
    inputs = list(call.inputs)
    if not call.has(2):
        dtype = call.value(0).dtype
        inputs[2:] = [Value.of_known(np.array(1, dtype.to_numpy()))]
    return standard(call, "Range", 11, inputs=inputs)


@operator("ExpandDims", domain=MICROSOFT)
def expanded(call: Call) -> Result:
    x = call.node(0)
    [axis] = call.integers(1)
    return expand_dims(x, call.axis(axis, x.ndim + 1))


@operator("UnfoldTensor", domain=MICROSOFT)
def unfolded(call: Call) -> Result:
    x = call.node(0)
    axis = call.axis(call.attr("dim", -1), x.ndim, "dim")
    size, step = call.need_attr("size"), call.attr("step", 1)
    if size < 1 or step < 1:
        call.fail(f"slices of {size}, {step} apart")
    return make("window", x, axes=(axis,), sizes=(size,), strides=(step,), dilations=(1,))


@operator("CDist", domain=MICROSOFT)
def distances(call: Call) -> Result:
    metric = call.attr("metric", "sqeuclidean")
    if metric not in ("sqeuclidean", "euclidean"):
        call.refuse(f"the metric {metric!r}; sqeuclidean and euclidean are supported")
    a, b = call.node(0), call.node(1)
    away = expand_dims(a, 1) - expand_dims(b, 0)
    squares = reduce("sum", away * away, [2])
    return make("sqrt", squares) if metric == "euclidean" else squares


@operator("NhwcMaxPool", domain=MICROSOFT)
def max_pool_with_channels_last(call: Call) -> Result:
    x = call.node(0)
    last = x.ndim - 1
    first = permute(x, (0, last, *range(1, last)))
    made = only(standard(call, "MaxPool", 12, inputs=[Value.of(first)]))
    return permute(made, (0, *range(2, x.ndim), 1))
