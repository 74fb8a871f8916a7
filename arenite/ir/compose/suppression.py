"""Boxes of which those that overlap a better one are left out: non-maximum suppression.

All classes of all images choose at once: in each iteration of a loop every class takes its best box
that is left, and all boxes that overlap it too much are out. The loop ends when no class has a box.
"""

from __future__ import annotations

import math

from arenite.ir.compose.basic import (
    INT64,
    along,
    binary,
    broadcast_to,
    cast,
    div,
    iota,
    mul,
    permute,
    reshape,
    size_like,
    slice_axis,
    sub,
    where,
)
from arenite.ir.compose.counted_sizes import nonzero, positions_on_axes
from arenite.ir.compose.reductions import reduce
from arenite.ir.dim import Dim, minimum, product
from arenite.ir.node import Node
from arenite.ir.ops import full, make, parameter, size
from arenite.ir.ops.define import BOOL
from arenite.ir.regions import loop


def suppressed(
    boxes: Node,
    scores: Node,
    count: Dim,
    overlap: Node,
    least: Node | None,
    *,
    centred: bool,
) -> Node:
    """(image, class, box) of the boxes that are kept, int64[found, 3]: by image and class, the best
    first.

    `boxes` are [image, box, 4]: two corners (y1, x1, y2, x2), or with `centred` (x, y, width,
    height). `scores` are [image, class, box]; only those above `least` count. `count` boxes are
    kept of a class at the most; those that overlap one by more than `overlap` are out.
    """
    trips = minimum(count, scores.shape[2])
    if least is not None:
        # Most boxes are no candidates of any class: what is left of them is found first.
        above = reduce("any", binary("gt", scores, least), [0, 1])
        candidates = nonzero(above)
        boxes = make("gather", boxes, candidates, axis=1)
        scores = make("gather", scores, candidates, axis=2)
        kept = _chosen(boxes, scores, trips, overlap, least, centred)
        own = [slice_axis(kept, 1, k, k + 1) for k in range(3)]
        own[2] = make("gather", candidates, own[2], axis=0)
        return make("concat", *own, axis=1)
    return _chosen(boxes, scores, trips, overlap, None, centred)


def _chosen(
    boxes: Node, scores: Node, trips: Dim, overlap: Node, least: Node | None, centred: bool
) -> Node:
    images, classes, n = scores.shape
    low, high = _corners(boxes, centred)
    area = mul(*(sub(b, a) for a, b in zip(low, high, strict=True)))
    shape = (images, classes, n)
    is_open = full(shape, True, BOOL) if least is None else binary("gt", scores, least)

    step, left = parameter((), INT64), parameter(shape, BOOL)
    # No number is no score: it comes after all others.
    known = where(make("isnan", scores), -math.inf, scores)
    # A score of -inf is a score too, so what is out is told by the mask.
    best = reduce("max", where(left, known, -math.inf), [2], keep=True)
    is_best = make("and", left, binary("eq", known, best))
    at = make("argmax", cast(is_best, INT64), axis=2)
    is_any = reduce("any", left, [2])
    places = reshape(at, (images, classes, 1))

    def chosen(side: Node) -> Node:
        return make("gather_elements", broadcast_to(side, shape), places, axis=2)

    inner: Node | None = None
    for a, b in zip(low, high, strict=True):
        start = binary("maximum", a, chosen(a))
        stop = binary("minimum", b, chosen(b))
        span = binary("maximum", sub(stop, start), 0.0)
        inner = span if inner is None else mul(inner, span)
    assert inner is not None
    union = sub(binary("add", area, chosen(area)), inner)
    # Boxes without an area overlap nothing.
    is_real = make("and", *(broadcast_to(binary("gt", one, 0.0), shape) for one in (
        area, chosen(area))))  # fmt: skip
    is_real = make("and", is_real, binary("gt", union, 0.0))
    share = div(inner, where(is_real, union, 1.0))
    is_near = make("and", is_real, binary("gt", share, overlap))
    is_own = binary("eq", along(iota(n), 2, 3), places)
    following = make("and", left, make("not", make("or", is_near, is_own)))
    rows = where(is_any, at, -1)

    # The loop tells how many iterations there were, as rows behind them have no meaning.
    done = parameter((), INT64)
    _, n_done, stacked = loop(
        size(trips, INT64),
        [is_open, full((), 0, INT64)],
        ((step, left, done), (following, binary("add", step, 1))),
        rows=[rows],
        condition=reduce("any", is_open, [0, 1, 2]),
        goes_on=reduce("any", following, [0, 1, 2]),
    )
    is_kept = make("and", *(broadcast_to(one, stacked.shape) for one in (
        binary("ge", stacked, 0), binary("lt", along(iota(trips), 0, 3), n_done))))  # fmt: skip
    image, class_, row = positions_on_axes(permute(is_kept, (1, 2, 0)))
    flat = reshape(permute(stacked, (1, 2, 0)), (product((images, classes, trips)),))
    place = binary("mul", image, size_like(classes * trips, image))
    place = binary("add", place, binary("mul", class_, size_like(trips, class_)))
    box = make("gather", flat, binary("add", place, row), axis=0)
    columns = [reshape(one, (one.shape[0], 1)) for one in (image, class_, box)]
    return make("concat", *columns, axis=1)


def _corners(boxes: Node, centred: bool) -> tuple[list[Node], list[Node]]:
    """The least and the greatest coordinate along both axes, [image, 1, box] each."""
    images, n, _ = boxes.shape
    parts = [reshape(slice_axis(boxes, 2, k, k + 1), (images, 1, n)) for k in range(4)]
    if centred:
        halves = [mul(part, 0.5) for part in parts[2:]]
        low = [sub(at, half) for at, half in zip(parts[:2], halves, strict=True)]
        high = [binary("add", at, half) for at, half in zip(parts[:2], halves, strict=True)]
        return low, high
    low = [binary("minimum", parts[k], parts[k + 2]) for k in range(2)]
    return low, [binary("maximum", parts[k], parts[k + 2]) for k in range(2)]
