"""Matrices that are solved and taken apart, in loops over their columns.

Each function takes real matrices in the last two axes, and does all that lie before them at once.
What no number answers is infinite or NaN: a singular system, the root of what is not positive.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from arenite.dtype import INT64
from arenite.ir.compose.basic import (
    along,
    binary,
    broadcast_to,
    cast,
    concat,
    iota,
    reshape,
    slice_axis,
    swap_axes,
    where,
)
from arenite.ir.compose.linear import triangle
from arenite.ir.compose.reductions import reduce
from arenite.ir.node import Node
from arenite.ir.ops import full, make, parameter, size
from arenite.ir.regions import loop


def solution(a: Node, b: Node) -> Node:
    """x of a @ x = b, by elimination with the largest pivot of each column: a [..., n, n], b
    [..., n, m], with equal axes before."""
    n = a.shape[-1]
    last = a.ndim - 1
    whole = concat([a, b], last)
    step, matrix = parameter((), INT64), parameter(whole.shape, a.dtype)
    rows = along(iota(n), last - 1, a.ndim)
    is_own = binary("eq", rows, step)
    swapped, chosen, _ = _pivoted(matrix, step)
    row = chosen / _taken(chosen, step, last)
    factor = where(is_own, 0.0, _taken(swapped, step, last))
    following = where(is_own, row, swapped - factor * row)
    [solved] = loop(size(n, INT64), [whole], ((step, matrix), (following,)))
    return slice_axis(solved, last, n, n + b.shape[-1])


def inverse(x: Node) -> Node:
    """Of square matrices; one that has none gives infinities and NaN."""
    rows, columns = (along(iota(x.shape[-1]), axis, x.ndim) for axis in (x.ndim - 2, x.ndim - 1))
    identity = cast(binary("eq", rows, columns), x.dtype)
    return solution(x, broadcast_to(identity, x.shape))


def determinant(x: Node) -> Node:
    """Of square matrices."""
    [value] = _of_pivots(x, [1.0], lambda pivot, value: [value * pivot])
    return value


def sign_and_logarithm(x: Node) -> tuple[Node, Node]:
    """Of the determinant: its sign, and the logarithm of its size, which may be beyond all
    numbers. Of a singular matrix 0 and minus infinity."""
    sign, logarithm = _of_pivots(
        x,
        [1.0, 0.0],
        lambda pivot, sign, total: [sign * make("sign", pivot), total + make("log", abs(pivot))],
    )
    return sign, logarithm


def _of_pivots(
    x: Node, starts: Sequence[float], following: Callable[..., Sequence[Node]]
) -> tuple[Node, ...]:
    """What the pivots of an elimination make of numbers, one pivot after the other. Of two rows
    that change places the pivot has the other sign."""
    batch, n, last = x.shape[:-2], x.shape[-1], x.ndim - 1
    step, matrix = parameter((), INT64), parameter(x.shape, x.dtype)
    values = [parameter(batch, x.dtype) for _ in starts]
    rows = along(iota(n), last - 1, x.ndim)
    swapped, chosen, is_swap = _pivoted(matrix, step)
    pivot = _taken(chosen, step, last)
    divisor = where(binary("eq", pivot, 0.0), 1.0, pivot)
    factor = where(rows > step, _taken(swapped, step, last) / divisor, 0.0)
    turned = reshape(pivot, batch)
    made = following(where(is_swap, -turned, turned), *values)
    _, *found = loop(
        size(n, INT64),
        [x, *(full(batch, start, x.dtype) for start in starts)],
        ((step, matrix, *values), (swapped - factor * chosen, *made)),
    )
    return tuple(found)


def _pivoted(matrix: Node, step: Node) -> tuple[Node, Node, Node]:
    """With the row of the largest element of a column at its place; that row; whether it was
    another."""
    last = matrix.ndim - 1
    batch, n = matrix.shape[:-2], matrix.shape[-2]
    rows = along(iota(n), last - 1, matrix.ndim)
    sizes = where(rows >= step, abs(_taken(matrix, step, last)), -1.0)
    at = make("argmax", reshape(sizes, (*batch, n)), axis=len(batch))
    is_pivot = binary("eq", rows, reshape(at, (*batch, 1, 1)))
    own = _taken(matrix, step, last - 1)
    chosen = reduce("sum", where(is_pivot, matrix, 0.0), [last - 1], keep=True)
    swapped = where(binary("eq", rows, step), chosen, where(is_pivot, own, matrix))
    return swapped, chosen, binary("ne", at, step)


def _taken(matrix: Node, step: Node, axis: int) -> Node:
    """One row or column, which keeps its axis."""
    return make("gather", matrix, reshape(step, (1,)), axis=axis)


def cholesky(x: Node) -> Node:
    """Lower triangles l with l @ l.mT = x, of the lower triangle of x."""
    n, last = x.shape[-1], x.ndim - 1
    step, lower = parameter((), INT64), parameter(x.shape, x.dtype)
    rows, columns = along(iota(n), last - 1, x.ndim), along(iota(n), last, x.ndim)
    done = reduce("sum", lower * _taken(lower, step, last - 1), [last], keep=True)
    column = _taken(x, step, last) - done
    square = reduce("sum", where(binary("eq", rows, step), column, 0.0), [last - 1], keep=True)
    found = where(rows >= step, column / make("sqrt", square), 0.0)
    following = where(binary("eq", columns, step), found, lower)
    [result] = loop(size(n, INT64), [full(x.shape, 0.0, x.dtype)], ((step, lower), (following,)))
    return result


def orthogonal_and_triangle(x: Node, complete: bool) -> tuple[Node, Node]:
    """q and r with q @ r = x, by reflections of Householder's: q [..., m, k] and r [..., k, n],
    where k is the smaller of m and n, or m when `complete`."""
    batch, (m, n), last = x.shape[:-2], x.shape[-2:], x.ndim - 1
    assert isinstance(m, int)
    assert isinstance(n, int)
    steps = min(m, n)
    rows, columns = along(iota(m), last - 1, x.ndim), along(iota(m), last, x.ndim)
    eye = where(binary("eq", rows, columns), full((m, m), 1.0, x.dtype), 0.0)
    start = broadcast_to(reshape(eye, (m, m)), (*batch, m, m))
    step = parameter((), INT64)
    left, right = parameter(start.shape, x.dtype), parameter(x.shape, x.dtype)

    column = where(rows >= step, _taken(right, step, last), 0.0)
    is_own = binary("eq", rows, step)
    head = reduce("sum", where(is_own, column, 0.0), [last - 1], keep=True)
    scale = reduce("max", abs(column), [last - 1], keep=True)
    safe = where(binary("eq", scale, 0.0), 1.0, scale)
    scaled = column / safe
    length = make("sqrt", reduce("sum", scaled * scaled, [last - 1], keep=True))
    turned = where(head < 0.0, -length, length)
    vector = where(is_own, scaled + turned, scaled)
    square = reduce("sum", vector * vector, [last - 1], keep=True)
    factor = where(binary("eq", square, 0.0), 0.0, full(square.shape, 2.0, x.dtype) / square)
    across = swap_axes(vector, last - 1, last)
    in_right = reduce("sum", vector * right, [last - 1], keep=True)
    in_left = reduce("sum", left * across, [last], keep=True)
    following = (
        left - in_left * across * factor,
        right - vector * in_right * factor,
    )
    q, r = loop(size(steps, INT64), [start, x], ((step, left, right), following))
    r = triangle(r, 0, lower=False)
    if complete:
        return q, r
    return slice_axis(q, last, 0, steps), slice_axis(r, last - 1, 0, steps)
