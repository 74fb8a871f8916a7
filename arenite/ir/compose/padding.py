"""Padding: with one value that may be computed, or with the elements themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from arenite.dtype import BOOL
from arenite.errors import ShapeMismatch
from arenite.ir.compose.basic import broadcast_to, cast, iota, pad, size_like, slice_axis, where
from arenite.ir.dim import Dim, bounds, known_le
from arenite.ir.element import widened
from arenite.ir.node import Node, typed
from arenite.ir.ops import full, make

Pairs = Sequence[tuple[Dim, Dim]]


def filled(x: Node, padding: Pairs, value: Node | float) -> Node:
    """One value around x: a number, or a node of no axes."""
    if all(pair == (0, 0) for pair in padding):
        return x
    if isinstance(value, Node) and value.op == "full":
        value = value.attr("value")
    if isinstance(value, Node) and value.op == "constant":
        value = widened(value.attr("data").array, value.dtype).item()
    if not isinstance(value, Node):
        return pad(x, padding, value)
    around = pad(x, padding, False if x.dtype == BOOL else 0)
    inside = pad(full(x.shape, True, BOOL), padding, False)
    return where(inside, around, broadcast_to(cast(value, x.dtype), around.shape))


def repeated(x: Node, padding: Pairs, mode: str) -> Node:
    """The elements of x around it, as often as needed: `reflect` (edges once), `edge`, `wrap`."""
    for axis, (before, after) in enumerate(padding):
        if before == 0 and after == 0:
            continue
        size = x.shape[axis]
        if bounds(size)[0] < 1:
            raise ShapeMismatch(
                f"pad: axis {axis} of {typed(x.shape, x.dtype)} may be empty, and has nothing to "
                f"be padded with by {mode}"
            )
        left, right = VIEWS[mode](x, axis, before, after)
        if left is None:
            steps = iota(before)
            left = _taken(x, axis, steps - size_like(before, steps), mode)
        if right is None:
            steps = iota(after)
            right = _taken(x, axis, steps + size_like(size, steps), mode)
        parts = (left, x, right)
        x = make("concat", *(one for one in parts if one.shape[axis] != 0), axis=axis)
    return x


#: What stands before and behind an axis, where views of it show that.
Sides = tuple[Node | None, Node | None]


def _edge_views(x: Node, axis: int, before: Dim, after: Dim) -> Sides:
    size, (head, tail) = x.shape[axis], (x.shape[:axis], x.shape[axis + 1 :])
    left, right = slice_axis(x, axis, 0, 1), slice_axis(x, axis, size - 1, size)
    return broadcast_to(left, (*head, before, *tail)), broadcast_to(right, (*head, after, *tail))


def _wrap_views(x: Node, axis: int, before: Dim, after: Dim) -> Sides:
    size = x.shape[axis]
    return (
        slice_axis(x, axis, size - before, size) if known_le(before, size) else None,
        slice_axis(x, axis, 0, after) if known_le(after, size) else None,
    )


def _reflect_views(x: Node, axis: int, before: Dim, after: Dim) -> Sides:
    last = x.shape[axis] - 1
    return (
        slice_axis(x, axis, before, 0, -1) if known_le(before, last) else None,
        slice_axis(x, axis, last - 1, last - 1 - after, -1) if known_le(after, last) else None,
    )


#: Of a value, an axis, and how many elements stand before and behind it.
VIEWS: dict[str, Callable[[Node, int, Dim, Dim], Sides]] = {
    "reflect": _reflect_views,
    "edge": _edge_views,
    "wrap": _wrap_views,
}


def _taken(x: Node, axis: int, steps: Node, mode: str) -> Node:
    """Elements by places that are counted from the first one, before it and behind the last."""
    size = x.shape[axis]
    if size == 1:
        at = full(steps.shape, 0, steps.dtype)
    elif mode == "wrap":
        at = steps % _number(size, steps)
    else:
        # There and back again; a division by zero, of a single element, gives 0.
        turn = _number(2 * (size - 1), steps)
        there = steps % turn
        at = make("minimum", there, turn - there)
    return make("gather", x, at, axis=axis)


def _number(size: Dim, like: Node) -> Node:
    return broadcast_to(size_like(size, like), like.shape)
