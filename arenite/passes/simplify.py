"""Simplification: nodes that do nothing go, views of views become one view, constants fold.

Only what keeps every bit of every result: x + 0 stays, because -0 + 0 is 0; x * 1 goes.
"""

from __future__ import annotations

from math import copysign
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arenite.dtype import Kind
from arenite.ir import OPS, Node, bounds, constant, full, known_le, make, topological
from arenite.ir.dim import evaluate
from arenite.ir.growing_loop import FOR_EVER
from arenite.ir.ops.control import LoopParts, is_never, loop_parts, trip_size
from arenite.ir.regions import hoisted

#: Results up to this many bytes are computed while compiling.
FOLD_NBYTES = 64 * 1024
#: Parts of one concat at the most.
MAX_PARTS = 48


def simplify(node: Node) -> Node:
    """One step, or the node itself."""
    rule = _RULES.get(node.op)
    changed = node if rule is None else rule(node)
    if changed is node and OPS[node.op].family == "elementwise":
        return _before_reshape(node)
    return changed


def _new_shape(node: Node) -> Node:
    """A reshape or an expand: of another one of its kind only the last counts."""
    [x] = node.inputs
    if node.shape == x.shape:
        return x
    if x.op == node.op:
        return make(node.op, x.inputs[0], shape=node.shape)
    if x.op == "full":
        return full(node.shape, x.attr("value"), x.dtype)
    return node


def _before_reshape(node: Node) -> Node:
    """Axes of size 1 are added after an elementwise op instead of before: what follows a reduction
    that keeps its axes then has the reduction's own shape, and can be part of its kernel."""
    reshaped = [value for value in node.inputs if value.op == "reshape"]
    if not reshaped or any(value.op not in ("reshape", "full") for value in node.inputs):
        return node
    shapes = {value.inputs[0].shape for value in reshaped}
    [shape, *others] = shapes
    if others or [size for size in shape if size != 1] != [s for s in node.shape if s != 1]:
        return node
    inner = [
        value.inputs[0] if value.op == "reshape" else full(shape, value.attr("value"), value.dtype)
        for value in node.inputs
    ]
    return make("reshape", make(node.op, *inner, **dict(node.attrs)), shape=node.shape)


def _permute(node: Node) -> Node:
    [x] = node.inputs
    axes = node.attr("axes")
    if axes == tuple(range(len(axes))):
        return x
    if x.op == "permute":
        inner = x.attr("axes")
        return make("permute", x.inputs[0], axes=tuple(inner[axis] for axis in axes))
    # Moving axes of size 1 about moves no element.
    if [a for a in axes if x.shape[a] != 1] == [a for a in range(x.ndim) if x.shape[a] != 1]:
        return make("reshape", x, shape=node.shape)
    return node


def _slice(node: Node) -> Node:
    [x] = node.inputs
    whole = all(
        start == 0 and step == 1
        for start, step in zip(node.attr("start"), node.attr("step"), strict=True)
    )
    if whole and node.shape == x.shape:
        return x
    return _slice_behind(node) if x.op in ("slice", "pad") else node


def _slice_behind(node: Node) -> Node:
    """A slice of a slice is one slice; of what was padded, it may be one of what was there before.
    Where sizes are known and steps go on, which is where all of it can be seen."""
    [x] = node.inputs
    starts: list[int] = []
    stops: list[int] = []
    steps: list[int] = []
    for axis, (size, start, step) in enumerate(
        zip(node.shape, node.attr("start"), node.attr("step"), strict=True)
    ):
        if not isinstance(size, int) or not isinstance(start, int) or size == 0 or step < 0:
            return node
        if x.op == "slice":
            outer, pace = x.attr("start")[axis], x.attr("step")[axis]
        else:
            outer, pace = -x.attr("padding")[axis][0], 1
        if not isinstance(outer, int) or pace < 0:
            return node
        first = outer + start * pace
        last = first + (size - 1) * step * pace
        if first < 0 or not known_le(last + 1, x.inputs[0].shape[axis]):
            return node  # some of it is padding
        starts.append(first)
        stops.append(last + 1)
        steps.append(step * pace)
    return make("slice", x.inputs[0], start=tuple(starts), stop=tuple(stops), step=tuple(steps))


def _gather(node: Node) -> Node:
    """Indices that are known and lie evenly apart are a slice, which needs no kernel."""
    x, indices = node.inputs
    axis = node.attr("axis")
    if indices.op not in ("constant", "full") or not _is_small(indices) or x.dtype.is_block:
        return node
    places = [int(place) for place in _array(indices).reshape(-1)]
    step = places[1] - places[0] if len(places) > 1 else 1
    if not places or step < 1 or places != list(range(places[0], places[-1] + 1, step)):
        return node
    if places[0] < 0 or not known_le(places[-1] + 1, x.shape[axis]):
        return node
    others = range(x.ndim)
    made = make(
        "slice",
        x,
        start=tuple(places[0] if a == axis else 0 for a in others),
        stop=tuple(places[-1] + 1 if a == axis else x.shape[a] for a in others),
        step=tuple(step if a == axis else 1 for a in others),
    )
    return make("reshape", made, shape=node.shape) if node.shape != made.shape else made


def _unless_same_type(node: Node) -> Node:
    [x] = node.inputs
    return x if (node.shape, node.dtype) == (x.shape, x.dtype) else node


def _concat(node: Node) -> Node:
    """Many parts are put together in groups first: a kernel has a loop for each of its parts."""
    parts, axis = node.inputs, node.attr("axis")
    if len(parts) == 1:
        return parts[0]
    if len(parts) <= MAX_PARTS:
        return node
    groups = [parts[k : k + MAX_PARTS] for k in range(0, len(parts), MAX_PARTS)]
    return make("concat", *(make("concat", *group, axis=axis) for group in groups), axis=axis)


def _is_all(node: Node, value: float) -> bool:
    return node.op == "full" and node.attr("value") == value


def _mul(node: Node) -> Node:
    a, b = node.inputs
    if _is_all(b, 1):
        return a
    return b if _is_all(a, 1) else node


def _div(node: Node) -> Node:
    a, b = node.inputs
    return a if _is_all(b, 1) else node


def _add(node: Node) -> Node:
    a, b = node.inputs
    if node.dtype.kind is not Kind.FLOAT:
        if _is_all(b, 0):
            return a
        if _is_all(a, 0):
            return b
    return node


def _sub(node: Node) -> Node:
    a, b = node.inputs
    # x - 0 is x, also for -0, but -0 - -0 is 0.
    return a if _is_all(b, 0) and copysign(1, b.attr("value")) > 0 else node


def _neg(node: Node) -> Node:
    [x] = node.inputs
    return x.inputs[0] if x.op == "neg" else node


def _choice(node: Node) -> Node:
    condition, a, b = node.inputs
    if a is b:
        return a
    if condition.op == "full":
        return a if condition.attr("value") else b
    return node


def _loop(node: Node) -> Node:
    """A loop that never runs, a value that no iteration changes, and what is the same in all
    iterations, which is computed before them; or in them, where it takes nothing to make it up."""
    parts = loop_parts(node)
    index: int = node.attr("index")
    n = len(parts.initial)
    if is_never(parts.condition) or trip_size(parts.trips) == 0:
        return parts.initial[index] if index < n else full(node.shape, 0, node.dtype)
    if index < n and parts.following[index] is parts.carried[index] and not _is_endless(parts):
        return parts.initial[index]
    body = node.attr("body")
    region, captures = hoisted(body, 1 + n, parts.captures)
    if region is body:
        return node
    return make("loop", *node.inputs[: 2 + n], *captures, body=region, carried=n, index=index)


def _is_endless(parts: LoopParts) -> bool:
    """Whether a loop that is entered may go on for ever: only its condition could end it, and that
    depends on nothing that an iteration changes."""
    if trip_size(parts.trips) != FOR_EVER or is_never(parts.goes_on):
        return False
    pairs = zip(parts.carried, parts.following, strict=True)
    changing = {parts.iteration, *(one for one, following in pairs if following is not one)}
    return changing.isdisjoint(topological([parts.goes_on]))


_RULES = {
    "if": _choice,
    "loop": _loop,
    "reshape": _new_shape,
    "permute": _permute,
    "expand": _new_shape,
    "slice": _slice,
    "gather": _gather,
    "pad": _unless_same_type,
    "concat": _concat,
    "cast": _unless_same_type,
    "mul": _mul,
    "div": _div,
    "add": _add,
    "sub": _sub,
    "neg": _neg,
    "where": _choice,
}

_FOLDED = frozenset({"elementwise", "movement", "reduction", "scan", "indexing", "sort"})


def fold(node: Node) -> Node:
    """A node of constants alone becomes a constant, where that is small."""
    family = OPS[node.op].family
    if not _is_small(node):
        return node
    if node.op == "constant":
        return _full_if_uniform(node.attr("data").array, node)
    if family not in _FOLDED or not node.inputs:
        return node
    if not all(value.op in ("constant", "full") and _is_small(value) for value in node.inputs):
        return node
    if all(value.op == "full" for value in node.inputs) and family == "elementwise":
        if node.dtype.kind is Kind.COMPLEX:
            return node  # kernels make up its parts
        # One element stands for all.
        ones = [np.full((1,) * node.ndim, _held(value)) for value in node.inputs]
        shape = (1,) * node.ndim
        made = _computed(node, ones, shape)
        return full(node.shape, made.reshape(-1)[0].item(), node.dtype)
    arrays = [_array(value) for value in node.inputs]
    shape = tuple(evaluate(size, {}) for size in node.shape)
    made = np.ascontiguousarray(_computed(node, arrays, shape)).reshape(shape)
    return _full_if_uniform(made, constant(made, node.dtype))


def _is_small(node: Node) -> bool:
    """Whether it is worth computing while compiling, and possible."""
    return (
        node.dtype.has_numpy
        and all(isinstance(size, int) for size in node.shape)
        and bounds(node.nbytes)[1] <= FOLD_NBYTES
    )


def _full_if_uniform(array: NDArray[Any], node: Node) -> Node:
    """Equal elements need no memory: they are made up where they are needed."""
    if array.size == 0 or node.dtype.kind is Kind.COMPLEX:
        return node
    code = array.reshape(-1).view(np.uint8).reshape(array.size, -1)
    if (code != code[0]).any():
        return node
    value = array.reshape(-1)[0].item()
    return node if value != value else full(node.shape, value, node.dtype)


def _computed(node: Node, arrays: list[NDArray[Any]], shape: tuple[int, ...]) -> NDArray[Any]:
    with np.errstate(all="ignore"):  # a kernel would not warn either
        return OPS[node.op].reference(arrays, dict(node.attrs), shape, node.dtype)


def _held(value: Node) -> NDArray[Any]:
    return np.asarray(value.attr("value")).astype(value.dtype.to_numpy())


def _array(value: Node) -> NDArray[Any]:
    if value.op == "constant":
        held: NDArray[Any] = value.attr("data").array
        return held
    shape = tuple(evaluate(size, {}) for size in value.shape)
    return OPS["full"].reference([], dict(value.attrs), shape, value.dtype)
