"""Products with block-quantised weights: activations quantised, weights packed, then multiplied.

    matmul_blocks(x, w)      matmul_packed(quantise_blocks(x), pack_blocks(w))

Products of one value share its runs, and products by one matrix its panels; panels depend on
constants alone, so they are made when the program is loaded.
"""

from __future__ import annotations

from arenite.ir.node import Node
from arenite.ir.ops.define import make


def blocks(node: Node) -> Node:
    if node.op != "matmul_blocks":
        return node
    x, w = node.inputs
    runs = make("quantise_blocks", x)
    panels = make("pack_blocks", w, dtype=w.dtype)
    return make("matmul_packed", runs, panels, dtype=w.dtype, columns=w.shape[0])
