"""Attention written out, for back ends without a kernel for it: matmul, mask, softmax in float32,
matmul; and without copies of keys that heads share, for those that have one."""

from __future__ import annotations

from dataclasses import replace

from arenite.dtype import BY_NAME, DType
from arenite.ir.dim import Dim
from arenite.ir.node import Node, Shape
from arenite.ir.ops.attention import heads_a_group, operands
from arenite.ir.ops.define import BOOL, INT64, make
from arenite.ir.ops.sources import full, size

FLOAT32 = BY_NAME["float32"]


def with_shared_heads(node: Node) -> Node:
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


def written_out(node: Node) -> Node:
    """An attention in ops that every back end has."""
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


def plain_attention(node: Node) -> Node:
    """Attention in products, masks and softmax, for back ends without a kernel of it."""
    return written_out(with_shared_heads(node)) if node.op == "attention" else node
