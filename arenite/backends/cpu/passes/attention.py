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

from arenite.ir.dim import Dim, bounds, maximum, product
from arenite.ir.graph import Graph
from arenite.ir.node import Node, Shape
from arenite.ir.ops.attention import heads_a_group
from arenite.ir.ops.define import make
from arenite.ir.ops.sources import full
from arenite.passes.attention import with_shared_heads, written_out
from arenite.passes.recognise import recognise

log = logging.getLogger("arenite.passes")

#: Elements of a query, key or value that a kernel of its own is made for.
MAX_WIDTH = 256

#: Queries of a head that are few, and those of all heads that share keys.
FEW_QUERIES = 8
FEW_ROWS = 32
#: Keys of a chunk, and tiles from which on there is no need to cut.
CHUNK = 1024
FEW_TILES = 8


def spelled_attentions(graph: Graph) -> Graph:
    """The graph with the op for every attention it spells out that has a kernel."""
    return recognise(graph, lambda node: why_expanded(node) is None)


def attention(node: Node) -> Node:
    """An attention as kernels do it, or written out; all else as it is."""
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
    dtype, axis = parts.dtype, parts.ndim - 2
    *front, chunks, width = parts.shape
    sums = _part(parts, 0, width - 2)
    highest, total = (
        make("reshape", _part(parts, at, at + 1), shape=(*front, chunks))
        for at in (width - 2, width - 1)
    )
    top = make("max", highest, axes=(axis,))
    nothing = make("eq", top, full(top.shape, float("-inf"), dtype))
    top = make("where", nothing, full(top.shape, 0.0, dtype), top)
    factor = make("exp2", make("sub", highest, _along(top, axis, highest.shape)))
    whole = make("sum", make("mul", total, factor), axes=(axis,))
    empty = make("eq", whole, full(whole.shape, 0.0, dtype))
    whole = make("where", empty, full(whole.shape, 1.0, dtype), whole)
    scaled = make("mul", sums, _along(factor, axis + 1, sums.shape))
    mixed = make("sum", scaled, axes=(axis,))
    result = make("div", mixed, _along(whole, axis, mixed.shape))
    return result if result.dtype == node.dtype else make("cast", result, dtype=node.dtype)


def _part(x: Node, start: Dim, stop: Dim) -> Node:
    """Elements of the last axis."""
    return make(
        "slice",
        x,
        start=(*(0 for _ in x.shape[1:]), start),
        stop=(*x.shape[:-1], stop),
        step=(1,) * x.ndim,
    )


def _along(x: Node, axis: int, shape: Shape) -> Node:
    """A value without an axis, stretched over it."""
    kept = make("reshape", x, shape=(*x.shape[:axis], 1, *x.shape[axis:]))
    return kept if kept.shape == shape else make("expand", kept, shape=shape)
