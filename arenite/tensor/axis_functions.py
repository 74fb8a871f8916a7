"""NumPy's everyday functions over axes, on tensors and on whatever becomes one.

Each is the method of Tensor of its name: `sum(x, 0)` is `asarray(x).sum(0)`, and computes nothing
yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from arenite.tensor.base import Axis, DTypeLike
from arenite.tensor.creation import asarray
from arenite.tensor.tensor import Tensor

# Over axes.


def sum(  # noqa: A001
    x: Any, axis: Axis = None, dtype: DTypeLike | None = None, keepdims: bool = False
) -> Tensor:
    """The sum over an axis, several, or all."""
    return asarray(x).sum(axis, dtype, keepdims)


def prod(
    x: Any, axis: Axis = None, dtype: DTypeLike | None = None, keepdims: bool = False
) -> Tensor:
    """The product over an axis, several, or all."""
    return asarray(x).prod(axis, dtype, keepdims)


def mean(x: Any, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The mean over an axis, several, or all."""
    return asarray(x).mean(axis, keepdims)


def max(x: Any, axis: Axis = None, keepdims: bool = False) -> Tensor:  # noqa: A001
    """The largest over an axis, several, or all."""
    return asarray(x).max(axis, keepdims)


def min(x: Any, axis: Axis = None, keepdims: bool = False) -> Tensor:  # noqa: A001
    """The smallest over an axis, several, or all."""
    return asarray(x).min(axis, keepdims)


def any(x: Any, axis: Axis = None, keepdims: bool = False) -> Tensor:  # noqa: A001
    """Whether some element is true, or not zero."""
    return asarray(x).any(axis, keepdims)


def all(x: Any, axis: Axis = None, keepdims: bool = False) -> Tensor:  # noqa: A001
    """Whether all elements are true, or not zero."""
    return asarray(x).all(axis, keepdims)


def std(x: Any, axis: Axis = None, ddof: float = 0, keepdims: bool = False) -> Tensor:
    """The standard deviation over an axis, several, or all."""
    return asarray(x).std(axis, ddof, keepdims)


def var(x: Any, axis: Axis = None, ddof: float = 0, keepdims: bool = False) -> Tensor:
    """The variance over an axis, several, or all."""
    return asarray(x).var(axis, ddof, keepdims)


def argmax(x: Any, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The first place of the largest; NaN is the largest."""
    return asarray(x).argmax(axis, keepdims)


def argmin(x: Any, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The first place of the smallest; NaN counts as the smallest."""
    return asarray(x).argmin(axis, keepdims)


def cumsum(x: Any, axis: int | None = None, dtype: DTypeLike | None = None) -> Tensor:
    """The sums of all elements up to each along an axis."""
    return asarray(x).cumsum(axis, dtype)


def cumprod(x: Any, axis: int | None = None, dtype: DTypeLike | None = None) -> Tensor:
    """The products of all elements up to each along an axis."""
    return asarray(x).cumprod(axis, dtype)


def sort(x: Any, axis: int | None = -1) -> Tensor:
    """Sorted along an axis; NaN comes last."""
    return asarray(x).sort(axis)


def argsort(x: Any, axis: int | None = -1) -> Tensor:
    """The indices that sort along an axis."""
    return asarray(x).argsort(axis)


def dot(a: Any, b: Any) -> Tensor:
    """Sums of products: the last axis of a with the last but one of b."""
    return asarray(a).dot(b)


def outer(a: Any, b: Any) -> Tensor:
    """Each element of a with each of b."""
    return asarray(a).outer(b)


def tensordot(a: Any, b: Any, axes: Any = 2) -> Tensor:
    """Sums of products over axes of both."""
    return asarray(a).tensordot(b, axes)


def nonzero(x: Any) -> tuple[Tensor, ...]:
    """For each axis, where along it the elements are that are not zero."""
    return asarray(x).nonzero()


# Shapes and places.


def reshape(x: Any, shape: Any) -> Tensor:
    """The same elements in another shape; one size may be -1."""
    return asarray(x).reshape(shape)


def ravel(x: Any) -> Tensor:
    """All elements along one axis."""
    return asarray(x).ravel()


def transpose(x: Any, axes: Sequence[int] | None = None) -> Tensor:
    """Axes in the order given, or backwards."""
    return asarray(x).transpose(axes)


def swapaxes(x: Any, axis1: int, axis2: int) -> Tensor:
    """Two axes in each other's place."""
    return asarray(x).swapaxes(axis1, axis2)


def moveaxis(x: Any, source: int | Sequence[int], destination: int | Sequence[int]) -> Tensor:
    """Some axes moved to other places."""
    return asarray(x).moveaxis(source, destination)


def expand_dims(x: Any, axis: int | Sequence[int]) -> Tensor:
    """New axes of size 1."""
    return asarray(x).expand_dims(axis)


def squeeze(x: Any, axis: Axis = None) -> Tensor:
    """Without axes of size 1."""
    return asarray(x).squeeze(axis)


def broadcast_to(x: Any, shape: Any) -> Tensor:
    """Stretched to a shape."""
    return asarray(x).broadcast_to(shape)


def flip(x: Any, axis: Axis = None) -> Tensor:
    """In reverse order along an axis, several, or all."""
    return asarray(x).flip(axis)


def roll(x: Any, shift: int | Sequence[int], axis: Axis = None) -> Tensor:
    """Moved along an axis; what is pushed out comes back at the start."""
    return asarray(x).roll(shift, axis)


def pad(x: Any, pad_width: Any, mode: str = "constant", constant_values: Any = 0) -> Tensor:
    """With a border of a value; widths as numpy.pad has them."""
    return asarray(x).pad(pad_width, constant_values, mode)


def repeat(x: Any, repeats: int, axis: int | None = None) -> Tensor:
    """Each element so many times."""
    return asarray(x).repeat(repeats, axis)


def tile(x: Any, reps: Any) -> Tensor:
    """The whole again and again."""
    return asarray(x).tile(reps)


def split(x: Any, parts: int | Sequence[int], axis: int = 0) -> list[Tensor]:
    """So many equal parts, or cut at these places."""
    return asarray(x).split(parts, axis)


def take(x: Any, indices: Any, axis: int | None = None) -> Tensor:
    """Elements at these indices along an axis."""
    return asarray(x).take(indices, axis)


def take_along_axis(x: Any, indices: Any, axis: int = -1) -> Tensor:
    """For each index the element there along an axis."""
    return asarray(x).take_along_axis(indices, axis)


def diagonal(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """The diagonals of two axes."""
    return asarray(x).diagonal(offset, axis1, axis2)


def tril(x: Any, k: int = 0) -> Tensor:
    """Zeros above the k-th diagonal."""
    return asarray(x).tril(k)


def triu(x: Any, k: int = 0) -> Tensor:
    """Zeros below the k-th diagonal."""
    return asarray(x).triu(k)
