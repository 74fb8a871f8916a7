"""Indexing by data, and sorting.

    gather(data, indices; axis)                 data[..., indices, ...]: numpy.take
    gather_elements(data, indices; axis)        numpy.take_along_axis
    scatter_elements(data, indices, updates; axis, reduction)
                                                a copy of data with updates put in, or combined
    update_slice(data, rows, start; axis)       a copy of data with rows from `start` on replaced;
                                                or each where its own start says, no two of them
                                                alike; a row outside of data is an error of the run
    sort, argsort (axis, descending)            stable; NaN is greater than every number
    select(x; count, descending)                where the first `count` of the last axis stand, in
                                                order, as argsort has them; of types whose order
                                                is that of 32 bits, with one to spare

Indices are int64 within 0..size-1; another one is an error of the run. Updates are applied in
row-major order, so the last one stays and sums of floats have one order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from arenite.dtype import INT64, Array, DType, Kind
from arenite.errors import IndexOutOfRange, ShapeMismatch, TypeMismatch
from arenite.ir.dim import bounds, known_le
from arenite.ir.element import comparable, rounded, widened
from arenite.ir.node import Node
from arenite.ir.ops.define import (
    NUMBER,
    REAL,
    Attrs,
    Inferred,
    Sizes,
    define,
    differ_elsewhere,
    is_dim,
    need_axis,
    need_dtype,
    need_index_dtype,
    need_kind,
    one_of,
)


def check_range(op: str, indices: Array, size: int, axis: int) -> None:
    wrong = indices[(indices < 0) | (indices >= size)]
    if wrong.size:
        raise IndexOutOfRange(
            f"{op}: index {wrong.flat[0]} is not within 0..{size - 1} of axis {axis}"
        )


def _infer_gather(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    data, indices = inputs
    need_index_dtype("gather", "indices", indices)
    need_axis("gather", attrs["axis"], data)
    axis: int = attrs["axis"]
    return data.shape[:axis] + indices.shape + data.shape[axis + 1 :], data.dtype


def _gather_reference(arrays: list[Array], attrs: Attrs, shape: Sizes, dtype: DType) -> Array:
    data, indices = arrays
    check_range("gather", indices, data.shape[attrs["axis"]], attrs["axis"])
    return np.take(data, indices, axis=attrs["axis"])


define("gather", "indexing", (2, 2), _infer_gather, _gather_reference, {"axis": int}, chooses=True)


def _need_aligned(op: str, data: Node, indices: Node, axis: int) -> None:
    need_dtype(op, "indices", indices, INT64)
    need_axis(op, axis, data)
    if differ_elsewhere(data, indices, axis):
        raise ShapeMismatch(
            f"{op}: indices of shape {indices.shape} differ from {data.type_text} "
            f"elsewhere than on axis {axis}"
        )


def _infer_gather_elements(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    data, indices = inputs
    _need_aligned("gather_elements", data, indices, attrs["axis"])
    return indices.shape, data.dtype


def _gather_elements_reference(
    arrays: list[Array], attrs: Attrs, shape: Sizes, dtype: DType
) -> Array:
    data, indices = arrays
    check_range("gather_elements", indices, data.shape[attrs["axis"]], attrs["axis"])
    return np.take_along_axis(data, indices, axis=attrs["axis"])


define(
    "gather_elements",
    "indexing",
    (2, 2),
    _infer_gather_elements,
    _gather_elements_reference,
    {"axis": int},
    chooses=True,
)


def _infer_scatter(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    data, indices, updates = inputs
    _need_aligned("scatter_elements", data, indices, attrs["axis"])
    need_dtype("scatter_elements", "updates", updates, data.dtype)
    if updates.shape != indices.shape:
        raise ShapeMismatch(
            f"scatter_elements: updates of shape {updates.shape} for indices of {indices.shape}"
        )
    if attrs["reduction"] in ("add", "mul"):
        need_kind(f"scatter_elements with {attrs['reduction']}", data, NUMBER)
    if attrs["reduction"] in ("min", "max"):
        need_kind(f"scatter_elements with {attrs['reduction']}", data, (Kind.BOOL, *REAL))
    return data.shape, data.dtype


_COMBINE: dict[str, np.ufunc] = {
    "add": np.add,
    "mul": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}


def _scatter_reference(arrays: list[Array], attrs: Attrs, shape: Sizes, dtype: DType) -> Array:
    data, indices, updates = arrays
    axis: int = attrs["axis"]
    check_range("scatter_elements", indices, data.shape[axis], axis)
    places: list[Any] = list(np.indices(indices.shape, sparse=True))
    places[axis] = indices
    if attrs["reduction"] == "none":
        result = data.copy()
        result[tuple(places)] = updates
        return result
    wide = np.array(widened(data, dtype))
    _COMBINE[attrs["reduction"]].at(wide, tuple(places), widened(updates, dtype))
    return rounded(wide, dtype)


define(
    "scatter_elements",
    "indexing",
    (3, 3),
    _infer_scatter,
    _scatter_reference,
    {"axis": int, "reduction": one_of("none", "add", "mul", "min", "max")},
)


def _infer_update_slice(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    data, rows, start = inputs
    axis: int = attrs["axis"]
    need_axis("update_slice", axis, data)
    need_dtype("update_slice", "rows", rows, data.dtype)
    need_index_dtype("update_slice", "the start", start)
    if differ_elsewhere(data, rows, axis):
        raise ShapeMismatch(
            f"update_slice: rows of shape {rows.shape} differ from {data.type_text} "
            f"elsewhere than on axis {axis}"
        )
    if start.shape not in ((), rows.shape[axis : axis + 1]):
        raise ShapeMismatch(
            f"update_slice: the start is one number, or one for each of {rows.shape[axis]} rows, "
            f"not of shape {start.shape}"
        )
    if bounds(rows.shape[axis])[0] > bounds(data.shape[axis])[1]:
        raise ShapeMismatch(
            f"update_slice: {rows.shape[axis]} rows do not fit on axis {axis} of {data.type_text}"
        )
    return data.shape, data.dtype


def _update_slice_reference(arrays: list[Array], attrs: Attrs, shape: Sizes, dtype: DType) -> Array:
    data, rows, start = arrays
    axis: int = attrs["axis"]
    if not rows.size:
        return data.copy()
    if start.ndim:
        check_range("update_slice", start, data.shape[axis], axis)
        result = data.copy()
        result[(slice(None),) * axis + (start,)] = rows
        return result
    first, last = int(start), int(start) + rows.shape[axis]
    if not 0 <= first <= last <= data.shape[axis]:
        raise IndexOutOfRange(
            f"update_slice: rows {first}..{last} are not within 0..{data.shape[axis]} of axis "
            f"{axis}"
        )
    result = data.copy()
    result[(slice(None),) * axis + (slice(first, last),)] = rows
    return result


define(
    "update_slice",
    "indexing",
    (3, 3),
    _infer_update_slice,
    _update_slice_reference,
    {"axis": int},
    overwrites=True,
    chooses=True,
)


def sorted_places(array: Array, axis: int, descending: bool) -> Array:
    """The stable order of the elements along an axis."""
    keys = comparable(array)
    if not descending:
        return np.argsort(keys, axis=axis, kind="stable")
    # Sorted backwards from the far end, equal elements keep their order when read from the front.
    backwards = np.argsort(np.flip(keys, axis), axis=axis, kind="stable")
    return np.flip(keys.shape[axis] - 1 - backwards, axis)


def _infer_sort(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    (x,) = inputs
    if x.dtype.kind is Kind.COMPLEX or x.dtype.is_block:
        raise TypeMismatch(f"sort needs an order, which {x.dtype} has not")
    need_axis("sort", attrs["axis"], x)
    return x.shape, x.dtype


def _sort_reference(arrays: list[Array], attrs: Attrs, shape: Sizes, dtype: DType) -> Array:
    places = sorted_places(arrays[0], attrs["axis"], attrs["descending"])
    return np.take_along_axis(arrays[0], places, axis=attrs["axis"])


def can_select(dtype: DType) -> bool:
    """Whether `select` takes numbers of a type."""
    return dtype.bits <= (32 if dtype.kind is Kind.FLOAT else 16) and dtype.kind in REAL


def _infer_select(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    (x,) = inputs
    if not can_select(x.dtype) or x.dtype.is_block:
        raise TypeMismatch(f"select takes floats of 32 and integers of 16 bits, not {x.dtype}")
    need_axis("select", x.ndim - 1, x)
    if not known_le(attrs["count"], x.shape[-1]):
        raise ShapeMismatch(f"select: {attrs['count']} of {x.shape[-1]} elements")
    return (*x.shape[:-1], attrs["count"]), INT64


def _select_reference(arrays: list[Array], attrs: Attrs, shape: Sizes, dtype: DType) -> Array:
    places = sorted_places(arrays[0], -1, attrs["descending"])
    return places[..., : attrs["count"]].astype(np.int64)


_SORT_ATTRS = {"axis": int, "descending": bool}

define(
    "select",
    "sort",
    (1, 1),
    _infer_select,
    _select_reference,
    {"count": is_dim, "descending": bool},
    cost=256,
)
define("sort", "sort", (1, 1), _infer_sort, _sort_reference, _SORT_ATTRS, cost=256, chooses=True)
define(
    "argsort",
    "sort",
    (1, 1),
    lambda inputs, attrs: (_infer_sort(inputs, attrs)[0], INT64),
    lambda arrays, attrs, shape, dtype: sorted_places(
        arrays[0], attrs["axis"], attrs["descending"]
    ).astype(np.int64),
    _SORT_ATTRS,
    cost=256,
    chooses=True,
)
