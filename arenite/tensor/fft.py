"""Fourier transforms under NumPy's and the array API's names.

Each is a product with matrices of roots of unity, compiled into the program it stands in. Real
numbers become complex ones of their width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from arenite.dtype import FLOAT32, FLOAT64, Kind
from arenite.dtype import of as dtype_of
from arenite.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from arenite.ir import Dim, Node, full
from arenite.ir.compose import basic, fourier
from arenite.ir.compose.basic import cast
from arenite.ir.compose.complex_numbers import is_complex, joined, parts
from arenite.tensor.base import Axis, DTypeLike, axes_of, axis_of, described, need_cpu
from arenite.tensor.creation import arange, asarray, wrap
from arenite.tensor.tensor import Tensor

_NORMS = ("backward", "ortho", "forward")


def fft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The discrete Fourier transform along an axis, of n elements: cut, or with zeros behind.

    `norm` says what is divided by n: "backward" the inverse, "forward" the transform, "ortho" both
    by its root.
    """
    return wrap(_along(_numbers(x, "fft"), n, axis, norm, inverse=False))


def ifft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The inverse of `fft` along an axis."""
    return wrap(_along(_numbers(x, "ifft"), n, axis, norm, inverse=True))


def fftn(
    x: Any,
    /,
    *,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str = "backward",
) -> Tensor:
    """The transform along several axes, or along all; `s` are their lengths."""
    return wrap(_along_axes(_numbers(x, "fftn"), s, axes, norm, inverse=False))


def ifftn(
    x: Any,
    /,
    *,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str = "backward",
) -> Tensor:
    """The inverse of `fftn`."""
    return wrap(_along_axes(_numbers(x, "ifftn"), s, axes, norm, inverse=True))


def rfft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The first n // 2 + 1 of the transform of real numbers, of which the others follow."""
    return wrap(_real(_numbers(x, "rfft"), n, axis, norm))


def irfft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The inverse of `rfft`: n real numbers, 2 * (m - 1) of m unless given."""
    return wrap(_real_inverse(_numbers(x, "irfft"), n, axis, norm))


def rfftn(
    x: Any,
    /,
    *,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str = "backward",
) -> Tensor:
    """`rfft` along the last of several axes, or of all, and `fft` along the others."""
    node = _numbers(x, "rfftn")
    wanted, sizes = _axes_and_sizes(node, s, axes)
    node = _real(node, sizes[-1], wanted[-1], norm)
    for axis, size in zip(wanted[-2::-1], sizes[-2::-1], strict=True):
        node = _along(node, size, axis, norm, inverse=False)
    return wrap(node)


def irfftn(
    x: Any,
    /,
    *,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str = "backward",
) -> Tensor:
    """The inverse of `rfftn`."""
    node = _numbers(x, "irfftn")
    wanted, sizes = _axes_and_sizes(node, s, axes)
    for axis, size in zip(wanted[:-1], sizes[:-1], strict=True):
        node = _along(node, size, axis, norm, inverse=True)
    return wrap(_real_inverse(node, None if s is None else s[-1], wanted[-1], norm))


def hfft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The transform of numbers whose second half mirrors the first: n real numbers."""
    return irfft(asarray(x).conj(), n=n, axis=axis, norm=_opposite(norm))


def ihfft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The inverse of `hfft`."""
    return rfft(x, n=n, axis=axis, norm=_opposite(norm)).conj()


def fftfreq(
    n: int, /, *, d: float = 1.0, dtype: DTypeLike | None = None, device: str | None = None
) -> Tensor:
    """The frequency of each element of a transform of n elements at a distance of d."""
    need_cpu(device)
    _need_length(n)
    places = arange(n)
    counted = (places < (n + 1) // 2).where(places, places - n)
    return (counted.astype("float64") / (n * d)).astype(_float_dtype(dtype))


def rfftfreq(
    n: int, /, *, d: float = 1.0, dtype: DTypeLike | None = None, device: str | None = None
) -> Tensor:
    """The frequency of each element of what `rfft` gives of n elements at a distance of d."""
    need_cpu(device)
    _need_length(n)
    return (arange(n // 2 + 1).astype("float64") / (n * d)).astype(_float_dtype(dtype))


def fftshift(x: Any, /, *, axes: Axis = None) -> Tensor:
    """With the frequency 0 in the middle."""
    return _shifted(asarray(x), axes, forward=True)


def ifftshift(x: Any, /, *, axes: Axis = None) -> Tensor:
    """The inverse of `fftshift`."""
    return _shifted(asarray(x), axes, forward=False)


def _shifted(x: Tensor, axes: Axis, forward: bool) -> Tensor:
    wanted = axes_of(axes, x.ndim)
    sizes = [_length(x.node, None, axis) if x.shape[axis] else 0 for axis in wanted]
    halves = [size // 2 if forward else -(size // 2) for size in sizes]
    return x.roll(halves, wanted) if wanted else x


def _float_dtype(dtype: DTypeLike | None) -> Any:
    wanted = FLOAT64 if dtype is None else dtype_of(dtype)
    if wanted.kind is not Kind.FLOAT:
        raise TypeMismatch(f"frequencies are floats, not {wanted}")
    return wanted


def _need_length(n: int) -> None:
    if n < 1:
        raise InvalidArgument(f"a Fourier transform is of at least one element, not of {n}")


def _numbers(x: Any, what: str) -> Node:
    """In float32 or float64, or complex of these."""
    node = asarray(x).node
    if node.ndim == 0:
        raise ShapeMismatch(f"{what}: an axis is needed, and {described(node)} has none")
    if is_complex(node) or node.dtype.name in ("float32", "float64"):
        return node
    return cast(node, FLOAT32 if node.dtype.kind is Kind.FLOAT else FLOAT64)


def _pair(node: Node) -> fourier.Complex:
    return parts(node) if is_complex(node) else (node, None)


def _opposite(norm: str) -> str:
    _factor(1, norm, inverse=False)
    return {"backward": "forward", "forward": "backward", "ortho": "ortho"}[norm]


def _factor(n: int, norm: str, inverse: bool) -> float:
    """What the plain sum is multiplied by."""
    if norm not in _NORMS:
        raise InvalidArgument(f"norm is one of {', '.join(map(repr, _NORMS))}, not {norm!r}")
    if norm == "ortho":
        return 1 / math.sqrt(n)
    return 1 / n if (norm == "backward") == inverse else 1.0


def _length(node: Node, n: int | None, axis: int) -> int:
    size: Dim = node.shape[axis] if n is None else n
    if not isinstance(size, int):
        raise ShapeMismatch(f"the length of axis {axis} of {described(node)} is not known; give n")
    _need_length(size)
    return size


def _last(node: Node, axis: int, n: int | None) -> Node:
    """With the axis last, and of n elements."""
    moved = basic.swap_axes(node, axis, node.ndim - 1)
    if n is None or n == moved.shape[-1]:
        return moved
    if is_complex(moved):
        return joined(*(fourier.fitted(part, moved.ndim - 1, n) for part in parts(moved)))
    return fourier.fitted(moved, moved.ndim - 1, n)


def _scaled(part: Node, factor: float) -> Node:
    return part if factor == 1 else part * factor


def _along(node: Node, n: int | None, axis: int, norm: str, inverse: bool) -> Node:
    at = axis_of(axis, node.ndim)
    size = _length(node, n, at)
    re, im = fourier.transform(_pair(_last(node, at, n)), inverse)
    factor = _factor(size, norm, inverse)
    result = joined(_scaled(re, factor), _scaled(im, factor))
    return basic.swap_axes(result, at, node.ndim - 1)


def _real(node: Node, n: int | None, axis: int, norm: str) -> Node:
    if is_complex(node):
        raise TypeMismatch(f"real numbers are needed, not {described(node)}; use fft")
    at = axis_of(axis, node.ndim)
    size = _length(node, n, at)
    factor = _factor(size, norm, inverse=False)
    re, im = fourier.half_transform(_last(node, at, n))
    return basic.swap_axes(joined(_scaled(re, factor), _scaled(im, factor)), at, node.ndim - 1)


def _real_inverse(node: Node, n: int | None, axis: int, norm: str) -> Node:
    at = axis_of(axis, node.ndim)
    size = 2 * (_length(node, None, at) - 1) if n is None else n
    _need_length(size)
    factor = _factor(size, norm, inverse=True) * size
    re, im = _pair(_last(node, at, None))
    zero = full(re.shape, 0.0, re.dtype) if im is None else im
    made = _scaled(fourier.real_inverse(re, zero, size), factor)
    return basic.swap_axes(made, at, node.ndim - 1)


def _axes_and_sizes(
    node: Node, s: Sequence[int] | None, axes: Sequence[int] | None
) -> tuple[list[int], list[int | None]]:
    if axes is None:
        count = node.ndim if s is None else len(s)
        if count > node.ndim:
            raise ShapeMismatch(f"{count} lengths are given for {described(node)}")
        wanted = list(range(node.ndim - count, node.ndim))
    else:
        wanted = axes_of(list(axes), node.ndim)
    if s is not None and len(s) != len(wanted):
        raise ShapeMismatch(f"{len(s)} lengths are given for {len(wanted)} axes")
    if not wanted:
        raise InvalidArgument("a Fourier transform is along at least one axis")
    return wanted, [None] * len(wanted) if s is None else list(s)


def _along_axes(
    node: Node, s: Sequence[int] | None, axes: Sequence[int] | None, norm: str, inverse: bool
) -> Node:
    for axis, size in zip(*_axes_and_sizes(node, s, axes), strict=True):
        node = _along(node, size, axis, norm, inverse)
    return node
