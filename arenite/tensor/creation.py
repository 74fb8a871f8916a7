"""Tensors from arrays, from other libraries, and made up; and tensors joined."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arenite.device import Buffer
from arenite.dtype import FLOAT64, INT64, DType
from arenite.dtype import of as dtype_of
from arenite.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from arenite.ir.compose import basic
from arenite.ir.compose.basic import binary, cast
from arenite.ir.compose.counted_sizes import counted, filled
from arenite.ir.dim import Dim, Expr, ceildiv
from arenite.ir.dim import maximum as larger_dim
from arenite.ir.node import Node, Number
from arenite.ir.ops import buffer, make
from arenite.ir.ops import full as full_node
from arenite.ir.ops import size as size_node
from arenite.tensor.base import (
    DTypeLike,
    array_of,
    axis_of,
    described,
    need_cpu,
    node_of_array,
    record_origin,
    shape_of,
)
from arenite.tensor.elementwise import choose
from arenite.tensor.linear import summed_products
from arenite.tensor.movement import joined
from arenite.tensor.promote import INTEGERS
from arenite.tensor.tensor import Tensor

Shape = Dim | Sequence[Dim]


def wrap(node: Node) -> Tensor:
    """The tensor of a node, which comes from the line that asks."""
    record_origin(node)
    return Tensor.of_node(node)


def asarray(
    data: Any,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    copy: bool | None = None,
) -> Tensor:
    """A tensor of anything NumPy takes, copied; a Tensor stays what it is. With `copy=False` what
    would be copied is an error; `from_numpy` and `from_dlpack` share memory."""
    need_cpu(device)
    if copy is False and not isinstance(data, Tensor):
        raise InvalidArgument(
            f"asarray: {type(data).__name__} is always copied; use from_numpy or from_dlpack"
        )
    if copy is False and dtype is not None and data.dtype != dtype_of(dtype):
        raise InvalidArgument(f"asarray: {described(data.node)} becomes {dtype} by a copy alone")
    return data if isinstance(data, Tensor) and dtype is None else Tensor(data, dtype)


def from_numpy(array: NDArray[Any]) -> Tensor:
    """A tensor over the memory of an array, without a copy where it is C-contiguous and has over
    64 elements. Write to the array afterwards and what is computed later may see it."""
    if not isinstance(array, np.ndarray):
        raise InvalidArgument(f"a NumPy array is needed, not {type(array).__name__}")
    return wrap(node_of_array(array_of(array), share=True))


def from_dlpack(producer: Any, device: str | None = None, copy: bool | None = None) -> Tensor:
    """A tensor over the memory of any array on the CPU that speaks DLPack, without a copy unless
    `copy` is true."""
    need_cpu(device)
    shared = Buffer.from_dlpack(producer)
    if copy:
        return wrap(node_of_array(shared.as_array(shared.dtype)))
    return wrap(buffer(shared))


def full(
    shape: Shape,
    fill_value: Number | Tensor | Expr,
    dtype: DTypeLike | None = None,
    device: str | None = None,
) -> Tensor:
    """One value everywhere; sizes may be numbers, Vars, or integer tensors found while running. The
    value may be a tensor, which is broadcast, or a size.

    full((2, 3), 7, "int32")
    """
    need_cpu(device)
    if isinstance(fill_value, Tensor | Expr):
        return asarray(fill_value, dtype).broadcast_to(shape)
    wanted = dtype_of(np.asarray(fill_value).dtype) if dtype is None else dtype_of(dtype)
    given = shape if isinstance(shape, Sequence) else (shape,)
    if any(_is_found(size) for size in given):
        sizes = [_counted(size) if _is_found(size) else sizes_of((size,))[0] for size in given]
        return wrap(filled(sizes, fill_value, wanted))
    return wrap(full_node(sizes_of(shape), fill_value, wanted))


def zeros(shape: Shape, dtype: DTypeLike | None = None, device: str | None = None) -> Tensor:
    """Zeros of a shape; float64 unless `dtype` says else.

    zeros((2, 3), "float32")
    """
    return full(shape, 0, "float64" if dtype is None else dtype, device)


def ones(shape: Shape, dtype: DTypeLike | None = None, device: str | None = None) -> Tensor:
    """Ones of a shape; float64 unless `dtype` says else."""
    return full(shape, 1, "float64" if dtype is None else dtype, device)


def full_like(
    tensor: Any,
    fill_value: Number | Tensor | Expr,
    dtype: DTypeLike | None = None,
    device: str | None = None,
) -> Tensor:
    """One value everywhere, in the shape and dtype of another tensor."""
    like = asarray(tensor)
    return full(like.shape, fill_value, like.dtype if dtype is None else dtype, device)


def zeros_like(tensor: Any, dtype: DTypeLike | None = None, device: str | None = None) -> Tensor:
    """Zeros in the shape and dtype of another tensor."""
    return full_like(tensor, 0, dtype, device)


def ones_like(tensor: Any, dtype: DTypeLike | None = None, device: str | None = None) -> Tensor:
    """Ones in the shape and dtype of another tensor."""
    return full_like(tensor, 1, dtype, device)


def empty(shape: Shape, dtype: DTypeLike | None = None, device: str | None = None) -> Tensor:
    """A tensor whose elements do not matter: zeros, which take no memory until they are needed."""
    return zeros(shape, dtype, device)


def empty_like(tensor: Any, dtype: DTypeLike | None = None, device: str | None = None) -> Tensor:
    """A tensor like another one, whose elements do not matter: zeros."""
    return zeros_like(tensor, dtype, device)


def sizes_of(shape: Shape) -> tuple[Dim, ...]:
    """A shape, of one size or several."""
    return shape_of((shape,))


def arange(
    start: float | Dim | Tensor,
    stop: float | Dim | Tensor | None = None,
    step: float = 1,
    dtype: DTypeLike | None = None,
    device: str | None = None,
) -> Tensor:
    """start, start + step, ... before stop; sizes may be given for whole steps, and integer tensors
    whose value is found while running."""
    need_cpu(device)
    if stop is None:
        start, stop = 0, start
    if _is_found(start) or _is_found(stop):
        if type(step) is not int or step == 0:
            raise InvalidArgument(f"arange: tensors go with a whole step, not with {step!r}")
        numbers = counted(_counted(start), _counted(stop), step)
        return wrap(cast(numbers, INT64 if dtype is None else dtype_of(dtype)))
    start, stop = _number(start), _number(stop)
    if step == 0:
        raise InvalidArgument("arange: the step is 0")
    if isinstance(start, Expr) or isinstance(stop, Expr):
        return _symbolic_range(start, stop, step, INT64 if dtype is None else dtype_of(dtype))
    exact = all(isinstance(number, int) for number in (start, stop, step))
    count = max(math.ceil((stop - start) / step), 0) if not exact else _count(start, stop, step)
    wide = INT64 if exact else FLOAT64
    steps = basic.iota(count, wide)
    wanted = wide if dtype is None else dtype_of(dtype)
    # As NumPy does it: the step is the distance of the first two, after rounding.
    delta = step if exact else (start + step) - start
    return wrap(cast(steps * delta + start, wanted))


def _number(bound: float | Dim | Tensor) -> float | Dim:
    """A bound that is no tensor any more."""
    if isinstance(bound, Tensor):
        value = bound.item()
        if isinstance(value, complex):
            raise TypeMismatch("arange: a bound is a real number, not a complex one")
        return value
    return bound


def _is_found(size: Any) -> bool:
    """Whether a size or a number is a tensor whose value is not there yet."""
    return isinstance(size, Tensor) and not size.is_realized


def _counted(size: Any) -> Node:
    """One integer, as a node."""
    node = size.node if isinstance(size, Tensor) else size_node(size, INT64)
    if node.shape != () or node.dtype.kind not in INTEGERS:
        raise InvalidArgument(f"one integer is needed for a size, not {described(node)}")
    return cast(node, INT64)


def _count(start: float, stop: float, step: float) -> int:
    return len(range(int(start), int(stop), int(step)))


def _symbolic_range(start: Any, stop: Any, step: Any, dtype: DType) -> Tensor:
    if not all(isinstance(number, int | Expr) for number in (start, stop)) or type(step) is not int:
        raise InvalidArgument(f"arange({start}, {stop}, {step}): sizes go with whole numbers only")
    distance = stop - start if step > 0 else start - stop
    count = larger_dim(ceildiv(distance, abs(step)), 0)
    steps = basic.iota(count)
    first = make("size", value=start, dtype=INT64) if isinstance(start, Expr) else start
    return wrap(cast(steps * step + first, dtype))


def linspace(
    start: complex,
    stop: complex,
    num: int = 50,
    endpoint: bool = True,
    dtype: DTypeLike | None = None,
    device: str | None = None,
) -> Tensor:
    """`num` numbers from start to stop at equal distances; without `endpoint` stop is left out.

    linspace(0, 1, 5)      # [0, 0.25, 0.5, 0.75, 1]
    """
    need_cpu(device)
    if num < 0:
        raise InvalidArgument(f"linspace: {num} numbers are fewer than none")
    kind = complex if isinstance(start, complex) or isinstance(stop, complex) else float
    wide = dtype_of(kind)
    parts = max(num - 1 if endpoint else num, 1)
    steps = basic.iota(num, FLOAT64)
    # Beginning and end are divided before they are subtracted, which could overflow.
    far = max(abs(start), abs(stop)) > np.finfo(float).max / 2
    step = stop / parts - start / parts if far else (stop - start) / parts
    node = cast(steps, wide) * kind(step) + kind(start)
    if endpoint and num > 1:  # exactly, whatever the products rounded to
        node = basic.where(binary("eq", steps, float(num - 1)), kind(stop), node)
    return wrap(cast(node, wide if dtype is None else dtype_of(dtype)))


def eye(
    n: int,
    m: int | None = None,
    k: int = 0,
    dtype: DTypeLike | None = None,
    device: str | None = None,
) -> Tensor:
    """Ones on the k-th diagonal of an n by m matrix, zeros elsewhere."""
    need_cpu(device)
    shape = (n, n if m is None else m)
    rows = basic.broadcast_to(basic.along(basic.iota(shape[0]), 0, 2), shape)
    columns = basic.broadcast_to(basic.along(basic.iota(shape[1]), 1, 2), shape)
    on = make("eq", columns, rows + k)
    return wrap(cast(on, FLOAT64 if dtype is None else dtype_of(dtype)))


def concatenate(tensors: Sequence[Any], axis: int | None = 0) -> Tensor:
    """Tensors one behind the other along an axis; None: all elements along one.

    concatenate([a, b], axis=1)
    """
    nodes = joined(tensors, "concatenate")
    if axis is None:
        nodes = [basic.reshape(node, (-1,)) for node in nodes]
    return wrap(basic.concat(nodes, axis_of(axis or 0, nodes[0].ndim)))


concat = cat = concatenate


def stack(tensors: Sequence[Any], axis: int = 0) -> Tensor:
    """Tensors of one shape along a new axis."""
    nodes = joined(tensors, "stack")
    at = axis_of(axis, nodes[0].ndim + 1)
    if any(node.shape != nodes[0].shape for node in nodes):
        shapes = ", ".join(str(node.shape) for node in nodes)
        raise ShapeMismatch(f"stack: shapes differ: {shapes}")
    return wrap(basic.concat([basic.expand_dims(node, at) for node in nodes], at))


def vstack(tensors: Sequence[Any]) -> Tensor:
    """Tensors one below the other, vectors as rows."""
    rows = [t if t.ndim > 1 else t.reshape(1, -1) for t in map(asarray, tensors)]
    return concatenate(rows, 0)


def hstack(tensors: Sequence[Any]) -> Tensor:
    """Tensors side by side: along axis 1, vectors along their own."""
    flat = [t if t.ndim else t.reshape(1) for t in map(asarray, tensors)]
    return concatenate(flat, 0 if flat and flat[0].ndim == 1 else 1)


def where(condition: Any, a: Any, b: Any) -> Tensor:
    """a where the condition is true, b elsewhere; all three broadcast.

    where(x > 0, x, 0)
    """
    return wrap(choose(condition, a, b))


def einsum(subscripts: str, *operands: Any) -> Tensor:
    """numpy.einsum, with `...`; operands are contracted from left to right."""
    return wrap(summed_products(subscripts, *operands))


def broadcast_arrays(*tensors: Any) -> list[Tensor]:
    """Tensors stretched to the one shape they broadcast to."""
    nodes = [asarray(tensor).node for tensor in tensors]
    return [wrap(node) for node in basic.operands("broadcast_arrays", *nodes)]


def meshgrid(*vectors: Any, indexing: str = "xy") -> list[Tensor]:
    """For each vector a tensor with an axis for every vector, in which it lies along its own. With
    indexing "xy" the first two axes are swapped, as in NumPy.
    """
    if indexing not in ("xy", "ij"):
        raise InvalidArgument(f"meshgrid: indexing is 'xy' or 'ij', not {indexing!r}")
    flat = [asarray(vector).ravel() for vector in vectors]
    order = list(range(len(flat)))
    if indexing == "xy" and len(flat) > 1:
        order[:2] = [1, 0]
    laid = [basic.along(t.node, order[i], len(flat)) for i, t in enumerate(flat)]
    return [wrap(node) for node in basic.operands("meshgrid", *laid)]
