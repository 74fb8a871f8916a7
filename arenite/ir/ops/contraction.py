"""Compound ops kept whole, because fast kernels are made for them.

    matmul(a[..., M, K], b[..., K, N]; transpose_a, transpose_b)

Batch axes of matmul broadcast. Floats keep their dtype and accumulate in float32 at least (the
reference: in float64); of a narrower and a wider one the result is as the wider. 8-bit integers,
signed or not, give int32; other integers wrap.

Convolution over one to three spatial axes.

    conv(x[N, C, *S], w[O, C/groups, *K]; strides, padding, dilations, groups)
    conv_transpose(x[N, C, *S], w[C, O/groups, *K];
        strides, padding, output_padding, dilations, groups)

`padding` is (before, after) for each spatial axis. Dtypes are those of matmul. As everywhere in
machine learning the kernel is not flipped: this is correlation.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product as places
from typing import Any

import numpy as np

from arenite.dtype import INT32, Array, DType, Kind
from arenite.errors import ShapeMismatch, TypeMismatch
from arenite.ir.dim import Dim, known_le
from arenite.ir.element import exact, rounded
from arenite.ir.node import Node, Shape
from arenite.ir.ops.access import Guard, Index, Reduction, Source, summed
from arenite.ir.ops.define import (
    NUMBER,
    Attrs,
    Checks,
    Inferred,
    Sizes,
    broadcast,
    define,
    is_dim_pairs,
    is_ints,
    need_kind,
)
from arenite.ir.ops.movement import window_count
from arenite.ir.ops.sources import check_sizes

_BYTE_SIZED = ("int8", "uint8")


def product_dtype(op: str, a: Node, b: Node) -> DType:
    """The dtype of sums of products of elements of a and b."""
    need_kind(op, a, NUMBER)
    need_kind(op, b, NUMBER)
    if a.dtype.name in _BYTE_SIZED and b.dtype.name in _BYTE_SIZED:
        return INT32
    if a.dtype != b.dtype:
        raise TypeMismatch(f"{op}: dtypes differ: {a.type_text} and {b.type_text}")
    return a.dtype


def wider_product_dtype(op: str, a: Node, b: Node) -> DType:
    """The same, where one may be a narrower float than the other."""
    if a.dtype.kind is b.dtype.kind is Kind.FLOAT and a.dtype.bits != b.dtype.bits:
        return max((a.dtype, b.dtype), key=lambda one: one.bits)
    return product_dtype(op, a, b)


def accumulated(array: Array, dtype: DType) -> Array:
    """Operands of a contraction whose result is `dtype`."""
    return array.astype(np.int32) if dtype == INT32 else exact(array, dtype)


def _matrix(shape: Shape, transpose: bool) -> Shape:
    return (*shape[:-2], shape[-1], shape[-2]) if transpose else shape


def _infer_matmul(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    a, b = inputs
    dtype = wider_product_dtype("matmul", a, b)
    if a.ndim < 2 or b.ndim < 2:
        raise ShapeMismatch(f"matmul takes matrices, not shapes {a.shape} and {b.shape}")
    left, right = _matrix(a.shape, attrs["transpose_a"]), _matrix(b.shape, attrs["transpose_b"])
    if left[-1] != right[-2]:
        raise ShapeMismatch(
            f"matmul: {left} by {right}: the {left[-1]} columns of the first are not the "
            f"{right[-2]} rows of the second"
        )
    return (*broadcast("matmul", left[:-2], right[:-2]), left[-2], right[-1]), dtype


def _matmul_reference(arrays: list[Array], attrs: Attrs, shape: Sizes, dtype: DType) -> Array:
    a, b = (accumulated(array, dtype) for array in arrays)
    if attrs["transpose_a"]:
        a = a.swapaxes(-1, -2)
    if attrs["transpose_b"]:
        b = b.swapaxes(-1, -2)
    return rounded(np.matmul(a, b), dtype)


def _matmul_reduction(node: Node) -> Reduction:
    a, b = node.inputs
    transpose_a, transpose_b = node.attr("transpose_a"), node.attr("transpose_b")

    def factors(index: Index) -> tuple[Source, ...]:
        *batch, row, column, k = index
        left = (k, row) if transpose_a else (row, k)
        right = (column, k) if transpose_b else (k, column)
        return (
            Source(a, (*_batch(batch, a.shape[:-2]), *left)),
            Source(b, (*_batch(batch, b.shape[:-2]), *right)),
        )

    return summed(node, a.shape[-2:-1] if transpose_a else a.shape[-1:], factors)


def _batch(index: Sequence[Dim], shape: Shape) -> Index:
    """Batch axes of an operand: aligned at the end, sizes of 1 stretch."""
    aligned = index[len(index) - len(shape) :]
    return tuple(0 if size == 1 else at for at, size in zip(aligned, shape, strict=True))


define(
    "matmul",
    "contraction",
    (2, 2),
    _infer_matmul,
    _matmul_reference,
    {"transpose_a": bool, "transpose_b": bool},
    reduction=_matmul_reduction,
)


def _check(op: str, x: Node, w: Node, attrs: Attrs) -> None:
    n_spatial = x.ndim - 2
    shapes = f"{op}: x of shape {x.shape}, w of shape {w.shape}"
    if not 1 <= n_spatial <= 3 or w.ndim != x.ndim:
        raise ShapeMismatch(f"{shapes}: both need two axes and then one to three spatial ones")
    check_axes(shapes, n_spatial, attrs)
    if attrs["groups"] < 1:
        raise ShapeMismatch(f"{shapes}: {attrs['groups']} groups are none")


def check_axes(shapes: str, n_spatial: int, attrs: Attrs) -> None:
    """What is given for each spatial axis."""
    per_axis = (attrs["strides"], attrs["dilations"], attrs["padding"])
    if any(len(given) != n_spatial for given in per_axis) or not (
        all(number > 0 for given in per_axis[:2] for number in given)
        and all(known_le(0, side) for pair in attrs["padding"] for side in pair)
    ):
        raise ShapeMismatch(
            f"{shapes}: strides {attrs['strides']}, dilations {attrs['dilations']} and padding "
            f"{attrs['padding']} are not one each for {n_spatial} spatial axes, where strides and "
            "dilations are positive and padding is not negative"
        )


def window_sizes(
    shapes: str, sizes: Sequence[Dim], kernel: Sequence[Dim], attrs: Attrs
) -> list[Dim]:
    """Places of the output along the spatial axes."""
    places: list[Dim] = []
    for size, taps, stride, dilation, (before, after) in zip(
        sizes, kernel, attrs["strides"], attrs["dilations"], attrs["padding"], strict=True
    ):
        padded, reach = size + before + after, dilation * (taps - 1) + 1
        if not known_le(1, taps) or not known_le(reach, padded):
            raise ShapeMismatch(
                f"{shapes}: a kernel of {reach} does not fit {padded} padded elements"
            )
        places.append(window_count(padded, taps, stride, dilation))
    return places


def _infer_conv(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    x, w = inputs
    _check("conv", x, w, attrs)
    groups: int = attrs["groups"]
    if x.shape[1] != w.shape[1] * groups or w.shape[0] % groups != 0:
        raise ShapeMismatch(
            f"conv: x of shape {x.shape} has {x.shape[1]} channels, w of shape {w.shape} in "
            f"{groups} groups takes {w.shape[1] * groups}; w's {w.shape[0]} must divide by groups"
        )
    shapes = f"conv: x of shape {x.shape}, w of shape {w.shape}"
    sizes = window_sizes(shapes, x.shape[2:], w.shape[2:], attrs)
    return (x.shape[0], w.shape[0], *sizes), product_dtype("conv", x, w)


def _at(array: Array, place: Sequence[Any]) -> Array:
    """A view: the last axes indexed."""
    spatial: tuple[Any, ...] = (..., *place)
    return np.asarray(array[spatial])


def _spans(place: Sequence[int], sizes: Sizes, attrs: Attrs) -> list[slice]:
    """What a tap sees of the image, in so many places."""
    per_axis = zip(place, attrs["dilations"], sizes, attrs["strides"], strict=True)
    return [
        slice(at * d, at * d + (size - 1) * s + 1, s) if size else slice(0, 0)
        for at, d, size, s in per_axis
    ]


def conv_reference(arrays: list[Array], attrs: Attrs, shape: Sizes, dtype: DType) -> Array:
    x, w = (accumulated(array, dtype) for array in arrays)
    x = np.pad(x, ((0, 0), (0, 0), *attrs["padding"]))
    groups, sizes = attrs["groups"], shape[2:]
    x = x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
    w = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
    result = np.zeros((shape[0], groups, w.shape[1], *sizes), x.dtype)
    for place in places(*(range(kernel) for kernel in w.shape[3:])):
        # n batch, g group, c channel in, o channel out; the rest are places
        seen = _at(x, _spans(place, sizes, attrs))
        result += np.einsum("ngc...,goc->ngo...", seen, _at(w, place))
    return rounded(result.reshape(shape), dtype)


def _conv_reduction(node: Node) -> Reduction:
    x, w = node.inputs
    n_spatial = x.ndim - 2
    strides, dilations = node.attr("strides"), node.attr("dilations")
    padding, groups = node.attr("padding"), node.attr("groups")
    per_group_in = w.shape[1]
    per_group_out = w.shape[0] // groups

    def factors(index: Index) -> tuple[Source, ...]:
        image, out_channel = index[0], index[1]
        places = index[2 : 2 + n_spatial]
        channel, *taps = index[2 + n_spatial :]
        inner: list[Dim] = [image, (out_channel // per_group_out) * per_group_in + channel]
        guards = []
        for axis, (place, tap) in enumerate(zip(places, taps, strict=True)):
            position = place * strides[axis] + tap * dilations[axis] - padding[axis][0]
            inner.append(position)
            if padding[axis] != (0, 0):
                guards.append(Guard(position, x.shape[2 + axis]))
        return (
            Source(x, tuple(inner), tuple(guards)),
            Source(w, (out_channel, channel, *taps)),
        )

    return summed(node, w.shape[1:], factors)


_CONV_ATTRS: Checks = {
    "strides": is_ints,
    "padding": is_dim_pairs,
    "dilations": is_ints,
    "groups": int,
}

define(
    "conv",
    "convolution",
    (2, 2),
    _infer_conv,
    conv_reference,
    _CONV_ATTRS,
    reduction=_conv_reduction,
)


def _infer_transpose(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    x, w = inputs
    _check("conv_transpose", x, w, attrs)
    groups: int = attrs["groups"]
    extra: tuple[int, ...] = attrs["output_padding"]
    if len(extra) != x.ndim - 2 or any(number < 0 for number in extra):
        raise ShapeMismatch(f"conv_transpose: output_padding {extra} for x of shape {x.shape}")
    if x.shape[1] != w.shape[0] or x.shape[1] % groups != 0:
        raise ShapeMismatch(
            f"conv_transpose: x of shape {x.shape} has {x.shape[1]} channels, w of shape {w.shape} "
            f"takes {w.shape[0]}; they must divide into {groups} groups"
        )
    sizes = tuple(
        (size - 1) * stride - before - after + dilation * (kernel - 1) + 1 + more
        for size, kernel, stride, (before, after), dilation, more in zip(
            x.shape[2:],
            w.shape[2:],
            attrs["strides"],
            attrs["padding"],
            attrs["dilations"],
            extra,
            strict=True,
        )
    )
    shape = (x.shape[0], w.shape[1] * groups, *check_sizes("conv_transpose", sizes))
    return shape, product_dtype("conv_transpose", x, w)


def _transpose_reference(arrays: list[Array], attrs: Attrs, shape: Sizes, dtype: DType) -> Array:
    x, w = (accumulated(array, dtype) for array in arrays)
    groups, sizes = attrs["groups"], x.shape[2:]
    x = x.reshape(x.shape[0], groups, x.shape[1] // groups, *sizes)
    w = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
    # Every element of x is spread over the unpadded result, which is then cropped.
    padding: list[tuple[int, int]] = list(attrs["padding"])
    whole = [size + sum(pair) for size, pair in zip(shape[2:], padding, strict=True)]
    result = np.zeros((shape[0], groups, w.shape[2], *whole), x.dtype)
    for place in places(*(range(kernel) for kernel in w.shape[3:])):
        _at(result, _spans(place, sizes, attrs))[...] += np.einsum(
            "ngc...,gco->ngo...", x, _at(w, place)
        )
    crop: list[Any] = [
        slice(before, before + size) for size, (before, _) in zip(shape[2:], padding, strict=True)
    ]
    return rounded(_at(result, crop).reshape(shape), dtype)


define(
    "conv_transpose",
    "convolution",
    (2, 2),
    _infer_transpose,
    _transpose_reference,
    {**_CONV_ATTRS, "output_padding": is_ints},
)


# With channels last, as back ends have them: x[N, *S, C].

LAST_ATTRS: Checks = {"strides": is_ints, "padding": is_dim_pairs, "dilations": is_ints}


def last_sizes(op: str, x: Node, kernel: Sequence[Dim], attrs: Attrs) -> list[Dim]:
    """Output places of a convolution with channels last."""
    shapes = f"{op}: x of shape {x.shape}"
    check_axes(shapes, x.ndim - 2, attrs)
    return window_sizes(shapes, x.shape[1:-1], kernel, attrs)


def last_reference(
    x: Array, w: Array, groups: int, attrs: Attrs, shape: Sizes, dtype: DType
) -> Array:
    """A convolution with channels last, by weights [O, C/groups, *K]."""
    first = (shape[0], shape[-1], *shape[1:-1])
    arrays = [np.moveaxis(x, -1, 1), w]
    made = conv_reference(arrays, {**attrs, "groups": groups}, first, dtype)
    return np.ascontiguousarray(np.moveaxis(made, 1, -1))


def image_source(node: Node, places: Sequence[Dim], taps: Sequence[Dim], channel: Dim) -> Source:
    """What a tap of a convolution with channels last reads for a place (image first)."""
    x = node.inputs[0]
    index: list[Dim] = [places[0]]
    guards = []
    for size, place, tap, stride, dilation, pair in zip(
        x.shape[1:-1],
        places[1:],
        taps,
        node.attr("strides"),
        node.attr("dilations"),
        node.attr("padding"),
        strict=True,
    ):
        position = place * stride + tap * dilation - pair[0]
        index.append(position)
        if pair != (0, 0):
            guards.append(Guard(position, size))
    return Source(x, (*index, channel), tuple(guards))
