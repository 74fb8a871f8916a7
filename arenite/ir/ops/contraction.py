"""Compound ops kept whole, because fast kernels are made for them.

    matmul(a[..., M, K], b[..., K, N]; transpose_a, transpose_b)
    attention(q[..., H, T, D], k[..., G, S, D], v[..., G, S, E], mask?; scale, causal, offset)
    attention_parts(as attention; chunk)        [..., H, T, S / chunk, E + 2]

Batch axes of matmul broadcast. Floats keep their dtype and accumulate in float32 at least (the
reference: in float64); 8-bit integers, signed or not, give int32; other integers wrap.
"""

from __future__ import annotations

import numpy as np

from arenite.dtype import BY_NAME, DType
from arenite.errors import ShapeMismatch, TypeMismatch
from arenite.ir.dim import ceildiv
from arenite.ir.node import Node, Shape, typed
from arenite.ir.ops.define import (
    BOOL,
    FLOAT,
    INT32,
    NUMBER,
    Array,
    Attrs,
    Inferred,
    OpDef,
    broadcast,
    define,
    is_bool,
    is_dim,
    is_int,
    is_number,
    need_kind,
)
from arenite.ir.ops.element import exact, rounded

_BYTE_SIZED = ("int8", "uint8")


def product_dtype(op: str, a: Node, b: Node) -> DType:
    """The dtype of sums of products of elements of a and b."""
    need_kind(op, a, NUMBER)
    need_kind(op, b, NUMBER)
    if a.dtype.name in _BYTE_SIZED and b.dtype.name in _BYTE_SIZED:
        return INT32
    if a.dtype != b.dtype:
        raise TypeMismatch(
            f"{op}: dtypes differ: {typed(a.shape, a.dtype)} and {typed(b.shape, b.dtype)}"
        )
    return a.dtype


def accumulated(array: Array, dtype: DType) -> Array:
    """Operands of a contraction whose result is `dtype`."""
    return array.astype(np.int32) if dtype == INT32 else exact(array, dtype)


def _matrix(shape: Shape, transpose: bool) -> Shape:
    return (*shape[:-2], shape[-1], shape[-2]) if transpose else shape


def _infer_matmul(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    a, b = inputs
    dtype = product_dtype("matmul", a, b)
    if a.ndim < 2 or b.ndim < 2:
        raise ShapeMismatch(f"matmul takes matrices, not shapes {a.shape} and {b.shape}")
    left, right = _matrix(a.shape, attrs["transpose_a"]), _matrix(b.shape, attrs["transpose_b"])
    if left[-1] != right[-2]:
        raise ShapeMismatch(
            f"matmul: {left} by {right}: the {left[-1]} columns of the first are not the "
            f"{right[-2]} rows of the second"
        )
    return (*broadcast("matmul", left[:-2], right[:-2]), left[-2], right[-1]), dtype


def _matmul_reference(
    arrays: list[Array], attrs: Attrs, shape: tuple[int, ...], dtype: DType
) -> Array:
    a, b = (accumulated(array, dtype) for array in arrays)
    if attrs["transpose_a"]:
        a = a.swapaxes(-1, -2)
    if attrs["transpose_b"]:
        b = b.swapaxes(-1, -2)
    return rounded(np.matmul(a, b), dtype)


define(
    OpDef(
        "matmul",
        "contraction",
        (2, 2),
        _infer_matmul,
        _matmul_reference,
        {"transpose_a": is_bool, "transpose_b": is_bool},
    )
)


def _infer_attention(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    q, k, v = inputs[:3]
    for node in (q, k, v):
        need_kind("attention", node, FLOAT)
        if node.dtype != q.dtype:
            raise TypeMismatch(f"attention: dtypes {q.dtype} and {node.dtype} differ")
    shapes = f"q {q.shape}, k {k.shape}, v {v.shape}"
    if not (q.ndim == k.ndim == v.ndim >= 3):
        raise ShapeMismatch(f"attention takes [..., heads, length, width], not {shapes}")
    *batch, heads, length, width = q.shape
    *batch_k, groups, keys, width_k = k.shape
    if batch != batch_k or k.shape[:-1] != v.shape[:-1] or width != width_k or heads % groups != 0:
        raise ShapeMismatch(
            f"attention: {shapes}: batch and width must be equal, k and v as long as each other, "
            "and the heads of q a multiple of theirs"
        )
    if len(inputs) == 4:
        mask = inputs[3]
        if mask.dtype not in (BOOL, q.dtype):
            raise TypeMismatch(f"attention: the mask is bool or {q.dtype}, not {mask.dtype}")
        scores = (*batch, heads, length, keys)
        if mask.ndim != q.ndim or any(
            a not in (1, b) for a, b in zip(mask.shape, scores, strict=True)
        ):
            raise ShapeMismatch(
                f"attention: a mask of shape {mask.shape} does not stretch to scores {scores}"
            )
    return (*batch, heads, length, v.shape[-1]), q.dtype


def _scores(arrays: list[Array], attrs: Attrs) -> tuple[Array, Array]:
    """The scores after the mask, and the values of each head."""
    q, k, v = (array.astype(np.float64) for array in arrays[:3])
    groups = max(k.shape[-3], 1)
    k, v = (np.repeat(x, q.shape[-3] // groups, axis=-3) for x in (k, v))
    scores = q @ k.swapaxes(-1, -2) * attrs["scale"]
    if attrs["causal"]:
        queries, keys = scores.shape[-2:]
        seen = np.arange(keys) <= np.arange(queries)[:, None] + attrs["offset"]
        scores = np.where(seen, scores, -np.inf)
    if len(arrays) == 4:
        mask = arrays[3]
        if mask.dtype == np.bool_:
            scores = np.where(mask, scores, -np.inf)
        else:
            scores = scores + mask.astype(np.float64)
    return scores, v


def _weights(scores: Array) -> tuple[Array, Array, Array]:
    """exp of the scores beside the highest of each query, that, and their sum."""
    highest = np.max(scores, axis=-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isneginf(highest), 0, highest))
    return weights, highest, weights.sum(axis=-1, keepdims=True)


def _attention_reference(
    arrays: list[Array], attrs: Attrs, shape: tuple[int, ...], dtype: DType
) -> Array:
    """Query i of `causal` attention sees keys up to i + offset; True in a bool mask is seen. Who
    sees nothing gets zeros."""
    scores, v = _scores(arrays, attrs)
    weights, _, total = _weights(scores)
    return rounded(weights @ v / np.where(total == 0, 1, total), dtype)


define(
    OpDef(
        "attention",
        "contraction",
        (3, 4),
        _infer_attention,
        _attention_reference,
        {"scale": is_number, "causal": is_bool, "offset": is_dim},
    )
)


def _is_positive(value: object) -> bool:
    return is_int(value) and bool(value > 0)  # type: ignore[operator]


def _infer_parts(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    (*front, width), dtype = _infer_attention(inputs, attrs)
    chunks = ceildiv(inputs[1].shape[-2], attrs["chunk"])
    return (*front, chunks, width + 2), BY_NAME["float32"] if dtype.bits < 32 else dtype


def _parts_reference(
    arrays: list[Array], attrs: Attrs, shape: tuple[int, ...], dtype: DType
) -> Array:
    """For each chunk of keys by itself: the sums of weights times values, the highest score as a
    power of two, the sum of weights. Attentions over chunks join without their scores."""
    scores, v = _scores(arrays, attrs)
    parts = np.zeros(shape)
    for number in range(shape[-2]):
        keys = slice(number * attrs["chunk"], (number + 1) * attrs["chunk"])
        weights, highest, total = _weights(scores[..., keys])
        found = (weights @ v[..., keys, :], highest / np.log(2), total)
        parts[..., number, :] = np.concatenate(found, axis=-1)
    return rounded(parts, dtype)


define(
    OpDef(
        "attention_parts",
        "contraction",
        (3, 4),
        _infer_parts,
        _parts_reference,
        {
            "scale": is_number,
            "causal": is_bool,
            "offset": is_dim,
            "chunk": _is_positive,
        },
    )
)
