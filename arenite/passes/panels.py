"""Products of floats by constant weights read these from panels, which are packed at load.

    matmul(a, w)    matmul_panels(a, panels of w)

Else every run would copy the columns of w side by side, which takes as long as multiplying them by
some 16 rows. Sums are added up in the same order either way. Left as they are: one row, which reads
w in place as fast, and many, beside which a copy is nothing.
"""

from __future__ import annotations

from arenite.dtype import Kind
from arenite.ir.dim import bounds, product
from arenite.ir.node import Node
from arenite.ir.ops.convolution import PANEL
from arenite.ir.ops.define import make
from arenite.passes.known import is_known
from arenite.passes.layout import permuted

#: Rows up to which packing pays, and the least width of a float that is read from panels.
MOST_ROWS = 512
LEAST_BITS = 32


def panels(node: Node) -> Node:
    """One step, or the node itself."""
    if node.op != "matmul" or node.attr("transpose_a") or not _is_worth_it(node):
        return node
    a, w = node.inputs
    matrix = w.shape[-2:]
    own = w if w.shape == matrix else make("reshape", w, shape=matrix)
    if node.attr("transpose_b"):
        own = permuted(own, (1, 0))
    made = make("matmul_panels", a, panels_of(own), columns=own.shape[1])
    return made if made.shape == node.shape else make("reshape", made, shape=node.shape)


def _is_worth_it(node: Node) -> bool:
    a, w = node.inputs
    least, most = bounds(product(a.shape[:-1]))
    return (
        a.dtype == w.dtype
        and w.dtype.kind is Kind.FLOAT
        and w.dtype.bits >= LEAST_BITS
        and all(isinstance(size, int) and size > 0 for size in w.shape)
        and all(size == 1 for size in w.shape[:-2])
        and least <= MOST_ROWS
        and most > 1
        and bounds(node.shape[-1])[1] >= PANEL
        and is_known(w)
        and not is_known(a)
    )


def panels_of(w: Node) -> Node:
    """Weights [K, N] as panels [P, K, 16]."""
    depth, columns = (bounds(size)[1] for size in w.shape)
    n_panels = -(-columns // PANEL)
    if columns % PANEL:
        more = n_panels * PANEL - columns
        w = make("pad", w, padding=((0, 0), (0, more)), value=0.0)
    return permuted(make("reshape", w, shape=(depth, n_panels, PANEL)), (1, 0, 2))
