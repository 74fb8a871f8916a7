"""Padding: with one value that may be computed, or with the elements themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from arenite.errors import ShapeMismatch
from arenite.ir.compose.basic import (
    binary,
    broadcast_to,
    cast,
    iota,
    pad,
    size_like,
    sub,
    where,
)
from arenite.ir.dim import Dim, bounds
from arenite.ir.element import widened
from arenite.ir.node import Node, typed
from arenite.ir.ops import full, make
from arenite.ir.ops.define import BOOL

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
        x = make("gather", x, PLACES[mode](size, before, size + before + after), axis=axis)
    return x


def _steps(before: Dim, count: Dim) -> Node:
    """Places as they would be counted from the first element."""
    steps = iota(count)
    return sub(steps, size_like(before, steps))


def _number(size: Dim, like: Node) -> Node:
    return broadcast_to(size_like(size, like), like.shape)


def _edge(size: Dim, before: Dim, count: Dim) -> Node:
    steps = binary("maximum", _steps(before, count), 0)
    return make("minimum", steps, _number(size - 1, steps))


def _wrap(size: Dim, before: Dim, count: Dim) -> Node:
    steps = _steps(before, count)
    return make("mod", steps, _number(size, steps))


def _reflect(size: Dim, before: Dim, count: Dim) -> Node:
    if size == 1:
        return full((count,), 0, iota(1).dtype)
    steps = _steps(before, count)
    # There and back again; a division by zero, of a single element, gives 0.
    turn = _number(2 * (size - 1), steps)
    there = make("mod", steps, turn)
    return make("minimum", there, make("sub", turn, there))


#: Which element stands at each place of a padded axis: of (size, before, size of the result).
PLACES: dict[str, Callable[[Dim, Dim, Dim], Node]] = {
    "reflect": _reflect,
    "edge": _edge,
    "wrap": _wrap,
}
