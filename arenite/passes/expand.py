"""Ops that have no kernel of their own, written out in those that have.

attention        matmul, mask, softmax in float32, matmul, where no kernel is made for it; parts,
                 where one would leave threads without work
conv_transpose   zeros between the elements, then a convolution with the kernel flipped
sum, max, ...    over no axes, are what they reduce
"""

from __future__ import annotations

import logging
from dataclasses import replace

from arenite.dtype import BY_NAME, DType, Kind
from arenite.ir.dim import Dim, known_le, maximum
from arenite.ir.node import Node, Shape
from arenite.ir.ops.attention import heads_a_group, operands
from arenite.ir.ops.define import make
from arenite.ir.ops.sources import full, size
from arenite.passes.parts import in_parts

FLOAT32, INT64, BOOL = BY_NAME["float32"], BY_NAME["int64"], BY_NAME["bool"]

#: Elements of a query, key or value that a kernel of its own is made for.
MAX_WIDTH = 256

log = logging.getLogger("arenite.passes")

_REDUCTIONS = frozenset({"sum", "prod", "max", "min", "any", "all"})


def expand(node: Node) -> Node:
    if node.op == "attention":
        node = _with_shared_heads(node)
        reason = why_expanded(node)
        if reason is None:
            return in_parts(node)
        log.info("%r is written out: %s", node, reason)
        return _attention(node)
    if node.op == "conv_transpose":
        return _conv_transpose(node)
    if node.op in _REDUCTIONS and not node.attr("axes"):
        return node.inputs[0]
    return node


def written_out(node: Node) -> Node:
    """An attention as products, masks and a softmax, whatever kernels there are."""
    return _attention(_with_shared_heads(node))


def why_expanded(node: Node) -> str | None:
    """Why an attention has no kernel of its own; None where it has one."""
    depth, width = node.inputs[0].shape[-1], node.shape[-1]
    for one in (depth, width):
        if not isinstance(one, int):
            return f"its width {one} is not known before it runs"
        if not 1 <= one <= MAX_WIDTH:
            return f"its width {one} is not in 1..{MAX_WIDTH}"
    for value in node.inputs:
        if not value.dtype.has_numpy:
            return f"kernels do not compute with {value.dtype}"
    return None


def _with_shared_heads(node: Node) -> Node:
    """An attention without copies of keys and values for each of the heads that share them."""
    given = operands(node.inputs)
    k, v = (_uncopied(value) for value in (given.k, given.v))
    if given.k_scale is not None or k.shape[:-1] != v.shape[:-1] or k.shape == given.k.shape:
        return node
    return make("attention", *replace(given, k=k, v=v).inputs, **dict(node.attrs))


def _uncopied(node: Node) -> Node:
    """[..., G, S, D] of [..., G * n, S, D], where each head stands n times."""
    wide = node.inputs[0] if node.op == "reshape" else node
    if wide.op != "expand" or wide.ndim != node.ndim + 1:
        return node
    [one] = wide.inputs
    *batch, _, length, width = node.shape
    groups, times = wide.shape[-4:-2]
    if wide.shape != (*batch, groups, times, length, width):
        return node
    if one.shape != (*batch, groups, 1, length, width):
        return node
    return make("reshape", one, shape=(*batch, groups, length, width))


def _spread(node: Node, shape: Shape) -> Node:
    return node if node.shape == shape else make("expand", node, shape=shape)


def _cast(node: Node, dtype: DType) -> Node:
    return node if node.dtype == dtype else make("cast", node, dtype=dtype)


def _whole(dim: Dim, shape: Shape) -> Node:
    """A number or a size everywhere."""
    if isinstance(dim, int):
        return full(shape, dim, INT64)
    one = make("reshape", size(dim, INT64), shape=(1,) * len(shape))
    return make("expand", one, shape=shape)


def _attention(node: Node) -> Node:
    given = operands(node.inputs)
    dtype = FLOAT32 if node.dtype.bits < 32 else node.dtype
    q, k, v = (_cast(value, dtype) for value in (given.q, given.k, given.v))
    *batch, _, length, width = q.shape
    groups, keys, n_shared = k.shape[-3], k.shape[-2], heads_a_group(q, k)
    if given.k_scale is not None and given.v_scale is not None:
        k, v = (_scaled(x, scales) for x, scales in ((k, given.k_scale), (v, given.v_scale)))
    # Heads that share keys stand side by side, and the keys are stretched over them.
    grouped = (*batch, groups, n_shared, length, width)
    q = make("reshape", q, shape=grouped)
    k = make("reshape", k, shape=(*batch, groups, 1, keys, width))
    v = make("reshape", v, shape=(*batch, groups, 1, keys, v.shape[-1]))
    scores = make("matmul", q, k, transpose_a=False, transpose_b=True)
    shape = scores.shape
    scores = make("mul", scores, full(shape, node.attr("scale"), dtype))
    lowest = full(shape, float("-inf"), dtype)
    if node.attr("causal"):
        query = make("iota", axis=len(shape) - 2, shape=shape, dtype=INT64)
        key = make("iota", axis=len(shape) - 1, shape=shape, dtype=INT64)
        last_seen = make("add", query, _whole(node.attr("offset"), shape))
        seen = make("le", key, last_seen)
        if node.attr("window"):
            behind = make("sub", last_seen, key)
            near = make("lt", behind, full(shape, node.attr("window"), INT64))
            seen = make("and", seen, near)
        scores = make("where", seen, scores, lowest)
    if given.mask is not None:
        mask = given.mask
        head_axis = mask.shape[-3]
        inner: tuple[Dim, ...] = (1, 1) if head_axis == 1 else (groups, n_shared)
        mask = make("reshape", mask, shape=(*mask.shape[:-3], *inner, *mask.shape[-2:]))
        mask = _spread(mask, shape)
        if mask.dtype == BOOL:
            scores = make("where", mask, scores, lowest)
        else:
            scores = make("add", scores, _cast(mask, dtype))
    last = len(shape) - 1
    kept = (*shape[:-1], 1)
    highest = make("max", scores, axes=(last,))
    nothing = make("eq", highest, full(highest.shape, float("-inf"), dtype))
    highest = make("where", nothing, full(highest.shape, 0.0, dtype), highest)
    shifted = make("sub", scores, _spread(make("reshape", highest, shape=kept), shape))
    weights = make("exp", shifted)
    total = make("sum", weights, axes=(last,))
    empty = make("eq", total, full(total.shape, 0.0, dtype))
    total = make("where", empty, full(total.shape, 1.0, dtype), total)
    weights = make("div", weights, _spread(make("reshape", total, shape=kept), shape))
    mixed = make("matmul", weights, v, transpose_a=False, transpose_b=False)
    return _cast(make("reshape", mixed, shape=node.shape), node.dtype)


def _scaled(x: Node, scales: Node) -> Node:
    """Rows times the number of each."""
    spread = make("reshape", _cast(scales, x.dtype), shape=(*scales.shape, 1))
    return make("mul", x, _spread(spread, x.shape))


def _conv_transpose(node: Node) -> Node:
    x, w = node.inputs
    groups, n_spatial = node.attr("groups"), x.ndim - 2
    strides, dilations = node.attr("strides"), node.attr("dilations")
    zero = 0.0 if x.dtype.kind is Kind.FLOAT else 0
    for k in range(n_spatial):
        x = _zeros_between(x, 2 + k, strides[k], zero)
    per_group, out = w.shape[0] // groups, w.shape[1]
    taps = w.shape[2:]
    w = make("reshape", w, shape=(groups, per_group, out, *taps))
    w = make("permute", w, axes=(0, 2, 1, *range(3, 3 + n_spatial)))
    w = make("reshape", w, shape=(groups * out, per_group, *taps))
    if any(tap != 1 for tap in taps):
        w = make(
            "slice",
            w,
            start=(0, 0, *(tap - 1 for tap in taps)),
            stop=(*w.shape[:2], *(-1 for _ in taps)),
            step=(1, 1, *(-1 for _ in taps)),
        )
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
            x = _cropped(x, 2 + k, (maximum(0 - sides[0], 0), maximum(0 - sides[1], 0)))
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
    return _cropped(x, axis, (0, stride - 1))


def _cropped(x: Node, axis: int, sides: tuple[Dim, Dim]) -> Node:
    start = tuple(sides[0] if k == axis else 0 for k in range(x.ndim))
    stop = tuple(s - sides[1] if k == axis else s for k, s in enumerate(x.shape))
    return make("slice", x, start=start, stop=stop, step=(1,) * x.ndim)
