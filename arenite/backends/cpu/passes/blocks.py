"""Products with weights that are kept narrow.

    matmul_blocks(x, w)             matmul_packed(quantise_blocks(x), pack_blocks(w))
    matmul_experts(x, w, chosen)    matmul_packed_experts(the same, and the order of what is chosen)

    rows_of_blocks(w, i)            rows_of_panels(pack_blocks(w), i), if w is multiplied with too

    matmul(x, dequantise(w))        matmul_blocks of three parts of x that lose nothing when they
                                    are rounded to 8 bits: of x, of what is left, and of what is
                                    left then. 24 bits are as many as FLOAT32 has

    matmul(x, cast(w))              matmul(x, w), where w is a float of 16 bits

Block-quantised weights: activations are quantised, weights packed, then multiplied. Products of one
value share its runs, and products by one matrix its panels; panels depend on constants alone, so
they are made when the program is loaded. An embedding that is the last product's matrix as well is
kept once, as panels. Floats are read at their own width: as wide ones they would take twice the
memory, and twice the time of one row.
"""

from __future__ import annotations

from arenite.dtype import FLOAT32
from arenite.ir import Graph, Node, make, product
from arenite.ir.compose.basic import concat, expand_dims, reshape, slice_axis, where
from arenite.ir.compose.reductions import reduce
from arenite.ir.ops.blocks import LEAST_NORMAL, RUN
from arenite.passes.constants import is_known
from arenite.passes.factors import narrow_factors
from arenite.passes.rewrite import apply

#: Parts of a factor that is not to be rounded.
PARTS = 3


def blocks(node: Node) -> Node:
    if node.op == "matmul_blocks":
        return _packed(*node.inputs)
    if node.op == "matmul_experts" and node.attr("dtype").is_block:
        return _experts(node)
    if node.op == "matmul":
        w = _weights(node)
        return narrow_factors(node) if w is None else _of_parts(node, w)
    return node


def _weights(node: Node) -> Node | None:
    """The weights in blocks of a product of FLOAT32, if they are known and their rows lie along
    K."""
    x, w = node.inputs
    in_rows = node.attr("transpose_b")
    if w.op == "permute" and w.attr("axes") == (1, 0):
        [w], in_rows = w.inputs, not in_rows
    if w.op != "dequantise" or not in_rows or x.dtype != FLOAT32 or node.attr("transpose_a"):
        return None
    [blocks] = w.inputs
    parts = blocks.inputs if blocks.op == "join_blocks" else w.inputs
    return blocks if all(is_known(part) for part in parts) else None


def _of_parts(node: Node, w: Node) -> Node:
    parts, left = [], node.inputs[0]
    for _ in range(PARTS - 1):
        parts.append(_rounded(left))
        left = left - parts[-1]
    made = _packed(concat([expand_dims(part, 0) for part in (*parts, left)], 0), w)
    ends = [reshape(slice_axis(made, 0, k, k + 1), node.shape) for k in range(PARTS)]
    return ends[2] + ends[1] + ends[0]


def _rounded(x: Node) -> Node:
    """What a product takes x for."""
    *rows, depth = x.shape
    runs = reshape(x, (*rows, depth // RUN, RUN))
    scale = reduce("max", abs(runs), (x.ndim,), keep=True) * (1 / 127)
    is_zero = scale < LEAST_NORMAL
    numbers = make("round", runs / where(is_zero, 1.0, scale))
    return reshape(where(is_zero, 0.0, numbers * scale), x.shape)


def _packed(x: Node, w: Node) -> Node:
    return make("matmul_packed", *_factors(x, w), dtype=w.dtype, columns=w.shape[0])


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
    is_joined = w.op == "join_blocks" and w.ndim == 2
    op, inputs = ("pack_joined", w.inputs) if is_joined else ("pack_blocks", (w,))
    return make("quantise_blocks", x), make(op, *inputs, dtype=w.dtype)


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
