"""Block-quantised weights as kernels multiply with them: packed, by activations in runs.

quantise_blocks(x[..., K])                   int32[..., K / 32 * 12]: for each run its numbers,
                                             four in a word, the scale, scale * sum of numbers,
                                             both FLOAT32, minus the sum of the numbers, and
                                             minus that of the first 16
pack_blocks(w[N, K])                         UINT8[panels, bytes]: as `block_forms` says; of
                                             several matrices, w[E, N, K], each by itself
pack_joined(fields; dtype)                   pack_blocks of what join_blocks makes of them, without
                                             it: blocks as in a file are never made
matmul_packed(quantised, panels; dtype, columns)
                                             matmul_blocks of these
rows_of_panels(panels, indices; dtype, columns, depth)
                                             rows_of_blocks where a product has packed them: the
                                             blocks themselves need not be kept
matmul_packed_experts(runs, panels, order, chosen; dtype, columns, choices)
                                             matmul_experts: chosen[M * R] in one row, and their
                                             places ordered by what they choose; rows that choose
                                             the same are multiplied together. Each row of runs
                                             has so many `choices`; FLOAT32[M * R, N]
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from arenite.backends.cpu.ops.block_forms import BLOCK, PANEL, form_of, packed_panels, panel_weights
from arenite.dtype import FLOAT32, INT32, INT64, UINT8, Array, DType
from arenite.errors import ShapeMismatch
from arenite.ir import Node, product
from arenite.ir.ops.access import Index, Reduction, Source, summed
from arenite.ir.ops.blocks import join_blocks, joined, need_weights, quantised_runs
from arenite.ir.ops.define import Attrs, Inferred, Sizes, define, need_dtype, need_index_dtype
from arenite.ir.ops.experts import chosen_products
from arenite.ir.ops.indexing import check_range

#: Words of a quantised run, and where in it they are: eight of numbers, then these.
RUN_WORDS = 12
SCALE_WORD, SCALED_SUM_WORD, SUM_WORD, HALF_SUM_WORD = range(8, RUN_WORDS)


def quantised(x: Array) -> NDArray[np.int32]:
    """float32[..., K] as runs: int32[..., K / 32 * 12]."""
    numbers, scale = quantised_runs(x)
    sums = numbers.sum(axis=-1, dtype=np.int32)
    with np.errstate(all="ignore"):
        scaled_sum = scale * sums.astype(np.float32)
    words = np.empty((*scale.shape, RUN_WORDS), np.int32)
    words[..., :SCALE_WORD] = numbers.view("<i4")
    words[..., SCALE_WORD] = scale.view(np.int32)
    words[..., SCALED_SUM_WORD] = scaled_sum.view(np.int32)
    words[..., SUM_WORD] = -sums
    words[..., HALF_SUM_WORD] = -numbers[..., : BLOCK // 2].sum(axis=-1, dtype=np.int32)
    return words.reshape(*x.shape[:-1], scale.shape[-1] * RUN_WORDS)


def numbers_meant(words: Array) -> NDArray[np.float64]:
    """What runs stand for."""
    n_runs = words.shape[-1] // RUN_WORDS
    runs = words.reshape(*words.shape[:-1], n_runs, RUN_WORDS)
    scale = np.ascontiguousarray(runs[..., SCALE_WORD]).view(np.float32).astype(np.float64)
    numbers = np.ascontiguousarray(runs[..., :SCALE_WORD]).view(np.int8).astype(np.float64)
    return (scale[..., None] * numbers).reshape(*words.shape[:-1], n_runs * BLOCK)


def _infer_quantise(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    [x] = inputs
    need_dtype("quantise_blocks", "x", x, FLOAT32)
    if x.ndim < 1 or not isinstance(x.shape[-1], int) or x.shape[-1] % BLOCK != 0:
        raise ShapeMismatch(
            f"quantise_blocks takes rows of whole runs of {BLOCK}, not {x.type_text}"
        )
    return (*x.shape[:-1], x.shape[-1] // BLOCK * RUN_WORDS), INT32


define(
    "quantise_blocks",
    "contraction",
    (1, 1),
    _infer_quantise,
    lambda arrays, attrs, shape, dtype: quantised(arrays[0]),
    backend="cpu",
)


def _infer_pack(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    [w] = inputs
    need_weights("pack_blocks", w, attrs, may_be_many=True)
    *experts, columns, depth = w.shape
    assert isinstance(columns, int)
    assert isinstance(depth, int)
    return (*experts, -(-columns // PANEL), form_of(w.dtype).panel_nbytes(depth)), UINT8


def _pack_reference(arrays: list[Array], attrs: Attrs, shape: Sizes, dtype: DType) -> Array:
    [raw] = arrays
    matrices = raw.reshape(-1, *raw.shape[-2:])
    return np.stack([packed_panels(one, attrs["dtype"]) for one in matrices]).reshape(shape)


define(
    "pack_blocks",
    "contraction",
    (1, 1),
    _infer_pack,
    _pack_reference,
    {"dtype": DType},
    backend="cpu",
)


def _infer_pack_joined(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    return _infer_pack((join_blocks(attrs["dtype"], *inputs),), attrs)


def _pack_joined_reference(arrays: list[Array], attrs: Attrs, shape: Sizes, dtype: DType) -> Array:
    return packed_panels(joined(arrays, attrs["dtype"]), attrs["dtype"])


define(
    "pack_joined",
    "contraction",
    (1, 8),
    _infer_pack_joined,
    _pack_joined_reference,
    {"dtype": DType},
    backend="cpu",
)


def _infer_packed(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    x, panels = inputs
    need_dtype("matmul_packed", "x", x, INT32)
    need_dtype("matmul_packed", "panels", panels, UINT8)
    columns, depth = attrs["columns"], depth_of(x)
    wanted = (-(-columns // PANEL), form_of(attrs["dtype"]).panel_nbytes(depth))
    if x.ndim < 2 or columns < 1 or depth < 1 or panels.shape != wanted:
        raise ShapeMismatch(
            f"matmul_packed: {x.type_text} by panels {panels.shape}: {columns} columns "
            f"of {attrs['dtype']} have panels {wanted}"
        )
    return (*x.shape[:-1], columns), FLOAT32


def depth_of(quantised: Node) -> int:
    """Elements of a row of runs."""
    words = quantised.shape[-1] if quantised.ndim else 0
    if not isinstance(words, int) or words % RUN_WORDS != 0:
        raise ShapeMismatch(f"rows of {words} words are not whole runs of {RUN_WORDS}")
    return words // RUN_WORDS * BLOCK


def _packed_reference(arrays: list[Array], attrs: Attrs, shape: Sizes, dtype: DType) -> Array:
    words, panels = arrays
    x = numbers_meant(words)
    weights = panel_weights(panels, attrs["dtype"], shape[-1], x.shape[-1])
    return (x @ weights.T.astype(np.float64)).astype(np.float32)


def _packed_reduction(node: Node) -> Reduction:
    """As that of matmul; of its factors only the run and the panel are known."""
    runs, panels = node.inputs

    def factors(index: Index) -> tuple[Source, ...]:
        *rows, column, k = index
        return Source(runs, (*rows, k // BLOCK * RUN_WORDS)), Source(panels, (column // PANEL, 0))

    return summed(node, (depth_of(runs),), factors)


define(
    "matmul_packed",
    "contraction",
    (2, 2),
    _infer_packed,
    _packed_reference,
    {"dtype": DType, "columns": int},
    reduction=_packed_reduction,
    operand=lambda node, value: "matmul_packed reads it from memory",
    multiplies_bytes=True,
    backend="cpu",
)


def _infer_rows_of_panels(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    panels, indices = inputs
    need_dtype("rows_of_panels", "panels", panels, UINT8)
    need_index_dtype("rows_of_panels", "indices", indices)
    columns, depth, form = attrs["columns"], attrs["depth"], form_of(attrs["dtype"])
    wanted = (-(-columns // PANEL), form.panel_nbytes(depth))
    is_whole = depth > 0 and depth % (BLOCK * form.blocks) == 0
    if columns < 1 or not is_whole or panels.shape != wanted:
        raise ShapeMismatch(
            f"rows_of_panels: {columns} rows of {depth} {attrs['dtype']} are not panels "
            f"{panels.shape}"
        )
    return (*indices.shape, depth), FLOAT32


def _rows_of_panels_reference(
    arrays: list[Array], attrs: Attrs, shape: Sizes, dtype: DType
) -> Array:
    panels, indices = arrays
    check_range("rows_of_panels", indices, attrs["columns"], 0)
    return panel_weights(panels, attrs["dtype"], attrs["columns"], attrs["depth"])[indices]


define(
    "rows_of_panels",
    "indexing",
    (2, 2),
    _infer_rows_of_panels,
    _rows_of_panels_reference,
    {"dtype": DType, "columns": int, "depth": int},
    backend="cpu",
)


def _infer_packed_experts(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    runs, panels, order, chosen = inputs
    for name, node, dtype in (
        ("runs", runs, INT32),
        ("panels", panels, UINT8),
        ("order", order, INT64),
        ("chosen", chosen, INT64),
    ):
        need_dtype("matmul_packed_experts", name, node, dtype)
    columns, depth = attrs["columns"], depth_of(runs)
    wanted = (-(-columns // PANEL), form_of(attrs["dtype"]).panel_nbytes(depth))
    if panels.ndim != 3 or panels.shape[1:] != wanted or order.shape != chosen.shape:
        raise ShapeMismatch(
            f"matmul_packed_experts: {runs.type_text} by panels {panels.shape}, "
            f"order {order.shape}, chosen {chosen.shape}: {columns} columns of {attrs['dtype']} "
            f"have panels {wanted}"
        )
    if chosen.shape != (product(runs.shape[:-1]) * attrs["choices"],) or attrs["choices"] < 1:
        raise ShapeMismatch(
            f"matmul_packed_experts: {chosen.shape} choices for rows {runs.shape[:-1]} of "
            f"{attrs['choices']} each"
        )
    return (*chosen.shape, columns), FLOAT32


def _packed_experts_reference(
    arrays: list[Array], attrs: Attrs, shape: Sizes, dtype: DType
) -> Array:
    words, panels, order, chosen = arrays
    x = numbers_meant(words)
    depth = x.shape[-1]
    flat = x.reshape(-1, depth)
    rows = np.repeat(flat, attrs["choices"], axis=0)
    weights = np.stack([panel_weights(one, attrs["dtype"], shape[-1], depth) for one in panels])
    assert sorted(order) == list(range(len(chosen)))
    return chosen_products(rows, weights, chosen).astype(np.float32)


define(
    "matmul_packed_experts",
    "indexing",
    (4, 4),
    _infer_packed_experts,
    _packed_experts_reference,
    {"dtype": DType, "columns": int, "choices": int},
    work=lambda node: (node.shape, 2 * depth_of(node.inputs[0])),
    multiplies_bytes=True,
    backend="cpu",
)
