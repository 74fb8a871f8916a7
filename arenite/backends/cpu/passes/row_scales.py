"""A product of rows divided by their root mean square: the rows as they are, the sums divided.

    matmul(x * r * g, w)    matmul(x, g * w) * r        r a number for each row, g one for each k

Rows are read for r and else by the product alone: g is part of the weights, which are constants,
and r is applied to sums in registers. Every term has as many roundings as before. Sums are larger
by 1 / r, and finite where the squares of a row have a finite sum; so this is done for such r alone.
A mean that is taken from x stays where it is: taken from the sums it would leave the difference of
large numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

from arenite.dtype import Kind
from arenite.ir import OPS, Node, bounds, make, product
from arenite.ir.compose.basic import reshape
from arenite.passes.constants import is_known

LEAST_BITS = 32


@dataclass(frozen=True, slots=True)
class _Scaled:
    """Rows times a number each, [..., 1], and times one for each place in them, if any."""

    rows: Node
    scale: Node
    weights: Node | None


def row_scales(node: Node) -> Node:
    """One step, or the node itself."""
    if node.op != "matmul" or node.attr("transpose_a") or not _has_fixed_weights(node):
        return node
    found = _scaled(node.inputs[0])
    if found is None or not _is_of_squares(found.scale, found.rows):
        return node
    w = node.inputs[1]
    if found.weights is not None:
        length = found.weights.shape[-1]  # of all places, or one number for all of them
        column = (length,) if node.attr("transpose_b") else (length, 1)
        w = w * reshape(found.weights, column)
    return make("matmul", found.rows, w, **dict(node.attrs)) * found.scale


def _has_fixed_weights(node: Node) -> bool:
    a, w = node.inputs
    return (
        a.dtype == w.dtype
        and a.dtype.kind is Kind.FLOAT
        and a.dtype.bits >= LEAST_BITS
        and w.ndim <= a.ndim
        and all(size == 1 for size in w.shape[:-2])
        and bounds(product(a.shape[:-1]))[1] > 1
        and is_known(w)
        and not _is_widened(w)
    )


def _is_widened(w: Node) -> bool:
    """Whether weights are narrow ones, which a product reads as they are."""
    while OPS[w.op].family == "movement" and len(w.inputs) == 1:
        w = w.inputs[0]
    return w.op == "cast"


def _scaled(node: Node) -> _Scaled | None:
    """A node as rows that are scaled, the scales on either side of a product."""
    scale: Node | None = None
    weights: Node | None = None
    while node.op == "mul":
        for rows, factor in (node.inputs, node.inputs[::-1]):
            spread = factor.inputs[0] if factor.op == "expand" else factor
            if scale is None and spread is not factor and spread.shape[-1] == 1:
                node, scale = rows, spread
                break
            if weights is None and all(n == 1 for n in spread.shape[:-1]) and is_known(spread):
                node, weights = rows, spread
                break
        else:
            break
    return None if scale is None else _Scaled(node, scale, weights)


def _is_of_squares(scale: Node, rows: Node) -> bool:
    """Whether a number for each row follows from the sum of its squares alone."""
    pending, seen = [scale], {scale}
    has_sum = False
    while pending:
        node = pending.pop()
        if node.op == "sum":
            if node.attr("axes") != (rows.ndim - 1,) or not _is_square(node.inputs[0], rows):
                return False
            has_sum = True
            continue
        if OPS[node.op].family not in ("elementwise", "movement") and not is_known(node):
            return False
        new = [value for value in node.inputs if value not in seen]
        seen.update(new)
        pending += new
    return has_sum


def _is_square(node: Node, of: Node) -> bool:
    return node.op == "mul" and node.inputs == (of, of)
