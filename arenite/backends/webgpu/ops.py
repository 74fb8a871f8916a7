"""Ops of this back end: products by weights that scheduling joins with what is around them.

product_of_blocks(x[..., M, K], w[N, K])                  matmul_blocks of these
normed_product(x[M, K], w[N, K], gain[K]; epsilon)        of x / sqrt(mean(x^2) + epsilon) * gain;
                                                          w may be floats too. A fourth operand is
                                                          these rows, as kernels for many read them
rows_for_many(x)                                          x, written only where rows are many
computed_update(data, rows, start; axis)                  update_slice, which computes its rows

Two products of the same x, one of which is read by what follows the other, are one kernel.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from arenite.dtype import Array, DType, Kind, float32
from arenite.errors import ShapeMismatch
from arenite.ir.dim import Var, bounds, substitute, terms_of
from arenite.ir.node import Node, Shape
from arenite.ir.ops.access import (
    Index,
    Reduction,
    Source,
    coefficient,
    is_elementwise,
    is_view,
    linear,
    sources,
    space_vars,
    summed,
)
from arenite.ir.ops.define import OPS, Attrs, Inferred, Sizes, define, make
from arenite.passes.constants import is_known
from arenite.schedule.roots import is_in_memory, is_made_up

PRODUCT, NORMED_PRODUCT = "product_of_blocks", "normed_product"
ROWS_FOR_MANY, UPDATE = "rows_for_many", "computed_update"
#: Rows that are few: each weight is read once for all of them.
MOST_ROWS = 8


def _infer(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    x, w, *others = inputs
    gain, rows = others[:1], others[1:]
    is_gain = all(one.shape == x.shape[-1:] and one.dtype == float32 for one in gain)
    if not is_gain or any((one.shape, one.dtype) != (x.shape, x.dtype) for one in rows):
        raise ShapeMismatch(f"{NORMED_PRODUCT} of {x.type_text} does not take {gain[0].type_text}")
    if w.dtype.is_block:
        return OPS["matmul_blocks"].infer((x, w), {"dtype": attrs["dtype"]})
    return (*x.shape[:-1], w.shape[0]), float32


def _reference(arrays: list[Array], attrs: Attrs, shape: Sizes, dtype: DType) -> Array:
    x, w, *others = arrays
    for one in others[:1]:
        squares = np.mean(x.astype(np.float64) ** 2, axis=-1, keepdims=True)
        x = (x / np.sqrt(squares + attrs["epsilon"]) * one).astype(np.float32)
    if attrs["dtype"].is_block:
        given = {"dtype": attrs["dtype"]}
        return OPS["matmul_blocks"].reference([x, w], given, shape, dtype)
    return np.asarray(x @ w.astype(np.float32).T)


def _reduction(node: Node) -> Reduction:
    x, w, *others = node.inputs

    def factors(index: Index) -> tuple[Source, ...]:
        *batch, row, column, k = index
        sides = Source(x, (*batch, row, k)), Source(w, (column, k))
        gain = (Source(one, (k,)) for one in others[:1])
        return (*sides, *gain, *(Source(one, (*batch, row, k)) for one in others[1:]))

    return summed(node, x.shape[-1:], factors)


def _is_beside(a: Node, b: Node) -> bool:
    """Whether two products have all but the weights in common, and those their type."""
    same = [one for k, one in enumerate(a.inputs) if k != 1]
    is_same = same == [one for k, one in enumerate(b.inputs) if k != 1]
    return (
        a.op == b.op and a.attrs == b.attrs and is_same and a.inputs[1].shape == b.inputs[1].shape
    )


def _in_memory(node: Node, value: Node) -> str | None:
    """Views are read where they lie, if that is row by row, each at a multiple of four words."""
    reason = f"{node.op} reads it from memory"
    if value.op == ROWS_FOR_MANY:
        return reason
    variables = space_vars(value.shape)
    source = Source(value, variables)
    while is_view(source.node):
        inner = sources(source.node, source.index)
        if len(inner) != 1 or inner[0].guards:
            return reason
        [source] = inner
        if not _lies_in_rows(source, variables, value.shape):
            return reason
        if source.node.op == "permute" and OPS[source.node.inputs[0].op].writes_views:
            return None  # which is written in this order
    return None if source.node is not value and not is_made_up(source.node) else reason


def _lies_in_rows(source: Source, variables: tuple[Var, ...], shape: Shape) -> bool:
    place = linear(source.index, source.node.shape)
    steps = [coefficient(place, var) for var in variables]
    first = substitute(place, dict.fromkeys(variables, 0))
    if steps[-1] != 1 or any(n % 4 for n in terms_of(first).values()):
        return False
    rows = [(step, size) for step, size in zip(steps[:-1], shape[:-1], strict=True) if size != 1]
    for step, _ in rows:
        if step is None or bounds(step)[0] < 0 or any(n % 4 for n in terms_of(step).values()):
            return False
    pairs = pairwise(rows)
    return all(far == near * size for (far, _), (near, size) in pairs if near is not None)


for _name, _counts, _attrs in (
    (PRODUCT, (2, 2), {"dtype": DType}),
    (NORMED_PRODUCT, (3, 4), {"dtype": DType, "epsilon": float}),
):
    define(
        _name,
        "contraction",
        _counts,
        _infer,
        _reference,
        _attrs,
        backend="webgpu",
        reduction=_reduction,
        operand=_in_memory,
        beside=_is_beside,
    )


define(
    ROWS_FOR_MANY,
    "movement",
    (1, 1),
    lambda inputs, attrs: (inputs[0].shape, inputs[0].dtype),
    lambda arrays, attrs, shape, dtype: arrays[0],
    backend="webgpu",
    sources=lambda node, index: (Source(node.inputs[0], index),),
    keeps_order=True,
)

define(
    UPDATE,
    "indexing",
    (3, 3),
    lambda inputs, attrs: OPS["update_slice"].infer(inputs, attrs),
    lambda arrays, attrs, shape, dtype: OPS["update_slice"].reference(arrays, attrs, shape, dtype),
    {"axis": int},
    backend="webgpu",
    operand=lambda node, value: None if value is node.inputs[1] else f"{UPDATE} reads it",
    overwrites=True,
    computes=1,
)


def computed_updates(node: Node) -> Node:
    """An update_slice whose rows are computed from other values than those it writes to, and lie
    side by side."""
    if node.op != "update_slice" or not 8 <= node.dtype.bits <= 32 or node.inputs[2].ndim:
        return node
    pending, seen = [node.inputs[1]], set[Node]()
    while pending:
        value = pending.pop()
        if value in seen:
            continue
        seen.add(value)
        op = OPS[value.op]
        is_changed = op.storage == "given" and value.op != "input"
        if op.overwrites or is_changed or op.is_construct:
            return node  # it may lie in the bytes that are written
        if is_elementwise(value) or is_view(value):
            pending += value.inputs
    return make(UPDATE, *node.inputs, **dict(node.attrs))


def joined_products(node: Node) -> Node:
    """matmul_blocks as the op that can be joined with what follows it."""
    if node.op != "matmul_blocks":
        return node
    assert node.dtype == float32
    return make(PRODUCT, *node.inputs, **dict(node.attrs))


def normed_products(node: Node) -> Node:
    """A product of rows that were normed, as one of the rows."""
    return _with_norms(node, has_kernel_for_many=True)


def normed_products_of_any_rows(node: Node) -> Node:
    """The same where kernels for few rows do all of them."""
    return _with_norms(node, has_kernel_for_many=False)


def _with_norms(node: Node, has_kernel_for_many: bool) -> Node:
    if node.op not in (PRODUCT, "matmul") or not _has_fast_weights(node):
        return node
    x, w = node.inputs
    rows, cut = x, None
    if x.op == "slice" and x.shape[-1] == x.inputs[0].shape[-1]:
        [rows], cut = x.inputs, dict(x.attrs)
    found = _normed(rows)
    if found is None:
        return node
    source, gain, epsilon = found
    given = source if cut is None else make("slice", source, **cut)
    fewest, most = bounds(x.shape[0])
    has_many = has_kernel_for_many and most > MOST_ROWS
    if has_many and (fewest > MOST_ROWS or not isinstance(x.shape[0], Var)):
        return node
    for_many = [make(ROWS_FOR_MANY, x)] if has_many else []
    return make(NORMED_PRODUCT, given, w, gain, *for_many, dtype=w.dtype, epsilon=epsilon)


def _has_fast_weights(node: Node) -> bool:
    """Whether a product has a kernel that norms rows: weights row by row, by whole four words."""
    x, w = node.inputs
    if x.ndim != 2 or node.dtype != float32 or x.dtype != float32 or w.ndim != 2 or not is_known(w):
        return False
    if not all(isinstance(size, int) and size > 0 for size in w.shape):
        return False
    if node.op == PRODUCT:
        return True
    is_float = w.dtype.kind is Kind.FLOAT and w.dtype.bits in (16, 32)
    is_turned = node.attr("transpose_b") and not node.attr("transpose_a")
    return is_float and is_turned and is_in_memory(w) and w.shape[-1] % (128 // w.dtype.bits) == 0


def _normed(node: Node) -> tuple[Node, Node, float] | None:
    """x, gain and epsilon of (x * rsqrt(sum(x * x) / n + epsilon)) * gain along the last axis."""
    for scaled, spread in _factors(node):
        gain = _behind_views(spread)
        if not _is_along_last(spread):
            continue
        for x, root in _factors(scaled):
            scale = _behind_views(root)
            if scale.op != "rsqrt" or scale.shape != x.shape[:-1] or root.shape != x.shape:
                continue
            epsilon = _epsilon(scale.inputs[0], x)
            if epsilon is not None:
                flat = make("reshape", gain, shape=gain.shape[-1:]) if gain.ndim > 1 else gain
                return x, flat, epsilon
    return None


def _factors(node: Node) -> list[tuple[Node, Node]]:
    if node.op != "mul" or node.dtype != float32:
        return []
    a, b = node.inputs
    return [(a, b), (b, a)]


def _behind_views(node: Node) -> Node:
    """What is spread over more elements."""
    while node.op in ("expand", "reshape"):
        [node] = node.inputs
    return node


def _is_along_last(spread: Node) -> bool:
    """Whether element k of a vector stands wherever the last index is k."""
    node = spread
    while node.op in ("expand", "reshape"):
        [node] = node.inputs
        if node.shape[-1:] != spread.shape[-1:]:
            return False
    return all(size == 1 for size in node.shape[:-1])


def _epsilon(node: Node, x: Node) -> float | None:
    """Of a mean of squares of x, and a number that is added."""
    if node.op != "add" or node.inputs[1].op != "full" or node.inputs[0].op != "div":
        return None
    total, count = node.inputs[0].inputs
    last = (x.ndim - 1,)
    if total.op != "sum" or total.attr("axes") != last or total.inputs[0].op != "mul":
        return None
    is_square = all(factor is x for factor in total.inputs[0].inputs)
    is_mean = count.op == "full" and count.attr("value") == x.shape[-1]
    return float(node.inputs[1].attr("value")) if is_square and is_mean else None
