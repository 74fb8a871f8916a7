"""Casts of floats to bytes, as quantisation has them, in fewer and cheaper operations.

    cast(clip(x, 0, 255), uint8)       cast(x, uint8): casts keep within bounds by themselves
    cast(round(x) + zero, uint8)       x kept within bounds, and added to a float so great that its
                                       last place is 1: the sum is rounded to nearest even, and its
                                       bits, less those of the great float, are the integer

Both keep every result, also of what is not finite.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from arenite.dtype import BY_NAME, DType, Kind
from arenite.ir.node import Node
from arenite.ir.ops.byte_products import INT8, UINT8
from arenite.ir.ops.define import INT32, REAL, make
from arenite.ir.ops.sources import full

BYTES = (INT8, UINT8)
#: Wider integers whose products of bytes are exact in int32, as far as they go.
SUMS = (BY_NAME["int16"], INT32)
FLOAT32 = BY_NAME["float32"]

#: A float32 whose last place is 1, with room for the same below and above it, and its bits.
_GREAT, _GREAT_BITS = 12582912.0, 0x4B400000
#: Zero points up to which bounds are far from where floats have no room for halves.
_MOST_ZERO = 1 << 16


def cast_to_byte(node: Node) -> Node:
    """One step, or the node itself: a cast to 8 bits."""
    [x] = node.inputs
    if x.dtype.kind is not Kind.FLOAT:
        return node
    if x.op in ("maximum", "minimum"):
        return _without_bound(node, x)
    rounded, zero = x, 0
    if x.op == "add":
        for value, other in (x.inputs, x.inputs[::-1]):
            found = _whole(other)
            if value.op == "round" and found is not None:
                rounded, zero = value, found
    if rounded.op != "round" or rounded.dtype != FLOAT32:
        return node
    return _nearest(rounded.inputs[0], zero, node)


def _without_bound(node: Node, x: Node) -> Node:
    """The cast without a bound that it has anyway."""
    low, high = byte_bounds(node.dtype)
    for value, other in (x.inputs, x.inputs[::-1]):
        bound = numbers_of(other)
        if bound is None or bound.size == 0:
            continue
        if bound.max() <= low if x.op == "maximum" else bound.min() >= high:
            return make("cast", value, dtype=node.dtype)
    return node


def byte_bounds(dtype: DType) -> tuple[int, int]:
    """The least and the greatest of 8-bit integers."""
    return (-128, 127) if dtype == INT8 else (0, 255)


def _whole(node: Node) -> int | None:
    """A whole number that is not too great, if a node is that everywhere."""
    found = numbers_of(node)
    if found is None or found.size != 1:
        return None
    number = float(found.reshape(-1)[0])
    return int(number) if abs(number) <= _MOST_ZERO and number == int(number) else None


def _nearest(x: Node, zero: int, node: Node) -> Node:
    """The cast of round(x) + zero."""

    def float_of(number: float) -> Node:
        return full(x.shape, number, FLOAT32)

    low, high = (float_of(bound - zero) for bound in byte_bounds(node.dtype))
    inside = make("where", make("gt", x, low), x, low)  # NaN becomes the lower bound
    inside = make("where", make("lt", inside, high), inside, high)
    if node.dtype == INT8:
        inside = make("where", make("isnan", x), float_of(-zero), inside)
    bits = make("bitcast", make("add", inside, float_of(_GREAT)), dtype=INT32)
    whole = make("add", bits, full(x.shape, zero - _GREAT_BITS, INT32))
    return make("cast", whole, dtype=node.dtype)


def numbers_of(node: Node) -> NDArray[Any] | None:
    """The numbers that a constant is made of, whatever their order; None if it is none."""
    while node.op in ("expand", "reshape", "permute", "cast") and _keeps_numbers(node):
        [node] = node.inputs
    if node.dtype.bits < 8 or node.dtype.kind not in REAL:
        return None
    if node.op == "full":
        return np.asarray(node.attr("value"))
    return np.asarray(node.attr("data").array) if node.op == "constant" else None


def _keeps_numbers(node: Node) -> bool:
    """Whether what a cast gives is what it takes: bytes become wider."""
    return node.op != "cast" or (node.inputs[0].dtype in BYTES and node.dtype in SUMS)
