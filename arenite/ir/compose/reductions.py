"""Reductions made of the primitive ones. `axes` go away, or stay with size 1 with `keep`."""

from __future__ import annotations

from collections.abc import Sequence

from arenite.ir.compose.basic import (
    cast,
    computing,
    insert_axes,
    reshape,
    size_like,
    slice_axis,
    where,
)
from arenite.ir.dim import product
from arenite.ir.node import Node
from arenite.ir.ops import make


def reduce(op: str, x: Node, axes: Sequence[int], keep: bool = False) -> Node:
    """One of sum prod max min any all."""
    if not axes:
        return x
    result = make(op, x, axes=tuple(sorted(axes)))
    return insert_axes(result, axes) if keep else result


def mean(x: Node, axes: Sequence[int], keep: bool = False) -> Node:
    wide = computing(x)
    count = size_like(product(x.shape[axis] for axis in axes), wide)
    # Divided where the sum is complete, in one kernel with it: axes that are kept come after that.
    result = cast(reduce("sum", wide, axes) / count, x.dtype)
    return insert_axes(result, axes) if keep else result


def variance(x: Node, axes: Sequence[int], keep: bool = False, correction: float = 0) -> Node:
    """The mean of squared distances from the mean; `correction` is taken off the divisor, which
    is never below zero."""
    wide = computing(x)
    away = wide - mean(wide, axes, keep=True)
    count = size_like(product(x.shape[axis] for axis in axes), wide)
    if correction:
        count = make("maximum", count - correction, count - count)
    return cast(reduce("sum", away * away, axes, keep) / count, x.dtype)


def logsumexp(x: Node, axes: Sequence[int], keep: bool = False) -> Node:
    wide = computing(x)
    highest = reduce("max", wide, axes, keep=True)
    finite = where(make("isinf", highest), 0.0, highest)
    total = reduce("sum", make("exp", wide - finite), axes, keep=True)
    result = make("log", total) + finite
    if not keep:
        sizes = [size for axis, size in enumerate(x.shape) if axis not in axes]
        result = reshape(result, sizes)
    return cast(result, x.dtype)


def top(x: Node, k: int, axis: int, largest: bool = True) -> tuple[Node, Node]:
    """The k largest (or smallest) along an axis, in order, and where they stand."""
    places = make("argsort", x, axis=axis, descending=largest)
    first = slice_axis(places, axis, 0, k)
    return make("gather_elements", x, first, axis=axis), first
