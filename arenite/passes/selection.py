"""The first few of many in order are found without sorting all.

    argsort(x[n])[:k]    the k best chunks of c elements, by their best elements: m = n / c of them
                         the k best of the k * c elements of those chunks

An element among the k best is in one of these chunks: each chunk before its own has a better one,
or an equal one that stands before it. Chunks stay in order, so that of equal elements the first one
is taken, as in a sort that is stable.
"""

from __future__ import annotations

from math import isqrt

from arenite.dtype import INT32, INT64, Kind
from arenite.ir import Node, make
from arenite.ir.compose.basic import cast, expand_dims, iota, pad, reshape, slice_axis
from arenite.ir.ops.reductions import greatest, least

#: How many times fewer elements are sorted, at the least.
LEAST_GAIN = 2


def selection(node: Node) -> Node:
    """One step, or the node itself."""
    if node.op != "slice" or node.inputs[0].op != "argsort":
        return node
    [places] = node.inputs
    axis, descending = places.attr("axis"), places.attr("descending")
    count, [x] = node.shape[axis], places.inputs
    first = slice_axis(places, axis, 0, count)
    # A NaN is the greatest, and so is what a chunk with one has for its least.
    is_float = x.dtype.kind is Kind.FLOAT and x.dtype.bits >= 16 and descending
    is_whole = x.dtype.kind in (Kind.SIGNED, Kind.UNSIGNED) and x.dtype.bits >= 8
    if node is not first or not (is_float or is_whole) or not isinstance(count, int):
        return node
    size = x.shape[axis]
    if not isinstance(size, int) or size > 1 << 30 or _chunk(size, count) is None:
        return node
    order = [*(a for a in range(x.ndim) if a != axis), axis]
    back = tuple(sorted(range(x.ndim), key=order.__getitem__))
    if axis != x.ndim - 1:
        x = make("permute", x, axes=tuple(order))
    found = _first_places(x, count, descending)
    return found if axis == x.ndim - 1 else make("permute", found, axes=back)


def _chunk(size: int, count: int) -> int | None:
    """Elements of a chunk; None where it is better to sort all."""
    length = isqrt(size // count) if count else 0
    n_sorted = -(-size // length) + count + count * length if length > 1 else size
    return length if LEAST_GAIN * n_sorted <= size else None


def _first_places(x: Node, count: int, descending: bool) -> Node:
    """Where the first `count` along the last axis stand."""
    axis, size = x.ndim - 1, x.shape[-1]
    assert isinstance(size, int)
    length = _chunk(size, count)
    if length is None:
        places = make("argsort", x, axis=axis, descending=descending)
        return slice_axis(places, axis, 0, count)
    n_chunks = -(-size // length)
    last = least(x.dtype) if descending else greatest(x.dtype)
    x = pad(x, [(0, 0)] * axis + [(0, n_chunks * length - size)], last)
    chunks = reshape(x, (*x.shape[:-1], n_chunks, length))
    best = make("max" if descending else "min", chunks, axes=(x.ndim,))
    picked = cast(_first_places(best, count, descending), INT32)
    starts = cast(make("sort", picked, axis=axis, descending=False), INT64) * length
    places = expand_dims(starts, x.ndim) + iota(length)
    places = reshape(places, (*x.shape[:-1], count * length))
    near = make("gather_elements", x, places, axis=axis)
    return make("gather_elements", places, _first_places(near, count, descending), axis=axis)
