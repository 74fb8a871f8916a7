"""NonMaxSuppression."""

from __future__ import annotations

from arenite.frontends.onnx.call import Call
from arenite.frontends.onnx.registry import Result, operator
from arenite.ir import full
from arenite.ir.compose.basic import INT64, cast, reshape
from arenite.ir.compose.suppression import suppressed


@operator("NonMaxSuppression", since=10)
def non_max_suppression(call: Call) -> Result:
    boxes, scores = call.node(0), call.node(1)
    if boxes.ndim != 3 or scores.ndim != 3 or boxes.shape[2] != 4:
        call.fail(f"boxes of shape {boxes.shape} and scores of shape {scores.shape}")
    if boxes.shape[:2] != (scores.shape[0], scores.shape[2]):
        call.fail(f"boxes of shape {boxes.shape} for scores of shape {scores.shape}")
    count = call.sizes(2)[0] if call.has(2) else 0
    if isinstance(count, int) and count < 1:
        return full((0, 3), 0, INT64)
    overlap = call.optional(3)
    least = call.optional(4)
    return suppressed(
        boxes,
        scores,
        count,
        full((), 0.0, boxes.dtype) if overlap is None else reshape(cast(overlap, boxes.dtype), ()),
        None if least is None else reshape(cast(least, scores.dtype), ()),
        centred=bool(call.attr("center_point_box", 0)),
    )
