"""Products by chosen matrices, as mixtures of experts need them.

    matmul_experts(x, w[E, N, K], chosen[M, R])       FLOAT32[M, R, N]: row m times the transposed
                                                      matrices that its R numbers choose

x is FLOAT32[M, K], or [M, R, K] with a row for each choice. Weights are floats, or of a block type:
then x is quantised as `ops.blocks` says.
"""

from __future__ import annotations

import numpy as np

from arenite.dtype import FLOAT32, INT64, Array, DType, Kind
from arenite.dtype.blocks import dequantised
from arenite.errors import ShapeMismatch, TypeMismatch
from arenite.ir.dim import bounds
from arenite.ir.node import Node
from arenite.ir.ops.blocks import as_quantised, need_whole_blocks
from arenite.ir.ops.define import Attrs, Inferred, Sizes, define, make, need_dtype
from arenite.ir.ops.indexing import check_range


def matmul_experts(x: Node, w: Node, chosen: Node) -> Node:
    return make("matmul_experts", x, w, chosen, dtype=w.dtype)


def _infer_experts(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    x, w, chosen = inputs
    need_dtype("matmul_experts", "x", x, FLOAT32)
    need_dtype("matmul_experts", "chosen", chosen, INT64)
    shapes = f"x {x.shape}, w {w.shape}, chosen {chosen.shape}"
    if w.dtype != attrs["dtype"] or not (w.dtype.is_block or w.dtype.kind is Kind.FLOAT):
        raise TypeMismatch(f"matmul_experts of {attrs['dtype']}: not {w.type_text}")
    if w.ndim != 3 or not all(isinstance(size, int) and size > 0 for size in w.shape):
        raise ShapeMismatch(
            f"matmul_experts takes weights [experts, columns, depth] of known sizes: {shapes}"
        )
    if w.dtype.is_block:
        need_whole_blocks("matmul_experts", w)
    if chosen.ndim != 2 or not isinstance(chosen.shape[1], int) or chosen.shape[1] < 1:
        raise ShapeMismatch(f"matmul_experts takes chosen [rows, a known number]: {shapes}")
    if x.shape[-1:] != w.shape[-1:] or x.shape[:-1] not in (chosen.shape[:1], chosen.shape):
        raise ShapeMismatch(
            f"matmul_experts: {shapes}: x is [rows, depth] or [rows, choices, depth]"
        )
    return (*chosen.shape, w.shape[1]), FLOAT32


def chosen_products(x: Array, weights: Array, chosen: Array) -> Array:
    """Rows of x, one for each choice, by what they choose, in float64."""
    check_range("matmul_experts", chosen, len(weights), 0)
    made = np.empty((*chosen.shape, weights.shape[1]))
    for expert in np.unique(chosen):
        at = chosen == expert
        made[at] = x[at].astype(np.float64) @ weights[expert].astype(np.float64).T
    return made


def _experts_reference(arrays: list[Array], attrs: Attrs, shape: Sizes, dtype: DType) -> Array:
    x, w, chosen = arrays
    depth = x.shape[-1]
    if attrs["dtype"].is_block:
        x = as_quantised(x)
    weights = dequantised(w, attrs["dtype"], (len(w), shape[-1], depth))
    rows = x if x.ndim == 3 else np.broadcast_to(x[:, None], (*chosen.shape, depth))
    return chosen_products(rows, weights, chosen).astype(np.float32)


define(
    "matmul_experts",
    "indexing",
    (3, 3),
    _infer_experts,
    _experts_reference,
    {"dtype": DType},
    work=lambda node: (node.shape, 2 * bounds(node.inputs[0].shape[-1])[1]),
)
