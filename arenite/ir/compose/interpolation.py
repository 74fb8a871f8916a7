"""Images of other sizes: one axis after the other, by places in the old one.

`Axis` says where elements of the result lie in the source, as ONNX names it. Where sizes are
numbers, places and weights become constants; else they are computed in a run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from arenite.dtype import FLOAT32, FLOAT64, INT64
from arenite.errors import InvalidArgument, NotSupported
from arenite.ir.compose.basic import (
    along,
    binary,
    broadcast_to,
    cast,
    computing,
    iota,
    reshape,
    size_like,
    where,
)
from arenite.ir.compose.neural import clip
from arenite.ir.compose.sampling import CUBIC, cubic_weights
from arenite.ir.dim import Dim, bounds, product
from arenite.ir.element import limits, numpy_dtype
from arenite.ir.graph import Graph, topological
from arenite.ir.node import Node
from arenite.ir.ops import constant, full, make
from arenite.ir.reference import evaluate

#: Elements of places and weights that become constants.
MAX_FOLDED = 1 << 20
#: Scales of open sizes by which elements are only repeated.
MAX_TIMES = 8
#: Weights of a filter, which is held as a matrix.
MAX_FILTER = 1 << 26

COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
    "tf_half_pixel_for_nn",
)
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis that gets another size."""

    axis: int
    size: Dim  # of the result
    scale: float | None  # None: the size of the result over that of the source
    start: Node | None = None  # of the part that is read, 0..1, a float of no axes
    stop: Node | None = None


@dataclass(frozen=True, slots=True)
class Method:
    """How elements are made of those around them."""

    mode: str  # nearest, linear, cubic
    coordinates: str = "half_pixel"
    rounding: str = "round_prefer_floor"
    cubic: float = CUBIC
    antialias: bool = False
    exclude_outside: bool = False
    outside: float = 0.0  # beyond the part that is read

    def __post_init__(self) -> None:
        for what, given, known in (
            ("mode", self.mode, ("nearest", "linear", "cubic")),
            ("coordinates", self.coordinates, COORDINATES),
            ("rounding", self.rounding, ROUNDINGS),
        ):
            if given not in known:
                raise InvalidArgument(f"resize: {what} {given!r} is none of {', '.join(known)}")


def resize(x: Node, axes: list[Axis], method: Method) -> Node:
    """x with other sizes. Integers are computed as floats, rounded, and held in their range."""
    is_float = x.dtype.kind.value == "float"
    wide = x
    if method.mode != "nearest" or method.coordinates == "tf_crop_and_resize":
        wide = computing(x) if is_float else cast(x, FLOAT32)
    times = {one.axis: _times(x.shape[one.axis], one, method) for one in axes}
    repeats = {axis: count for axis, count in times.items() if count > 1}
    # Elements side by side first: later rows are copied whole.
    for one in sorted(axes, key=lambda one: -one.axis):
        if one.axis not in repeats:
            wide = _along(wide, one, method)
    if repeats:
        wide = _repeated(wide, repeats)
    if wide.dtype == x.dtype:
        return wide
    if not is_float:
        low, high = limits(x.dtype)
        wide = clip(make("round", wide), float(low), float(high))
    return cast(wide, x.dtype)


def _along(x: Node, one: Axis, method: Method) -> Node:
    size = x.shape[one.axis]
    is_crop = method.coordinates == "tf_crop_and_resize"
    if size == one.size and (one.scale is None or one.scale == 1.0) and not is_crop:
        return x
    if one.size == 0 or size == 0:
        shape = (*x.shape[: one.axis], one.size, *x.shape[one.axis + 1 :])
        return full(shape, 0 if x.dtype.kind.value != "float" else 0.0, x.dtype)
    at = _positions(size, one, method)
    if method.mode == "nearest":
        found = _gathered(x, one.axis, _nearest(at, size, method.rounding))
    elif method.antialias:
        found = _filtered(x, one, method, at)
    else:
        found = _weighted(x, one.axis, at, method)
    if is_crop:
        last = size_like(size - 1, at)
        outside = along(folded((at < 0.0) | (at > last)), one.axis, x.ndim)
        found = where(outside, full(found.shape, method.outside, x.dtype), found)
    return found


def folded(node: Node) -> Node:
    """A constant, where a node follows from numbers alone and has not too many elements."""
    if any(one.op not in _PLAIN or not _is_small(one) for one in topological([node])):
        return node
    [array] = evaluate(Graph.of([node]))
    return constant(np.asarray(array), node.dtype)


_PLAIN = frozenset(
    "full iota constant add sub mul div floor ceil trunc round mod maximum minimum where cast "
    "expand reshape eq lt le gt ge and or not slice sum abs".split()
)


def _is_small(node: Node) -> bool:
    return bounds(product(node.shape))[1] <= MAX_FOLDED and all(
        isinstance(size, int) for size in node.shape
    )


def _positions(size: Dim, one: Axis, method: Method) -> Node:
    """Where in the source the elements of the result lie.

    The nearest element is looked for in float32, as others do, so that halves are the same ones.
    """
    dtype = FLOAT32 if method.mode == "nearest" else FLOAT64
    out = iota(one.size, dtype)
    length, new = size_like(size, out), size_like(one.size, out)
    ratio = new / length if one.scale is None else full((), one.scale, dtype)
    # The size the result would have, were it not rounded.
    width = new if one.scale is None else length * one.scale
    is_single = binary("eq", width, 1.0)
    if method.coordinates == "align_corners":
        # The product first, so that the last place is exactly the last one.
        at = out * (length - 1.0) / where(is_single, 1.0, width - 1.0)
        return where(is_single, 0.0, at)
    if method.coordinates == "asymmetric":
        return out / ratio
    if method.coordinates == "tf_half_pixel_for_nn":
        return (out + 0.5) / ratio
    if method.coordinates == "tf_crop_and_resize":
        start = full((), 0.0, dtype) if one.start is None else cast(one.start, dtype)
        stop = full((), 1.0, dtype) if one.stop is None else cast(one.stop, dtype)
        reach = (stop - start) * (length - 1.0)
        step = reach / where(is_single, 1.0, width - 1.0)
        first = start * (length - 1.0)
        return where(is_single, reach * 0.5, out * step) + first
    half = (out + 0.5) / ratio - 0.5
    if method.coordinates == "pytorch_half_pixel":
        return where(binary("eq", new, 1.0), 0.0, half)
    if method.coordinates == "half_pixel_symmetric":
        return half + length * 0.5 * (1.0 - new / width)
    return half


def _nearest(at: Node, size: Dim, rounding: str) -> Node:
    if rounding == "floor":
        made = make("floor", at)
    elif rounding == "ceil":
        made = make("ceil", at)
    elif rounding == "round_prefer_floor":
        made = make("ceil", at - 0.5)
    else:
        made = make("floor", at + 0.5)
    return _place(made, size)


def _place(at: Node, size: Dim) -> Node:
    return cast(clip(at, 0.0, size_like(size - 1, at)), INT64)


def _gathered(x: Node, axis: int, places: Node) -> Node:
    return make("gather", x, folded(places), axis=axis)


def _weighted(x: Node, axis: int, at: Node, method: Method) -> Node:
    size = x.shape[axis]
    first = make("floor", at)
    t = at - first
    if method.mode == "linear":
        offsets, weights = [0, 1], [1.0 - t, t]
    else:
        offsets, weights = [-1, 0, 1, 2], cubic_weights(t, method.cubic)
    places = [first + float(offset) for offset in offsets]
    if method.exclude_outside and method.mode == "cubic":
        last = size_like(size - 1, at)
        weights = [
            where((p >= 0.0) & (p <= last), w, 0.0) for p, w in zip(places, weights, strict=True)
        ]
        total = weights[0]
        for weight in weights[1:]:
            total = total + weight
        weights = [weight / total for weight in weights]
    made: Node | None = None
    for place, weight in zip(places, weights, strict=True):
        factor = along(folded(cast(weight, x.dtype)), axis, x.ndim)
        term = _gathered(x, axis, _place(place, size)) * factor
        made = term if made is None else made + term
    assert made is not None
    return made


def _filtered(x: Node, one: Axis, method: Method, at: Node) -> Node:
    """A filter as wide as the elements of the result are in the source, as a product."""
    size = x.shape[one.axis]
    if not isinstance(size, int) or not isinstance(one.size, int):
        raise NotSupported(
            f"resize: antialias needs sizes that are numbers, not {size} and {one.size}"
        )
    scale = min(one.size / size if one.scale is None else one.scale, 1.0)
    if one.size * max(size, 4 / scale) > MAX_FILTER:
        raise NotSupported(
            f"resize: a filter from {size} to {one.size} elements at a scale of {scale} has more "
            f"than {MAX_FILTER} weights"
        )
    places = folded(at)
    if places.op != "constant":
        raise NotSupported("resize: antialias needs a part of the image that is known")
    centres = np.asarray(places.attr("data").array, np.float64)
    reach = math.ceil((1 if method.mode == "linear" else 2) / scale) + 1
    taps = np.floor(centres)[:, None] + np.arange(-reach, reach + 1)
    away = np.abs(taps - centres[:, None]) * scale
    if method.mode == "linear":
        weights = np.clip(1 - away, 0, None)
    else:
        a = method.cubic
        near = ((a + 2) * away - (a + 3)) * away * away + 1
        far = ((a * away - 5 * a) * away + 8 * a) * away - 4 * a
        weights = np.where(away <= 1, near, np.where(away < 2, far, 0))
    if method.exclude_outside:
        weights = np.where((taps < 0) | (taps >= size), 0, weights)
    weights /= weights.sum(1, keepdims=True)
    matrix = np.zeros((one.size, size))
    rows = np.broadcast_to(np.arange(one.size)[:, None], taps.shape)
    np.add.at(matrix, (rows, np.clip(taps, 0, size - 1).astype(np.int64)), weights)
    factor = constant(matrix.astype(numpy_dtype(x.dtype)), x.dtype)
    if one.axis == x.ndim - 1:
        if x.ndim == 1:
            row = reshape(x, (1, size))
            made = make("matmul", row, factor, transpose_a=False, transpose_b=True)
            return reshape(made, (one.size,))
        return make("matmul", x, factor, transpose_a=False, transpose_b=True)
    before, after = x.shape[: one.axis], x.shape[one.axis + 1 :]
    flat = reshape(x, (*before, size, product(after)))
    made = make("matmul", factor, flat, transpose_a=False, transpose_b=False)
    return reshape(made, (*before, one.size, *after))


def _repeated(x: Node, times: dict[int, int]) -> Node:
    """Each element of some axes so often, side by side; of all these axes at once."""
    apart: list[Dim] = []
    wide: list[Dim] = []
    shape: list[Dim] = []
    for axis, size in enumerate(x.shape):
        here = times.get(axis, 1)
        apart += [size] if here == 1 else [size, 1]
        wide += [size] if here == 1 else [size, here]
        shape.append(size * here)
    return reshape(broadcast_to(reshape(x, apart), wide), shape)


def _times(size: Dim, one: Axis, method: Method) -> int:
    """How often each element comes, side by side, where that is all; else 0."""
    is_even = method.coordinates in ("half_pixel", "pytorch_half_pixel", "asymmetric")
    if method.mode != "nearest" or not is_even or size == 0:
        return 0
    times = next((k for k in range(2, MAX_TIMES + 1) if one.size == size * k), 0)
    if times == 0 or one.scale not in (None, float(times)):
        return 0
    # All elements are as those of a short axis.
    short = Axis(0, 16 * times, float(times))
    found = folded(_nearest(_positions(16, short, method), 16, method.rounding))
    is_plain = np.array_equal(found.attr("data").array, np.arange(16 * times) // times)
    return times if is_plain else 0
