"""Indexing as NumPy does it: numbers, slices, new axes, ... and arrays of indices.

Items of an index are int, slice (whose parts may be sizes), None, Ellipsis, an integer NumPy array
(checked here and now) or an integer node (checked when the program runs). Masks are turned into
arrays of indices by the caller, because the length of the result depends on their content.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import EllipsisType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from arenite.dtype import INT64
from arenite.errors import IndexOutOfRange, InvalidArgument, ShapeMismatch
from arenite.ir.compose.basic import (
    binary,
    broadcast_to,
    cast,
    iota,
    permute,
    reshape,
    size_like,
    slice_all,
    where,
)
from arenite.ir.dim import Dim, Expr, bounds, found_in, known_le, maximum, minimum, product
from arenite.ir.node import Node, Shape
from arenite.ir.ops import constant, full, make
from arenite.ir.ops import size as size_node
from arenite.ir.ops.define import broadcast
from arenite.ir.ops.movement import range_length, strides_of

Item: TypeAlias = Dim | slice | EllipsisType | NDArray[Any] | Node | None


def index(x: Node, items: Sequence[Item]) -> Node:
    """x[items]"""
    items = _with_open_places(x, _without_ellipsis(x, items))
    if any(isinstance(item, np.ndarray | Node) for item in items):
        return _advanced(x, items)
    starts: list[Dim] = []
    stops: list[Dim] = []
    steps: list[int] = []
    shape: list[Dim] = []  # of the result: new axes added, numbered ones gone
    axis = 0
    for item in items:
        if item is None:
            shape.append(1)
            continue
        size = x.shape[axis]
        if isinstance(item, slice):
            start, stop, step = resolved(item, size)
            shape.append(range_length(start, stop, step))
        else:
            assert not isinstance(item, np.ndarray | Node | EllipsisType)
            start, step = _from_front(item, size), 1
            stop = start + 1
        starts.append(start)
        stops.append(stop)
        steps.append(step)
        axis += 1
    return reshape(slice_all(x, starts, stops, steps), shape)


def _without_ellipsis(x: Node, items: Sequence[Item]) -> list[Item]:
    """As many items, not counting None, as x has axes."""
    n_used = sum(item is not None and item is not Ellipsis for item in items)
    if n_used > x.ndim:
        raise IndexOutOfRange(f"{n_used} indices for {x.type_text}: too many")
    dots = [i for i, item in enumerate(items) if item is Ellipsis]
    if len(dots) > 1:
        raise IndexOutOfRange("an index has at most one ellipsis ('...')")
    at = dots[0] if dots else len(items)
    rest: list[Item] = [slice(None)] * (x.ndim - n_used)
    return [*items[:at], *rest, *items[at + 1 :]]


def _with_open_places(x: Node, items: Sequence[Item]) -> list[Item]:
    """Numbers that may lie outside, because sizes are open, as arrays: the program checks them."""
    made: list[Item] = []
    axis = 0
    for item in items:
        if isinstance(item, int | Expr):
            size = x.shape[axis]
            place = _from_front(item, size)
            if bounds(place)[1] < 0 or known_le(size, place):
                raise IndexOutOfRange(f"index {item} is outside axis {axis} of {x.type_text}")
            if not (known_le(0, place) and known_le(place + 1, size)):
                item = np.asarray(item) if isinstance(item, int) else size_node(item, INT64)
        made.append(item)
        axis += item is not None
    return made


def _from_front(item: Dim, size: Dim) -> Dim:
    return item + size if isinstance(item, int) and item < 0 else item


def resolved(item: slice, size: Dim) -> tuple[Dim, Dim, int]:
    """(start, stop, step) as of a range within 0..size, for sizes that may be symbolic."""
    step = 1 if item.step is None else item.step
    if not isinstance(step, int) or step == 0:
        raise InvalidArgument(f"the step of a slice is a number other than 0, not {item.step}")
    start, stop = item.start, item.stop
    if all(isinstance(part, int | None) for part in (start, stop)) and isinstance(size, int):
        found = range(*slice(start, stop, step).indices(size))
        # One form for all slices that take the same elements.
        if not found:
            return 0, 0, 1
        return (
            found[0],
            found[-1] + (1 if step > 0 else -1),
            step if len(found) > 1 else _sign(step),
        )

    def clamped(part: Dim | None, default: Dim, low: int, high: Dim) -> Dim:
        if part is None:
            return default
        counted = part + size if isinstance(part, int) and part < 0 else part
        return minimum(maximum(counted, low), high)

    if step > 0:
        begin = clamped(start, 0, 0, size)
        return begin, maximum(begin, clamped(stop, size, 0, size)), step
    begin = clamped(start, size - 1, -1, size - 1)
    return begin, minimum(begin, clamped(stop, -1, -1, size - 1)), step


def _sign(step: int) -> int:
    return 1 if step > 0 else -1


def _advanced(x: Node, items: list[Item]) -> Node:
    """Slices and new axes first, then one gather over the axes that have arrays of indices.

    With arrays, numbers count as arrays too. The result has the axes of the broadcast arrays where
    these stood if they stood side by side, else at the front.
    """
    is_array = [isinstance(item, int | Expr | np.ndarray | Node) for item in items]
    basic = [slice(None) if array else item for array, item in zip(is_array, items, strict=True)]
    sliced = index(x, basic)
    axes = [i for i, array in enumerate(is_array) if array]
    sizes = [sliced.shape[axis] for axis in axes]
    arrays = [
        _indices(item, size, axis, x)
        for item, size, axis in zip((items[i] for i in axes), sizes, axes, strict=True)
    ]
    shape = broadcast("indexing", *[array.shape for array in arrays])
    if len(axes) == 1:
        return make("gather", sliced, arrays[0], axis=axes[0])
    others = [axis for axis in range(sliced.ndim) if axis not in axes]
    merged = reshape(
        permute(sliced, [*axes, *others]),
        (product(sizes), *(sliced.shape[axis] for axis in others)),
    )
    places = linear_places(arrays, tuple(sizes), shape)
    taken = make("gather", merged, places, axis=0)
    side_by_side = axes == list(range(axes[0], axes[0] + len(axes)))
    if not side_by_side:
        return taken
    n, before = len(shape), axes[0]
    order = [*range(n, n + before), *range(n), *range(n + before, taken.ndim)]
    return permute(taken, order)


def linear_places(arrays: Sequence[Node], sizes: Shape, shape: Shape) -> Node:
    """Places in an array of `sizes` flattened; a place outside it becomes -1, never another one."""
    places: Node | None = None
    inside: Node | None = None
    for array, size, stride in zip(arrays, sizes, strides_of(sizes), strict=True):
        wide = broadcast_to(array, shape)
        term = wide * size_like(stride, wide)
        places = term if places is None else places + term
        if array.op != "constant":  # constants were checked when they were made
            above = wide >= 0
            below = wide < size_like(size, wide)
            fits = above & below
            inside = fits if inside is None else inside & fits
    assert places is not None
    return places if inside is None else where(inside, places, -1)


def _indices(item: Item, size: Dim, axis: int, x: Node) -> Node:
    """int64, counted from the front."""
    if isinstance(item, Expr):
        item = size_node(item, INT64)
    if isinstance(item, Node):
        return counted_from_front(item, size)
    given = np.asarray(item)
    if given.dtype.kind not in "iu":
        raise IndexOutOfRange(f"indices are integers or a mask, not {given.dtype}")
    wide = given.astype(np.int64)
    if isinstance(size, int):
        wrong = wide[(wide < -size) | (wide >= size)]
        if wrong.size:
            raise IndexOutOfRange(f"index {wrong.flat[0]} is outside axis {axis} of {x.type_text}")
        return constant(np.where(wide < 0, wide + size, wide))
    # A constant is taken as checked, so where the size is open the check is made by the program.
    node = constant(wide)
    return counted_from_front(node + full(node.shape, 0, INT64), size)


def counted_from_front(indices: Node, size: Dim) -> Node:
    wide = cast(indices, INT64)
    if indices.dtype.kind.value == "unsigned integer":
        return wide
    return where(wide < 0, wide + size_like(size, wide), wide)


def updated(x: Node, items: Sequence[Item], value: Node, reduction: str) -> Node:
    """x with `value` put where x[items] reads; `value` broadcasts to that shape."""
    count = product(x.shape)
    places = index(reshape(iota(count), x.shape), items)
    if value.ndim > places.ndim and all(size == 1 for size in value.shape[: -places.ndim or None]):
        value = reshape(value, value.shape[value.ndim - places.ndim :])
    value = _as_many_rows(value, places.shape)
    try:
        spread = broadcast_to(value, places.shape)
    except ShapeMismatch:
        raise ShapeMismatch(
            f"a value of shape {value.shape} does not broadcast to the {places.shape} that the "
            f"index selects of {x.type_text}"
        ) from None
    flat = make(
        "scatter_elements",
        reshape(x, (count,)),
        reshape(places, (product(places.shape),)),
        reshape(spread, (product(places.shape),)),
        axis=0,
        reduction=reduction,
    )
    return reshape(flat, x.shape)


def _as_many_rows(value: Node, shape: Shape) -> Node:
    """A value whose sizes are those of a shape, where one of either is found while running: then
    the program checks that they are equal."""
    for axis in range(1, min(value.ndim, len(shape)) + 1):
        given, wanted = value.shape[-axis], shape[-axis]
        if given != wanted and given != 1 and (found_in(given) or found_in(wanted)):
            rows = iota(wanted)
            is_same = binary("eq", size_like(given, rows), size_like(wanted, rows))
            # Another number of rows is a place that no axis has.
            checked = where(broadcast_to(is_same, rows.shape), rows, -1)
            value = make("gather", value, checked, axis=value.ndim - axis)
    return value
