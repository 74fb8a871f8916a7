"""Movement: elements change place, not value.

reshape(shape)                    row-major order stays
permute(axes)                     axis i of the result is axis axes[i] of the input
expand(shape)                     sizes of 1 stretch; the rank stays
pad(padding, value)               (before, after) for each axis
slice(start, stop, step)          the indices of range(start, stop, step) for each axis
front(x, sized; axis)             the first rows along an axis, as many as `sized` has rows; that
                                  says where a size found while running comes from
concat(axis)
window(axes, sizes, strides, dilations)
                                  sliding windows: each axis becomes the number of places the
                                  window fits, and the windows' own axes are appended
"""

from __future__ import annotations

import numpy as np

from arenite.dtype import Array, DType
from arenite.errors import ShapeMismatch, TypeMismatch
from arenite.ir.dim import Dim, bounds, ceildiv, known_le, product
from arenite.ir.element import numpy_dtype
from arenite.ir.node import Node, Shape
from arenite.ir.ops.access import Guard, Index, Source, reshaped_index
from arenite.ir.ops.define import (
    Attrs,
    Inferred,
    Sizes,
    define,
    differ_elsewhere,
    is_dim_pairs,
    is_dims,
    is_ints,
    is_number,
    need_axes,
    need_axis,
)
from arenite.ir.ops.sources import check_sizes


def _infer_reshape(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    (x,) = inputs
    shape = check_sizes("reshape", attrs["shape"])
    if product(shape) != product(x.shape):
        raise ShapeMismatch(
            f"reshape: {x.type_text} has {product(x.shape)} elements, shape {shape} "
            f"{product(shape)}"
        )
    return shape, x.dtype


def _reshape_sources(node: Node, index: Index) -> tuple[Source, ...]:
    [source] = node.inputs
    return (Source(source, reshaped_index(index, node.shape, source.shape)),)


define(
    "reshape",
    "movement",
    (1, 1),
    _infer_reshape,
    lambda arrays, attrs, shape, dtype: arrays[0].reshape(shape),
    {"shape": is_dims},
    sources=_reshape_sources,
    is_free=True,
    keeps_order=True,
)


def _infer_front(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    x, sized = inputs
    axis: int = attrs["axis"]
    need_axis("front", axis, x)
    if not sized.ndim:
        raise ShapeMismatch(f"front: {sized.type_text} has no rows")
    if bounds(sized.shape[0])[1] > bounds(x.shape[axis])[0]:
        raise ShapeMismatch(
            f"front: up to {bounds(sized.shape[0])[1]} rows, of which "
            f"{x.type_text} may have fewer on axis {axis}"
        )
    return (*x.shape[:axis], sized.shape[0], *x.shape[axis + 1 :]), x.dtype


def _front_sources(node: Node, index: Index) -> tuple[Source, ...]:
    return (Source(node.inputs[0], index),)


define(
    "front",
    "movement",
    (2, 2),
    _infer_front,
    lambda arrays, attrs, shape, dtype: arrays[0][tuple(map(slice, shape))],
    {"axis": int},
    sources=_front_sources,
)


def _infer_permute(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    (x,) = inputs
    axes: tuple[int, ...] = attrs["axes"]
    if sorted(axes) != list(range(x.ndim)):
        raise ShapeMismatch(
            f"permute: axes {axes} are no order of the {x.ndim} axes of {x.type_text}"
        )
    return tuple(x.shape[axis] for axis in axes), x.dtype


def _permute_sources(node: Node, index: Index) -> tuple[Source, ...]:
    [source] = node.inputs
    inner: list[Dim] = [0] * len(index)
    for position, axis in zip(index, node.attr("axes"), strict=True):
        inner[axis] = position
    return (Source(source, tuple(inner)),)


define(
    "permute",
    "movement",
    (1, 1),
    _infer_permute,
    lambda arrays, attrs, shape, dtype: arrays[0].transpose(attrs["axes"]),
    {"axes": is_ints},
    sources=_permute_sources,
)


def _infer_expand(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    (x,) = inputs
    shape = check_sizes("expand", attrs["shape"])
    if len(shape) != x.ndim or any(a not in (1, b) for a, b in zip(x.shape, shape, strict=True)):
        raise ShapeMismatch(f"expand: {x.type_text} does not stretch to shape {shape}")
    return shape, x.dtype


def _expand_sources(node: Node, index: Index) -> tuple[Source, ...]:
    [source] = node.inputs
    inner = tuple(
        position if size == outer_size else 0
        for position, size, outer_size in zip(index, source.shape, node.shape, strict=True)
    )
    return (Source(source, inner),)


define(
    "expand",
    "movement",
    (1, 1),
    _infer_expand,
    lambda arrays, attrs, shape, dtype: np.broadcast_to(arrays[0], shape),
    {"shape": is_dims},
    sources=_expand_sources,
    is_free=True,
)


def _infer_pad(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    (x,) = inputs
    padding: tuple[tuple[Dim, Dim], ...] = attrs["padding"]
    if len(padding) != x.ndim or any(not known_le(0, side) for pair in padding for side in pair):
        raise ShapeMismatch(
            f"pad: {padding} is not one (before, after), neither of them negative, for each axis "
            f"of {x.type_text}"
        )
    sizes = zip(x.shape, padding, strict=True)
    return tuple(before + size + after for size, (before, after) in sizes), x.dtype


def _pad_reference(arrays: list[Array], attrs: Attrs, shape: Sizes, dtype: DType) -> Array:
    padded = np.full(shape, np.asarray(attrs["value"]).astype(numpy_dtype(dtype)))
    inside = [
        slice(before, before + size)
        for size, (before, _) in zip(arrays[0].shape, attrs["padding"], strict=True)
    ]
    padded[tuple(inside)] = arrays[0]
    return padded


def _pad_sources(node: Node, index: Index) -> tuple[Source, ...]:
    [source] = node.inputs
    inner: list[Dim] = []
    guards: list[Guard] = []
    for position, size, (before, after) in zip(
        index, source.shape, node.attr("padding"), strict=True
    ):
        inner.append(position - before)
        if before != 0 or after != 0:
            guards.append(Guard(position - before, size))
    return (Source(source, tuple(inner), tuple(guards)),)


define(
    "pad",
    "movement",
    (1, 1),
    _infer_pad,
    _pad_reference,
    {"padding": is_dim_pairs, "value": is_number},
    sources=_pad_sources,
    is_pieced=True,
)


def range_length(start: Dim, stop: Dim, step: int) -> Dim:
    """len(range(start, stop, step)), for a stop that is not on the wrong side of start."""
    return ceildiv(stop - start, step) if step > 0 else ceildiv(start - stop, -step)


def _infer_slice(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    (x,) = inputs
    starts, stops, steps = attrs["start"], attrs["stop"], attrs["step"]
    if not len(starts) == len(stops) == len(steps) == x.ndim or 0 in steps:
        raise ShapeMismatch(
            f"slice: start {starts}, stop {stops}, step {steps} are not one each, with a step that "
            f"is not 0, for every axis of {x.type_text}"
        )
    shape = []
    for axis, (size, start, stop, step) in enumerate(
        zip(x.shape, starts, stops, steps, strict=True)
    ):
        if step > 0:
            fits = known_le(0, start) and known_le(start, stop) and known_le(stop, size)
        else:
            fits = known_le(start, size - 1) and known_le(stop, start) and known_le(-1, stop)
        if not fits:
            raise ShapeMismatch(
                f"slice: range({start}, {stop}, {step}) leaves axis {axis} of {x.type_text}"
            )
        shape.append(range_length(start, stop, step))
    return tuple(shape), x.dtype


def _slice_reference(arrays: list[Array], attrs: Attrs, shape: Sizes, dtype: DType) -> Array:
    bounds_of_axes = zip(attrs["start"], attrs["stop"], attrs["step"], strict=True)
    # Python reads a stop of -1 as the last element; here it is the place before the first.
    return arrays[0][tuple(slice(a, None if b < 0 else b, c) for a, b, c in bounds_of_axes)]


def _slice_sources(node: Node, index: Index) -> tuple[Source, ...]:
    [source] = node.inputs
    inner = tuple(
        start + step * position
        for position, start, step in zip(index, node.attr("start"), node.attr("step"), strict=True)
    )
    return (Source(source, inner),)


define(
    "slice",
    "movement",
    (1, 1),
    _infer_slice,
    _slice_reference,
    {"start": is_dims, "stop": is_dims, "step": is_ints},
    sources=_slice_sources,
    is_free=True,
)


def _infer_concat(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    first, *others = inputs
    axis: int = attrs["axis"]
    need_axis("concat", axis, first)
    total = first.shape[axis]
    for other in others:
        if other.dtype != first.dtype:
            raise TypeMismatch(f"concat: dtypes {first.dtype} and {other.dtype} differ")
        if differ_elsewhere(first, other, axis):
            raise ShapeMismatch(
                f"concat: shapes {first.shape} and {other.shape} differ elsewhere than on axis "
                f"{axis}"
            )
        total = total + other.shape[axis]
    return (*first.shape[:axis], total, *first.shape[axis + 1 :]), first.dtype


def _concat_sources(node: Node, index: Index) -> tuple[Source, ...]:
    axis = node.attr("axis")
    start: Dim = 0
    found = []
    for value in node.inputs:
        position = index[axis] - start
        inner = (*index[:axis], position, *index[axis + 1 :])
        found.append(Source(value, inner, (Guard(position, value.shape[axis]),)))
        start = start + value.shape[axis]
    return tuple(found)


define(
    "concat",
    "movement",
    (1, None),
    _infer_concat,
    lambda arrays, attrs, shape, dtype: np.concatenate(arrays, axis=attrs["axis"]),
    {"axis": int},
    sources=_concat_sources,
    is_pieced=True,
)


def window_count(size: Dim, window: Dim, stride: int, dilation: int) -> Dim:
    """How many places a window fits; the size must hold one."""
    return (size - dilation * (window - 1) - 1) // stride + 1


def _infer_window(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    (x,) = inputs
    axes, sizes = attrs["axes"], attrs["sizes"]
    strides, dilations = attrs["strides"], attrs["dilations"]
    need_axes("window", axes, x)
    if not len(axes) == len(sizes) == len(strides) == len(dilations) or any(
        number < 1 for number in (*sizes, *strides, *dilations)
    ):
        raise ShapeMismatch(
            f"window: sizes {sizes}, strides {strides}, dilations {dilations} are not one positive "
            f"number each for axes {axes}"
        )
    shape: list[Dim] = list(x.shape)
    for axis, size, stride, dilation in zip(axes, sizes, strides, dilations, strict=True):
        extent = dilation * (size - 1) + 1
        if not known_le(extent, x.shape[axis]):
            raise ShapeMismatch(
                f"window: {extent} elements do not fit axis {axis} of {x.type_text}"
            )
        shape[axis] = window_count(x.shape[axis], size, stride, dilation)
    return (*shape, *sizes), x.dtype


def _window_reference(arrays: list[Array], attrs: Attrs, shape: Sizes, dtype: DType) -> Array:
    (x,) = arrays
    strides = list(x.strides)
    window_strides = []
    for axis, stride, dilation in zip(
        attrs["axes"], attrs["strides"], attrs["dilations"], strict=True
    ):
        window_strides.append(x.strides[axis] * dilation)
        strides[axis] = x.strides[axis] * stride
    # A step that is never taken may be larger than any that NumPy knows.
    all_strides = zip((*strides, *window_strides), shape, strict=True)
    steps = [stride if size > 1 else 0 for stride, size in all_strides]
    return np.lib.stride_tricks.as_strided(x, shape, steps, writeable=False)


def _window_sources(node: Node, index: Index) -> tuple[Source, ...]:
    [source] = node.inputs
    axes = node.attr("axes")
    inner = list(index[: source.ndim])
    within = index[source.ndim :]
    for axis, offset, stride, dilation in zip(
        axes, within, node.attr("strides"), node.attr("dilations"), strict=True
    ):
        inner[axis] = inner[axis] * stride + offset * dilation
    return (Source(source, tuple(inner)),)


define(
    "window",
    "movement",
    (1, 1),
    _infer_window,
    _window_reference,
    {"axes": is_ints, "sizes": is_ints, "strides": is_ints, "dilations": is_ints},
    sources=_window_sources,
    rereads=True,
)


def strides_of(shape: Shape) -> Shape:
    """Row-major strides, in elements."""
    strides: list[Dim] = []
    stride: Dim = 1
    for size in reversed(shape):
        strides.append(stride)
        stride = stride * size
    return tuple(reversed(strides))
