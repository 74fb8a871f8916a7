"""Ops that have no kernel of their own, written out in those that have.

conv_transpose   zeros between the elements, then a convolution with the kernel flipped
sum, max, ...    over no axes, are what they reduce
"""

from __future__ import annotations

from arenite.dtype import Kind
from arenite.ir import OPS, Dim, Node, full, known_le, make, maximum
from arenite.ir.compose.basic import slice_all, slice_axis


def expand(node: Node) -> Node:
    if node.op == "conv_transpose":
        return _conv_transpose(node)
    if OPS[node.op].reduction is not None and dict(node.attrs).get("axes") == ():
        return node.inputs[0]
    return node


def _conv_transpose(node: Node) -> Node:
    x, w = node.inputs
    groups, n_spatial = node.attr("groups"), x.ndim - 2
    strides, dilations = node.attr("strides"), node.attr("dilations")
    zero = 0.0 if x.dtype.kind is Kind.FLOAT else 0
    if 0 in (*x.shape[2:], *node.shape):  # nothing is added to anything
        return full(node.shape, zero, node.dtype)
    for k in range(n_spatial):
        x = _zeros_between(x, 2 + k, strides[k], zero)
    per_group, out = w.shape[0] // groups, w.shape[1]
    taps = w.shape[2:]
    w = make("reshape", w, shape=(groups, per_group, out, *taps))
    w = make("permute", w, axes=(0, 2, 1, *range(3, 3 + n_spatial)))
    w = make("reshape", w, shape=(groups * out, per_group, *taps))
    if any(tap != 1 for tap in taps):
        stops, steps = (*w.shape[:2], *[-1] * n_spatial), (1, 1, *[-1] * n_spatial)
        w = slice_all(w, (0, 0, *(tap - 1 for tap in taps)), stops, steps)
    padding: list[tuple[Dim, Dim]] = []
    for k, (before, after) in enumerate(node.attr("padding")):
        reach = dilations[k] * (taps[k] - 1)
        more = node.attr("output_padding")[k]
        sides = (reach - before, reach - after + more)
        if not all(known_le(0, side) for side in sides):
            # One end may be cut off further than x reaches, into the zeros at the other.
            own = (maximum(sides[0], 0), maximum(sides[1], 0))
            around = tuple(own if axis == 2 + k else (0, 0) for axis in range(x.ndim))
            x = make("pad", x, padding=around, value=zero)
            first, last = (maximum(0 - side, 0) for side in sides)
            x = slice_axis(x, 2 + k, first, x.shape[2 + k] - last)
            sides = (0, 0)
        padding.append(sides)
    return make(
        "conv",
        x,
        w,
        strides=(1,) * n_spatial,
        padding=tuple(padding),
        dilations=dilations,
        groups=groups,
    )


def _zeros_between(x: Node, axis: int, stride: int, zero: float) -> Node:
    if stride == 1:
        return x
    shape = x.shape
    x = make("reshape", x, shape=(*shape[: axis + 1], 1, *shape[axis + 1 :]))
    padding = tuple((0, stride - 1) if k == axis + 1 else (0, 0) for k in range(x.ndim))
    x = make("pad", x, padding=padding, value=zero)
    x = make("reshape", x, shape=(*shape[:axis], shape[axis] * stride, *shape[axis + 1 :]))
    return slice_axis(x, axis, 0, x.shape[axis] - (stride - 1))
