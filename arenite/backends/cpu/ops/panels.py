"""Products of floats with packed weights, as register tiles read them.

    matmul_panels(a[..., M, K], panels[P, K, 16]; columns)

A panel holds 16 columns side by side, for one k after the other; the last one is filled up with
zeros, which nothing reads but the kernel. Dtypes are those of matmul.
"""

from __future__ import annotations

import numpy as np

from arenite.backends.cpu.ops.channels_last import PANEL, packed_operand
from arenite.dtype import Array, DType, Kind
from arenite.errors import ShapeMismatch, TypeMismatch
from arenite.ir.element import rounded
from arenite.ir.node import Node, Shape
from arenite.ir.ops.access import Index, Reduction, Source, is_readable_in_place, is_view, summed
from arenite.ir.ops.contraction import accumulated, wider_product_dtype
from arenite.ir.ops.define import Attrs, Inferred, Sizes, define


def product_shape(op: str, a: Node, panels: Node, columns: int, word: int = 0) -> Shape:
    """The shape of a product by panels, whose columns are words of K where these are given."""
    shapes = f"{op}: a of shape {a.shape}, panels of shape {panels.shape}"
    depth = a.shape[-1] if a.ndim > 1 else 0
    if not isinstance(depth, int) or depth < 1 or columns < 1:
        raise ShapeMismatch(
            f"{shapes}: a is [..., M, K] with K a fixed number, and {columns} columns are some"
        )
    wanted = (-(-columns // PANEL), -(-depth // max(word, 1)), PANEL, *([word] if word else ()))
    if panels.shape != wanted:
        raise ShapeMismatch(f"{shapes}: {columns} columns need panels of shape {wanted}")
    return (*a.shape[:-1], columns)


def _infer(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    a, panels = inputs
    dtype = wider_product_dtype("matmul_panels", a, panels)
    if dtype.kind is not Kind.FLOAT:
        raise TypeMismatch(f"matmul_panels multiplies floats, not {a.dtype} and {panels.dtype}")
    return product_shape("matmul_panels", a, panels, attrs["columns"]), dtype


def _reference(arrays: list[Array], attrs: Attrs, shape: Sizes, dtype: DType) -> Array:
    a, panels = (accumulated(array, dtype) for array in arrays)
    w = panels.transpose(1, 0, 2).reshape(a.shape[-1], -1)[:, : attrs["columns"]]
    return rounded(np.matmul(a, w), dtype)


def _reduction(node: Node) -> Reduction:
    a, panels = node.inputs
    lanes = panels.shape[-1]

    def factors(index: Index) -> tuple[Source, ...]:
        *rows, column, k = index
        panel = column // lanes
        return Source(a, (*rows, k)), Source(panels, (panel, k, column - panel * lanes))

    return summed(node, a.shape[-1:], factors)


def _operand(node: Node, value: Node) -> str | None:
    """Rows lie side by side."""
    reason = packed_operand(node, value)
    if reason is None and is_view(value) and not is_readable_in_place(value, in_runs=True):
        return f"{node.op} reads rows from memory"
    return reason


define(
    "matmul_panels",
    "contraction",
    (2, 2),
    _infer,
    _reference,
    {"columns": int},
    reduction=_reduction,
    operand=_operand,
    is_packed=True,
    backend="cpu",
)
