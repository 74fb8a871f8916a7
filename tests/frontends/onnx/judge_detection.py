"""Writes detection/*.onnx, exported by PyTorch: what torchvision's detectors do behind networks.

    python -m tests.frontends.onnx.judge_detection

torchvision itself is not needed: the functions are written anew, and suppression is exported to the
operator that torchvision's exporter writes. Needs PyTorch; the tests need the files alone.
"""

# mypy: ignore-errors

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import Tensor
from torch.onnx import register_custom_op_symbolic
from torch.onnx import symbolic_helper as symbolic

FOLDER = Path(__file__).parent / "detection"

library = torch.library.Library("detection", "DEF")
library.define("nms(Tensor boxes, Tensor scores, float overlap) -> Tensor")


def suppressed(boxes, scores, overlap):
    """Greedy, the best first."""
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    is_left = torch.ones(len(boxes), dtype=torch.bool)
    kept = []
    for k in torch.argsort(scores, descending=True, stable=True).tolist():
        if is_left[k]:
            kept.append(k)
            low = torch.maximum(boxes[k, :2], boxes[:, :2])
            high = torch.minimum(boxes[k, 2:], boxes[:, 2:])
            inner = (high - low).clamp(min=0).prod(1)
            is_left &= ~(inner / (area[k] + area - inner) > overlap)
    return torch.tensor(kept, dtype=torch.int64)


library.impl("nms", suppressed, "CPU")


@symbolic.parse_args("v", "v", "f")
def nms_symbolic(g, boxes, scores, overlap):
    boxes = symbolic._unsqueeze_helper(g, boxes, [0])
    scores = symbolic._unsqueeze_helper(g, symbolic._unsqueeze_helper(g, scores, [0]), [0])
    most = g.op("Constant", value_t=torch.tensor([sys.maxsize], dtype=torch.long))
    share = g.op("Constant", value_t=torch.tensor([overlap], dtype=torch.float))
    made = g.op("NonMaxSuppression", boxes, scores, most, share)
    third = g.op("Constant", value_t=torch.tensor([2]))
    return symbolic._squeeze_helper(g, g.op("Gather", made, third, axis_i=1), [1])


register_custom_op_symbolic("detection::nms", nms_symbolic, 16)


@torch.jit.script
def by_class(boxes: Tensor, scores: Tensor, labels: Tensor, overlap: float) -> Tensor:
    """Classes lie apart, so that they do not overlap; of nothing nothing is kept."""
    if boxes.numel() == 0:
        return torch.empty((0,), dtype=torch.int64, device=boxes.device)
    farthest = boxes.max()
    offsets = labels.to(boxes) * (farthest + torch.tensor(1).to(boxes))
    return torch.ops.detection.nms(boxes + offsets[:, None], scores, overlap)


@torch.jit.script
def large(boxes: Tensor, least: float) -> Tensor:
    widths, heights = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    return torch.where((widths >= least) & (heights >= least))[0]


def at_most(count, scores):
    return torch.min(torch.cat((torch.tensor([count]), torch._shape_as_tensor(scores)[0:1]), 0))


class SingleShot(torch.nn.Module):
    """Behind SSD: candidates class by class, the best of each, suppressed."""

    def forward(self, boxes, logits):
        probabilities = torch.softmax(logits, -1)
        found = []
        for label in range(1, 4):
            scores = probabilities[:, label]
            is_kept = scores > 0.1
            scores, own = scores[is_kept], boxes[is_kept]
            scores, places = scores.topk(at_most(20, scores))
            labels = torch.full_like(scores, label, dtype=torch.int64)
            found.append((own[places], scores, labels))
        boxes, scores, labels = (torch.cat(parts) for parts in zip(*found, strict=True))
        kept = by_class(boxes, scores, labels, 0.45)[:10]
        return boxes[kept], scores[kept], labels[kept]


class TwoStages(torch.nn.Module):
    """Faster R-CNN: proposals are filtered and suppressed, read from the level they belong to,
    classified and suppressed again."""

    def __init__(self):
        super().__init__()
        self.classes = torch.nn.Linear(32, 5)
        self.shifts = torch.nn.Linear(32, 20)

    def forward(self, coarse, fine, proposals, objectness):
        scores = objectness.sigmoid()
        scores, places = scores.topk(at_most(30, scores))
        boxes = proposals[places]
        sides = (boxes[:, 0::2].clamp(0, 32), boxes[:, 1::2].clamp(0, 32))
        boxes = torch.stack(sides, 2).reshape(boxes.shape)
        kept = large(boxes, 1.0)
        boxes, scores = boxes[kept], scores[kept]
        kept = torch.where(scores >= 0.2)[0]
        boxes, scores = boxes[kept], scores[kept]
        kept = by_class(boxes, scores, torch.zeros_like(scores, dtype=torch.int64), 0.7)[:12]
        boxes = boxes[kept]
        side = ((boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])).sqrt()
        level = torch.where(side > 10.0, 1, 0)
        rows = torch.zeros((boxes.shape[0], 32))
        for k, features in enumerate((coarse, fine)):
            at = torch.where(level == k)[0]
            size = features.shape[-1]
            place = (boxes[at][:, :2] * size / 32.0).long().clamp(0, size - 1)
            pooled = features[0][:, place[:, 1], place[:, 0]].t()
            pooled = torch.cat([pooled, pooled * 2, pooled * 3, pooled - 1], 1)
            rows = rows.scatter(0, at.reshape(-1, 1).expand(-1, 32), pooled)
        scores = self.classes(rows).softmax(-1)
        boxes = boxes[:, None] + self.shifts(rows).reshape(-1, 5, 4)
        labels = torch.arange(5).view(1, -1).expand_as(scores)
        boxes, scores = boxes[:, 1:].reshape(-1, 4), scores[:, 1:].reshape(-1)
        labels = labels[:, 1:].reshape(-1)
        kept = torch.where(scores > 0.15)[0]
        boxes, scores, labels = boxes[kept], scores[kept], labels[kept]
        kept = large(boxes, 1e-2)
        boxes, scores, labels = boxes[kept], scores[kept], labels[kept]
        kept = by_class(boxes, scores, labels, 0.5)[:10]
        return boxes[kept], scores[kept], labels[kept]


@torch.jit.script
def pasted(masks: Tensor, boxes: Tensor, height: int, width: int) -> Tensor:
    """Behind Mask R-CNN: each mask, resized to its box, in an image of its own."""
    images = torch.zeros(0, height, width)
    zero, one = torch.zeros(1, dtype=torch.int64), torch.ones(1, dtype=torch.int64)
    for k in range(masks.size(0)):
        box = boxes[k].to(dtype=torch.int64)
        columns = torch.max(torch.cat((box[2:3] - box[0:1] + one, one)))
        rows = torch.max(torch.cat((box[3:4] - box[1:2] + one, one)))
        mask = torch.nn.functional.interpolate(
            masks[k].expand((1, 1, -1, -1)),
            size=(int(rows.item()), int(columns.item())),
            mode="bilinear",
            align_corners=False,
        )[0][0]
        left = torch.max(torch.cat((box[0:1], zero)))
        right = torch.min(torch.cat((box[2:3] + one, torch.tensor([width]))))
        top = torch.max(torch.cat((box[1:2], zero)))
        bottom = torch.min(torch.cat((box[3:4] + one, torch.tensor([height]))))
        seen = mask[(top - box[1]) : (bottom - box[1]), (left - box[0]) : (right - box[0])]
        above = torch.zeros(int(top.item()), seen.size(1))
        below = torch.zeros(height - int(bottom.item()), seen.size(1))
        column = torch.cat((above, seen, below), 0)[0:height, :]
        before = torch.zeros(column.size(0), int(left.item()))
        behind = torch.zeros(column.size(0), width - int(right.item()))
        image = torch.cat((before, column, behind), 1)[:, :width]
        images = torch.cat((images, image.unsqueeze(0)))
    return images


class Pasted(torch.nn.Module):
    def forward(self, masks, boxes):
        return pasted(masks, boxes, 24, 20)


def some_boxes(n, size):
    low = torch.rand(n, 2) * size * 0.8
    return torch.cat((low, low + torch.rand(n, 2) * size * 0.5), 1)


def export(module, arguments, name, inputs, outputs, open_inputs):
    torch.onnx.export(
        module,
        arguments,
        FOLDER / f"{name}.onnx",
        dynamo=False,
        opset_version=16,
        input_names=inputs,
        output_names=outputs,
        dynamic_axes={one: {0: "n"} for one in open_inputs},
    )


def main():
    torch.manual_seed(0)
    FOLDER.mkdir(exist_ok=True)
    results = ["b", "s", "l"]
    given = (some_boxes(50, 32), torch.randn(50, 4))
    export(SingleShot(), given, "ssd", ["boxes", "logits"], results, ["boxes", "logits"])
    features = (torch.randn(1, 8, 16, 16), torch.randn(1, 8, 8, 8))
    given = (*features, some_boxes(60, 32), torch.randn(60))
    export(TwoStages(), given, "rcnn", ["f0", "f1", "prop", "obj"], results, ["prop", "obj"])
    given = (torch.rand(3, 1, 8, 8), some_boxes(3, 20))
    export(Pasted(), given, "paste", ["m", "b"], ["o"], ["m", "b"])


if __name__ == "__main__":
    main()
