"""Products by chosen matrices, as mixtures of experts need them.

    matmul_experts(x, w[E, N, K], chosen[M, R])       float32[M, R, N]: row m times the transposed
                                                      matrices that its R numbers choose
    matmul_packed_experts(runs, panels, order, chosen; dtype, columns, choices)

x is float32[M, K], or [M, R, K] with a row for each choice. Weights are floats, or of a block type:
then x is quantised as `ops.blocks` says, and a pass writes the product as the second op. It takes
the choices in one row, chosen[M * R], and their places ordered by what they choose; rows that
choose the same are multiplied together. Each row of runs has so many `choices`. Its result is
float32[M * R, N].
"""

from __future__ import annotations

import numpy as np

from arenite.dtype import DType, Kind, float32, uint8
from arenite.dtype.blocks import dequantised
from arenite.errors import ShapeMismatch, TypeMismatch
from arenite.ir.dim import product
from arenite.ir.node import Node, typed
from arenite.ir.ops.block_forms import PANEL, form_of, panel_weights
from arenite.ir.ops.blocks import depth_of, need_whole_blocks, numbers_meant, quantised
from arenite.ir.ops.define import (
    INT32,
    INT64,
    Array,
    Attrs,
    Inferred,
    OpDef,
    define,
    is_dtype,
    is_int,
    make,
    need_dtype,
)
from arenite.ir.ops.indexing import _check_range


def matmul_experts(x: Node, w: Node, chosen: Node) -> Node:
    return make("matmul_experts", x, w, chosen, dtype=w.dtype)


def _infer_experts(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    x, w, chosen = inputs
    need_dtype("matmul_experts", "x", x, float32)
    need_dtype("matmul_experts", "chosen", chosen, INT64)
    shapes = f"x {x.shape}, w {w.shape}, chosen {chosen.shape}"
    if w.dtype != attrs["dtype"] or not (w.dtype.is_block or w.dtype.kind is Kind.FLOAT):
        raise TypeMismatch(f"matmul_experts of {attrs['dtype']}: not {typed(w.shape, w.dtype)}")
    if w.ndim != 3 or not all(isinstance(size, int) and size > 0 for size in w.shape):
        raise ShapeMismatch(
            f"matmul_experts takes weights [experts, columns, depth] of known sizes: {shapes}"
        )
    if w.dtype.is_block:
        form_of(w.dtype)
        need_whole_blocks("matmul_experts", w)
    if chosen.ndim != 2 or not isinstance(chosen.shape[1], int) or chosen.shape[1] < 1:
        raise ShapeMismatch(f"matmul_experts takes chosen [rows, a known number]: {shapes}")
    if x.shape[-1:] != w.shape[-1:] or x.shape[:-1] not in (chosen.shape[:1], chosen.shape):
        raise ShapeMismatch(
            f"matmul_experts: {shapes}: x is [rows, depth] or [rows, choices, depth]"
        )
    return (*chosen.shape, w.shape[1]), float32


def _multiplied(x: Array, weights: Array, chosen: Array) -> Array:
    """Rows of x, one for each choice, by what they choose, in float64."""
    _check_range("matmul_experts", chosen, len(weights), 0)
    made = np.empty((*chosen.shape, weights.shape[1]))
    for expert in np.unique(chosen):
        at = chosen == expert
        made[at] = x[at].astype(np.float64) @ weights[expert].astype(np.float64).T
    return made


def _experts_reference(
    arrays: list[Array], attrs: Attrs, shape: tuple[int, ...], dtype: DType
) -> Array:
    x, w, chosen = arrays
    depth = x.shape[-1]
    if attrs["dtype"].is_block:
        x = numbers_meant(quantised(x))
    weights = dequantised(w, attrs["dtype"], (len(w), shape[-1], depth))
    rows = x if x.ndim == 3 else np.broadcast_to(x[:, None], (*chosen.shape, depth))
    return _multiplied(rows, weights, chosen).astype(np.float32)


define(
    OpDef(
        "matmul_experts",
        "indexing",
        (3, 3),
        _infer_experts,
        _experts_reference,
        {"dtype": is_dtype},
    )
)


def _infer_packed(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    runs, panels, order, chosen = inputs
    for name, node, dtype in (
        ("runs", runs, INT32),
        ("panels", panels, uint8),
        ("order", order, INT64),
        ("chosen", chosen, INT64),
    ):
        need_dtype("matmul_packed_experts", name, node, dtype)
    columns, depth = attrs["columns"], depth_of(runs)
    wanted = (-(-columns // PANEL), form_of(attrs["dtype"]).panel_nbytes(depth))
    if panels.ndim != 3 or panels.shape[1:] != wanted or order.shape != chosen.shape:
        raise ShapeMismatch(
            f"matmul_packed_experts: {typed(runs.shape, runs.dtype)} by panels {panels.shape}, "
            f"order {order.shape}, chosen {chosen.shape}: {columns} columns of {attrs['dtype']} "
            f"have panels {wanted}"
        )
    if chosen.shape != (product(runs.shape[:-1]) * attrs["choices"],) or attrs["choices"] < 1:
        raise ShapeMismatch(
            f"matmul_packed_experts: {chosen.shape} choices for rows {runs.shape[:-1]} of "
            f"{attrs['choices']} each"
        )
    return (*chosen.shape, columns), float32


def _packed_reference(
    arrays: list[Array], attrs: Attrs, shape: tuple[int, ...], dtype: DType
) -> Array:
    words, panels, order, chosen = arrays
    x = numbers_meant(words)
    depth = x.shape[-1]
    flat = x.reshape(-1, depth)
    rows = np.repeat(flat, attrs["choices"], axis=0)
    weights = np.stack([panel_weights(one, attrs["dtype"], shape[-1], depth) for one in panels])
    assert sorted(order) == list(range(len(chosen)))
    return _multiplied(rows, weights, chosen).astype(np.float32)


define(
    OpDef(
        "matmul_packed_experts",
        "indexing",
        (4, 4),
        _infer_packed,
        _packed_reference,
        {"dtype": is_dtype, "columns": is_int, "choices": is_int},
    )
)
