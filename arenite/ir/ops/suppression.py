"""Boxes of which those that overlap a better one are left out.

    suppress(corners[I, 4, N], scores[I, C, N], is_open[I, C, N], overlap[]; count)

of I images, C classes and N boxes: int64[I, C, count], the boxes that each class keeps, the best
first, then -1. Corners are the least coordinates along both axes, then the greatest. Boxes come by
their scores, equal ones by their places, and NaN is -inf; one is kept if it is open and its area
shared with each that was kept before is at most `overlap` of what the two cover together.
"""

from __future__ import annotations

import numpy as np

from arenite.dtype import BOOL, FLOAT32, INT64, Array, DType
from arenite.errors import ShapeMismatch
from arenite.ir.node import Node
from arenite.ir.ops.define import Attrs, Inferred, Sizes, define, is_dim, need_dtype


def _infer(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    corners, scores, is_open, overlap = inputs
    for name, value in (("corners", corners), ("scores", scores), ("overlap", overlap)):
        need_dtype("suppress", name, value, FLOAT32)
    need_dtype("suppress", "is_open", is_open, BOOL)
    if (
        scores.ndim != 3
        or corners.shape != (scores.shape[0], 4, scores.shape[2])
        or is_open.shape != scores.shape
        or overlap.shape != ()
    ):
        raise ShapeMismatch(
            f"suppress: corners of shape {corners.shape}, scores of {scores.shape}, is_open of "
            f"{is_open.shape} and overlap of {overlap.shape} are not [I, 4, N], [I, C, N], "
            "[I, C, N] and []"
        )
    return (*scores.shape[:2], attrs["count"]), INT64


def _reference(arrays: list[Array], attrs: Attrs, shape: Sizes, dtype: DType) -> Array:
    corners, scores, is_open, overlap = arrays
    made = np.full(shape, -1, np.int64)
    known = np.where(np.isnan(scores), np.float32(-np.inf), scores)
    for image, kind in np.ndindex(*shape[:2]):
        boxes = corners[image]
        areas = (boxes[2] - boxes[0]) * (boxes[3] - boxes[1])
        order = np.argsort(-known[image, kind], kind="stable")
        kept: list[int] = []
        for at in order[is_open[image, kind][order]]:
            if len(kept) == shape[2]:
                break
            spans = [
                np.maximum(
                    np.minimum(boxes[2 + side, at], boxes[2 + side, kept])
                    - np.maximum(boxes[side, at], boxes[side, kept]),
                    np.float32(0),
                )
                for side in range(2)
            ]
            inner = spans[0] * spans[1]
            union = areas[at] + areas[kept] - inner
            # Boxes without an area overlap nothing.
            is_real = (areas[at] > 0) & (areas[kept] > 0) & (union > 0)
            share = inner / np.where(is_real, union, np.float32(1))
            if not (is_real & (share > overlap)).any():
                kept.append(int(at))
        made[image, kind, : len(kept)] = kept
    return made


define("suppress", "indexing", (4, 4), _infer, _reference, {"count": is_dim}, cost=256)
