"""Convolution with channels last, and weights packed as a kernel walks them.

    conv_last(x[N, *S, C], panels[groups, P, *K, C/groups, 16];
        strides, padding, dilations, channels)
    depthwise_last(x[N, *S, C], w[*K, C]; strides, padding, dilations)

    conv_last         sums over (n, p, o, r, c), taps before channels
    depthwise_last    sums over (n, p, c, r)

A panel holds 16 output channels of a group side by side, the last panel of a group filled up with
zeros, which nothing reads but the kernel. `padding` is (before, after) for each spatial axis.
"""

from __future__ import annotations

import numpy as np

from arenite.dtype import Array, DType
from arenite.errors import ShapeMismatch
from arenite.ir.node import Node
from arenite.ir.ops.access import Index, Reduction, Source, summed
from arenite.ir.ops.contraction import (
    LAST_ATTRS,
    image_source,
    last_reference,
    last_sizes,
    product_dtype,
)
from arenite.ir.ops.define import Attrs, Inferred, Sizes, define

#: Output channels of one panel of packed weights.
PANEL = 16


def _infer_last(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    x, panels = inputs
    channels: int = attrs["channels"]
    shapes = f"conv_last: x of shape {x.shape}, panels of shape {panels.shape}"
    if not 3 <= x.ndim <= 5 or panels.ndim != x.ndim + 2:
        raise ShapeMismatch(
            f"{shapes}: x is [N, *S, C] with one to three spatial axes, panels are "
            "[groups, P, *K, C/groups, 16]"
        )
    groups, n_panels, *kernel, depth, lanes = panels.shape
    fits = (
        x.shape[-1] == depth * groups
        and lanes == PANEL
        and isinstance(groups, int)
        and groups > 0
        and channels > 0
        and channels % groups == 0
        and n_panels == -(-channels // groups // PANEL)
    )
    if not fits:
        raise ShapeMismatch(
            f"{shapes}: {channels} channels of {groups} groups need "
            f"panels of {PANEL}, the last one padded, for {x.shape[-1]} channels in"
        )
    sizes = last_sizes("conv_last", x, kernel, attrs)
    return (x.shape[0], *sizes, channels), product_dtype("conv_last", x, panels)


def _last_reference(arrays: list[Array], attrs: Attrs, shape: Sizes, dtype: DType) -> Array:
    x, panels = arrays
    groups, channels = panels.shape[0], attrs["channels"]
    # [g, p, *k, c, lane] to [g, p, lane, c, *k], without the channels that fill up a panel
    w = np.moveaxis(panels, (-1, -2), (2, 3))
    w = w.reshape(groups, -1, *w.shape[3:])[:, : channels // groups]
    w = w.reshape(channels, *w.shape[2:])
    return last_reference(x, w, groups, attrs, shape, dtype)


def packed_operand(node: Node, value: Node) -> str | None:
    """Weights are read as they lie in memory, and of the rest nothing is chosen from pieces."""
    is_written = value is node.inputs[1] or value.op == "concat"
    return f"{node.op} reads it from memory" if is_written else None


def runs_operand(node: Node, value: Node) -> str | None:
    """The image, too, is read from memory, in runs of channels."""
    reason = packed_operand(node, value)
    if reason is None and value.op != "slice":
        return f"{node.op} reads runs of channels from memory"
    return reason


def _last_reduction(node: Node) -> Reduction:
    x, panels = node.inputs
    n_spatial = x.ndim - 2
    depth, lanes = panels.shape[-2:]
    per_group_out = node.attr("channels") // panels.shape[0]

    def factors(index: Index) -> tuple[Source, ...]:
        out_channel = index[n_spatial + 1]
        *taps, channel = index[n_spatial + 2 :]
        group = out_channel // per_group_out
        within = out_channel - group * per_group_out
        panel = within // lanes
        image = image_source(node, index[: n_spatial + 1], taps, group * depth + channel)
        return image, Source(panels, (group, panel, *taps, channel, within - panel * lanes))

    return summed(node, panels.shape[2:-1], factors)


define(
    "conv_last",
    "convolution",
    (2, 2),
    _infer_last,
    _last_reference,
    {**LAST_ATTRS, "channels": int},
    reduction=_last_reduction,
    operand=packed_operand,
    is_packed=True,
    backend="cpu",
)


def _infer_depthwise(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    x, w = inputs
    if not 3 <= x.ndim <= 5 or w.ndim != x.ndim - 1 or w.shape[-1] != x.shape[-1]:
        raise ShapeMismatch(
            f"depthwise_last: x of shape {x.shape}, w of shape {w.shape}: x is [N, *S, C] with one "
            "to three spatial axes, w is [*K, C]"
        )
    sizes = last_sizes("depthwise_last", x, w.shape[:-1], attrs)
    return (x.shape[0], *sizes, x.shape[-1]), product_dtype("depthwise_last", x, w)


def _depthwise_reference(arrays: list[Array], attrs: Attrs, shape: Sizes, dtype: DType) -> Array:
    x, w = arrays
    return last_reference(x, np.moveaxis(w, -1, 0)[:, None], w.shape[-1], attrs, shape, dtype)


def _depthwise_reduction(node: Node) -> Reduction:
    w = node.inputs[1]

    def factors(index: Index) -> tuple[Source, ...]:
        *places, channel = index[: node.ndim]
        taps = index[node.ndim :]
        return image_source(node, places, taps, channel), Source(w, (*taps, channel))

    return summed(node, w.shape[:-1], factors)


define(
    "depthwise_last",
    "convolution",
    (2, 2),
    _infer_depthwise,
    _depthwise_reference,
    LAST_ATTRS,
    reduction=_depthwise_reduction,
    operand=runs_operand,
    is_packed=True,
    backend="cpu",
)
