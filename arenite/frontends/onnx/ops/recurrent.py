"""Recurrent layers: LSTM, GRU, RNN."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from arenite.dtype import INT64
from arenite.frontends.onnx.call import Call
from arenite.frontends.onnx.ops.quantised import dequantized
from arenite.frontends.onnx.registry import MICROSOFT, Result, operator
from arenite.ir import Node, make
from arenite.ir.compose import neural, recurrent
from arenite.ir.compose.basic import (
    binary,
    cast,
    concat,
    expand_dims,
    permute,
    reshape,
    slice_axis,
    swap_axes,
    where,
)
from arenite.ir.compose.recurrent import Function, Layer, Peepholes

#: Activations to the numbers they take where a model gives none.
DEFAULTS: dict[str, tuple[float, ...]] = {
    "affine": (1.0, 0.0),
    "elu": (1.0,),
    "hardsigmoid": (0.2, 0.5),
    "leakyrelu": (0.01,),
    "scaledtanh": (1.0, 1.0),
    "thresholdedrelu": (1.0,),
}


def _activation(name: str, numbers: tuple[float, ...]) -> Function | None:
    alpha, beta = (*numbers, 0.0, 0.0)[:2]
    functions: dict[str, Function] = {
        "relu": lambda x: binary("maximum", x, 0.0),
        "tanh": lambda x: make("tanh", x),
        "sigmoid": neural.sigmoid,
        "softsign": neural.softsign,
        "softplus": neural.softplus,
        "affine": lambda x: x * alpha + beta,
        "elu": lambda x: neural.elu(x, alpha),
        "hardsigmoid": lambda x: neural.clip(x * alpha + beta, 0.0, 1.0),
        "leakyrelu": lambda x: neural.leaky_relu(x, alpha),
        "scaledtanh": lambda x: make("tanh", x * beta) * alpha,
        "thresholdedrelu": lambda x: where(x >= alpha, x, 0.0),
    }
    return functions.get(name)


def _activations(call: Call, defaults: list[str], n_directions: int) -> Iterator[list[Function]]:
    """For each direction; numbers are taken by those that need one, in order."""
    names = call.attr("activations") or defaults * n_directions
    if len(names) == len(defaults) and n_directions == 2:
        names = names * 2
    if len(names) != len(defaults) * n_directions:
        call.fail(f"activations {names} are not {len(defaults)} for each direction")
    alphas, betas = (iter(call.attr(f"activation_{one}") or []) for one in ("alpha", "beta"))
    made: list[Function] = []
    for name in names:
        numbers = DEFAULTS.get(name.lower(), ())
        given = [next(source, default) for source, default in zip((alphas, betas), numbers,
                                                                  strict=False)]  # fmt: skip
        function = _activation(name.lower(), tuple(given))
        if function is None:
            call.refuse(f"the activation {name!r}")
        made.append(function)
    n = len(defaults)
    for start in range(0, len(made), n):
        yield made[start : start + n]


def _layers(
    call: Call,
    n_gates: int,
    defaults: list[str],
    apart: bool = False,
    weights: tuple[Node, Node] | None = None,
) -> list[tuple[Layer, Node | None]]:
    """The layer of each direction; where biases are to stay apart, that of the state beside it.
    `weights` of inputs and states are other ones than the call's."""
    direction = call.attr("direction", "forward")
    if direction not in ("forward", "reverse", "bidirectional"):
        call.fail(f"direction is {direction!r}, not forward, reverse or bidirectional")
    reverses = {"forward": [False], "reverse": [True]}.get(direction, [False, True])
    x = call.node(0)
    w, r = weights or (call.node(1), call.node(2))
    if w.ndim != 3 or r.ndim != 3 or w.shape[0] != len(reverses) or r.shape[0] != len(reverses):
        call.fail(f"weights of shapes {w.shape} and {r.shape} for {len(reverses)} directions")
    if x.ndim != 3:
        call.fail(f"an input of shape {x.shape}, not [time, batch, inputs]")
    x = permute(x, (1, 0, 2)) if call.attr("layout", 0) else x
    width = r.shape[2]
    if call.attr("hidden_size", width) != width:
        call.fail(f"hidden_size is {call.attr('hidden_size')}, and the weights' is {width}")
    lengths = cast(call.node(4), INT64) if call.has(4) else None
    found = []
    for index, (reverse, functions) in enumerate(
        zip(reverses, _activations(call, defaults, len(reverses)), strict=True)
    ):
        both = _of_direction(call.optional(3), index)
        bias: Node | None = None
        state_bias: Node | None = None
        if both is not None:
            n = n_gates * width
            if both.shape != (2 * n,):
                call.fail(f"a bias of shape {both.shape} in each direction, not {(2 * n,)}")
            bias, state_bias = slice_axis(both, 0, 0, n), slice_axis(both, 0, n, 2 * n)
            if not apart:
                bias, state_bias = bias + state_bias, None
        hidden, limit = _state(call, 5, index), call.attr("clip") or None
        own = _one(w, index), _one(r, index)
        layer = Layer(x, *own, bias, hidden, reverse, functions, limit, lengths)
        found.append((layer, state_bias))
    return found


def _one(x: Node, index: int) -> Node:
    return reshape(slice_axis(x, 0, index, index + 1), x.shape[1:])


def _of_direction(x: Node | None, index: int) -> Node | None:
    return None if x is None else _one(x, index)


def _state(call: Call, number: int, index: int) -> Node | None:
    state = call.optional(number)
    if state is not None and call.attr("layout", 0):
        state = permute(state, (1, 0, 2))
    return _of_direction(state, index)


def _stacked(call: Call, made: Sequence[tuple[Node, ...]]) -> tuple[Node, ...]:
    """Outputs of both directions: all h as [time, direction, batch, hidden], then last states."""
    outputs = concat([expand_dims(one[0], 1) for one in made], 1)
    last = [concat([expand_dims(one[k], 0) for one in made], 0) for k in range(1, len(made[0]))]
    if call.attr("layout", 0):
        outputs = permute(outputs, (2, 0, 1, 3))
        last = [permute(one, (1, 0, 2)) for one in last]
    return outputs, *last


@operator("LSTM", since=7)
def lstm(call: Call) -> Result:
    return _lstm(call)


@operator("DynamicQuantizeLSTM", domain=MICROSOFT)
def dynamic_quantize_lstm(call: Call) -> Result:
    """Weights are the numbers that their integers stand for, [direction, inputs, gates]. Inputs and
    states, which ONNX Runtime rounds to 8 bits in every step, stay what they are."""
    return _lstm(call, (_weights(call, 1, 8), _weights(call, 2, 10)))


def _weights(call: Call, index: int, scale_index: int) -> Node:
    """Of integers with one scale and zero point for each direction, or for each of its gates."""
    integers, scale, zero = call.node(index), call.numbers(scale_index), None
    if call.has(scale_index + 1):
        zero = _beside(call.numbers(scale_index + 1))
    return swap_axes(dequantized(integers, _beside(scale), zero), 1, 2)


def _beside(given: Node) -> Node:
    return reshape(given, (given.shape[0], 1, -1))


def _lstm(call: Call, weights: tuple[Node, Node] | None = None) -> Result:
    made = []
    functions = ["Sigmoid", "Tanh", "Tanh"]
    for index, (layer, _) in enumerate(_layers(call, 4, functions, weights=weights)):
        given = _of_direction(call.optional(7), index)
        peepholes = None
        if given is not None:
            width = layer.r.shape[1]
            if given.shape != (3 * width,):
                call.fail(f"peepholes of shape {given.shape} in each direction")
            peepholes = Peepholes(
                *(slice_axis(given, 0, k * width, (k + 1) * width) for k in range(3))
            )
        cell, coupled = _state(call, 6, index), bool(call.attr("input_forget", 0))
        made.append(recurrent.lstm(layer, cell, gates="iofg", peepholes=peepholes, coupled=coupled))
    return _stacked(call, made)


@operator("GRU", since=7)
def gru(call: Call) -> Result:
    is_late = bool(call.attr("linear_before_reset", 0))
    made = [
        recurrent.gru(layer, state_bias, reset_first=not is_late, gates="zrn")
        for layer, state_bias in _layers(call, 3, ["Sigmoid", "Tanh"], apart=is_late)
    ]
    return _stacked(call, made)


@operator("RNN", since=7)
def rnn(call: Call) -> Result:
    return _stacked(call, [recurrent.rnn(layer) for layer, _ in _layers(call, 1, ["Tanh"])])
