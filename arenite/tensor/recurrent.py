"""Recurrent layers on tensors, with PyTorch's weights: see `arenite.ir.compose.recurrent`."""

from __future__ import annotations

from typing import Any

from arenite.ir.compose import recurrent
from arenite.ir.node import Node
from arenite.tensor.base import node_of
from arenite.tensor.creation import asarray, wrap


def lstm(
    x: Any,
    w: Any,
    r: Any,
    bias: Any = None,
    state: tuple[Any, Any] | None = None,
    *,
    reverse: bool = False,
) -> tuple[Any, tuple[Any, Any]]:
    """A layer of LSTM cells over x[time, batch, inputs]: (outputs, (h, c)).

    `w` is [4 * hidden, inputs], `r` [4 * hidden, hidden], `bias` [4 * hidden], gates in the order
    i, f, g, o. PyTorch's two biases are one here: their sum. `state` is (h, c), each [batch,
    hidden]; zeros if it is not given. `reverse` goes from the last time to the first.
    """
    hidden, cell = state if state is not None else (None, None)
    layer = _layer(x, w, r, bias, hidden, reverse)
    outputs, *last = recurrent.lstm(layer, _node(cell))
    h, c = (wrap(node) for node in last)
    return wrap(outputs), (h, c)


def gru(
    x: Any,
    w: Any,
    r: Any,
    bias: Any = None,
    state_bias: Any = None,
    state: Any = None,
    *,
    reset_first: bool = False,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """A layer of GRU cells over x[time, batch, inputs]: (outputs, h).

    `w` is [3 * hidden, inputs], `r` [3 * hidden, hidden], both biases [3 * hidden], gates in the
    order r, z, n. `reset_first` resets the state before its product with `r` and not after, which
    is what older definitions do.
    """
    layer = _layer(x, w, r, bias, state, reverse)
    outputs, last = recurrent.gru(layer, _node(state_bias), reset_first=reset_first)
    return wrap(outputs), wrap(last)


def _layer(x: Any, w: Any, r: Any, bias: Any, hidden: Any, reverse: bool) -> recurrent.Layer:
    weights = _needed(w), _needed(r), _node(bias)
    return recurrent.Layer(_needed(x), *weights, _node(hidden), reverse)


def _needed(given: Any) -> Node:
    return node_of(asarray(given))


def _node(given: Any) -> Node | None:
    return None if given is None else _needed(given)
