"""Norms by known statistics become part of the convolution before them.

    ((conv(x, w) - average) * factor) + bias       conv(x, w * factor) + (bias - average * factor)

Every constant that scales or shifts whole channels of a convolution's result is taken in, as long
as nothing else looks at what lies between. This is algebra on constants: exact in real numbers,
rounded otherwise in floats, and another thing where a constant is not finite.

Constants that scale what was computed from a convolution further on become one factor:

    (y / 6) * w                                    y * (w / 6)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from arenite.dtype import Kind
from arenite.ir import OPS, Graph, Node, full, make
from arenite.ir.compose.basic import along
from arenite.passes.constants import is_known
from arenite.passes.rewrite import remade


@dataclass(frozen=True, slots=True)
class _Scaled:
    """conv * scale + shift, channel by channel; None is nothing."""

    conv: Node
    scale: Node | None
    shift: Node | None


def fold_norms(graph: Graph) -> Graph:
    """The graph with scales and shifts of channels in the weights and one bias."""
    if not any(map(_is_float_conv, graph.nodes)):
        return graph
    users, outputs = graph.users(), set(graph.results)
    scaled: dict[Node, _Scaled] = {}
    ends: dict[Node, tuple[Node, Node]] = {}
    for node in graph.nodes:
        found = _scaled(node, scaled)
        if found is None:
            continue
        scaled[node] = found
        goes_on = len(users[node]) == 1 and node not in outputs
        if not goes_on or _scaled(users[node][0], scaled) is None:
            scaled.pop(node)
            if found.scale is not None:
                ends[node] = (_rebuilt(node, found), found.conv)
    return _with_one_factor(_replaced(graph, ends) if ends else graph)


def _scaled(node: Node, scaled: dict[Node, _Scaled]) -> _Scaled | None:
    """What a node is of a convolution that only it looks at."""
    if node.op == "conv":
        w = node.inputs[1]
        is_exact = w.dtype.kind is Kind.FLOAT and w.dtype.bits >= 32
        return _Scaled(node, None, None) if is_exact and is_known(w) else None
    if node.op not in ("add", "sub", "mul", "div"):
        return None
    a, b = node.inputs
    if a not in scaled and node.op in ("add", "mul"):
        a, b = b, a
    if a not in scaled or not is_known(b):
        return None
    before, number = scaled[a], _of_channels(b)
    if number is None:
        return None
    scale, shift = before.scale, before.shift
    if node.op in ("mul", "div"):
        one = number if node.op == "mul" else make("reciprocal", number)
        scale = one if scale is None else make(node.op, scale, number)
        shift = None if shift is None else make(node.op, shift, number)
    elif shift is None:
        shift = number if node.op == "add" else make("neg", number)
    else:
        shift = make(node.op, shift, number)
    return _Scaled(before.conv, scale, shift)


def _of_channels(node: Node) -> Node | None:
    """A constant as one number a channel, if it is that."""
    channels = node.shape[1]
    while node.op == "expand":
        node = node.inputs[0]
    if node.op == "full":
        return full((channels,), node.attr("value"), node.dtype)
    if any(size != 1 for axis, size in enumerate(node.shape) if axis != 1):
        return None
    flat = make("reshape", node, shape=(node.shape[1],))
    return flat if flat.shape[0] == channels else make("expand", flat, shape=(channels,))


def _rebuilt(node: Node, found: _Scaled) -> Node:
    """The convolution with the scale in its weights, and one bias."""
    x, w = found.conv.inputs
    assert found.scale is not None
    w = w * along(found.scale, 0, w.ndim)
    made = make("conv", x, w, **dict(found.conv.attrs))
    if found.shift is None:
        return made
    return made + along(found.shift, 1, node.ndim)


def _is_float_conv(node: Node) -> bool:
    """Whether a node is a convolution of floats: what follows exact sums is rounded as it says."""
    return node.op == "conv" and node.dtype.kind is Kind.FLOAT


def _with_one_factor(graph: Graph) -> Graph:
    """The graph with products and quotients by constants, behind convolutions, as one product."""
    users, outputs = graph.users(), set(graph.results)
    behind: set[Node] = set()
    #: What is a number times a factor that only one other node looks at.
    factors: dict[Node, tuple[Node, Node]] = {}

    def remake(node: Node, rebuilt: Node, new: Mapping[Node, Node]) -> Node:
        if _is_float_conv(node) or (
            OPS[node.op].family == "elementwise" and not behind.isdisjoint(node.inputs)
        ):
            behind.add(node)
        found = _factor(node) if node in behind else None
        if found is None:
            return rebuilt
        number, factor = found
        is_joined = number in factors
        if is_joined:
            number, before = factors[number]
            factor = before * factor
        if len(users[node]) == 1 and node not in outputs:
            factors[node] = (number, factor)
        return new[number] * factor if is_joined or node.op == "div" else rebuilt

    return remade(graph, remake)


def _factor(node: Node) -> tuple[Node, Node] | None:
    """What is multiplied, and by which constant, not spread yet."""
    if node.op not in ("mul", "div") or node.dtype.kind is not Kind.FLOAT or node.dtype.bits < 32:
        return None
    a, b = node.inputs
    if node.op == "mul" and is_known(a):
        a, b = b, a
    if is_known(a) or not is_known(b):
        return None
    while b.op == "expand":
        [b] = b.inputs
    if b.op == "full":
        b = full((1,) * node.ndim, b.attr("value"), b.dtype)
    return (a, b) if node.op == "mul" else (a, full((1,) * node.ndim, 1.0, b.dtype) / b)


def _replaced(graph: Graph, ends: dict[Node, tuple[Node, Node]]) -> Graph:
    """Each end replaced, with the convolution it has; a later one may be made of an earlier one."""
    convolutions: dict[Node, Node] = {}

    def remake(node: Node, rebuilt: Node, new: Mapping[Node, Node]) -> Node:
        if node not in ends:
            return rebuilt
        made, old = ends[node]
        conv = made if made.op == "conv" else made.inputs[0]
        x, w = conv.inputs
        moved = convolutions[old] = make("conv", new[x], w, **dict(conv.attrs))
        return moved if made is conv else make("add", moved, made.inputs[1])

    replaced = remade(graph, remake)
    for old, moved in convolutions.items():
        replaced.origins.add(moved, *graph.origins.of(old))
    return replaced
