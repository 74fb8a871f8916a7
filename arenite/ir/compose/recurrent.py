"""Recurrent layers: one product for all inputs before the loop, one for the state in each step.

    lstm    i, f, g, o = x W^T + h R^T + b        c = f c + i g      h = o tanh(c)
    gru     r, z = x W^T + h R^T + b              n = tanh(...)      h = (1 - z) n + z h

x is [time, batch, inputs]; weights are [gates * hidden, ...] with the gates in the order above,
which is PyTorch's. Gates and state are one kernel behind the product of a step.
"""

from __future__ import annotations

from arenite.errors import ShapeMismatch, TypeMismatch
from arenite.ir.compose.basic import add, broadcast_to, flip, mul, slice_axis, sub, unary
from arenite.ir.compose.neural import sigmoid
from arenite.ir.dim import Dim
from arenite.ir.node import Node, typed
from arenite.ir.ops import full, make, parameter, size
from arenite.ir.ops.define import INT64
from arenite.ir.regions import loop


def lstm(
    x: Node,
    w: Node,
    r: Node,
    bias: Node | None = None,
    hidden: Node | None = None,
    cell: Node | None = None,
    *,
    reverse: bool = False,
) -> tuple[Node, Node, Node]:
    """(all h stacked over time, the last h, the last c)."""
    width = _width("lstm", x, w, r, 4)
    _need("lstm", "the bias", bias, (4 * width,), x)
    state = (x.shape[1], width)
    initial = [_initial("lstm", "h", hidden, state, x), _initial("lstm", "c", cell, state, x)]
    inputs = _projected(x, w, bias)

    def step(given: Node, h: Node, c: Node) -> tuple[Node, Node]:
        gates = add(given, _product(h, r))
        i, f, g, o = (slice_axis(gates, 1, k * width, (k + 1) * width) for k in range(4))
        cell = add(mul(sigmoid(f), c), mul(sigmoid(i), unary("tanh", g)))
        return mul(sigmoid(o), unary("tanh", cell)), cell

    number = parameter((), INT64)
    h, c = (parameter(state, x.dtype) for _ in range(2))
    following = step(_row(inputs, number, reverse), h, c)
    last, last_cell, stacked = loop(
        size(x.shape[0], INT64),
        initial,
        ((number, h, c), following),
        rows=[following[0]],
    )
    return flip(stacked, [0]) if reverse else stacked, last, last_cell


def gru(
    x: Node,
    w: Node,
    r: Node,
    bias: Node | None = None,
    state_bias: Node | None = None,
    hidden: Node | None = None,
    *,
    reset_first: bool = False,
    reverse: bool = False,
) -> tuple[Node, Node]:
    """(all h stacked over time, the last h).

    `state_bias` belongs to h R^T. The new gate resets h R^T + its bias, or with `reset_first` h
    itself, before the product.
    """
    width = _width("gru", x, w, r, 3)
    for what, one in (("the bias", bias), ("the bias of the state", state_bias)):
        _need("gru", what, one, (3 * width,), x)
    state = (x.shape[1], width)
    initial = [_initial("gru", "h", hidden, state, x)]
    inputs = _projected(x, w, bias)

    def part(of: Node, first: int, last: int) -> Node:
        return slice_axis(of, 1, first * width, last * width)

    def biased(of: Node, first: int, last: int) -> Node:
        if state_bias is None:
            return of
        return add(of, slice_axis(state_bias, 0, first * width, last * width))

    def step(given: Node, h: Node) -> Node:
        if reset_first:
            gates = biased(_product(h, slice_axis(r, 0, 0, 2 * width)), 0, 2)
        else:
            gates = biased(_product(h, r), 0, 3)
        reset = sigmoid(add(part(given, 0, 1), part(gates, 0, 1)))
        update = sigmoid(add(part(given, 1, 2), part(gates, 1, 2)))
        if reset_first:
            own = slice_axis(r, 0, 2 * width, 3 * width)
            inner = biased(_product(mul(reset, h), own), 2, 3)
        else:
            inner = mul(reset, part(gates, 2, 3))
        new = unary("tanh", add(part(given, 2, 3), inner))
        return add(mul(sub(1.0, update), new), mul(update, h))

    number, h = parameter((), INT64), parameter(state, x.dtype)
    following = step(_row(inputs, number, reverse), h)
    last, stacked = loop(
        size(x.shape[0], INT64), initial, ((number, h), (following,)), rows=[following]
    )
    return flip(stacked, [0]) if reverse else stacked, last


def _width(op: str, x: Node, w: Node, r: Node, n_gates: int) -> int:
    """The size of the state, and that everything fits it."""
    if x.ndim != 3 or w.ndim != 2 or r.ndim != 2:
        raise ShapeMismatch(
            f"{op} takes x[time, batch, inputs], w[{n_gates} * hidden, inputs] and r[{n_gates} * "
            f"hidden, hidden], not shapes {x.shape}, {w.shape} and {r.shape}"
        )
    width = r.shape[1]
    if (
        not isinstance(width, int)
        or r.shape[0] != n_gates * width
        or w.shape != (n_gates * width, x.shape[2])
    ):
        raise ShapeMismatch(
            f"{op}: x of shape {x.shape} and a state of {width} need w of shape "
            f"{(n_gates * width, x.shape[2])} and r of shape {(n_gates * width, width)}, not "
            f"{w.shape} and {r.shape}"
        )
    for node in (w, r):
        if node.dtype != x.dtype:
            raise TypeMismatch(f"{op}: x is {x.dtype}, the weights are {node.dtype}")
    return width


def _need(op: str, what: str, node: Node | None, shape: tuple[Dim, ...], x: Node) -> None:
    if node is not None and (node.shape != shape or node.dtype != x.dtype):
        raise ShapeMismatch(f"{op}: {what} is {typed(shape, x.dtype)}, not {node.type_text}")


def _initial(op: str, what: str, node: Node | None, shape: tuple[Dim, ...], x: Node) -> Node:
    _need(op, f"the initial {what}", node, shape, x)
    return full(shape, 0.0, x.dtype) if node is None else node


def _projected(x: Node, w: Node, bias: Node | None) -> Node:
    """x W^T + b for all times at once, as the loop reads it: a reshape would be a copy."""
    made = _product(x, w)
    return made if bias is None else add(made, broadcast_to(bias, made.shape))


def _product(a: Node, b: Node) -> Node:
    return make("matmul", a, b, transpose_a=False, transpose_b=True)


def _row(inputs: Node, number: Node, reverse: bool) -> Node:
    """What is given in one step, [batch, gates * hidden]."""
    rows = flip(inputs, [0]) if reverse else inputs
    return make("gather", rows, number, axis=0)
