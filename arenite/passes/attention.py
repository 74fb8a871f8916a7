"""Attention written out, for back ends without a kernel for it: matmul, mask, softmax in float32,
matmul; over keys that are gathered from their pages; and without copies of keys that heads share,
for those that have a kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from arenite.dtype import BOOL, FLOAT32, INT32, INT64
from arenite.ir import Dim, Node, bounds, make, size
from arenite.ir.compose.basic import (
    binary,
    broadcast_to,
    cast,
    expand_dims,
    iota,
    permute,
    reshape,
    where,
)
from arenite.ir.ops.attention import Operands, heads_a_group, operands, pages_operands

LOWEST = float("-inf")


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


def gathered(node: Node, rule: Callable[[Node], Node]) -> Node:
    """An attention over pages as one over all keys that each row may see, which it copies; that
    one as a rule has it."""
    given, page = pages_operands(node.inputs), node.attr("page")
    of_row = make("gather", given.table, given.text, axis=0)
    rows, n_pages = of_row.shape
    starts = expand_dims(of_row, 2) * page
    places = starts + reshape(iota(page, of_row.dtype), (1, 1, page))
    places = reshape(places, (rows, n_pages * page))
    values = given.values
    k, v = (permute(make("gather", x, places, axis=0), (0, 2, 1, 3)) for x in (values.k, values.v))
    scales = [
        permute(make("gather", x, places, axis=0), (0, 2, 1))
        for x in (values.k_scale, values.v_scale)
        if x is not None
    ]
    keys = iota(n_pages * page, given.position.dtype)
    # A position that is not there is an error, as a page is.
    position = reshape(make("gather", keys, given.position, axis=0), (rows, 1))
    key = reshape(keys, (1, n_pages * page))
    seen = key <= position
    if node.attr("window"):
        near = position - key < node.attr("window")
        seen = seen & near
    mask = reshape(seen, (rows, 1, 1, n_pages * page))
    whole = Operands(expand_dims(values.q, 2), k, v, mask, *scales)
    scale = node.attr("scale")
    made = make("attention", *whole.inputs, scale=scale, causal=False, offset=0, window=0)
    return reshape(rule(made), node.shape)


def written_out(node: Node) -> Node:
    """An attention in ops that every back end has."""
    given = operands(node.inputs)
    dtype = FLOAT32 if node.dtype.bits < 32 else node.dtype
    q, k, v = cast(given.q, dtype), given.k, given.v
    *batch, _, length, width = q.shape
    groups, keys, n_shared = k.shape[-3], k.shape[-2], heads_a_group(q, k)
    if given.k_scale is not None and given.v_scale is not None:
        pairs = ((k, given.k_scale), (v, given.v_scale))
        k, v = (_scaled(cast(x, dtype), scales) for x, scales in pairs)
    # Heads that share keys stand side by side, and the keys are stretched over them.
    grouped = (*batch, groups, n_shared, length, width)
    q = make("reshape", q, shape=grouped)
    k = cast(make("reshape", k, shape=(*batch, groups, 1, keys, width)), dtype)
    v = cast(make("reshape", v, shape=(*batch, groups, 1, keys, v.shape[-1])), dtype)
    scores = make("matmul", q, k, transpose_a=False, transpose_b=True)
    shape = scores.shape
    scores = scores * node.attr("scale")
    if node.attr("causal"):
        # Wide integers only where numbers of keys need them: some devices have none.
        counts = (keys, length, node.attr("offset"))
        index = INT32 if all(bounds(one)[1] < 2**30 for one in counts) else INT64
        query = make("iota", axis=len(shape) - 2, shape=shape, dtype=index)
        key = make("iota", axis=len(shape) - 1, shape=shape, dtype=index)
        last_seen = query + size(node.attr("offset"), index)
        seen = make("le", key, last_seen)
        if node.attr("window"):
            near = last_seen - key < node.attr("window")
            seen = make("and", seen, near)
        scores = where(seen, scores, LOWEST)
    if given.mask is not None:
        mask = given.mask
        head_axis = mask.shape[-3]
        inner: tuple[Dim, ...] = (1, 1) if head_axis == 1 else (groups, n_shared)
        mask = reshape(mask, (*mask.shape[:-3], *inner, *mask.shape[-2:]))
        if mask.dtype == BOOL:
            scores = where(mask, scores, LOWEST)
        else:
            scores = scores + cast(broadcast_to(mask, shape), dtype)
    last = len(shape) - 1
    highest = unless(LOWEST, 0.0, make("max", scores, axes=(last,)))
    weights = make("exp", scores - expand_dims(highest, last))
    total = unless(0.0, 1.0, make("sum", weights, axes=(last,)))
    weights = weights / expand_dims(total, last)
    mixed = make("matmul", weights, v, transpose_a=False, transpose_b=False)
    return cast(make("reshape", mixed, shape=node.shape), node.dtype)


def unless(value: float, other: float, x: Node) -> Node:
    """x, but `other` where it is a value."""
    return where(binary("eq", x, value), other, x)


def _scaled(x: Node, scales: Node) -> Node:
    """Rows times the number of each."""
    return x * expand_dims(cast(scales, x.dtype), scales.ndim)


def plain_attention(node: Node) -> Node:
    """Attention in products, masks and softmax, for back ends without a kernel of it."""
    if node.op == "attention_pages":
        return gathered(node, plain_attention)
    return written_out(with_shared_heads(node)) if node.op == "attention" else node
