"""Recurrent layers: one product for all inputs before the loop, one for the state in each step.

    lstm    i, f, g, o = x W^T + h R^T + b        c = f c + i g      h = o tanh(c)
    gru     r, z = x W^T + h R^T + b              n = tanh(...)      h = (1 - z) n + z h
    rnn                                                              h = tanh(x W^T + h R^T + b)

x is [time, batch, inputs]; weights are [gates * hidden, ...] with the gates in the order of the
letters of `gates`, by default PyTorch's. Gates and state are one kernel behind the product of a
step. With `lengths`[batch] a sequence ends earlier: its state stays, and its outputs are zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from arenite.dtype import INT64
from arenite.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from arenite.ir.compose.basic import broadcast_to, flip, reshape, slice_axis, where
from arenite.ir.compose.neural import clip, sigmoid
from arenite.ir.dim import Dim
from arenite.ir.node import Node, typed
from arenite.ir.ops import full, make, parameter, size
from arenite.ir.regions import loop

Function: TypeAlias = Callable[[Node], Node]


def _tanh(x: Node) -> Node:
    return make("tanh", x)


@dataclass(frozen=True, slots=True)
class Layer:
    """What every layer has: its input, its weights, where it begins and how it goes on.

    `functions` are those of the gates, of the new state and, of an LSTM, of the output; `limit`
    bounds what they are given, but for the last of an LSTM.
    """

    x: Node
    w: Node
    r: Node
    bias: Node | None = None
    hidden: Node | None = None
    reverse: bool = False
    functions: Sequence[Function] | None = None
    limit: float | None = None
    lengths: Node | None = None


@dataclass(frozen=True, slots=True)
class Peepholes:
    """What gates of an LSTM see of its cell, [hidden] each."""

    i: Node
    o: Node
    f: Node


def lstm(
    layer: Layer,
    cell: Node | None = None,
    *,
    gates: str = "ifgo",
    peepholes: Peepholes | None = None,
    coupled: bool = False,
) -> tuple[Node, Node, Node]:
    """(all h stacked over time, the last h, the last c). With `coupled` the forget gate is
    1 - i."""
    width = _width("lstm", layer, 4)
    places = _places("lstm", gates, "ifgo")
    states = (("h", layer.hidden), ("c", cell))
    initial = [_initial("lstm", name, state, width, layer.x) for name, state in states]
    *inner, of_output = layer.functions or (sigmoid, _tanh, _tanh)
    of_gate, of_cell = (_limited(function, layer.limit) for function in inner)

    def step(given: Node, h: Node, c: Node) -> tuple[Node, Node]:
        summed = given + _product(h, layer.r)
        i, f, g, o = (slice_axis(summed, 1, k * width, (k + 1) * width) for k in places)
        if peepholes is not None:
            i, f = i + c * peepholes.i, f + c * peepholes.f
        kept = of_gate(i)
        forgotten = 1.0 - kept if coupled else of_gate(f)
        new = forgotten * c + kept * of_cell(g)
        if peepholes is not None:
            o = o + new * peepholes.o
        return of_gate(o) * of_output(new), new

    outputs, last, last_cell = _run(layer, initial, step)
    return outputs, last, last_cell


def gru(
    layer: Layer,
    state_bias: Node | None = None,
    *,
    reset_first: bool = False,
    gates: str = "rzn",
) -> tuple[Node, Node]:
    """(all h stacked over time, the last h).

    `state_bias` belongs to h R^T. The new gate resets h R^T + its bias, or with `reset_first` h
    itself, before the product; it then is the last of the gates.
    """
    width = _width("gru", layer, 3)
    _need("gru", "the bias of the state", state_bias, (3 * width,), layer.x)
    at_reset, at_update, at_new = _places("gru", gates, "rzn")
    if reset_first and at_new != 2:
        raise InvalidArgument(f"gru: with reset_first the new gate is the last of {gates!r}")
    initial = [_initial("gru", "h", layer.hidden, width, layer.x)]
    functions, r = layer.functions or (sigmoid, _tanh), layer.r
    of_gate, of_new = (_limited(function, layer.limit) for function in functions)

    def part(of: Node, k: int) -> Node:
        return slice_axis(of, 1, k * width, (k + 1) * width)

    def biased(of: Node, first: int, last: int) -> Node:
        if state_bias is None:
            return of
        return of + slice_axis(state_bias, 0, first * width, last * width)

    def step(given: Node, h: Node) -> tuple[Node]:
        if reset_first:
            summed = biased(_product(h, slice_axis(r, 0, 0, 2 * width)), 0, 2)
        else:
            summed = biased(_product(h, r), 0, 3)
        reset = of_gate(part(given, at_reset) + part(summed, at_reset))
        update = of_gate(part(given, at_update) + part(summed, at_update))
        if reset_first:
            own = slice_axis(r, 0, 2 * width, 3 * width)
            inner = biased(_product(reset * h, own), 2, 3)
        else:
            inner = reset * part(summed, at_new)
        new = of_new(part(given, at_new) + inner)
        return ((1.0 - update) * new + update * h,)

    outputs, last = _run(layer, initial, step)
    return outputs, last


def rnn(layer: Layer) -> tuple[Node, Node]:
    """(all h stacked over time, the last h)."""
    width = _width("rnn", layer, 1)
    initial = [_initial("rnn", "h", layer.hidden, width, layer.x)]
    [function] = layer.functions or (_tanh,)
    of_sum = _limited(function, layer.limit)

    def step(given: Node, h: Node) -> tuple[Node]:
        return (of_sum(given + _product(h, layer.r)),)

    outputs, last = _run(layer, initial, step)
    return outputs, last


def _run(
    layer: Layer, initial: Sequence[Node], step: Callable[..., tuple[Node, ...]]
) -> tuple[Node, ...]:
    """All h stacked over time, and the state after the last step."""
    reverse, lengths = layer.reverse, layer.lengths
    # x W^T + b for all times at once, as the loop reads it: a reshape would be a copy.
    inputs = _product(layer.x, layer.w)
    if layer.bias is not None:
        inputs = inputs + broadcast_to(layer.bias, inputs.shape)
    time = inputs.shape[0]
    number = parameter((), INT64)
    state = [parameter(node.shape, node.dtype) for node in initial]
    following = step(_row(inputs, number, reverse), *state)
    row = following[0]
    if lengths is not None:
        if lengths.shape != (inputs.shape[1],) or lengths.dtype != INT64:
            raise ShapeMismatch(
                f"lengths are {typed((inputs.shape[1],), INT64)}, not "
                f"{typed(lengths.shape, lengths.dtype)}"
            )
        at = size(time - 1, INT64) - number if reverse else number
        goes_on = reshape(lengths, (inputs.shape[1], 1)) > at
        row = where(goes_on, row, 0.0)
        following = tuple(
            where(goes_on, new, old) for new, old in zip(following, state, strict=True)
        )
    *last, stacked = loop(
        size(time, INT64), list(initial), ((number, *state), following), rows=[row]
    )
    return (flip(stacked, [0]) if reverse else stacked, *last)


def _places(op: str, gates: str, known: str) -> list[int]:
    if sorted(gates) != sorted(known):
        raise InvalidArgument(f"{op}: gates {gates!r} are no order of {known!r}")
    return [gates.index(letter) for letter in known]


def _limited(function: Function, limit: float | None) -> Function:
    if limit is None:
        return function
    return lambda x: function(clip(x, -limit, limit))


def _width(op: str, layer: Layer, n_gates: int) -> int:
    """The size of the state, and that everything fits it."""
    x, w, r = layer.x, layer.w, layer.r
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
    _need(op, "the bias", layer.bias, (n_gates * width,), x)
    return width


def _need(op: str, what: str, node: Node | None, shape: tuple[Dim, ...], x: Node) -> None:
    if node is not None and (node.shape != shape or node.dtype != x.dtype):
        raise ShapeMismatch(f"{op}: {what} is {typed(shape, x.dtype)}, not {node.type_text}")


def _initial(op: str, what: str, node: Node | None, width: int, x: Node) -> Node:
    shape = (x.shape[1], width)
    _need(op, f"the initial {what}", node, shape, x)
    return full(shape, 0.0, x.dtype) if node is None else node


def _product(a: Node, b: Node) -> Node:
    return make("matmul", a, b, transpose_a=False, transpose_b=True)


def _row(inputs: Node, number: Node, reverse: bool) -> Node:
    """What is given in one step, [batch, gates * hidden]."""
    rows = flip(inputs, [0]) if reverse else inputs
    return make("gather", rows, number, axis=0)
