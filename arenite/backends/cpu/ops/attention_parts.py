"""Attention over chunks of keys, each by itself, for threads that share few queries.

attention_parts(as attention; chunk)                              [..., H, T, S / chunk, E + 2]
"""

from __future__ import annotations

import numpy as np

from arenite.dtype import FLOAT32, Array, DType
from arenite.ir import Node, ceildiv
from arenite.ir.element import rounded
from arenite.ir.ops.attention import (
    ATTRS,
    attention_work,
    infer_attention,
    masked_scores,
    viewed_operand,
    weights_of,
)
from arenite.ir.ops.define import Attrs, Inferred, Sizes, at_least, define


def _infer_parts(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    (*front, width), dtype = infer_attention(inputs, attrs)
    chunks = ceildiv(inputs[1].shape[-2], attrs["chunk"])
    return (*front, chunks, width + 2), FLOAT32 if dtype.bits < 32 else dtype


def _parts_reference(arrays: list[Array], attrs: Attrs, shape: Sizes, dtype: DType) -> Array:
    """For each chunk of keys by itself: the sums of weights times values, the highest score as a
    power of two, the sum of weights. Attentions over chunks join without their scores."""
    scores, v = masked_scores(arrays, attrs)
    parts = np.zeros(shape)
    for number in range(shape[-2]):
        keys = slice(number * attrs["chunk"], (number + 1) * attrs["chunk"])
        weights, highest, total = weights_of(scores[..., keys])
        found = (weights @ v[..., keys, :], highest / np.log(2), total)
        parts[..., number, :] = np.concatenate(found, axis=-1)
    return rounded(parts, dtype)


def _operand(node: Node, value: Node) -> str | None:
    """Keys and values are read in runs."""
    return viewed_operand(node, value, in_runs=value in node.inputs[1:3])


define(
    "attention_parts",
    "contraction",
    (3, 6),
    _infer_parts,
    _parts_reference,
    {**ATTRS, "chunk": at_least(1)},
    work=attention_work,
    operand=_operand,
    rereads=True,
    reads_views=True,
    backend="cpu",
)
