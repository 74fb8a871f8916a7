"""Images read between their elements, at places that data gives.

An image is x[batch, channel, ...]; positions are floats [batch, place], one node for each spatial
axis, in elements. What lies outside is 0 ("zeros"), the nearest element ("border"), or an element
found by reflection at both ends ("reflection"): at the centres of the outermost elements with
`align_corners`, else at their outer sides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product as combinations

from arenite.ir.compose.basic import (
    INT64,
    binary,
    broadcast_to,
    cast,
    computing,
    expand_dims,
    iota,
    permute,
    reshape,
    size_like,
    where,
)
from arenite.ir.compose.neural import clip
from arenite.ir.dim import Dim, product
from arenite.ir.node import Node
from arenite.ir.ops import full, make
from arenite.ir.ops.movement import strides_of

#: Channels from which on all of a place are read at once.
MANY_CHANNELS = 8
#: Keys' parameter, as PyTorch has it.
CUBIC = -0.75


def cubic_weights(t: Node, a: float = CUBIC) -> list[Node]:
    """Of the elements at -1, 0, 1 and 2 for a place at t in 0..1."""

    def near(x: Node) -> Node:  # |x| <= 1
        return (x * (a + 2) - (a + 3)) * x * x + 1.0

    def far(x: Node) -> Node:  # 1 < |x| < 2
        return ((x * a - 5 * a) * x + 8 * a) * x - 4 * a

    rest = 1.0 - t
    return [far(t + 1.0), near(t), near(rest), far(rest + 1.0)]


def reflected(x: Node, low: Node | float, high: Node) -> Node:
    """x brought within low..high by reflection at these; x itself where it is within."""
    span = high - low
    is_flat = binary("eq", span, 0.0)
    twice = where(is_flat, 1.0, span * 2.0)
    turned = (x - low) % broadcast_to(twice, x.shape)
    folded = where(turned > span, twice - turned, turned)
    inside = (x >= low) & (x <= high)
    return where(inside, x, where(is_flat, low, folded + low))


def sample(
    x: Node, positions: Sequence[Node], mode: str, padding: str, align_corners: bool = False
) -> Node:
    """x[batch, channel, place]: the nearest element ("nearest"), or a mean of 2 ("linear") or 4
    ("cubic") along each axis."""
    wide = computing(x)
    sizes = x.shape[2:]
    taps = []
    for position, size in zip(positions, sizes, strict=True):
        at = computing(position)
        count = size_like(size, at)
        low = 0.0 if align_corners else -0.5
        high = count - (1.0 if align_corners else 0.5)
        if mode == "nearest":
            at = make("round", at)
        if padding == "border" and mode != "cubic":  # whose weights go on behind the border
            at = clip(at, 0.0, count - 1.0)
        elif padding == "reflection":
            at = reflected(at, low, high)
        # Far outside all is alike, and no number is outside.
        at = clip(where(make("isnan", at), -3.0, at), -3.0, count + 2.0)
        first = make("floor", at)
        along = [(offset, weight) for offset, weight in _taps(at - first, mode)]
        taps.append([(_element(first + float(offset), size, padding, low, high), weight)
                     for offset, weight in along])  # fmt: skip
    channels = x.shape[1]
    # A place has its channels side by side, where they are enough to be read so.
    are_last = isinstance(channels, int) and channels >= MANY_CHANNELS
    read, axis = (_read_rows, 2) if are_last else (_read, 1)
    total: Node | None = None
    for chosen in combinations(*taps):
        value = read(wide, [place for (place, _), _ in chosen])
        inside = _all([seen for (_, seen), _ in chosen])
        if inside is not None:
            value = where(expand_dims(inside, axis), value, 0.0)
        for _, weight in chosen:
            if weight is not None:
                value = value * expand_dims(cast(weight, wide.dtype), axis)
        total = value if total is None else total + value
    assert total is not None
    return cast(permute(total, (0, 2, 1)) if are_last else total, x.dtype)


def linear_sample(x: Node, positions: Sequence[Node], padding: str) -> Node:
    return sample(x, positions, "linear", padding)


def _taps(t: Node, mode: str) -> list[tuple[int, Node | None]]:
    if mode == "nearest":
        return [(0, None)]
    if mode == "linear":
        return [(0, 1.0 - t), (1, t)]
    return list(zip((-1, 0, 1, 2), cubic_weights(t), strict=True))


def _element(at: Node, size: Dim, padding: str, low: float, high: Node) -> tuple[Node, Node | None]:
    """The place of an element, and whether it is one."""
    last = size_like(size, at) - 1.0
    inside = None
    if padding == "zeros":
        inside = (at >= 0.0) & (at <= last)
    elif padding == "reflection":
        at = make("trunc", reflected(at, low, high))
    return cast(clip(at, 0.0, last), INT64), inside


def _all(conditions: Sequence[Node | None]) -> Node | None:
    made: Node | None = None
    for one in conditions:
        if one is not None:
            made = one if made is None else made & one
    return made


def _linear(x: Node, places: Sequence[Node]) -> Node:
    """Places counted through all axes of an image."""
    linear: Node | None = None
    for place, stride in zip(places, strides_of(x.shape[2:]), strict=True):
        term = place * size_like(stride, place)
        linear = term if linear is None else linear + term
    assert linear is not None
    return linear


def _read(x: Node, places: Sequence[Node]) -> Node:
    """Elements [batch, channel, place] of each channel at places[batch, place]."""
    batch, channels, *sizes = x.shape
    linear = _linear(x, places)
    if _is_empty(sizes):
        return full((batch, channels, linear.shape[1]), 0.0, x.dtype)
    flat = reshape(x, (batch, channels, product(sizes)))
    wanted = broadcast_to(expand_dims(linear, 1), (batch, channels, linear.shape[1]))
    return make("gather_elements", flat, wanted, axis=2)


def _read_rows(x: Node, places: Sequence[Node]) -> Node:
    """The same as [batch, place, channel]."""
    batch, channels, *sizes = x.shape
    linear = _linear(x, places)
    if _is_empty(sizes):
        return full((batch, linear.shape[1], channels), 0.0, x.dtype)
    count = product(sizes)
    last = permute(x, (0, *range(2, x.ndim), 1))
    starts = expand_dims(iota(batch), 1) * size_like(count, linear)
    return make("gather", reshape(last, (batch * count, channels)), linear + starts, axis=0)


def _is_empty(sizes: Sequence[Dim]) -> bool:
    return math.prod(one for one in sizes if isinstance(one, int)) == 0
