"""Operators that choose elements by index: Gather, Scatter, Slice, OneHot, NonZero, Unique."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from arenite.dtype import BOOL, INT64
from arenite.frontends.onnx.call import Call
from arenite.frontends.onnx.ops.movement import moves
from arenite.frontends.onnx.registry import Result, operator
from arenite.frontends.onnx.structure import distance, most_apart, resized_in_run
from arenite.frontends.onnx.values import Value
from arenite.ir import Dim, Expr, Node, bounds, constant, full, known_le, make, minimum, product
from arenite.ir.compose import basic
from arenite.ir.compose.basic import (
    along,
    binary,
    broadcast_to,
    cast,
    expand_dims,
    iota,
    permute,
    reshape,
    size_like,
    slice_axis,
    where,
)
from arenite.ir.compose.counted_sizes import nonzero, positions_on_axes
from arenite.ir.compose.indexing import counted_from_front, linear_places, resolved
from arenite.ir.compose.unique import groups
from arenite.ir.ops.control import cut
from arenite.ir.ops.define import INTEGER

#: Rows whose columns decide which are equal are sorted by one column after the other.
MAX_COLUMNS = 1 << 10


def places(call: Call, index: int, size: Dim, axis: int) -> Node:
    """Indices of an input, counted from the front; what is known to be wrong is said now."""
    value = call.value(index)
    known = value.known
    if known is None or not isinstance(size, int):
        return counted_from_front(value.node, size)
    wide = known.astype("int64")
    wrong = wide[(wide < -size) | (wide >= size)]
    if wrong.size:
        call.fail(f"index {wrong.flat[0]} is outside of axis {axis} of size {size}")
    return constant(wide % size if size else wide)


# Gathering.


@operator("Gather")
@moves
def gather(call: Call) -> Result:
    x = call.node(0)
    axis = call.axis_of(x, 0)
    size = x.shape[axis]
    start = _start_of_run(call.value(1), size)
    if start is None:
        return make("gather", x, places(call, 1, size, axis), axis=axis)
    shape = call.value(1).shape
    taken = slice_axis(x, axis, start, start + product(shape))
    return reshape(taken, (*x.shape[:axis], *shape, *x.shape[axis + 1 :]))


def _start_of_run(indices: Value, size: Dim) -> Dim | None:
    """Where places begin that are known to follow each other within an axis: a slice of it."""
    if indices.ndim > 1 or indices.known is None:
        return None
    found = [int(one) for one in indices.known.reshape(-1)]
    if not found or found != list(range(found[0], found[0] + len(found))):
        return None
    start, last = found[0], found[-1]
    if start < 0:
        return size + start if last < 0 and known_le(-start, size) else None
    return start if known_le(last + 1, size) else None


@operator("GatherElements", since=11)
@moves
def gather_elements(call: Call) -> Result:
    x = call.node(0)
    axis = call.axis_of(x, 0)
    indices = places(call, 1, x.shape[axis], axis)
    if indices.ndim != x.ndim:
        call.fail(f"indices of shape {indices.shape} for data of shape {x.shape}")
    for other, (size, had) in enumerate(zip(indices.shape, x.shape, strict=True)):
        if other != axis and size != had:
            if not known_le(size, had):
                call.fail(f"indices of shape {indices.shape} reach beyond data of shape {x.shape}")
            x = slice_axis(x, other, 0, size)
    return make("gather_elements", x, indices, axis=axis)


@operator("GatherND", since=11)
@moves
def gather_nd(call: Call) -> Result:
    x, indices = call.node(0), call.node(1)
    batch: int = call.attr("batch_dims", 0)
    depth = _depth(call, indices, x.ndim - batch)
    if not 0 <= batch < min(x.ndim, indices.ndim):
        call.fail(f"batch_dims = {batch} of shapes {x.shape} and {indices.shape}")
    n_axes = batch + depth
    at = _places_nd(x, indices, batch, depth)
    flat = reshape(x, (product(x.shape[:n_axes]), *x.shape[n_axes:]))
    return make("gather", flat, at, axis=0)


def _depth(call: Call, indices: Node, most: int) -> int:
    """How many axes an index goes through."""
    depth = indices.shape[-1] if indices.ndim else None
    if not isinstance(depth, int) or not 0 <= depth <= most:
        call.fail(f"the last axis of indices of shape {indices.shape} is not within 0..{most}")
    return depth


def _places_nd(x: Node, indices: Node, batch: int, depth: int) -> Node:
    """Places in the first axes of x as one; a place outside is -1."""
    shape = indices.shape[:-1]
    if batch + depth == 0:
        return full(shape, 0, INT64)
    arrays = [along(iota(shape[axis]), axis, len(shape)) for axis in range(batch)]
    for k in range(depth):
        part = reshape(slice_axis(indices, indices.ndim - 1, k, k + 1), shape)
        arrays.append(counted_from_front(part, x.shape[batch + k]))
    return linear_places(arrays, x.shape[: batch + depth], shape)


@operator("Compress", since=9)
@moves
def compress(call: Call) -> Result:
    """Where a condition holds; how many that are is found while running."""
    x, condition = call.node(0), call.node(1)
    if call.attr("axis") is None:
        x, axis = reshape(x, (product(x.shape),)), 0
    else:
        axis = call.axis_of(x)
    if condition.ndim != 1:
        call.fail(f"the condition is a vector, not of shape {condition.shape}")
    if known_le(x.shape[axis], condition.shape[0]):
        condition = slice_axis(condition, 0, 0, x.shape[axis])
    return make("gather", x, nonzero(condition), axis=axis)


# Scattering.


@operator("Scatter", since=9)
@operator("ScatterElements", since=11)
@moves
def scatter_elements(call: Call) -> Result:
    x, updates = call.node(0), call.node(2)
    axis = call.axis_of(x, 0)
    indices = places(call, 1, x.shape[axis], axis)
    updates = resized_in_run(call, updates, indices.shape)
    if indices.ndim != x.ndim or indices.shape != updates.shape:
        call.fail(
            f"indices of shape {indices.shape} and updates of shape {updates.shape} for data of "
            f"shape {x.shape}"
        )
    reduction = _reduction(call)
    others = [one for one in range(x.ndim) if one != axis]
    if all(indices.shape[one] == x.shape[one] for one in others):
        return make("scatter_elements", x, indices, updates, axis=axis, reduction=reduction)
    if not all(known_le(indices.shape[one], x.shape[one]) for one in others):
        call.fail(f"indices of shape {indices.shape} reach beyond data of shape {x.shape}")
    arrays = [along(iota(size), k, x.ndim) for k, size in enumerate(indices.shape)]
    arrays[axis] = indices
    at = linear_places(arrays, x.shape, indices.shape)
    return _scattered(x, at, updates, x.ndim, reduction)


@operator("ScatterND", since=11)
@moves
def scatter_nd(call: Call) -> Result:
    x, indices, updates = call.node(0), call.node(1), call.node(2)
    depth = _depth(call, indices, x.ndim)
    wanted = (*indices.shape[:-1], *x.shape[depth:])
    updates = resized_in_run(call, updates, wanted)
    if updates.shape != wanted:
        call.fail(
            f"updates of shape {updates.shape} for indices of shape {indices.shape} and data of "
            f"shape {x.shape}"
        )
    at = _places_nd(x, indices, 0, depth)
    return _scattered(x, at, updates, depth, _reduction(call))


def _reduction(call: Call) -> str:
    reduction: str = call.attr("reduction", "none")
    if reduction not in ("none", "add", "mul", "max", "min"):
        call.fail(f"there is no reduction {reduction!r}")
    return reduction


def _scattered(x: Node, at: Node, updates: Node, n_axes: int, reduction: str) -> Node:
    """Rows put at places of the first axes, taken as one."""
    inner = product(x.shape[n_axes:])
    count = product(at.shape)
    rows = (count, inner)
    flat = make(
        "scatter_elements",
        reshape(x, (product(x.shape[:n_axes]), inner)),
        broadcast_to(reshape(at, (count, 1)), rows),
        reshape(updates, rows),
        axis=0,
        reduction=reduction,
    )
    return reshape(flat, x.shape)


@operator("TensorScatter", since=24)
def tensor_scatter(call: Call) -> Result:
    """Rows written into a cache, of each sample from a place of its own on."""
    cache, rows = call.node(0), call.node(1)
    axis = call.axis_of(cache, -2)
    mode = call.attr("mode", "linear")
    if axis == 0 or mode not in ("linear", "circular"):
        call.fail(f"axis {axis} and mode {mode!r} of a cache of shape {cache.shape}")
    if rows.ndim != cache.ndim:
        call.fail(f"an update of shape {rows.shape} for a cache of shape {cache.shape}")
    at = along(iota(rows.shape[axis]), axis, cache.ndim)
    if call.has(2):
        at = at + along(cast(call.node(2), INT64), 0, cache.ndim)
    if mode == "circular":
        at = at % size_like(cache.shape[axis], at)
    at = broadcast_to(at, rows.shape)
    return make("scatter_elements", cache, at, rows, axis=axis, reduction="none")


# Slices.


@operator("Slice")
@moves
def slice_by_attributes(call: Call) -> Result:
    starts, ends = call.attr("starts", []), call.attr("ends", [])
    axes = call.attr("axes", list(range(len(starts))))
    return _sliced(call, starts, ends, axes, [1] * len(starts))


@operator("Slice", since=10)
@moves
def slice_by_inputs(call: Call) -> Result:
    if any(call.is_found_in_run(index) for index in (1, 2)):
        return _found_slice(call)
    starts, ends = call.sizes(1), call.sizes(2)
    axes = call.integers(3) if call.has(3) else list(range(len(starts)))
    steps = call.integers(4) if call.has(4) else [1] * len(starts)
    return _sliced(call, starts, ends, axes, steps)


def _found_slice(call: Call) -> Node:
    """A slice whose ends only a run knows: planned for the whole axis, and as long as found."""
    x = call.node(0)
    shape = call.value(1).shape
    if len(shape) != 1:
        call.fail(f"its starts have {len(shape)} axes; a vector is needed")
    [count] = shape
    if not isinstance(count, int):
        call.refuse("how many axes it slices is only found while running")
    axes = call.integers(3) if call.has(3) else list(range(count))
    steps = call.integers(4) if call.has(4) else [1] * count
    if 0 in steps:
        call.fail("a step is 0")
    for k, axis in enumerate(call.axes(axes, x.ndim)):
        size, step = x.shape[axis], steps[k]
        first, last = (
            reshape(slice_axis(cast(call.node(index), INT64), 0, k, k + 1), ()) for index in (1, 2)
        )
        (base, shift), (other, further) = distance(first), distance(last)
        if base is other and shift < further and step == 1:
            # As i:i+1 in a loop: a length that is known, so that places outside are an error.
            places = iota(further - shift) + first
        else:
            # Backwards, the ends are one further to the front.
            start, end = (_within(place, size, int(step < 0)) for place in (first, last))
            extent = end - start if step > 0 else start - end
            whole = binary("maximum", extent, 0) + (abs(step) - 1)
            length = whole // abs(step)
            most = most_apart(first, last) if step == 1 else None
            rows = size if most is None else minimum(size, most)
            places = cut(iota(rows), length) * step + start
        x = make("gather", x, places, axis=axis)
    return x


def _within(place: Node, size: Dim, shift: int) -> Node:
    """An end of a slice, within 0..size, or as far in front of these as the shift."""
    most = size_like(size, place)
    place = where(place < 0, place + most, place)
    return binary("minimum", binary("maximum", place, -shift), most - shift)


def _sliced(
    call: Call,
    starts: Sequence[Dim],
    ends: Sequence[Dim],
    axes: Sequence[int],
    steps: Sequence[int],
) -> Node:
    x = call.node(0)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        call.fail(
            f"{len(starts)} starts, {len(ends)} ends, {len(axes)} axes and {len(steps)} steps"
        )
    if 0 in steps:
        call.fail("a step is 0")
    all_starts: list[Dim] = [0] * x.ndim
    all_ends: list[Dim] = list(x.shape)
    all_steps = [1] * x.ndim
    for axis, start, end, step in zip(call.axes(axes, x.ndim), starts, ends, steps, strict=True):
        size = x.shape[axis]
        part = slice(_front(call, start, size), _front(call, end, size), step)
        all_starts[axis], all_ends[axis], all_steps[axis] = resolved(part, size)
    return basic.slice_all(x, all_starts, all_ends, all_steps)


def _front(call: Call, place: Dim, size: Dim) -> Dim:
    """A place that is no number yet, counted from the front."""
    if not isinstance(place, Expr) or bounds(place)[0] >= 0:
        return place
    if bounds(place)[1] >= 0:
        call.refuse(f"it is not known whether {place} counts from the front or from the back")
    return place + size


@operator("ReverseSequence", since=10)
@moves
def reverse_sequence(call: Call) -> Result:
    """The first elements of each sequence, as many as it has, backwards."""
    x, lengths = call.node(0), call.node(1)
    batch, time = call.attr("batch_axis", 1), call.attr("time_axis", 0)
    if sorted((batch, time)) != [0, 1] or x.ndim < 2:
        call.fail(f"batch_axis {batch} and time_axis {time} of shape {x.shape}")
    steps = along(iota(x.shape[time]), time, x.ndim)
    ends = along(cast(lengths, INT64), batch, x.ndim)
    backwards = ends - 1 - steps
    at = where(steps < ends, backwards, steps)
    return make("gather_elements", x, broadcast_to(at, x.shape), axis=time)


# By value.


@operator("OneHot", since=9)
def one_hot(call: Call) -> Result:
    indices, values = call.node(0), call.node(2)
    depth = _classes(call)
    if values.shape != (2,):
        call.fail(f"its values are two, not of shape {values.shape}")
    axis = call.axis(call.attr("axis", -1), indices.ndim + 1)
    at = counted_from_front(cast(indices, INT64), depth)
    classes = along(iota(depth), axis, indices.ndim + 1)
    off, on = (reshape(slice_axis(values, 0, k, k + 1), ()) for k in (0, 1))
    made = where(binary("eq", classes, expand_dims(at, axis)), on, off)
    return Value.of(made, is_string=call.value(2).is_string)


def _classes(call: Call) -> Dim:
    if call.value(1).dtype.kind in INTEGER:
        depth = call.size(1)
    else:
        known = call.known(1)
        if known.size != 1 or not np.isfinite(known).all():
            call.fail(f"a depth of {known.tolist()}")
        depth = int(known.reshape(()))
    if bounds(depth)[0] < 0:
        call.fail(f"a depth of {depth}")
    return depth


@operator("NonZero", since=9)
def non_zero(call: Call) -> Result:
    """Places of what is not zero, a row for each axis; how many there are is found in a run."""
    x = call.node(0)
    mask = x if x.dtype == BOOL else binary("ne", x, 0)
    if x.ndim == 0:
        return slice_axis(expand_dims(nonzero(reshape(mask, (1,))), 0), 0, 0, 0)
    return basic.concat([expand_dims(one, 0) for one in positions_on_axes(mask)], 0)


@operator("Unique", since=11)
def unique(call: Call) -> Result:
    if call.value(0).is_string:
        call.refuse("strings are not told apart here")
    x = call.node(0)
    ordered = bool(call.attr("sorted", 1))
    if call.attr("axis") is None:
        flat = reshape(x, (product(x.shape),))
        found = groups([flat], ordered)
        return make("gather", flat, found.places, axis=0), *found
    axis = call.axis_of(x)
    found = groups(_columns(call, x, axis), ordered)
    return make("gather", x, found.places, axis=axis), *found


def _columns(call: Call, x: Node, axis: int) -> list[Node]:
    """Rows along an axis, one column after the other."""
    n = x.shape[axis]
    others = [one for one in range(x.ndim) if one != axis]
    width = product(x.shape[one] for one in others)
    if not isinstance(width, int) or width > MAX_COLUMNS:
        call.refuse(f"rows of {width} elements are compared, at most {MAX_COLUMNS}")
    if width == 0:
        return [full((n,), 0, INT64)]
    rows = reshape(permute(x, [axis, *others]), (n, width))
    return [reshape(slice_axis(rows, 1, k, k + 1), (n,)) for k in range(width)]
