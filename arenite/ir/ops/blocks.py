"""Block-quantised weights: what is computed with them.

    join_blocks(fields[N, K / length, ...])      weights whose parts are apart in a file, [N, K]
    dequantise(w[N, K])                          the numbers, FLOAT32
    rows_of_blocks(w[N, K], indices)             rows of them: an embedding
    matmul_blocks(x[..., M, K], w[N, K])         x times the transposed numbers, FLOAT32

A product takes x quantised: each run of 32 elements along K has one scale,

    scale = max|x| / 127 (0 if that is under the least normal number)
    number = x * (1 / scale), to the nearest integer, halves to even; 0 where the scale is 0, and in
             a run that is not finite, whose results are not finite either

and sums in FLOAT32 whole numbers times scales.

Values of a block type are held by the reference as rows of bytes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from arenite.dtype import BY_NAME, FLOAT32, Array, DType
from arenite.dtype.blocks import block_type, dequantised
from arenite.errors import ShapeMismatch, TypeMismatch
from arenite.ir.node import Node
from arenite.ir.ops.define import Attrs, Inferred, Sizes, define, make, need_dtype, need_index_dtype
from arenite.ir.ops.indexing import check_range

#: Elements of a product's first operand with one scale.
RUN = 32
LEAST_NORMAL = 2.0**-126


def join_blocks(dtype: DType, *fields: Node) -> Node:
    """Blocks of their fields, in the order of the type: [N, blocks] of each, and the length of the
    field where it has several."""
    return make("join_blocks", *fields, dtype=dtype)


def dequantise(w: Node) -> Node:
    return make("dequantise", w, dtype=w.dtype)


def rows_of_blocks(w: Node, indices: Node) -> Node:
    return make("rows_of_blocks", w, indices, dtype=w.dtype)


def matmul_blocks(x: Node, w: Node) -> Node:
    return make("matmul_blocks", x, w, dtype=w.dtype)


def need_weights(op: str, w: Node, attrs: Attrs, *, may_be_many: bool = False) -> None:
    if not w.dtype.is_block:
        raise TypeMismatch(f"{op}: {w.dtype} is no block-quantised type")
    if w.dtype != attrs["dtype"]:
        raise TypeMismatch(f"{op} of {attrs['dtype']} does not take {w.type_text}")
    is_known = all(isinstance(size, int) and size > 0 for size in w.shape)
    if not is_known or (w.ndim != 2 and not (w.ndim == 3 and may_be_many)):
        sizes = "two or three" if may_be_many else "two"
        raise ShapeMismatch(f"{op} takes weights of {sizes} known sizes, not {w.type_text}")
    need_whole_blocks(op, w)


def need_whole_blocks(op: str, w: Node) -> None:
    if w.shape[-1] % w.dtype.block_length != 0:
        raise ShapeMismatch(
            f"{op}: rows of {w.shape[-1]} elements are not whole {w.dtype} blocks of "
            f"{w.dtype.block_length}"
        )


def _infer_join(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    dtype = attrs["dtype"]
    if not dtype.is_block:
        raise TypeMismatch(f"join_blocks: {dtype} is no block-quantised type")
    fields = block_type(dtype).fields.values()
    if len(inputs) != len(fields) or inputs[0].ndim < 2:
        names = ", ".join(f"{field.name}[N, blocks]" for field in fields)
        raise ShapeMismatch(f"join_blocks of {dtype} takes {names}, not {len(inputs)} values")
    rows, count = inputs[0].shape[:2]
    for field, node in zip(fields, inputs, strict=True):
        need_dtype("join_blocks", field.name, node, BY_NAME[field.dtype])
        wanted = (rows, count, field.length) if field.length > 1 else (rows, count)
        if node.shape != wanted:
            raise ShapeMismatch(
                f"join_blocks of {dtype}: {field.name} has shape {node.shape}, not {wanted}"
            )
    return (rows, count * dtype.block_length), dtype


def joined(arrays: list[Array], dtype: DType) -> Array:
    """Rows of bytes of the fields of blocks."""
    layout = block_type(dtype).layout
    blocks = np.empty(arrays[0].shape[:2], layout)
    for name, array in zip(layout.names or (), arrays, strict=True):
        blocks[name] = array
    return blocks.view(np.uint8).reshape(len(blocks), -1)


def _join_reference(arrays: list[Array], attrs: Attrs, shape: Sizes, dtype: DType) -> Array:
    return joined(arrays, dtype)


define("join_blocks", "contraction", (1, 8), _infer_join, _join_reference, {"dtype": DType})


def _infer_dequantise(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    [w] = inputs
    need_weights("dequantise", w, attrs)
    return w.shape, FLOAT32


def _dequantise_reference(arrays: list[Array], attrs: Attrs, shape: Sizes, dtype: DType) -> Array:
    return dequantised(arrays[0], attrs["dtype"], shape)


define(
    "dequantise",
    "contraction",
    (1, 1),
    _infer_dequantise,
    _dequantise_reference,
    {"dtype": DType},
)


def _infer_rows(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    w, indices = inputs
    need_weights("rows_of_blocks", w, attrs)
    need_index_dtype("rows_of_blocks", "indices", indices)
    return (*indices.shape, w.shape[1]), FLOAT32


def _rows_reference(arrays: list[Array], attrs: Attrs, shape: Sizes, dtype: DType) -> Array:
    raw, indices = arrays
    check_range("rows_of_blocks", indices, len(raw), 0)
    return dequantised(raw[indices], attrs["dtype"], shape)


define("rows_of_blocks", "indexing", (2, 2), _infer_rows, _rows_reference, {"dtype": DType})


def _infer_matmul(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    x, w = inputs
    need_weights("matmul_blocks", w, attrs)
    need_dtype("matmul_blocks", "x", x, FLOAT32)
    if x.ndim < 2 or x.shape[-1] != w.shape[1]:
        raise ShapeMismatch(
            f"matmul_blocks: {x.type_text} by {w.type_text}: the last axes are not equal"
        )
    return (*x.shape[:-1], w.shape[0]), FLOAT32


def quantised_runs(x: Array) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """float32[..., K] as numbers[..., K / 32, 32], and the scale of each run."""
    runs = x.reshape(*x.shape[:-1], x.shape[-1] // RUN, RUN)
    with np.errstate(all="ignore"):
        largest: NDArray[np.float32] = np.abs(runs).max(axis=-1, initial=0)
        scale = largest / np.float32(127)
        scale = np.where(scale < np.float32(LEAST_NORMAL), np.float32(0), scale)
        inverse = np.where(scale == 0, np.float32(0), np.float32(1) / scale)
        whole = np.rint(runs * inverse[..., None])
        return np.where(np.isnan(whole), np.float32(0), whole).astype(np.int8), scale


def as_quantised(x: Array) -> NDArray[np.float64]:
    """What the numbers of the first operand of a product stand for."""
    numbers, scale = quantised_runs(x)
    return (scale[..., None].astype(np.float64) * numbers).reshape(x.shape)


def _matmul_reference(arrays: list[Array], attrs: Attrs, shape: Sizes, dtype: DType) -> Array:
    x, raw = arrays
    weights = dequantised(raw, attrs["dtype"], (shape[-1], x.shape[-1])).astype(np.float64)
    return (as_quantised(x) @ weights.T).astype(np.float32)


define("matmul_blocks", "contraction", (2, 2), _infer_matmul, _matmul_reference, {"dtype": DType})
