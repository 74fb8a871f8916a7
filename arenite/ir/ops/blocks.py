"""Block-quantised weights: what is computed with them, and how kernels do it.

    dequantise(w[N, K])                          the numbers, float32
    rows_of_blocks(w[N, K], indices)             rows of them: an embedding
    matmul_blocks(x[..., M, K], w[N, K])         x times the transposed numbers, float32

A product takes x quantised: each run of 32 elements along K has one scale,

    scale = max|x| / 127 (0 if that is under the least normal number)
    number = x * (1 / scale), to the nearest integer, halves to even; 0 where the scale is 0, and in
             a run that is not finite, whose results are not finite either

and sums in float32 whole numbers times scales. A pass writes it as three ops:

    quantise_blocks(x[..., K])                   int32[..., K / 32 * 12]: for each run its numbers,
                                                 four in a word, the scale, scale * sum of numbers,
                                                 both float32, minus the sum of the numbers, and
                                                 minus that of the first 16
    pack_blocks(w[N, K])                         uint8[panels, bytes]: as `block_forms` says; of
                                                 several matrices, w[E, N, K], each by itself
    matmul_packed(quantised, panels; dtype, columns)

    rows_of_panels(panels, indices; dtype, columns, depth)
                                                 rows_of_blocks where a product has packed them: the
                                                 blocks themselves need not be kept

Values of a block type are held by the reference as rows of bytes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from arenite.dtype import DType, float32, uint8
from arenite.dtype.blocks import dequantised
from arenite.errors import ShapeMismatch, TypeMismatch
from arenite.ir.node import Node, typed
from arenite.ir.ops.block_forms import (
    BLOCK,
    PANEL,
    form_of,
    packed_panels,
    panel_weights,
)
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

#: Words of a quantised run, and where in it they are: eight of numbers, then these.
RUN_WORDS = 12
SCALE_WORD, SCALED_SUM_WORD, SUM_WORD, HALF_SUM_WORD = range(8, RUN_WORDS)
LEAST_NORMAL = 2.0**-126


def dequantise(w: Node) -> Node:
    return make("dequantise", w, dtype=w.dtype)


def rows_of_blocks(w: Node, indices: Node) -> Node:
    return make("rows_of_blocks", w, indices, dtype=w.dtype)


def matmul_blocks(x: Node, w: Node) -> Node:
    return make("matmul_blocks", x, w, dtype=w.dtype)


def _need_weights(op: str, w: Node, attrs: Attrs, *, may_be_many: bool = False) -> None:
    if not w.dtype.is_block:
        raise TypeMismatch(f"{op}: {w.dtype} is no block-quantised type")
    if w.dtype != attrs["dtype"]:
        raise TypeMismatch(f"{op} of {attrs['dtype']} does not take {typed(w.shape, w.dtype)}")
    is_known = all(isinstance(size, int) and size > 0 for size in w.shape)
    if not is_known or (w.ndim != 2 and not (w.ndim == 3 and may_be_many)):
        sizes = "two or three" if may_be_many else "two"
        raise ShapeMismatch(
            f"{op} takes weights of {sizes} known sizes, not {typed(w.shape, w.dtype)}"
        )
    need_whole_blocks(op, w)


def need_whole_blocks(op: str, w: Node) -> None:
    if w.shape[-1] % w.dtype.block_length != 0:
        raise ShapeMismatch(
            f"{op}: rows of {w.shape[-1]} elements are not whole {w.dtype} blocks of "
            f"{w.dtype.block_length}"
        )


def _infer_dequantise(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    [w] = inputs
    _need_weights("dequantise", w, attrs)
    return w.shape, float32


def _dequantise_reference(
    arrays: list[Array], attrs: Attrs, shape: tuple[int, ...], dtype: DType
) -> Array:
    return dequantised(arrays[0], attrs["dtype"], shape)


define(
    OpDef(
        "dequantise",
        "contraction",
        (1, 1),
        _infer_dequantise,
        _dequantise_reference,
        {"dtype": is_dtype},
    )
)


def _infer_rows(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    w, indices = inputs
    _need_weights("rows_of_blocks", w, attrs)
    need_dtype("rows_of_blocks", "indices", indices, INT64)
    return (*indices.shape, w.shape[1]), float32


def _rows_reference(
    arrays: list[Array], attrs: Attrs, shape: tuple[int, ...], dtype: DType
) -> Array:
    raw, indices = arrays
    _check_range("rows_of_blocks", indices, len(raw), 0)
    return dequantised(raw[indices], attrs["dtype"], shape)


define(
    OpDef(
        "rows_of_blocks",
        "indexing",
        (2, 2),
        _infer_rows,
        _rows_reference,
        {"dtype": is_dtype},
    )
)


def _infer_matmul(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    x, w = inputs
    _need_weights("matmul_blocks", w, attrs)
    form_of(w.dtype)
    need_dtype("matmul_blocks", "x", x, float32)
    if x.ndim < 2 or x.shape[-1] != w.shape[1]:
        raise ShapeMismatch(
            f"matmul_blocks: {typed(x.shape, x.dtype)} by {typed(w.shape, w.dtype)}: the last axes "
            "are not equal"
        )
    return (*x.shape[:-1], w.shape[0]), float32


def quantised(x: Array) -> NDArray[np.int32]:
    """float32[..., K] as runs: int32[..., K / 32 * 12]."""
    n_runs = x.shape[-1] // BLOCK
    runs = x.reshape(*x.shape[:-1], n_runs, BLOCK)
    with np.errstate(all="ignore"):
        scale = np.abs(runs).max(axis=-1, initial=0) / np.float32(127)
        scale = np.where(scale < np.float32(LEAST_NORMAL), np.float32(0), scale)
        inverse = np.where(scale == 0, np.float32(0), np.float32(1) / scale)
        whole = np.rint(runs * inverse[..., None])
        numbers = np.where(np.isnan(whole), np.float32(0), whole).astype(np.int8)
        sums = numbers.sum(axis=-1, dtype=np.int32)
        scaled_sum = scale * sums.astype(np.float32)
    words = np.empty((*runs.shape[:-1], RUN_WORDS), np.int32)
    words[..., :SCALE_WORD] = numbers.view("<i4")
    words[..., SCALE_WORD] = scale.view(np.int32)
    words[..., SCALED_SUM_WORD] = scaled_sum.view(np.int32)
    words[..., SUM_WORD] = -sums
    words[..., HALF_SUM_WORD] = -numbers[..., : BLOCK // 2].sum(axis=-1, dtype=np.int32)
    return words.reshape(*x.shape[:-1], n_runs * RUN_WORDS)


def numbers_meant(words: Array) -> NDArray[np.float64]:
    """What runs stand for."""
    n_runs = words.shape[-1] // RUN_WORDS
    runs = words.reshape(*words.shape[:-1], n_runs, RUN_WORDS)
    scale = np.ascontiguousarray(runs[..., SCALE_WORD]).view(np.float32).astype(np.float64)
    numbers = np.ascontiguousarray(runs[..., :SCALE_WORD]).view(np.int8).astype(np.float64)
    return (scale[..., None] * numbers).reshape(*words.shape[:-1], n_runs * BLOCK)


def _matmul_reference(
    arrays: list[Array], attrs: Attrs, shape: tuple[int, ...], dtype: DType
) -> Array:
    x, raw = arrays
    weights = dequantised(raw, attrs["dtype"], (shape[-1], x.shape[-1])).astype(np.float64)
    return (numbers_meant(quantised(x)) @ weights.T).astype(np.float32)


define(
    OpDef(
        "matmul_blocks",
        "contraction",
        (2, 2),
        _infer_matmul,
        _matmul_reference,
        {"dtype": is_dtype},
    )
)


def _infer_quantise(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    [x] = inputs
    need_dtype("quantise_blocks", "x", x, float32)
    if x.ndim < 1 or not isinstance(x.shape[-1], int) or x.shape[-1] % BLOCK != 0:
        raise ShapeMismatch(
            f"quantise_blocks takes rows of whole runs of {BLOCK}, not {typed(x.shape, x.dtype)}"
        )
    return (*x.shape[:-1], x.shape[-1] // BLOCK * RUN_WORDS), INT32


define(
    OpDef(
        "quantise_blocks",
        "contraction",
        (1, 1),
        _infer_quantise,
        lambda arrays, attrs, shape, dtype: quantised(arrays[0]),
    )
)


def _infer_pack(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    [w] = inputs
    _need_weights("pack_blocks", w, attrs, may_be_many=True)
    *experts, columns, depth = w.shape
    assert isinstance(columns, int)
    assert isinstance(depth, int)
    return (*experts, -(-columns // PANEL), form_of(w.dtype).panel_nbytes(depth)), uint8


def _pack_reference(
    arrays: list[Array], attrs: Attrs, shape: tuple[int, ...], dtype: DType
) -> Array:
    [raw] = arrays
    matrices = raw.reshape(-1, *raw.shape[-2:])
    return np.stack([packed_panels(one, attrs["dtype"]) for one in matrices]).reshape(shape)


define(
    OpDef(
        "pack_blocks",
        "contraction",
        (1, 1),
        _infer_pack,
        _pack_reference,
        {"dtype": is_dtype},
    )
)


def _infer_packed(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    x, panels = inputs
    need_dtype("matmul_packed", "x", x, INT32)
    need_dtype("matmul_packed", "panels", panels, uint8)
    columns, depth = attrs["columns"], depth_of(x)
    wanted = (-(-columns // PANEL), form_of(attrs["dtype"]).panel_nbytes(depth))
    if x.ndim < 2 or columns < 1 or depth < 1 or panels.shape != wanted:
        raise ShapeMismatch(
            f"matmul_packed: {typed(x.shape, x.dtype)} by panels {panels.shape}: {columns} columns "
            f"of {attrs['dtype']} have panels {wanted}"
        )
    return (*x.shape[:-1], columns), float32


def depth_of(quantised: Node) -> int:
    """Elements of a row of runs."""
    words = quantised.shape[-1] if quantised.ndim else 0
    if not isinstance(words, int) or words % RUN_WORDS != 0:
        raise ShapeMismatch(f"rows of {words} words are not whole runs of {RUN_WORDS}")
    return words // RUN_WORDS * BLOCK


def _packed_reference(
    arrays: list[Array], attrs: Attrs, shape: tuple[int, ...], dtype: DType
) -> Array:
    words, panels = arrays
    x = numbers_meant(words)
    weights = panel_weights(panels, attrs["dtype"], shape[-1], x.shape[-1])
    return (x @ weights.T.astype(np.float64)).astype(np.float32)


define(
    OpDef(
        "matmul_packed",
        "contraction",
        (2, 2),
        _infer_packed,
        _packed_reference,
        {"dtype": is_dtype, "columns": is_int},
    )
)


def _infer_rows_of_panels(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    panels, indices = inputs
    need_dtype("rows_of_panels", "panels", panels, uint8)
    need_dtype("rows_of_panels", "indices", indices, INT64)
    columns, depth, form = attrs["columns"], attrs["depth"], form_of(attrs["dtype"])
    wanted = (-(-columns // PANEL), form.panel_nbytes(depth))
    is_whole = depth > 0 and depth % (BLOCK * form.blocks) == 0
    if columns < 1 or not is_whole or panels.shape != wanted:
        raise ShapeMismatch(
            f"rows_of_panels: {columns} rows of {depth} {attrs['dtype']} are not panels "
            f"{panels.shape}"
        )
    return (*indices.shape, depth), float32


def _rows_of_panels_reference(
    arrays: list[Array], attrs: Attrs, shape: tuple[int, ...], dtype: DType
) -> Array:
    panels, indices = arrays
    _check_range("rows_of_panels", indices, attrs["columns"], 0)
    return panel_weights(panels, attrs["dtype"], attrs["columns"], attrs["depth"])[indices]


define(
    OpDef(
        "rows_of_panels",
        "indexing",
        (2, 2),
        _infer_rows_of_panels,
        _rows_of_panels_reference,
        {"dtype": is_dtype, "columns": is_int, "depth": is_int},
    )
)
