"""Regions of images, pooled to one size: RoIAlign of Mask R-CNN.

A bin of a region is the mean, or the largest, of places in it that are read between elements. One
place of every bin is read in each iteration of a loop, so that regions of any size take no memory.
"""

from __future__ import annotations

import math

from arenite.ir.compose.basic import (
    INT64,
    along,
    binary,
    broadcast_to,
    cast,
    computing,
    iota,
    permute,
    reshape,
    size_like,
    slice_axis,
    where,
)
from arenite.ir.compose.neural import clip
from arenite.ir.compose.reductions import reduce
from arenite.ir.dim import Dim
from arenite.ir.node import Node
from arenite.ir.ops import full, make, parameter
from arenite.ir.regions import loop

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
