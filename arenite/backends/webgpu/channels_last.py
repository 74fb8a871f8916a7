"""Convolution with channels last, by weights that are a matrix: the op, and how it is made.

    conv_matrix(x[N, *S, C], w[*K, C/groups, O]; strides, padding, dilations, groups, channels)

Weights have a row for every tap and channel, and a column for every channel of the result, of which
the last ones, beyond `channels`, fill up fours and are not read. `padding` is (before, after) for
each spatial axis; without any it is a product. Where permutes go is `passes/channels_last.py`.
"""

from __future__ import annotations

import numpy as np

from arenite.dtype import Array, DType, float32
from arenite.errors import ShapeMismatch
from arenite.ir.compose.basic import pad, reshape
from arenite.ir.dim import Dim, bounds, product
from arenite.ir.node import Node
from arenite.ir.ops.access import Index, Reduction, Source, summed
from arenite.ir.ops.contraction import (
    LAST_ATTRS,
    image_source,
    last_reference,
    last_sizes,
    product_dtype,
)
from arenite.ir.ops.define import OPS, Attrs, Inferred, Sizes, define, make
from arenite.passes.channels_last import channels_last, permuted

CONV = "conv_matrix"
#: Numbers that are read at once.
FOUR = 4
#: Rows of a product that is short.
SHORT_ROWS = 64


def _infer(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    x, w = inputs
    groups, channels = attrs["groups"], attrs["channels"]
    shapes = f"{CONV}: x of shape {x.shape}, w of shape {w.shape}"
    fits = (
        2 <= x.ndim <= 5
        and w.ndim == x.ndim
        and groups > 0
        and x.shape[-1] == w.shape[-2] * groups
        and bounds(w.shape[-1])[0] >= channels > 0
        and channels % groups == 0
    )
    if not fits:
        raise ShapeMismatch(
            f"{shapes}: x is [N, *S, C] with up to three spatial axes, w is [*K, C/groups, O] "
            f"with at least {channels} columns, in {groups} groups"
        )
    sizes = last_sizes(CONV, x, w.shape[:-2], attrs)
    return (x.shape[0], *sizes, channels), product_dtype(CONV, x, w)


def _reference(arrays: list[Array], attrs: Attrs, shape: Sizes, dtype: DType) -> Array:
    x, w = arrays
    w = np.moveaxis(w[..., : attrs["channels"]], (-1, -2), (0, 1))
    return last_reference(x, w, attrs["groups"], attrs, shape, dtype)


def _reduction(node: Node) -> Reduction:
    w = node.inputs[1]
    per_group = node.attr("channels") // node.attr("groups")

    def factors(index: Index) -> tuple[Source, ...]:
        *places, column = index[: node.ndim]
        *taps, channel = index[node.ndim :]
        depth = w.shape[-2]
        from_x = column // per_group * depth + channel if node.attr("groups") > 1 else channel
        return image_source(node, places, taps, from_x), Source(w, (*taps, channel, column))

    return summed(node, w.shape[:-1], factors)


def _operand(node: Node, value: Node) -> str | None:
    """The image may be what lies in memory under another shape."""
    base = in_memory(value)
    is_there = base is not value and OPS[base.op].storage != "made up"
    return None if is_there else f"{node.op} reads it from memory"


def in_memory(value: Node) -> Node:
    """What has the elements of a value, in their order."""
    while OPS[value.op].keeps_order and len(value.inputs) == 1:
        [value] = value.inputs
    return value


define(
    CONV,
    "convolution",
    (2, 2),
    _infer,
    _reference,
    {**LAST_ATTRS, "groups": int, "channels": int},
    reduction=_reduction,
    operand=_operand,
    is_packed=True,
    backend="webgpu",
)


def why_left(node: Node) -> str | None:
    """Why a convolution keeps its channels second; None where it does not."""
    x, w = node.inputs
    if x.dtype != float32 or w.dtype != float32:
        return f"products of {x.dtype} and {w.dtype} have no kernel of their own"
    if not all(isinstance(size, int) for size in (*w.shape, x.shape[1])):
        return f"x of shape {x.shape}, w of shape {w.shape}: channels and taps are not all fixed"
    if 0 in w.shape:
        return f"weights of shape {w.shape} hold nothing"
    return None


def _convolved(node: Node, x: Node) -> Node:
    w = node.inputs[1]
    channels, groups = bounds(w.shape[0])[1], node.attr("groups")
    w = permuted(w, (*range(2, w.ndim), 1, 0))
    if groups == 1:
        depth = bounds(x.shape[-1])[1]
        more: tuple[tuple[Dim, Dim], ...] = ((0, -depth % FOUR), (0, -channels % FOUR))
        w = pad(w, (*[(0, 0)] * (w.ndim - 2), *more))
        x = pad(x, (*[(0, 0)] * (x.ndim - 1), more[0]))
    attrs = {name: node.attr(name) for name in (*LAST_ATTRS, "groups")}
    return make(CONV, x, w, channels=channels, **attrs)


layout = channels_last(why_left, _convolved)


def short_product(node: Node) -> Node:
    """A product of few rows by weights [K, N] as a convolution of one tap: its kernel reads weights
    that lie so, and shares the depth out. All else as it is."""
    if node.op != "matmul" or node.attr("transpose_a") or node.attr("transpose_b"):
        return node
    x, w = node.inputs
    is_float = x.dtype == float32 and w.dtype == float32
    is_given = OPS[in_memory(w).op].storage == "constant"
    if not is_float or not is_given or w.ndim != 2 or not 2 <= x.ndim <= 5:
        return node
    depth, columns = w.shape
    is_in_fours = all(isinstance(size, int) and size > 0 == size % FOUR for size in w.shape)
    if bounds(product(x.shape[:-1]))[1] > SHORT_ROWS or not is_in_fours:
        return node
    n = x.ndim - 2
    one = {"strides": (1,) * n, "dilations": (1,) * n, "padding": ((0, 0),) * n, "groups": 1}
    return make(CONV, x, reshape(w, (*(1,) * n, depth, columns)), channels=columns, **one)
