"""Compound ops kept whole, because fast kernels are made for them.

    matmul(a[..., M, K], b[..., K, N]; transpose_a, transpose_b)

Batch axes of matmul broadcast. Floats keep their dtype and accumulate in float32 at least (the
reference: in float64); of a narrower and a wider one the result is as the wider. 8-bit integers,
signed or not, give int32; other integers wrap.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from arenite.dtype import DType, Kind
from arenite.errors import ShapeMismatch, TypeMismatch
from arenite.ir.dim import Dim
from arenite.ir.element import exact, rounded
from arenite.ir.node import Node, Shape
from arenite.ir.ops.access import Index, Reduction, Source, summed
from arenite.ir.ops.define import (
    INT32,
    NUMBER,
    Array,
    Attrs,
    Inferred,
    Sizes,
    broadcast,
    define,
    need_kind,
)

_BYTE_SIZED = ("int8", "uint8")


def product_dtype(op: str, a: Node, b: Node) -> DType:
    """The dtype of sums of products of elements of a and b."""
    need_kind(op, a, NUMBER)
    need_kind(op, b, NUMBER)
    if a.dtype.name in _BYTE_SIZED and b.dtype.name in _BYTE_SIZED:
        return INT32
    if a.dtype != b.dtype:
        raise TypeMismatch(f"{op}: dtypes differ: {a.type_text} and {b.type_text}")
    return a.dtype


def wider_product_dtype(op: str, a: Node, b: Node) -> DType:
    """The same, where one may be a narrower float than the other."""
    if a.dtype.kind is b.dtype.kind is Kind.FLOAT and a.dtype.bits != b.dtype.bits:
        return max((a.dtype, b.dtype), key=lambda one: one.bits)
    return product_dtype(op, a, b)


def accumulated(array: Array, dtype: DType) -> Array:
    """Operands of a contraction whose result is `dtype`."""
    return array.astype(np.int32) if dtype == INT32 else exact(array, dtype)


def _matrix(shape: Shape, transpose: bool) -> Shape:
    return (*shape[:-2], shape[-1], shape[-2]) if transpose else shape


def _infer_matmul(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    a, b = inputs
    dtype = wider_product_dtype("matmul", a, b)
    if a.ndim < 2 or b.ndim < 2:
        raise ShapeMismatch(f"matmul takes matrices, not shapes {a.shape} and {b.shape}")
    left, right = _matrix(a.shape, attrs["transpose_a"]), _matrix(b.shape, attrs["transpose_b"])
    if left[-1] != right[-2]:
        raise ShapeMismatch(
            f"matmul: {left} by {right}: the {left[-1]} columns of the first are not the "
            f"{right[-2]} rows of the second"
        )
    return (*broadcast("matmul", left[:-2], right[:-2]), left[-2], right[-1]), dtype


def _matmul_reference(arrays: list[Array], attrs: Attrs, shape: Sizes, dtype: DType) -> Array:
    a, b = (accumulated(array, dtype) for array in arrays)
    if attrs["transpose_a"]:
        a = a.swapaxes(-1, -2)
    if attrs["transpose_b"]:
        b = b.swapaxes(-1, -2)
    return rounded(np.matmul(a, b), dtype)


def _matmul_reduction(node: Node) -> Reduction:
    a, b = node.inputs
    transpose_a, transpose_b = node.attr("transpose_a"), node.attr("transpose_b")

    def factors(index: Index) -> tuple[Source, ...]:
        *batch, row, column, k = index
        left = (k, row) if transpose_a else (row, k)
        right = (column, k) if transpose_b else (k, column)
        return (
            Source(a, (*_batch(batch, a.shape[:-2]), *left)),
            Source(b, (*_batch(batch, b.shape[:-2]), *right)),
        )

    return summed(node, a.shape[-2:-1] if transpose_a else a.shape[-1:], factors)


def _batch(index: Sequence[Dim], shape: Shape) -> Index:
    """Batch axes of an operand: aligned at the end, sizes of 1 stretch."""
    aligned = index[len(index) - len(shape) :]
    return tuple(0 if size == 1 else at for at, size in zip(aligned, shape, strict=True))


define(
    "matmul",
    "contraction",
    (2, 2),
    _infer_matmul,
    _matmul_reference,
    {"transpose_a": bool, "transpose_b": bool},
    reduction=_matmul_reduction,
)
