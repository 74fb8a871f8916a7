"""Ops of this back end: products by blocks that scheduling joins with what follows them.

product_of_blocks(x[..., M, K], w[N, K])       matmul_blocks of these
"""

from __future__ import annotations

from itertools import pairwise

from arenite.dtype import DType, float32
from arenite.ir.dim import Var, substitute, terms_of
from arenite.ir.node import Node, Shape
from arenite.ir.ops.access import (
    Index,
    Reduction,
    Source,
    coefficient,
    is_view,
    linear,
    sources,
    space_vars,
    summed,
)
from arenite.ir.ops.define import OPS, Attrs, Inferred, define, make
from arenite.schedule.roots import is_made_up

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
    """Views are read where they lie, if that is row by row, each at a multiple of four words."""
    reason = f"{node.op} reads it from memory"
    variables = space_vars(value.shape)
    source = Source(value, variables)
    while is_view(source.node):
        inner = sources(source.node, source.index)
        if len(inner) != 1 or inner[0].guards:
            return reason
        [source] = inner
        if not _lies_in_rows(source, variables, value.shape):
            return reason
    return None if source.node is not value and not is_made_up(source.node) else reason


def _lies_in_rows(source: Source, variables: tuple[Var, ...], shape: Shape) -> bool:
    place = linear(source.index, source.node.shape)
    steps = [coefficient(place, var) for var in variables]
    first = substitute(place, dict.fromkeys(variables, 0))
    if steps[-1] != 1 or any(n % 4 for n in terms_of(first).values()):
        return False
    rows = [(step, size) for step, size in zip(steps[:-1], shape[:-1], strict=True) if size != 1]
    if any(step is None or any(n % 4 for n in terms_of(step).values()) for step, _ in rows):
        return False
    pairs = pairwise(rows)
    return all(far == near * size for (far, _), (near, size) in pairs if near is not None)


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
