"""Functions that graphs spell out, and that are better computed as one: exact in their tails.

x/2 (erf(x sqrt(1/2)) + 1)   gelu(x), in whatever order its factors stand
erf(x) + 1               of what is little more than -1 nothing would be left
tanh(x) + 1              2 sigmoid(2x), as in gelu by tanh
1 / (exp(-x) + 1)        sigmoid(x): exp(-x) would be infinite where the result is not 0
a / (exp(-x) + 1)        a sigmoid(x), as in silu, also as a product
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from arenite.codegen import loop_ir as ir
from arenite.dtype import FLOAT32, FLOAT64
from arenite.ir.node import Node

_FLOATS = (FLOAT32, FLOAT64)


@dataclass(frozen=True, slots=True)
class Function:
    """What it is a function of, how it is made of that, and the nodes it does without."""

    operands: tuple[Node, ...]
    made: Callable[[Sequence[ir.Expr]], ir.Expr]
    between: tuple[Node, ...]


def function_of(node: Node) -> Function | None:
    """The function that a node spells out. Small floats round at each step, and so do not."""
    rule = _RULES.get(node.op)
    return rule(node) if rule is not None and node.dtype in _FLOATS else None


def _add(node: Node) -> Function | None:
    for op, made in (("erf", _erf1p), ("tanh", _tanh1p)):
        inner = _beside_one(node, op)
        if inner is not None:
            return Function(inner.inputs, made, (inner,))
    return None


def _erf1p(parts: Sequence[ir.Expr]) -> ir.Expr:
    return ir.Unary("erf1p", parts[0])


def _tanh1p(parts: Sequence[ir.Expr]) -> ir.Expr:
    two = ir.Const(2.0, parts[0].dtype)
    return ir.Binary("mul", ir.Unary("sigmoid", ir.Binary("mul", parts[0], two)), two)


def _mul(node: Node) -> Function | None:
    return _gelu(node) or _gated(node)


def _gelu(node: Node) -> Function | None:
    a, b = node.inputs
    for product, other in ((a, b), (b, a)):
        if product.op != "mul":
            continue
        factors = (*product.inputs, other)
        sums = [(f, power) for f in factors if (power := _beside_one(f, "erf")) is not None]
        halves = [f for f in factors if _is_full(f, 0.5)]
        if len(sums) != 1 or len(halves) != 1:
            continue
        [(whole, power)] = sums
        [x] = [f for f in factors if f is not whole and f is not halves[0]]
        if _unscaled(power.inputs[0]) is x:
            between = (whole, power, *([product] if other is not whole else []))
            return Function((x,), lambda parts: ir.Unary("gelu", parts[0]), between)
    return None


def _unscaled(node: Node) -> Node | None:
    """x, where a node is x sqrt(1/2)."""
    if node.op == "div":
        x, scale = node.inputs
        return x if _is_full(scale, math.sqrt(2)) else None
    if node.op == "mul":
        for x, scale in (node.inputs, reversed(node.inputs)):
            if _is_full(scale, math.sqrt(0.5)):
                return x
    return None


def _gated(node: Node) -> Function | None:
    a, b = node.inputs
    for gate, other in ((b, a), (a, b)):
        found = _over_sum(gate)
        if found is not None and found[0] is None:
            return Function((other, found[1]), _times_sigmoid, (gate, *found[2]))
    return None


def _divided(node: Node) -> Function | None:
    found = _over_sum(node)
    if found is None:
        return None
    a, x, between = found
    if a is None:
        return Function((x,), lambda parts: ir.Unary("sigmoid", parts[0]), between)
    return Function((a, x), _times_sigmoid, between)


def _times_sigmoid(parts: Sequence[ir.Expr]) -> ir.Expr:
    return ir.Binary("times_sigmoid", *parts)


_RULES: dict[str, Callable[[Node], Function | None]] = {
    "add": _add,
    "reciprocal": _divided,
    "mul": _mul,
    "div": _divided,
}


def _over_sum(node: Node) -> tuple[Node | None, Node, tuple[Node, ...]] | None:
    """a and x, where a node is a / (exp(-x) + 1), and the nodes between; no a where it is 1."""
    if node.op not in ("reciprocal", "div"):
        return None
    *above, below = node.inputs
    power = _beside_one(below, "exp")
    if power is None or power.inputs[0].op != "neg":
        return None
    a = next((one for one in above if not _is_full(one, 1.0)), None)
    return a, power.inputs[0].inputs[0], (below, power)


def _beside_one(node: Node, op: str) -> Node | None:
    """The node of this op that 1 is added to."""
    if node.op == "add":
        for x, other in (node.inputs, reversed(node.inputs)):
            if x.op == op and _is_full(other, 1.0):
                return x
    return None


def _is_full(node: Node, value: float) -> bool:
    """Whether all elements are a value, as the dtype has it."""
    while node.op == "expand":
        node = node.inputs[0]
    rounded = np.float32 if node.dtype == FLOAT32 else np.float64
    return node.op == "full" and rounded(node.attr("value")) == rounded(value)
