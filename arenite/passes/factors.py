"""Products read a factor as it was before it became wider: as a wide one it would take twice the
memory, and twice the time of one row."""

from __future__ import annotations

from arenite.dtype import Kind
from arenite.ir import Node, make


def narrow_factors(node: Node) -> Node:
    """matmul(x, cast(w)) is matmul(x, w), where w is a float of 16 bits."""
    if node.op != "matmul":
        return node
    for k, value in enumerate(node.inputs):
        other = node.inputs[1 - k]
        if value.op != "cast" or value.dtype != other.dtype or value.dtype.kind is not Kind.FLOAT:
            continue
        [source] = value.inputs
        if source.dtype.kind is Kind.FLOAT and source.dtype.bits == 16 < value.dtype.bits:
            inputs = (source, other) if k == 0 else (other, source)
            return make("matmul", *inputs, **dict(node.attrs))
    return node
