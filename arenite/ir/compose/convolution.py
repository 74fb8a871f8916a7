"""Convolution and pooling with the arguments people give: one number for all axes, "same"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from arenite.errors import InvalidArgument, ShapeMismatch
from arenite.ir.compose.basic import along, cast, computing
from arenite.ir.dim import Dim, Expr, ceildiv, maximum
from arenite.ir.node import Node
from arenite.ir.ops import make

PerAxis: TypeAlias = int | Sequence[int]
Padding: TypeAlias = str | Dim | Sequence[Dim | tuple[Dim, Dim]]


def per_axis(name: str, given: PerAxis, n_axes: int) -> tuple[int, ...]:
    """One number for each axis."""
    numbers = (given,) * n_axes if isinstance(given, int) else tuple(given)
    if len(numbers) != n_axes or not all(type(number) is int for number in numbers):
        raise InvalidArgument(f"{name} is one number, or one for each of {n_axes} axes: {given!r}")
    return numbers


def pairs(
    given: Padding,
    sizes: Sequence[Dim],
    kernel: Sequence[Dim],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> tuple[tuple[Dim, Dim], ...]:
    """(before, after) for each axis. "same" gives ceil(size / stride) places, the odd element
    after; "valid" no padding."""
    if given == "valid":
        return ((0, 0),) * len(sizes)
    if given == "same":
        found = []
        for size, window, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True):
            wanted = (ceildiv(size, stride) - 1) * stride + dilation * (window - 1) + 1
            total = maximum(wanted - size, 0)
            found.append((total // 2, total - total // 2))
        return tuple(found)
    if isinstance(given, str):
        raise InvalidArgument(f"padding is 'same', 'valid' or numbers, not {given!r}")
    each = [given] * len(sizes) if isinstance(given, int | Expr) else list(given)
    if len(each) != len(sizes):
        raise InvalidArgument(f"padding {given!r} is not one for each of {len(sizes)} axes")
    return tuple((p[0], p[1]) if isinstance(p, tuple) else (p, p) for p in each)


def _n_spatial(op: str, x: Node, w: Node) -> int:
    if not 3 <= x.ndim <= 5 or w.ndim != x.ndim:
        raise ShapeMismatch(
            f"{op}: x of shape {x.shape}, w of shape {w.shape}: both need two axes and then one to "
            "three spatial ones"
        )
    return x.ndim - 2


def convolved(
    op: str,
    x: Node,
    w: Node,
    bias: Node | None,
    stride: PerAxis,
    padding: Padding,
    dilation: PerAxis,
    groups: int,
    **more: PerAxis,
) -> Node:
    """`conv`, or `conv_transpose`, which takes `output_padding` too."""
    if op == "conv_transpose" and padding == "same":
        raise InvalidArgument("conv_transpose: padding is 'valid' or numbers; give output_padding")
    n = _n_spatial(op, x, w)
    strides, dilations = per_axis("stride", stride, n), per_axis("dilation", dilation, n)
    sides = pairs(padding, x.shape[2:], w.shape[2:], strides, dilations)
    attrs = {name: per_axis(name, given, n) for name, given in more.items()}
    attrs |= {"strides": strides, "dilations": dilations}
    return with_bias(make(op, x, w, padding=sides, groups=groups, **attrs), bias)


def with_bias(result: Node, bias: Node | None) -> Node:
    """A bias for each channel."""
    if bias is None:
        return result
    if bias.ndim != 1 or bias.shape[0] != result.shape[1]:
        raise ShapeMismatch(
            f"bias of shape {bias.shape} for the {result.shape[1]} channels of {result.shape}"
        )
    wide = computing(result)
    return cast(wide + along(cast(bias, wide.dtype), 1, result.ndim), result.dtype)
