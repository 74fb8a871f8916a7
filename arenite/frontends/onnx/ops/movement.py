"""Operators that move elements: Reshape, Transpose, Concat, Split, Pad, Tile, Expand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import wraps

import numpy as np

from arenite.dtype import BOOL, FLOAT32, INT64
from arenite.frontends.onnx.alternatives import merged
from arenite.frontends.onnx.call import Call
from arenite.frontends.onnx.ops.random import seed_of
from arenite.frontends.onnx.registry import Handler, Result, operator
from arenite.frontends.onnx.structure import (
    aligned,
    checked,
    gathered,
    reshaped_in_run,
    resized_in_run,
)
from arenite.frontends.onnx.values import MAX_BETWEEN, AnyValue, Value
from arenite.ir import Dim, Node, bounds, ceildiv, constant, full, make, maximum, minimum, product
from arenite.ir import size as size_node
from arenite.ir.compose import basic, padding
from arenite.ir.compose.basic import permute, reshape
from arenite.ir.compose.random import uniform
from arenite.ir.dim import exact_quotient, found_in
from arenite.ir.ops.define import broadcast


def moves(handler: Handler) -> Handler:
    """What moves strings makes strings."""

    @wraps(handler)
    def handle(call: Call) -> Result:
        made = handler(call)
        if not call.value(0).is_string:
            return made
        outputs = made if isinstance(made, tuple | list) else (made,)
        return [Value.of(one, is_string=True) if isinstance(one, Node) else one for one in outputs]

    return handle


@operator("Identity")
def identity(call: Call) -> Result:
    return call.any(0)


# Shapes.


@operator("Reshape", since=5)
@moves
def reshaped(call: Call) -> Result:
    """0 is the size that the input has there, or none with `allowzero`; -1 is what is left."""
    x = call.node(0)
    wanted = call.sizes(1)
    copied: list[int] = []
    if not call.attr("allowzero", 0):
        copied = [axis for axis, size in enumerate(wanted) if size == 0]
        if copied and copied[-1] >= x.ndim:
            call.fail(f"shape {wanted} takes a size that input 0, of shape {x.shape}, has not")
    if wanted.count(-1) > 1:
        call.fail(f"shape {wanted} has more than one -1")
    if any(isinstance(size, int) and size < -1 for size in wanted):
        call.fail(f"shape {wanted} has a negative size")
    shape = [x.shape[axis] if axis in copied else size for axis, size in enumerate(wanted)]
    if -1 in shape:
        # Sizes that are taken over are left out on both sides: they may be 0.
        rest = product(size for axis, size in enumerate(x.shape) if axis not in copied)
        others = [s for axis, s in enumerate(shape) if axis not in copied and s != -1]
        shape[shape.index(-1)] = _left(call, x, rest, product(others), wanted)
    is_found = any(found_in(size) for size in (*x.shape, *shape))
    if is_found and product(shape) != product(x.shape):
        return reshaped_in_run(call, x, shape)
    return reshape(x, shape)


def _left(call: Call, x: Node, total: Dim, known: Dim, wanted: Sequence[Dim]) -> Dim:
    found = None if known == 0 else exact_quotient(total, known)
    if found is None and known != 0 and (found_in(total) or found_in(known)):
        return total // maximum(1, known)
    if found is None:
        call.fail(f"elements of shape {x.shape} do not divide into shape {list(wanted)}")
    return found


@operator("Flatten")
@moves
def flatten(call: Call) -> Result:
    x = call.node(0)
    axis: int = call.attr("axis", 1)
    if not -x.ndim <= axis <= x.ndim:
        call.fail(f"axis {axis} of a tensor with {x.ndim} axes")
    axis += x.ndim if axis < 0 else 0
    return reshape(x, (product(x.shape[:axis]), product(x.shape[axis:])))


@operator("Squeeze")
@moves
def squeeze(call: Call) -> Result:
    x = call.node(0)
    given = _axes(call)
    if given is None:
        return _squeezed(call, x, 0)
    axes = call.axes(given, x.ndim)
    x = resized_in_run(call, x, [1 if k in axes else size for k, size in enumerate(x.shape)])
    for axis in axes:
        if x.shape[axis] != 1:
            call.fail(f"axis {axis} of shape {x.shape} is not of size 1")
    return reshape(x, [size for axis, size in enumerate(x.shape) if axis not in axes])


def _squeezed(call: Call, x: Node, first: int) -> Node | AnyValue:
    """Without all axes of size 1, from one on; of a size that is found a run tells."""
    for axis in range(first, x.ndim):
        size = x.shape[axis]
        if size == 1:
            return _squeezed(call, reshape(x, x.shape[:axis] + x.shape[axis + 1 :]), axis)
        low, high = bounds(size)
        if not low <= 1 <= high:
            continue
        if not found_in(size):
            call.refuse(f"it takes away axes of size 1, and axis {axis} of {x.shape} may be one")
        is_one = basic.binary("eq", size_node(size, INT64), 1)
        without = make("gather", x, full((), 0, INT64), axis=axis)
        ways = [_squeezed(call, without, axis), _squeezed(call, x, axis + 1)]
        return merged(call, is_one, *([Value.of(one) if isinstance(one, Node) else one]
                                      for one in ways))[0]  # fmt: skip
    return x


@operator("Unsqueeze")
@moves
def unsqueeze(call: Call) -> Result:
    x = call.node(0)
    given = _axes(call)
    if given is None:
        call.fail("its axes are missing")
    axes = call.axes(given, x.ndim + len(given))
    return basic.insert_axes(x, axes)


def _axes(call: Call) -> list[int] | None:
    """An attribute before version 13, then an input."""
    if call.version < 13:
        given: list[int] | None = call.attr("axes")
        return given
    return call.integers(1) if call.has(1) else None


@operator("Expand", since=8)
@moves
def expand(call: Call) -> Result:
    x = call.node(0)
    wanted = call.sizes(1)
    if any(map(found_in, (*x.shape, *wanted))):
        x, room = aligned(call, x, full(wanted, 0, x.dtype))
        wanted = [*room.shape]
    return basic.broadcast_to(x, broadcast("Expand", x.shape, tuple(wanted)))


@operator("Transpose")
@moves
def transpose(call: Call) -> Result:
    x = call.node(0)
    axes = call.attr("perm")
    axes = list(range(x.ndim))[::-1] if axes is None else axes
    if sorted(axes) != list(range(x.ndim)):
        call.fail(f"perm {axes} is no order of {x.ndim} axes")
    return permute(x, axes)


# Parts.


@operator("Concat", since=4)
@moves
def concat(call: Call) -> Result:
    nodes = call.nodes
    if not nodes:
        call.fail("it needs an input")
    axis = call.some_axis(call.need_attr("axis"), nodes[0].ndim)
    return basic.concat(aligned(call, *nodes, but=axis), axis)


@operator("Split", since=2)
@moves
def split(call: Call) -> Result:
    """Given lengths; else equal ones, of which the last is less where they do not divide."""
    x = call.node(0)
    axis = call.axis_of(x, 0)
    size = x.shape[axis]
    lengths: Sequence[Dim] | None = call.attr("split") if call.version < 13 else None
    if call.version >= 13 and call.has(1):
        lengths = call.sizes(1)
    if lengths is None:
        count = call.attr("num_outputs", call.n_outputs)
        if count != call.n_outputs:
            call.fail(f"num_outputs is {count}, and it has {call.n_outputs} outputs")
        lengths = _equal_lengths(call, size, count)
    total = sum(lengths, start=0)
    if total != size and any(found_in(one) for one in (total, size)):
        return _split_in_run(call, x, axis, lengths)
    if total != size or any(bounds(one)[0] < 0 for one in lengths):
        call.fail(f"lengths {list(lengths)} are not those of an axis of size {size}")
    made = []
    start: Dim = 0
    for length in lengths:
        made.append(basic.slice_axis(x, axis, start, start + length))
        start = start + length
    return made


def _split_in_run(call: Call, x: Node, axis: int, lengths: Sequence[Dim]) -> list[Node]:
    sides = [size_node(one, INT64) for one in (sum(lengths, start=0), x.shape[axis])]
    what = f"the sum of lengths, and the size of axis {axis}, were found to be"
    start = checked(call, what, *sides, lambda a, b: a == b) - sides[0]
    made = []
    for length in lengths:
        made.append(gathered(x, axis, start, length))
        start = start + size_node(length, INT64)
    return made


def _equal_lengths(call: Call, size: Dim, count: int) -> list[Dim]:
    if count < 1:
        call.fail(f"{count} parts")
    each = ceildiv(size, count)
    if each * count == size:
        return [each] * count
    if isinstance(size, int) and call.version < 18:
        call.fail(f"{count} equal parts of an axis of size {size}")
    left = [minimum(each, maximum(0, size - each * k)) for k in range(count - 1)]
    return [*left, size - sum(left, start=0)]


@operator("CenterCropPad", since=18)
@moves
def center_crop_pad(call: Call) -> Result:
    """The middle of each axis; where it is too short zeros around it."""
    x = call.node(0)
    wanted = call.sizes(1)
    given = call.attr("axes")
    axes = list(range(x.ndim)) if given is None else call.axes(given, x.ndim)
    if len(axes) != len(wanted):
        call.fail(f"{len(wanted)} sizes for {len(axes)} axes")
    pairs: list[tuple[Dim, Dim]] = [(0, 0)] * x.ndim
    for axis, size in zip(axes, wanted, strict=True):
        had = x.shape[axis]
        less, more = maximum(0, had - size), maximum(0, size - had)
        start = less // 2
        x = basic.slice_axis(x, axis, start, start + (had - less))
        pairs[axis] = (more // 2, more - more // 2)
    return basic.pad(x, pairs)


# Repetition and padding.


@operator("Tile", since=6)
@moves
def tile(call: Call) -> Result:
    x = call.node(0)
    repeats = call.sizes(1)
    if len(repeats) != x.ndim:
        call.fail(f"{len(repeats)} repeats for {x.ndim} axes")
    if any(bounds(count)[0] < 0 for count in repeats):
        call.fail(f"repeats {repeats} may be negative")
    apart = [part for size in x.shape for part in (1, size)]
    spread = [part for size, count in zip(x.shape, repeats, strict=True) for part in (count, size)]
    shape = [size * count for size, count in zip(x.shape, repeats, strict=True)]
    return reshape(basic.broadcast_to(reshape(x, apart), tuple(spread)), shape)


@operator("Pad", since=2)
def pad_by_attributes(call: Call) -> Result:
    x = call.node(0)
    pairs = _pairs(call, call.need_attr("pads"), x.ndim, list(range(x.ndim)))
    return _padded(call, x, pairs, float(call.attr("value", 0.0)))


@operator("Pad", since=11)
@moves
def pad(call: Call) -> Result:
    """Negative numbers take elements away."""
    x = call.node(0)
    given = call.integers(3) if call.has(3) else list(range(x.ndim))
    pairs = _pairs(call, call.sizes(1, signed=True), x.ndim, call.axes(given, x.ndim))
    value: Node | int = 0
    if call.has(2):
        value = call.node(2)
        if any(size != 1 for size in value.shape):
            call.fail(f"the value is one number, not of shape {value.shape}")
        value = reshape(value, ())
    elif call.value(0).is_string:
        call.refuse("padding of strings needs a value")
    return _padded(call, x, pairs, value)


def _pairs(
    call: Call, given: Sequence[Dim], ndim: int, axes: Sequence[int]
) -> list[tuple[Dim, Dim]]:
    if len(given) != 2 * len(axes):
        call.fail(f"{len(given)} pads for {len(axes)} axes")
    pairs: list[tuple[Dim, Dim]] = [(0, 0)] * ndim
    for axis, before, after in zip(axes, given, given[len(axes) :], strict=False):
        pairs[axis] = (before, after)
    return pairs


def _padded(call: Call, x: Node, pairs: Sequence[tuple[Dim, Dim]], value: Node | float) -> Node:
    mode = call.attr("mode", "constant")
    if mode not in ("constant", *padding.VIEWS):
        call.fail(f"there is no mode {mode!r}")
    for axis, (before, after) in enumerate(pairs):
        less, more = maximum(0, -before), maximum(0, -after)
        had = x.shape[axis]
        if bounds(had - less - more)[1] < 0:
            call.fail(f"pads {before} and {after} take more than axis {axis} of {x.shape} has")
        if any(found_in(one) for one in (less, more)):
            x = gathered(x, axis, less, maximum(0, had - less - more))
            continue
        x = basic.slice_axis(x, axis, less, had - more)
    outside = [(maximum(0, before), maximum(0, after)) for before, after in pairs]
    if mode != "constant":
        return padding.repeated(x, outside, mode)
    return padding.filled(x, outside, value)


# Blocks.


@operator("DepthToSpace")
def depth_to_space(call: Call) -> Result:
    x = call.node(0)
    block = _block(call, x)
    mode = call.attr("mode", "DCR")
    if mode not in ("DCR", "CRD"):
        call.fail(f"there is no mode {mode!r}")
    n, channels, rows, columns = x.shape
    if channels % (block * block) != 0:
        call.fail(f"{channels} channels are no multiple of {block * block}")
    depth = channels // (block * block)
    if mode == "DCR":
        apart = reshape(x, (n, block, block, depth, rows, columns))
        moved = permute(apart, (0, 3, 4, 1, 5, 2))
    else:
        apart = reshape(x, (n, depth, block, block, rows, columns))
        moved = permute(apart, (0, 1, 4, 2, 5, 3))
    return reshape(moved, (n, depth, rows * block, columns * block))


@operator("SpaceToDepth")
def space_to_depth(call: Call) -> Result:
    x = call.node(0)
    block = _block(call, x)
    mode = call.attr("mode", "DCR")
    n, channels, rows, columns = x.shape
    if rows % block != 0 or columns % block != 0:
        call.fail(f"an image of {rows} by {columns} does not divide into blocks of {block}")
    apart = reshape(x, (n, channels, rows // block, block, columns // block, block))
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    shape = (n, channels * block * block, rows // block, columns // block)
    return reshape(permute(apart, order), shape)


def _block(call: Call, x: Node) -> int:
    block: int = call.need_attr("blocksize")
    if block < 1 or x.ndim != 4:
        call.fail(f"blocks of {block} of a tensor of shape {x.shape}, which is to have 4 axes")
    return block


@operator("Dropout", pure=False)
def dropout(call: Call) -> Result:
    """The input itself, but in training: there some elements are 0, and the others grow."""
    given = call.value(0)
    is_training = call.version >= 12 and call.has(2) and bool(_number(call, 2))
    ratio = _number(call, 1) if is_training and call.has(1) else 0.5
    if is_training and not 0 <= ratio < 1:
        call.fail(f"a ratio of {ratio}")
    if is_training and ratio > 0:
        x = given.node
        kept = _kept(call, ratio, x.shape)
        factor = 1 / (1 - ratio)
        return basic.where(kept, x * factor, 0.0), kept
    mask = full(given.shape, True, BOOL)
    return given, mask if call.version >= 10 else basic.cast(mask, given.dtype)


def _number(call: Call, index: int) -> float:
    known = call.known(index)
    if known.size != 1:
        call.fail(f"input {index} is one number, not of shape {known.shape}")
    return float(known.reshape(()))


def _kept(call: Call, ratio: float, shape: Sequence[Dim]) -> Node:
    """Which elements training keeps. With a seed they are those of the standard's own cases, which
    take NumPy's generator, as long as they are not many."""
    seed = call.attr("seed")
    sizes = [size for size in shape if isinstance(size, int)]
    if seed is not None and len(sizes) == len(shape) and math.prod(sizes) <= MAX_BETWEEN:
        numbers = np.random.RandomState(seed % 2**32).uniform(0, 1, sizes)
        return constant(numbers >= ratio)
    return uniform(*seed_of(call), shape, FLOAT32) >= ratio
