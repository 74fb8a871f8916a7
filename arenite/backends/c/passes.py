"""Passes of the C back end, behind the neutral ones: nothing is laid out in another order."""

from __future__ import annotations

from arenite.ir.node import Node
from arenite.passes.attention import with_shared_heads, written_out
from arenite.passes.rewrite import Pass
from arenite.passes.simplify import fold, simplify


def attention(node: Node) -> Node:
    """Attention in products, masks and softmax."""
    return written_out(with_shared_heads(node)) if node.op == "attention" else node


PASSES = (Pass("attention", attention), Pass("fold", fold), Pass("simplify", simplify))
