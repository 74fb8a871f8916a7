"""Pools over several axes become pools over one axis after the other.

    max of windows [3, 3] of x[C, H, W]    max of windows [3] along W of max of windows [3] along H

Of K x K elements 2 K are read. And where the last axis is pooled, all others come first: they are
read in whole rows, with what is padded written once, and no row is looked at for its ends again.
"""

from __future__ import annotations

from math import prod

from arenite.dtype import Kind
from arenite.ir import Node, make

_REDUCTIONS = frozenset({"max", "min", "sum", "any", "all"})
#: How many times fewer elements are read, at the least, where the last axis is not pooled: there
#: all places of a window are read in whole vectors anyway.
LEAST_GAIN = 2.0


def pools(node: Node) -> Node:
    """One step, or the node itself."""
    if node.op not in _REDUCTIONS or node.inputs[0].op != "window":
        return node
    [view] = node.inputs
    [x] = view.inputs
    names = ("axes", "sizes", "strides", "dilations")
    windows = list(zip(*(view.attr(name) for name in names), strict=True))
    is_small_sum = node.op == "sum" and node.dtype.kind is Kind.FLOAT and node.dtype.bits < 32
    if is_small_sum or sorted(node.attr("axes")) != list(range(x.ndim, view.ndim)):
        return node
    if len(windows) < 2 or not _is_worth_it([axis for axis, *_ in windows], view, x.ndim - 1):
        return node
    for window in sorted(windows):
        one = dict(zip(names, ((number,) for number in window), strict=True))
        x = make(node.op, make("window", x, **one), axes=(x.ndim,))
    return x


def _is_worth_it(axes: list[int], view: Node, last: int) -> bool:
    sizes = [size for size in view.attr("sizes") if size > 1]
    if len(sizes) < 2:
        return False
    reads_apart = any(
        stride < size for size, stride in zip(view.attr("sizes"), view.attr("strides"), strict=True)
    )
    return reads_apart and (last in axes or prod(sizes) > LEAST_GAIN * sum(sizes))
