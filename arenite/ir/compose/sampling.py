"""Images read between their elements, at places that data gives.

An image is x[batch, channel, ...]; positions are floats [batch, place], one node for each spatial
axis, in elements. What lies outside is 0 ("zeros"), the nearest element ("border"), or an element
found by reflection at both ends ("reflection"): at the centres of the outermost elements with
`align_corners`, else at their outer sides.

Regions of images, pooled to one size: RoIAlign of Mask R-CNN.

A bin of a region is the mean, or the largest, of places in it that are read between elements. One
place of every bin is read in each iteration of a loop, so that regions of any size take no memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product as combinations

from arenite.dtype import INT64
from arenite.ir.compose.basic import (
    along,
    binary,
    broadcast_to,
    cast,
    computing,
    expand_dims,
    iota,
    permute,
    reshape,
    size_like,
    slice_axis,
    where,
)
from arenite.ir.compose.neural import clip
from arenite.ir.compose.reductions import reduce
from arenite.ir.dim import Dim, product
from arenite.ir.node import Node
from arenite.ir.ops import full, make, parameter
from arenite.ir.ops.movement import strides_of
from arenite.ir.regions import loop

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


#: Places along an axis of a bin; a bin of more elements than this is read with gaps.
MAX_SAMPLES = 4096


def align(
    x: Node,
    rois: Node,
    images: Node,
    bins: tuple[int, int],
    *,
    scale: float,
    samples: int,
    shifted: bool,
    largest: bool,
) -> Node:
    """[region, channel, *bins] of x[N, C, H, W] and rois[region, (x1, y1, x2, y2)].

    `samples` along each axis of a bin, or for 0 as many as it has elements. `shifted`: elements
    have their centres at half numbers; else regions are at least one element large.
    """
    wide, regions = computing(x), computing(rois)
    n, channels, height, width = x.shape
    n_rois = rois.shape[0]
    rank = 4  # region, channel, bin down, bin across

    def edge(k: int) -> Node:
        at = reshape(slice_axis(regions, 1, k, k + 1), (n_rois, 1, 1, 1)) * scale
        return at - 0.5 if shifted else at

    starts, sizes, counts = [], [], []
    for first, last, n_bins in ((edge(1), edge(3), bins[0]), (edge(0), edge(2), bins[1])):
        extent = last - first
        if not shifted:
            extent = binary("maximum", extent, 1.0)
        size = extent / float(n_bins)
        wanted = make("ceil", where(make("isnan", size), 0.0, size))
        counts.append(full(size.shape, float(samples), size.dtype) if samples > 0 else
                      clip(wanted, 0.0, float(MAX_SAMPLES)))  # fmt: skip
        starts.append(first)
        sizes.append(size)

    def most(count: Node) -> Node:
        if samples > 0:
            return full((), samples, INT64)
        return cast(reduce("max", count, range(rank)), INT64)

    down, across = most(counts[0]), most(counts[1])
    step = parameter((), INT64)
    shape = (n_rois, *bins, channels)  # a place is read with all its channels
    held = parameter(shape, wide.dtype)
    safe = binary("maximum", across, 1)
    at = (step // safe, step % safe)
    is_used: Node | None = None
    positions = []
    for k in range(2):
        number = cast(at[k], sizes[k].dtype)
        used = number < counts[k]
        is_used = used if is_used is None else is_used & used
        bin_start = along(iota(bins[k], sizes[k].dtype), 2 + k, rank) * sizes[k]
        within = (number + 0.5) * sizes[k] / binary("maximum", counts[k], 1.0)
        positions.append(starts[k] + bin_start + within)
    assert is_used is not None
    terms = _corners(wide, images, positions, (height, width), n)
    if largest:
        value = terms[0]
        for term in terms[1:]:
            value = binary("maximum", value, term)
        following = where(is_used, binary("maximum", held, value), held)
        initial = full(shape, -math.inf, wide.dtype)
    else:
        value = terms[0]
        for term in terms[1:]:
            value = value + term
        following = where(is_used, held + value, held)
        initial = full(shape, 0.0, wide.dtype)
    trips = down * across
    [total] = loop(trips, [initial], ((step, held), (following,)))
    places = counts[0] * counts[1]
    if largest:
        result = where(binary("eq", places, 0.0), 0.0, total)
    else:
        result = total / binary("maximum", places, 1.0)
    return cast(permute(result, (0, 3, 1, 2)), x.dtype)


def _corners(
    x: Node, images: Node, positions: list[Node], sizes: tuple[Dim, Dim], n: Dim
) -> list[Node]:
    """The four elements [region, down, across, channel] around places [region, 1, down, across],
    each times its weight."""
    outside: Node | None = None
    lows, highs, rests = [], [], []
    shape = (positions[0].shape[0], 1, positions[0].shape[2], positions[1].shape[3])
    for at, size in zip(positions, sizes, strict=True):
        count = size_like(size, at)
        beyond = broadcast_to((at < -1.0) | (at > count) | make("isnan", at), shape)
        outside = beyond if outside is None else outside | beyond
        last = count - 1.0
        held = clip(where(make("isnan", at), 0.0, at), 0.0, last)
        low = make("floor", held)
        lows.append(low)
        highs.append(binary("minimum", low + 1.0, last))
        rests.append(held - low)
    assert outside is not None
    channels, plane = x.shape[1], sizes[0] * sizes[1]
    rows = reshape(permute(x, (0, 2, 3, 1)), (n * plane, channels))
    image = cast(images, INT64)
    known = (image >= 0) & (image < size_like(n, image))
    terms = []
    for is_high in ((False, False), (False, True), (True, False), (True, True)):
        y, across = (cast((highs if up else lows)[k], INT64) for k, up in enumerate(is_high))
        place = y * size_like(sizes[1], y) + across
        first = image * size_like(plane, image)
        first = where(known, first, -1)
        first = reshape(first, (image.shape[0], 1, 1, 1))
        # An image that there is not must not become a place in another one.
        place = where(first < 0, -1, place + first)
        value = make("gather", rows, reshape(place, (shape[0], *shape[2:])), axis=0)
        shares = [rests[k] if up else 1.0 - rests[k] for k, up in enumerate(is_high)]
        inside = where(outside, 0.0, cast(shares[0] * shares[1], x.dtype))
        terms.append(value * reshape(inside, (shape[0], *shape[2:], 1)))
    return terms
