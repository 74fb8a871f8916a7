"""Boxes of which those that overlap a better one are left out: non-maximum suppression."""

from __future__ import annotations

from arenite.dtype import BOOL
from arenite.ir.compose.basic import binary, reshape, size_like, slice_axis
from arenite.ir.compose.counted_sizes import positions_on_axes
from arenite.ir.dim import Dim, minimum, product
from arenite.ir.node import Node
from arenite.ir.ops import full, make


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
    images, classes, n = scores.shape
    trips = minimum(count, n)
    low, high = _corners(boxes, centred)
    is_open = full(scores.shape, True, BOOL) if least is None else scores > least
    corners = make("concat", *low, *high, axis=1)
    kept = make("suppress", corners, scores, is_open, overlap, count=trips)
    image, class_, row = positions_on_axes(kept >= 0)
    place = image * size_like(classes * trips, image)
    place = place + class_ * size_like(trips, class_)
    flat = reshape(kept, (product((images, classes, trips)),))
    box = make("gather", flat, place + row, axis=0)
    columns = [reshape(one, (one.shape[0], 1)) for one in (image, class_, box)]
    return make("concat", *columns, axis=1)


def _corners(boxes: Node, centred: bool) -> tuple[list[Node], list[Node]]:
    """The least and the greatest coordinate along both axes, [image, 1, box] each."""
    images, n, _ = boxes.shape
    parts = [reshape(slice_axis(boxes, 2, k, k + 1), (images, 1, n)) for k in range(4)]
    if centred:
        halves = [part * 0.5 for part in parts[2:]]
        low = [at - half for at, half in zip(parts[:2], halves, strict=True)]
        high = [at + half for at, half in zip(parts[:2], halves, strict=True)]
        return low, high
    low = [binary("minimum", parts[k], parts[k + 2]) for k in range(2)]
    return low, [binary("maximum", parts[k], parts[k + 2]) for k in range(2)]
