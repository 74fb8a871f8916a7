"""NumPy's functions that are no method of a tensor: made of those that are."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from arenite.dtype import Kind
from arenite.errors import InvalidArgument, ShapeMismatch
from arenite.ir.element import numpy_dtype
from arenite.tensor import creation
from arenite.tensor.base import DTypeLike, axis_of
from arenite.tensor.tensor import Tensor


def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Tensor:
    """The n-th differences of neighbours along an axis; of bools, whether they differ. What is
    given to go before and behind is joined first; one number goes for all."""
    x = creation.asarray(a)
    at = axis_of(axis, x.ndim)
    if prepend is not None or append is not None:
        x = creation.concatenate([*_side(x, at, prepend), x, *_side(x, at, append)], at)
    if n < 0:
        raise InvalidArgument(f"diff: the order is not negative, as {n} is")
    for _ in range(n):
        head: list[Any] = [slice(None)] * x.ndim
        tail = list(head)
        head[at], tail[at] = slice(1, None), slice(None, -1)
        later, earlier = x[tuple(head)], x[tuple(tail)]
        x = later != earlier if x.dtype.kind is Kind.BOOL else later - earlier
    return x


def _side(x: Tensor, axis: int, given: Any) -> list[Tensor]:
    if given is None:
        return []
    side = creation.asarray(given)
    if side.ndim:
        return [side]
    return [side.broadcast_to([1 if k == axis else n for k, n in enumerate(x.shape)])]


def cumulative_sum(
    x: Any, axis: int | None = None, dtype: DTypeLike | None = None, include_initial: bool = False
) -> Tensor:
    """The sums of all elements up to each one along an axis, which a vector needs not name; with
    `include_initial` 0 goes before."""
    return _cumulative("cumsum", x, axis, dtype, 0 if include_initial else None)


def cumulative_prod(
    x: Any, axis: int | None = None, dtype: DTypeLike | None = None, include_initial: bool = False
) -> Tensor:
    """The products of all elements up to each one along an axis, which a vector needs not name;
    with `include_initial` 1 goes before."""
    return _cumulative("cumprod", x, axis, dtype, 1 if include_initial else None)


def _cumulative(
    name: str, x: Any, axis: int | None, dtype: DTypeLike | None, initial: int | None
) -> Tensor:
    t = creation.asarray(x)
    if axis is None and t.ndim != 1:
        raise InvalidArgument(f"an axis is needed for sums along one of {t.ndim} axes")
    at = axis_of(axis or 0, t.ndim)
    running = t.cumsum(at, dtype) if name == "cumsum" else t.cumprod(at, dtype)
    if initial is None:
        return running
    first = creation.full(
        [1 if k == at else n for k, n in enumerate(t.shape)], initial, running.dtype
    )
    return creation.concatenate([first, running], at)


def vecdot(a: Any, b: Any, axis: int = -1) -> Tensor:
    """Sums of products along an axis of both, with the first conjugated; other axes broadcast."""
    x, y = creation.asarray(a), creation.asarray(b)
    at = [axis_of(axis, t.ndim) - t.ndim for t in (x, y)]
    x, y = x.moveaxis(at[0], -1), y.moveaxis(at[1], -1)
    if x.shape[-1] != y.shape[-1]:
        raise ShapeMismatch(f"vecdot: {x.shape[-1]} elements of one, {y.shape[-1]} of the other")
    products = x.conj() * y
    return products.sum(-1, dtype=products.dtype)


def nan_to_num(
    x: Any, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """NaN and infinities as numbers: the largest there are, unless others are given."""
    t = creation.asarray(x)
    if t.dtype.kind is not Kind.FLOAT:
        return t
    largest = float(np.finfo(numpy_dtype(t.dtype)).max)
    high = largest if posinf is None else posinf
    low = -largest if neginf is None else neginf
    t = creation.where(t.isnan(), nan, creation.where(t == math.inf, high, t))
    return creation.where(t == -math.inf, low, t)


def isclose(
    a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Tensor:
    """|a - b| <= atol + rtol |b|; infinities are close to themselves alone."""
    x, y = creation.asarray(a), creation.asarray(b)
    is_near = ((x - y).abs() <= y.abs() * rtol + atol) & y.isfinite()
    is_close = is_near | (x == y)
    return is_close | (x.isnan() & y.isnan()) if equal_nan else is_close


def allclose(
    a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> bool:
    """Whether all elements are close, as `isclose` has it; computes, as one truth value must."""
    return bool(isclose(a, b, rtol, atol, equal_nan).all())


def array_equal(a: Any, b: Any, equal_nan: bool = False) -> bool:
    """Whether both have one shape and equal elements."""
    x, y = creation.asarray(a), creation.asarray(b)
    if x.shape != y.shape:
        return False
    is_equal = x == y
    return bool((is_equal | (x.isnan() & y.isnan()) if equal_nan else is_equal).all())


def inner(a: Any, b: Any) -> Tensor:
    """Sums of products over the last axes."""
    x, y = creation.asarray(a), creation.asarray(b)
    return x * y if not x.ndim or not y.ndim else x.tensordot(y, axes=((-1,), (-1,)))


def vdot(a: Any, b: Any) -> Tensor:
    """The sum of all products, with the first conjugated."""
    return (creation.asarray(a).conj().reshape(-1) * creation.asarray(b).reshape(-1)).sum()


def median(a: Any, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The middle along an axis, or of all; of an even number of elements the mean of two."""
    x = creation.asarray(a)
    shape = [1 if axis is None or k == axis_of(axis, x.ndim) else n for k, n in enumerate(x.shape)]
    x, at = (x.reshape(-1), 0) if axis is None else (x, axis_of(axis, x.ndim))
    x = x if x.dtype.kind is Kind.FLOAT else x.astype("float64")
    size = x.shape[at]
    if not isinstance(size, int) or not size:
        raise InvalidArgument(f"median is of a number of elements that is known, not of {size}")
    ordered = x.sort(at)
    low, high, last = (ordered.take(k, at) for k in ((size - 1) // 2, size // 2, size - 1))
    middle = creation.where(last.isnan(), last, (low + high) / 2)  # NaN is sorted last
    return middle.reshape(*shape) if keepdims else middle
