"""Passes of the C back end, behind the neutral ones: nothing is laid out in another order."""

from __future__ import annotations

from arenite.ir.node import Node
from arenite.passes.expand import expand, written_out
from arenite.passes.narrow import narrow
from arenite.passes.planes import planes
from arenite.passes.rewrite import Pass
from arenite.passes.simplify import fold, simplify


def plain(node: Node) -> Node:
    """Attention in products, masks and softmax."""
    return written_out(node) if node.op == "attention" else expand(node)


PASSES = (
    Pass("planes", before=planes),
    Pass("narrow", before=narrow),
    Pass("expand", plain),
    Pass("fold", fold),
    Pass("simplify", simplify),
)
