"""Products with weights that are kept narrow.

    matmul_blocks(x, w)             matmul_packed(quantise_blocks(x), pack_blocks(w))
    matmul_experts(x, w, chosen)    matmul_packed_experts(the same, and the order of what is chosen)

    rows_of_blocks(w, i)            rows_of_panels(pack_blocks(w), i), if w is multiplied with too

    matmul(x, cast(w))              matmul(x, w), where w is a float of 16 bits

Block-quantised weights: activations are quantised, weights packed, then multiplied. Products of one
value share its runs, and products by one matrix its panels; panels depend on constants alone, so
they are made when the program is loaded. An embedding that is the last product's matrix as well is
kept once, as panels. Floats are read at their own width: as wide ones they would take twice the
memory, and twice the time of one row.
"""

from __future__ import annotations

from arenite.ir.dim import product
from arenite.ir.graph import Graph
from arenite.ir.node import Node
from arenite.ir.ops.define import make
from arenite.passes.factors import narrow_factors
from arenite.passes.rewrite import apply


def blocks(node: Node) -> Node:
    if node.op == "matmul_blocks":
        x, w = node.inputs
        return make("matmul_packed", *_factors(x, w), dtype=w.dtype, columns=w.shape[0])
    if node.op == "matmul_experts" and node.attr("dtype").is_block:
        return _experts(node)
    if node.op == "matmul":
        return narrow_factors(node)
    return node


def share_panels(graph: Graph) -> Graph:
    """Rows of matrices that are multiplied with are taken from their panels."""
    packed = {node.inputs[1] for node in graph.everything if node.op == "matmul_blocks"}
    if not packed:
        return graph

    def shared(node: Node) -> Node:
        if node.op != "rows_of_blocks" or node.inputs[0] not in packed:
            return node
        w, indices = node.inputs
        columns, depth = w.shape
        panels = make("pack_blocks", w, dtype=w.dtype)
        return make("rows_of_panels", panels, indices, dtype=w.dtype, columns=columns, depth=depth)

    return apply(graph, shared)


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
        choices=chosen.shape[1] if x.ndim == 2 else 1,
    )
    return make("reshape", made, shape=node.shape)
