"""What classifiers of ai.onnx.ml have in common: labels, transforms of scores, maps of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from arenite.frontends.onnx.call import Call
from arenite.frontends.onnx.registry import ML, Result, operator
from arenite.frontends.onnx.values import Maps, Value
from arenite.ir import Node, constant, make
from arenite.ir.compose import basic, neural


def labels_of(call: Call, integers: str) -> list[Any]:
    """Strings or integers, of the one attribute that is given."""
    labels: list[Any] = call.attr("classlabels_strings") or call.attr(integers) or []
    return labels


def label(call: Call, labels: list[Any], places: Node) -> Value:
    """The labels at these places."""
    are_texts = bool(labels) and isinstance(labels[0], str)
    known: Any = np.asarray(labels, object if are_texts else np.int64)
    table = call.translator.source.strings.keep(known) if are_texts else known
    return Value.of(make("gather", constant(table), places, axis=0), is_string=are_texts)


def transformed(call: Call, scores: Node, kind: str) -> Node:
    """Scores after a post_transform."""
    if kind == "SOFTMAX":
        return neural.softmax(scores, 1)
    if kind == "LOGISTIC":
        return neural.sigmoid(scores)
    if kind != "NONE":
        call.refuse(f"post_transform {kind}")
    return scores


def opposite_joined(call: Call, score: Node, is_probability: bool, kind: str) -> Node:
    """The scores of two classes, where there is one of the second; SOFTMAX is nothing there."""
    kind = "NONE" if kind == "SOFTMAX" else kind
    first = 1.0 - score if is_probability and kind == "NONE" else -score
    return transformed(call, basic.concat([first, score], 1), kind)


@operator("ZipMap", domain=ML)
def zip_map(call: Call) -> Result:
    scores, labels = call.value(0), labels_of(call, "classlabels_int64s")
    if scores.ndim == 1:
        scores = Value.of(basic.expand_dims(scores.node, 0))
    if scores.ndim != 2 or scores.shape[1] != len(labels):
        call.fail(f"{len(labels)} labels for scores of shape {scores.shape}")
    return Maps(scores, tuple(labels))
