"""Determinants of matrices, by elimination with the largest pivot of each column."""

from __future__ import annotations

from arenite.errors import ShapeMismatch
from arenite.ir.compose.basic import INT64, along, binary, cast, computing, iota, reshape, where
from arenite.ir.compose.reductions import reduce
from arenite.ir.node import Node, typed
from arenite.ir.ops import full, make, parameter, size
from arenite.ir.regions import loop


def determinant(x: Node) -> Node:
    """Of the matrices of the last two axes."""
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ShapeMismatch(f"a determinant is of square matrices, not {typed(x.shape, x.dtype)}")
    wide = computing(x)
    batch, n = x.shape[:-2], x.shape[-1]
    step, matrix = parameter((), INT64), parameter(x.shape, wide.dtype)
    value = parameter(batch, wide.dtype)
    rows, last = along(iota(n), x.ndim - 2, x.ndim), x.ndim - 1

    # Below the rows that are done the largest element of the column is the pivot.
    column = make("gather", matrix, reshape(step, (1,)), axis=last)
    is_left = rows >= step
    sizes = where(is_left, abs(column), -1.0)
    at = make("argmax", reshape(sizes, (*batch, n)), axis=len(batch))
    place = reshape(at, (*batch, 1, 1))
    is_pivot = binary("eq", rows, place)
    own = make("gather", matrix, reshape(step, (1,)), axis=last - 1)
    chosen = reduce("sum", where(is_pivot, matrix, 0.0), [last - 1], keep=True)
    is_own = binary("eq", rows, step)
    swapped = where(is_own, chosen, where(is_pivot, own, matrix))

    pivot = make("gather", chosen, reshape(step, (1,)), axis=last)
    is_none = binary("eq", pivot, 0.0)
    below = make("gather", swapped, reshape(step, (1,)), axis=last)
    factor = where(rows > step, below / where(is_none, 1.0, pivot), 0.0)
    sign = where(binary("eq", at, step), full(batch, 1.0, wide.dtype), -1.0)
    found = value * (sign * reshape(pivot, batch))
    following = (swapped - factor * chosen, found)

    _, result = loop(
        size(n, INT64),
        [wide, full(batch, 1.0, wide.dtype)],
        ((step, matrix, value), following),
    )
    return cast(result, x.dtype)
