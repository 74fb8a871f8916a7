"""Attention that a graph spells out becomes the op, which has a kernel without scores in memory.

    softmax(q @ k.mT * scale + mask) @ v            attention(q, k, v, mask; scale)

Scales are numbers, on the scores or on q and k; the mask is added, or hides with -inf, or with a
number so low that no score beside it counts. Nothing else may look at what lies between. Equal but
for rounding, and for queries that see nothing: their weights are 0 / 0 where they are spelled out,
and their results zeros here. A choice of 0 for weights that are no numbers is taken in too; beyond
such queries it hides what is no number in q and k, which comes through here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from arenite.dtype import BOOL, FLOAT32, DType, Kind
from arenite.ir import Graph, Node, full, make
from arenite.ir.compose.basic import binary, where
from arenite.passes.rewrite import remade

#: A score plus a number as low as this is the number, so that it may as well be added.
LOWEST = -1e30


@dataclass(frozen=True, slots=True)
class _Scores:
    """A product of queries and keys, times a number."""

    product: Node
    scale: float


@dataclass(frozen=True, slots=True)
class _Spelled:
    """The parts of an attention, and the nodes between them."""

    scores: _Scores
    mask: Node | None
    hides: bool  # where the mask holds, instead of where it does not
    number: float  # that hides
    inside: frozenset[Node]


def recognise(graph: Graph, has_kernel: Callable[[Node], bool]) -> Graph:
    """The graph with the op for every attention it spells out, if that has a kernel."""
    found = {node: spelled for node in graph.nodes if (spelled := _spelled(node)) is not None}
    if not found:
        return graph
    users, outputs = graph.users(), set(graph.results)

    def remake(node: Node, rebuilt: Node, new: Mapping[Node, Node]) -> Node:
        spelled = found.get(node)
        if spelled is None or not _is_private(node, spelled, users, outputs):
            return rebuilt
        attention = _made(node, spelled, new)
        return attention if attention is not None and has_kernel(attention) else rebuilt

    return remade(graph, remake)


def _is_private(
    node: Node, spelled: _Spelled, users: Mapping[Node, tuple[Node, ...]], outputs: set[Node]
) -> bool:
    """Whether all that lies between is for this alone."""
    return all(
        value not in outputs
        and all(user in spelled.inside or user is node for user in users[value])
        for value in spelled.inside
    )


def _spelled(node: Node) -> _Spelled | None:
    """The attention whose results the node is."""
    if node.op != "matmul" or node.attr("transpose_a"):
        return None
    inside: set[Node] = set()
    weights = _guarded(_behind_casts(node.inputs[0], inside), inside)
    if weights.op != "div":
        return None
    raised, total = weights.inputs
    if raised.op != "exp" or _reduced(total, "sum", inside) is not raised:
        return None
    [shifted] = raised.inputs
    if shifted.op != "sub" or _reduced(shifted.inputs[1], "max", inside) is not shifted.inputs[0]:
        return None
    inside |= {weights, raised, shifted}
    seen = _behind_casts(shifted.inputs[0], inside)
    inside.add(seen)
    for at, mask_at, hides, number in _masked(seen):
        scores = _scores(seen if at is None else seen.inputs[at], inside)
        if scores is not None:
            mask = None if mask_at is None else seen.inputs[mask_at]
            return _Spelled(scores, mask, hides, number, frozenset(inside))
    return None


def _guarded(weights: Node, inside: set[Node]) -> Node:
    """Weights behind a choice of 0 where they are no numbers, as exporters write it for queries
    that see nothing."""
    if weights.op != "where" or weights.inputs[0].op != "isnan":
        return weights
    is_nan, zero, own = weights.inputs
    if is_nan.inputs[0] is not own or _number(zero) != 0:
        return weights
    inside |= {weights, is_nan}
    return _behind_casts(own, inside)


def _masked(seen: Node) -> list[tuple[int | None, int | None, bool, float]]:
    """Where scores and mask may stand among the inputs, whether the mask hides, and with what."""
    if seen.op == "add":
        return [(0, 1, False, -math.inf), (1, 0, False, -math.inf)]
    if seen.op == "where":
        for at, other, hides in ((1, 2, False), (2, 1, True)):
            number = _number(seen.inputs[other])
            if number is not None and number <= LOWEST:
                return [(at, 0, hides, number)]
        return []
    return [(None, None, False, -math.inf)]


def _scores(node: Node, inside: set[Node]) -> _Scores | None:
    """A product behind casts and scales; `inside` learns of them if there is one."""
    scale, passed = 1.0, set[Node]()
    node = _behind_casts(node, passed)
    while node.op in ("mul", "div"):
        passed.add(node)
        a, b = node.inputs
        number = _number(b)
        if number is None and node.op == "mul":
            a, number = b, _number(a)
        if number is None or number == 0:
            return None
        scale = scale * number if node.op == "mul" else scale / number
        node = _behind_casts(a, passed)
    if node.op != "matmul" or node.attr("transpose_a") or node.dtype.kind is not Kind.FLOAT:
        return None
    inside |= {*passed, node}
    return _Scores(node, scale)


def _behind_casts(node: Node, passed: set[Node]) -> Node:
    """What a float was before it was another float."""
    while node.op == "cast" and node.inputs[0].dtype.kind is node.dtype.kind is Kind.FLOAT:
        passed.add(node)
        [node] = node.inputs
    return node


def _reduced(node: Node, op: str, inside: set[Node]) -> Node | None:
    """What a reduction over the last axis, spread over it again, is of."""
    passed = {node}
    shape = (*node.shape[:-1], 1)
    if node.op == "expand":
        [node] = node.inputs
        passed.add(node)
    if node.shape != shape or node.op != "reshape" or node.inputs[0].op != op:
        return None
    [reduced] = node.inputs
    if reduced.attr("axes") != (reduced.ndim,):
        return None
    inside |= {*passed, reduced}
    return reduced.inputs[0]


def _number(node: Node) -> float | None:
    """The number that all elements are."""
    casts: list[DType] = []
    while node.op in ("expand", "reshape", "cast"):
        casts += [node.dtype] if node.op == "cast" else []
        [node] = node.inputs
    held = node.attr("data").array if node.op == "constant" else None
    if node.op == "full":
        held = np.array(node.attr("value"))
    if held is None or held.size != 1 or not all(dtype.has_numpy for dtype in casts):
        return None
    with np.errstate(all="ignore"):  # a kernel would not warn either
        for dtype in reversed(casts):
            held = held.astype(dtype.to_numpy())
    return float(held.reshape(-1)[0])


def _made(node: Node, spelled: _Spelled, new: Mapping[Node, Node]) -> Node | None:
    """The op, or None where it does not take these shapes."""
    product, scale = spelled.scores.product, spelled.scores.scale
    q, q_scale = _unscaled(product.inputs[0], new)
    k, k_scale = _unscaled(product.inputs[1], new)
    v = new[node.inputs[1]]
    heads = product.shape[:-2]
    if not (q.dtype == k.dtype == v.dtype == node.dtype and q.ndim >= 3 and node.ndim == q.ndim):
        return None
    if not (q.shape[:-2] == k.shape[:-2] == v.shape[:-2] == heads):
        return None
    operands = [
        q,
        k if product.attr("transpose_b") else _turned(k),
        _turned(v) if node.attr("transpose_b") else v,
    ]
    if spelled.mask is not None:
        operands.append(_mask(new[spelled.mask], spelled, q))
    factor = scale * q_scale * k_scale
    return make("attention", *operands, scale=factor, causal=False, offset=0, window=0)


def _unscaled(node: Node, new: Mapping[Node, Node]) -> tuple[Node, float]:
    """What a value becomes without the number that it is multiplied with, also behind views."""
    views: list[Node] = []
    inner = node
    while inner.op in ("reshape", "permute"):
        views.append(inner)
        [inner] = inner.inputs
    if inner.op == "mul":
        for a, b in (inner.inputs, inner.inputs[::-1]):
            number = _number(b)
            if number is not None and a.shape == inner.shape:
                made = new[a]
                for view in reversed(views):
                    made = make(view.op, made, **dict(view.attrs))
                return made, number
    return new[node], 1.0


def _turned(node: Node) -> Node:
    last = node.ndim - 1
    axes = (*range(last - 1), last, last - 1)
    if node.op == "permute" and node.attr("axes") == axes:
        return node.inputs[0]
    if node.op == "reshape" and node.inputs[0].op == "permute":
        # Turned with fewer axes before: these are all of the same matrices.
        [turned] = node.inputs
        [source] = turned.inputs
        end = source.ndim - 1
        is_matrices = turned.shape[-2:] == node.shape[-2:]
        if end > 0 and is_matrices and turned.attr("axes") == (*range(end - 1), end, end - 1):
            return make("reshape", source, shape=(*node.shape[:-2], *source.shape[-2:]))
    return make("permute", node, axes=axes)


def _mask(node: Node, spelled: _Spelled, q: Node) -> Node:
    """A mask as the op takes it: not spread over axes that it does not differ along."""
    if node.op == "expand" and node.inputs[0].ndim == node.ndim:
        [node] = node.inputs
    wide = q.dtype if q.dtype.bits >= 32 else FLOAT32
    if node.dtype == BOOL:
        seen = make("not", node) if spelled.hides else node
        if spelled.number == -math.inf:
            return seen
        numbers = (full(node.shape, number, wide) for number in (0.0, spelled.number))
        return make("where", seen, *numbers)
    if node.dtype in (q.dtype, wide):
        return node
    if node.dtype.bits > wide.bits:
        node = _in_range(node, wide)
    return make("cast", node, dtype=wide)


def _in_range(mask: Node, dtype: DType) -> Node:
    """A mask whose least numbers are numbers in a narrower dtype too: only -inf hides."""
    least = float(np.finfo(dtype.to_numpy()).min)
    return where(binary("eq", mask, float("-inf")), mask, binary("maximum", mask, least))
