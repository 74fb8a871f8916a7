"""Products with block-quantised weights: activations quantised, weights packed, then multiplied.

    matmul_blocks(x, w)             matmul_packed(quantise_blocks(x), pack_blocks(w))
    matmul_experts(x, w, chosen)    matmul_packed_experts(the same, and the order of what is chosen)

Products of one value share its runs, and products by one matrix its panels; panels depend on
constants alone, so they are made when the program is loaded.
"""

from __future__ import annotations

from arenite.ir.dim import product
from arenite.ir.node import Node
from arenite.ir.ops.define import make


def blocks(node: Node) -> Node:
    if node.op == "matmul_blocks":
        x, w = node.inputs
        return make("matmul_packed", *_factors(x, w), dtype=w.dtype, columns=w.shape[0])
    if node.op == "matmul_experts" and node.attr("dtype").is_block:
        return _experts(node)
    return node


def _factors(x: Node, w: Node) -> tuple[Node, Node]:
    return make("quantise_blocks", x), make("pack_blocks", w, dtype=w.dtype)


def _experts(node: Node) -> Node:
    x, w, chosen = node.inputs
    flat = make("reshape", chosen, shape=(product(chosen.shape),))
    order = make("argsort", flat, axis=0, descending=False)
    made = make(
        "matmul_packed_experts",
        *_factors(x, w),
        order,
        flat,
        dtype=w.dtype,
        columns=w.shape[1],
    )
    return make("reshape", made, shape=node.shape)
