"""Inverses of matrices, by elimination with the largest pivot of each column."""

from __future__ import annotations

from arenite.errors import ShapeMismatch
from arenite.ir.compose.basic import (
    INT64,
    along,
    binary,
    broadcast_to,
    cast,
    computing,
    concat,
    iota,
    reshape,
    slice_axis,
    where,
)
from arenite.ir.compose.reductions import reduce
from arenite.ir.node import Node, typed
from arenite.ir.ops import make, parameter, size
from arenite.ir.regions import loop


def inverse(x: Node) -> Node:
    """Of the matrices of the last two axes; one that has none gives infinities and NaN."""
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ShapeMismatch(f"an inverse is of square matrices, not {typed(x.shape, x.dtype)}")
    wide = computing(x)
    batch, n = x.shape[:-2], x.shape[-1]
    last = x.ndim - 1
    # Beside the matrix stands the identity; what makes one of the first makes the inverse of it.
    diagonal = binary("eq", along(iota(n), last - 1, x.ndim), along(iota(n), last, x.ndim))
    both = concat([wide, broadcast_to(cast(diagonal, wide.dtype), x.shape)], last)

    step, matrix = parameter((), INT64), parameter(both.shape, wide.dtype)
    rows = along(iota(n), last - 1, x.ndim)
    column = make("gather", matrix, reshape(step, (1,)), axis=last)
    sizes = where(rows >= step, abs(column), -1.0)
    at = make("argmax", reshape(sizes, (*batch, n)), axis=len(batch))
    is_pivot = binary("eq", rows, reshape(at, (*batch, 1, 1)))
    is_own = binary("eq", rows, step)
    own = make("gather", matrix, reshape(step, (1,)), axis=last - 1)
    chosen = reduce("sum", where(is_pivot, matrix, 0.0), [last - 1], keep=True)
    scaled = chosen / make("gather", chosen, reshape(step, (1,)), axis=last)
    swapped = where(is_pivot, own, matrix)
    below = make("gather", swapped, reshape(step, (1,)), axis=last)
    following = where(is_own, scaled, swapped - below * scaled)

    [result] = loop(size(n, INT64), [both], ((step, matrix), (following,)))
    return cast(slice_axis(result, last, n, 2 * n), x.dtype)
