"""Products of floats by constant weights read these from panels, which are packed at load.

    matmul(a, w)    matmul_panels(a, panels of w)

Else every run would copy the columns of w side by side, which takes as long as multiplying them by
some 16 rows. Sums are added up in the same order either way. Left as they are: one row, which reads
w in place as fast, and many, beside which a copy is nothing. Weights of 16 bits stay so in panels,
and a is made wider once, not in every tile; those whose rows lie along K are left, as files of
language models have them. In the body of a loop the weights are captures; their panels are the same
in all iterations, and are taken out of it like all such values.
"""

from __future__ import annotations

from arenite.backends.cpu.ops.channels_last import PANEL
from arenite.dtype import FLOAT32, DType, Kind
from arenite.ir import OPS, Node, Region, bounds, make, product, topological
from arenite.ir.compose.basic import cast, pad, reshape
from arenite.ir.ops.control import loop_parts
from arenite.passes.channels_last import permuted
from arenite.passes.constants import is_known

#: Rows up to which packing pays.
MOST_ROWS = 512


def panels(node: Node) -> Node:
    """One step, or the node itself."""
    if node.op == "loop":
        return _in_body(node)
    return _of_known(node) if node.op == "matmul" and _is_worth_it(node) else node


def all_panels(node: Node) -> Node:
    """The same for all products of weights that fit panels, worth it or not: beside these a row is
    added up in one order however many there are."""
    if node.op == "loop":
        return _in_body(node)
    return _of_known(node) if node.op == "matmul" and _fits(node) else node


def _of_known(node: Node) -> Node:
    a, w = node.inputs
    return _packed(node) if is_known(w) and not is_known(a) else node


def _in_body(node: Node) -> Node:
    """A loop whose products read panels of captures that are known."""
    parts, body = loop_parts(node), node.attr("body")
    pairs = zip(parts.captured, parts.captures, strict=True)
    fixed = {one for one, value in pairs if is_known(value)}
    new: dict[Node, Node] = {}
    for one in topological(body.results):
        inputs = tuple(new[value] for value in one.inputs)
        made = one if inputs == one.inputs else make(one.op, *inputs, **dict(one.attrs))
        if OPS[one.op].family == "movement" and fixed.issuperset(one.inputs):
            fixed.add(one)
        elif one.op == "matmul" and _is_worth_it(one) and one.inputs[1] in fixed:
            made = _packed(made)
        new[one] = made
    results = tuple(new[result] for result in body.results)
    if results == body.results:
        return node
    attrs = dict(node.attrs) | {"body": Region(body.parameters, results)}
    return make("loop", *node.inputs, **attrs)


def _is_worth_it(node: Node) -> bool:
    """Whether a product is of a kind that is faster with panels."""
    a, w = node.inputs
    least, most = bounds(product(a.shape[:-1]))
    return (
        _fits(node)
        and (w.dtype.bits > 16 or not node.attr("transpose_b"))
        and least <= MOST_ROWS
        and most > 1
        and bounds(node.shape[-1])[1] >= PANEL
    )


def _fits(node: Node) -> bool:
    """Whether a product is of a kind that panels are for."""
    a, w = node.inputs
    return (
        not node.attr("transpose_a")
        and w.dtype.kind is Kind.FLOAT
        and w.dtype.bits >= 16
        and a.dtype in (w.dtype, _wide(w.dtype))
        and all(isinstance(size, int) and size > 0 for size in w.shape)
        and all(size == 1 for size in w.shape[:-2])
    )


def _packed(node: Node) -> Node:
    a, w = node.inputs
    own = reshape(w, w.shape[-2:])
    if node.attr("transpose_b"):
        own = permuted(own, (1, 0))
    wide = cast(a, _wide(a.dtype))
    made = make("matmul_panels", wide, panels_of(own), columns=own.shape[1])
    return cast(reshape(made, node.shape), node.dtype)


def _wide(dtype: DType) -> DType:
    """What sums of products are in."""
    return FLOAT32 if dtype.bits < 32 else dtype


def panels_of(w: Node) -> Node:
    """Weights [K, N] as panels [P, K, 16]."""
    depth, columns = (bounds(size)[1] for size in w.shape)
    n_panels = -(-columns // PANEL)
    w = pad(w, ((0, 0), (0, n_panels * PANEL - columns)))
    return permuted(make("reshape", w, shape=(depth, n_panels, PANEL)), (1, 0, 2))
