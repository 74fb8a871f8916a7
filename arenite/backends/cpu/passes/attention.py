"""Attentions that kernels are made for; others are written out.

Attention of few queries over many keys becomes attentions over chunks of keys, then joined.

    parts     sums of weights times values, highest score, sum of weights: of each chunk by itself
    factor    2 ** (highest - the highest of all)
    result    sum of factor * sums / sum of factor * sum of weights

One query would be the work of one thread. Chunks follow from the shape alone, so a result does not
depend on how many threads there are.
"""

from __future__ import annotations

import logging

from arenite.ir import Graph, Node, bounds, make, maximum, product
from arenite.ir.compose.basic import cast, expand_dims, reshape, slice_axis
from arenite.ir.ops.attention import heads_a_group
from arenite.passes.attention import LOWEST, gathered, unless, with_shared_heads, written_out
from arenite.passes.recognise import recognise

log = logging.getLogger("arenite.passes")

#: Elements of a query, key or value that a kernel of its own is made for.
MAX_WIDTH = 256

#: Queries of a head that are few, and those of all heads that share keys.
FEW_QUERIES = 8
FEW_ROWS = 32
#: Keys that kernels for few queries take at once.
SOME_KEYS = 16
#: Keys of a chunk, and tiles from which on there is no need to cut.
CHUNK = 1024
FEW_TILES = 8


def spelled_attentions(graph: Graph) -> Graph:
    """The graph with the op for every attention it spells out that has a kernel."""
    return recognise(graph, lambda node: why_expanded(node) is None)


def attention(node: Node) -> Node:
    """An attention as kernels do it, or written out; all else as it is."""
    if node.op == "attention_pages":
        reason = why_expanded(node) or _why_gathered(node)
        if reason is None:
            return node
        log.info("%r gathers its keys: %s", node, reason)
        return gathered(node, attention)
    if node.op != "attention":
        return node
    node = with_shared_heads(node)
    reason = why_expanded(node)
    if reason is None:
        return _joined(node) if _is_lopsided(node) else node
    log.info("%r is written out: %s", node, reason)
    return written_out(node)


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


def _why_gathered(node: Node) -> str | None:
    """Why keys in pages are no business of a kernel; None where they are."""
    if node.dtype.bits > 32:
        return f"kernels over pages compute in float32, not {node.dtype}"
    if node.attr("page") % SOME_KEYS:
        return f"pages of {node.attr('page')} keys are no multiple of {SOME_KEYS}"
    return None


def few_queries(ratio: int) -> int:
    """Queries that are few where so many heads share keys."""
    return max(1, min(FEW_QUERIES, FEW_ROWS // ratio))


def _is_lopsided(node: Node) -> bool:
    """Whether few tiles would share much work."""
    q, k = node.inputs[:2]
    *batch, groups, keys, _ = k.shape
    length = q.shape[-2]
    ratio = maximum(heads_a_group(q, k), 1)
    return (
        isinstance(ratio, int)
        and isinstance(length, int)
        and length <= few_queries(ratio)
        and node.dtype.bits <= 32
        and bounds(keys)[1] >= 2 * CHUNK
        and bounds(product([*batch, groups]))[0] < FEW_TILES
    )


def _joined(node: Node) -> Node:
    parts = make("attention_parts", *node.inputs, **dict(node.attrs), chunk=CHUNK)
    axis = parts.ndim - 2
    *front, chunks, width = parts.shape
    sums = slice_axis(parts, axis + 1, 0, width - 2)
    highest, total = (
        reshape(slice_axis(parts, axis + 1, at, at + 1), (*front, chunks))
        for at in (width - 2, width - 1)
    )
    top = unless(LOWEST, 0.0, make("max", highest, axes=(axis,)))
    factor = make("exp2", highest - expand_dims(top, axis))
    whole = unless(0.0, 1.0, make("sum", total * factor, axes=(axis,)))
    mixed = make("sum", sums * expand_dims(factor, axis + 1), axes=(axis,))
    return cast(mixed / expand_dims(whole, axis), node.dtype)
