"""One layer written as text, `matmul:128x768x3072` for one, as a function and what it takes."""

from __future__ import annotations

import re
from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from arenite.errors import InvalidArgument

if TYPE_CHECKING:
    from arenite.tensor import Tensor

HELP = (
    "matmul:ROWSxDEPTHxCOLUMNS (a batch may come first), linear:ROWSxDEPTHxCOLUMNS (weights are "
    "constants) or conv:CHANNELSxHxW/OUTxHxW[/sSTRIDE][/gGROUPS]"
)
#: Elements of an operand at the most.
MOST_ELEMENTS = 2**28

_KINDS = ("matmul", "linear", "conv")
_SIZES = re.compile(r"[1-9][0-9]{0,8}(x[1-9][0-9]{0,8})*")
_OPTION = re.compile(r"([sg])([1-9][0-9]{0,4})")

#: A function of tensors, and the shapes of its arguments.
Layer = tuple[Callable[..., "Tensor"], tuple[tuple[int, ...], ...]]


def is_layer(text: str) -> bool:
    """Whether a text means one layer, rather than a model."""
    return text.partition(":")[0] in _KINDS


def layer(text: str) -> Layer:
    """The layer that a text means, in float32."""
    kind, _, sizes = text.partition(":")
    parts = sizes.split("/")
    try:
        if kind == "conv":
            return _conv(*parts)
        [shape] = parts
        return _matmul(_ints(shape)) if kind == "matmul" else _linear(_ints(shape))
    except InvalidArgument:
        raise
    except (TypeError, ValueError):
        raise InvalidArgument(f"{text!r} is no layer: write {HELP}") from None


def _matmul(sizes: list[int]) -> Layer:
    *batch, rows, depth, columns = sizes
    shapes = ((*batch, rows, depth), (*batch, depth, columns))
    _check(*shapes)
    return lambda a, b: a @ b, shapes


def _linear(sizes: list[int]) -> Layer:
    rows, depth, columns = sizes
    _check((rows, depth), (depth, columns))
    weights = _weights(depth, columns)
    return lambda x: x @ weights, ((rows, depth),)


def _conv(image: str, kernel: str, *options: str) -> Layer:
    channels, height, width = _ints(image)
    out, *taps = _ints(kernel)
    chosen = {"s": 1, "g": 1}
    for option in options:
        match = _OPTION.fullmatch(option)
        if match is None:
            raise ValueError
        chosen[match[1]] = int(match[2])
    stride, groups = chosen["s"], chosen["g"]
    if len(taps) != 2 or channels % groups or out % groups:
        raise ValueError
    _check((height, width, channels), (out, channels // groups, *taps))
    weights = _weights(out, channels // groups, *taps)
    padding = [((tap - 1) // 2, tap // 2) for tap in taps]

    def conv(x: Tensor) -> Tensor:
        """As inside of a network, where channels come last."""
        made = x.transpose(0, 3, 1, 2).conv(weights, None, stride, padding, 1, groups)
        return made.transpose(0, 2, 3, 1)

    return conv, ((1, height, width, channels),)


def _ints(text: str) -> list[int]:
    if _SIZES.fullmatch(text) is None:
        raise ValueError
    return [int(size) for size in text.split("x")]


def _check(*shapes: tuple[int, ...]) -> None:
    for shape in shapes:
        if prod(shape) > MOST_ELEMENTS:
            raise InvalidArgument(
                f"an operand of {shape} has more than {MOST_ELEMENTS} elements; try a smaller one"
            )


def _weights(*shape: int) -> Any:
    from arenite.tensor import from_numpy

    return from_numpy(np.random.default_rng(0).standard_normal(shape, np.float32))
