"""Ops of this back end: products by blocks that scheduling joins with what follows them.

product_of_blocks(x[..., M, K], w[N, K])       matmul_blocks of these
"""

from __future__ import annotations

from arenite.dtype import DType, float32
from arenite.ir.node import Node
from arenite.ir.ops.access import Index, Reduction, Source, summed
from arenite.ir.ops.define import OPS, Attrs, Inferred, define, make

PRODUCT = "product_of_blocks"


def _infer(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    return OPS["matmul_blocks"].infer(inputs, attrs)


def _reduction(node: Node) -> Reduction:
    x, w = node.inputs

    def factors(index: Index) -> tuple[Source, ...]:
        *batch, row, column, k = index
        return Source(x, (*batch, row, k)), Source(w, (column, k))

    return summed(node, x.shape[-1:], factors)


def _in_memory(node: Node, value: Node) -> str | None:
    if value.op == "reshape":
        return None  # the bytes are those of what it is made of, in the same order
    return f"{node.op} reads it from memory"


define(
    PRODUCT,
    "contraction",
    (2, 2),
    _infer,
    lambda arrays, attrs, shape, dtype: OPS["matmul_blocks"].reference(arrays, attrs, shape, dtype),
    {"dtype": DType},
    backend="webgpu",
    reduction=_reduction,
    operand=_in_memory,
)


def joined_products(node: Node) -> Node:
    """matmul_blocks as the op that can be joined with what follows it."""
    if node.op != "matmul_blocks":
        return node
    assert node.dtype == float32
    return make(PRODUCT, *node.inputs, **dict(node.attrs))
