"""Reductions and scans.

    sum prod max min any all (axes)             the axes go away
    argmax argmin (axis)                        int64, the first place where there are several
    cumsum cumprod cummax cummin (axis)         inclusive, forwards

Dtypes stay: who wants int8 summed in int64 casts before. NaN wins every max and min. Over no
elements sum is 0, prod 1, max and min the least and the greatest value of the type, arg- ones 0.
The reference accumulates floats in float64 and rounds once; a kernel accumulates in float32 at
least.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from arenite.dtype import BOOL, INT64, Array, DType, Kind
from arenite.ir.element import comparable, exact, limits, rounded, widened
from arenite.ir.node import Node
from arenite.ir.ops.access import Reduction, Source
from arenite.ir.ops.define import (
    NUMBER,
    ORDERED,
    Attrs,
    Inferred,
    Sizes,
    define,
    is_ints,
    need_axes,
    need_axis,
    need_kind,
)


def least(dtype: DType) -> float | int | bool:
    """What max gives over no elements."""
    if dtype.kind is Kind.FLOAT:
        return float("-inf")
    return False if dtype == BOOL else limits(dtype)[0]


def greatest(dtype: DType) -> float | int | bool:
    """What min gives over no elements."""
    if dtype.kind is Kind.FLOAT:
        return float("inf")
    return True if dtype == BOOL else limits(dtype)[1]


def _reduced(node: Node, op: str, axes: tuple[int, ...]) -> Reduction:
    [x] = node.inputs
    return Reduction(op, x.shape, axes, lambda index: (Source(x, index),))


def _reduction(name: str, op: str, kinds: tuple[Kind, ...], function: Callable[..., Any]) -> None:
    """`function(array, dtype, axes)`; `op` combines two elements."""

    def infer(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
        (x,) = inputs
        need_kind(name, x, kinds)
        need_axes(name, attrs["axes"], x)
        kept = [size for axis, size in enumerate(x.shape) if axis not in attrs["axes"]]
        return tuple(kept), x.dtype

    def reference(arrays: list[Array], attrs: Attrs, shape: Sizes, dtype: DType) -> Array:
        return rounded(np.asarray(function(arrays[0], dtype, attrs["axes"])), dtype)

    define(
        name,
        "reduction",
        (1, 1),
        infer,
        reference,
        {"axes": is_ints},
        reduction=lambda node: _reduced(node, op, tuple(sorted(node.attr("axes")))),
    )


_BOOL = (Kind.BOOL,)


def _accumulate(function: Callable[..., Any]) -> Callable[..., Any]:
    def apply(array: Array, dtype: DType, axis: object) -> Array:
        wide = exact(array, dtype)
        return np.asarray(function(wide, axis=axis, dtype=wide.dtype))

    return apply


def _chosen(
    function: Callable[..., Any], initial: Callable[[DType], object] | None = None
) -> Callable[..., Any]:
    def apply(array: Array, dtype: DType, axis: object) -> Array:
        start = {} if initial is None else {"initial": initial(dtype)}
        return np.asarray(function(widened(array, dtype), axis=axis, **start))

    return apply


_reduction("sum", "add", NUMBER, _accumulate(np.sum))
_reduction("prod", "mul", NUMBER, _accumulate(np.prod))
_reduction("max", "max", ORDERED, _chosen(np.max, least))
_reduction("min", "min", ORDERED, _chosen(np.min, greatest))
_reduction("any", "or", _BOOL, lambda array, dtype, axes: np.any(array, axis=axes))
_reduction("all", "and", _BOOL, lambda array, dtype, axes: np.all(array, axis=axes))


def _arg_reduction(name: str, function: Callable[..., Any]) -> None:
    def infer(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
        (x,) = inputs
        need_kind(name, x, ORDERED)
        need_axis(name, attrs["axis"], x)
        axis: int = attrs["axis"]
        return x.shape[:axis] + x.shape[axis + 1 :], INT64

    def reference(arrays: list[Array], attrs: Attrs, shape: Sizes, dtype: DType) -> Array:
        (x,) = arrays
        if x.shape[attrs["axis"]] == 0:
            return np.zeros(shape, np.int64)
        return np.asarray(function(comparable(x), axis=attrs["axis"]), np.int64)

    define(
        name,
        "reduction",
        (1, 1),
        infer,
        reference,
        {"axis": int},
        reduction=lambda node: _reduced(node, name, (node.attr("axis"),)),
        chooses=True,
    )


_arg_reduction("argmax", np.argmax)
_arg_reduction("argmin", np.argmin)


def _scan(
    name: str, kinds: tuple[Kind, ...], function: Callable[..., Any], chooses: bool = False
) -> None:
    """`function(array, dtype, axis)`"""

    def infer(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
        (x,) = inputs
        need_kind(name, x, kinds)
        need_axis(name, attrs["axis"], x)
        return x.shape, x.dtype

    def reference(arrays: list[Array], attrs: Attrs, shape: Sizes, dtype: DType) -> Array:
        return rounded(np.asarray(function(arrays[0], dtype, attrs["axis"])), dtype)

    define(name, "scan", (1, 1), infer, reference, {"axis": int}, chooses=chooses)


_scan("cumsum", NUMBER, _accumulate(np.cumsum))
_scan("cumprod", NUMBER, _accumulate(np.cumprod))
_scan("cummax", ORDERED, _chosen(np.maximum.accumulate), chooses=True)
_scan("cummin", ORDERED, _chosen(np.minimum.accumulate), chooses=True)
