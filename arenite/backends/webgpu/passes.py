"""Passes for this back end's kernels, which run behind the neutral ones."""

from __future__ import annotations

import logging

from arenite.backends.webgpu.attention import why_written_out
from arenite.backends.webgpu.channels_last import layout, short_product
from arenite.backends.webgpu.ops import (
    computed_updates,
    joined_products,
    normed_products,
    normed_products_of_any_rows,
)
from arenite.ir.node import Node
from arenite.passes.attention import gathered, with_shared_heads, written_out
from arenite.passes.factors import narrow_factors
from arenite.passes.plain_blocks import plain_blocks
from arenite.passes.planes import planes
from arenite.passes.rewrite import Pass
from arenite.passes.selection import selection
from arenite.passes.simplify import fold, simplify
from arenite.passes.split import split
from arenite.passes.transfers import transfers
from arenite.passes.unroll import unrolled

log = logging.getLogger("arenite.passes")


def attention(node: Node) -> Node:
    """An attention as its kernel takes it, or written out; all else as it is."""
    if node.op == "attention_pages":
        return gathered(node, attention)
    if node.op != "attention":
        return node
    node = with_shared_heads(node)
    reason = why_written_out(node)
    if reason is None:
        return node
    log.info("%r is written out: %s", node, reason)
    return written_out(node)


def _passes(normed: Pass) -> tuple[Pass, ...]:
    return (
        Pass("selection", selection),
        Pass("unrolled", unrolled),
        Pass("planes of loops", before=planes),
        Pass("attention", attention),
        Pass("short products", short_product),
        Pass("layout", layout),
        Pass("joined blocks", plain_blocks),
        Pass("fold", fold),
        Pass("split", split),
        Pass("factors", narrow_factors),
        Pass("blocks", joined_products),
        Pass("simplify", simplify),
        normed,
        Pass("computed updates", computed_updates),
        Pass("transfers", before=transfers("webgpu")),
    )


PASSES = _passes(Pass("normed products", normed_products))
#: For programs in which a row's sums don't depend on how many rows there are.
SAME_SUMS = _passes(Pass("normed products of any rows", normed_products_of_any_rows))
