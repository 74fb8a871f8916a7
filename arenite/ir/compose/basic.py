"""Building blocks of composed functions: operands that broadcast, and movement that knows when
there is nothing to do.

Functions here take nodes of equal dtype, or Python numbers, which take the dtype of the other
operand. Axes are 0-based and not negative unless said otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from arenite.dtype import FLOAT32, INT64, DType, Kind
from arenite.errors import InvalidArgument, ShapeMismatch
from arenite.ir.dim import Dim, product
from arenite.ir.node import Node, Number, Shape
from arenite.ir.ops import full, make
from arenite.ir.ops import size as size_node
from arenite.ir.ops.define import broadcast

Operand: TypeAlias = Node | Number


def cast(x: Node, dtype: DType) -> Node:
    return x if x.dtype == dtype else make("cast", x, dtype=dtype)


def reshape(x: Node, shape: Sequence[Dim]) -> Node:
    """A size of -1 is what is left."""
    sizes = list(shape)
    if sizes.count(-1) > 1:
        raise ShapeMismatch(f"reshape: shape {tuple(shape)} has more than one -1")
    if -1 in sizes:
        known = product(size for size in sizes if size != -1)
        total = product(x.shape)
        if known == 0 or (total // known) * known != total:
            raise ShapeMismatch(
                f"reshape: the {total} elements of {x.type_text} do not divide into "
                f"shape {tuple(shape)}"
            )
        sizes[sizes.index(-1)] = total // known
    return x if tuple(sizes) == x.shape else make("reshape", x, shape=tuple(sizes))


def permute(x: Node, axes: Sequence[int]) -> Node:
    return x if list(axes) == list(range(x.ndim)) else make("permute", x, axes=tuple(axes))


def swap_axes(x: Node, a: int, b: int) -> Node:
    axes = list(range(x.ndim))
    axes[a], axes[b] = axes[b], axes[a]
    return permute(x, axes)


def broadcast_to(x: Node, shape: Sequence[Dim]) -> Node:
    if x.shape == shape:
        return x
    if x.ndim > len(shape):
        raise ShapeMismatch(f"{x.type_text} does not broadcast to {tuple(shape)}")
    aligned = reshape(x, (1,) * (len(shape) - x.ndim) + x.shape)
    return aligned if aligned.shape == tuple(shape) else make("expand", aligned, shape=tuple(shape))


def expand_dims(x: Node, axis: int) -> Node:
    return reshape(x, (*x.shape[:axis], 1, *x.shape[axis:]))


def insert_axes(x: Node, axes: Sequence[int]) -> Node:
    """Axes of size 1 where a reduction over `axes` took them away."""
    for axis in sorted(axes):
        x = expand_dims(x, axis)
    return x


def along(x: Node, axis: int, ndim: int) -> Node:
    """A vector laid along one of `ndim` axes."""
    if x.ndim != 1 or not 0 <= axis < ndim:
        raise ShapeMismatch(f"{x.type_text} is no vector for axis {axis} of {ndim}")
    shape: list[Dim] = [1] * ndim
    shape[axis] = x.shape[0]
    return reshape(x, shape)


def slice_axis(x: Node, axis: int, start: Dim, stop: Dim, step: int = 1) -> Node:
    """The indices of range(start, stop, step) of one axis."""
    starts: list[Dim] = [0] * x.ndim
    stops: list[Dim] = list(x.shape)
    steps = [1] * x.ndim
    starts[axis], stops[axis], steps[axis] = start, stop, step
    return slice_all(x, starts, stops, steps)


def slice_all(x: Node, starts: Sequence[Dim], stops: Sequence[Dim], steps: Sequence[int]) -> Node:
    whole = all(
        start == 0 and stop == size and step == 1
        for start, stop, step, size in zip(starts, stops, steps, x.shape, strict=True)
    )
    if whole:
        return x
    return make("slice", x, start=tuple(starts), stop=tuple(stops), step=tuple(steps))


def flip(x: Node, axes: Sequence[int]) -> Node:
    for axis in axes:
        if x.shape[axis] != 0:
            x = slice_axis(x, axis, x.shape[axis] - 1, -1, -1)
    return x


def roll(x: Node, axis: int, amount: int) -> Node:
    """Elements moved `amount` places along an axis; those pushed out come back at the start."""
    size = x.shape[axis]
    if size == 0:
        return x
    if not isinstance(size, int):
        steps = iota(size)
        wrapped = (steps - amount) % size_like(size, steps)
        return make("gather", x, wrapped, axis=axis)
    cut = -amount % size
    parts = [slice_axis(x, axis, cut, size), slice_axis(x, axis, 0, cut)]
    return concat(parts, axis) if cut else x


def pad(x: Node, padding: Sequence[tuple[Dim, Dim]], value: Number = 0) -> Node:
    if all(before == 0 and after == 0 for before, after in padding):
        return x
    held = full((), value, x.dtype).attr("value")
    return make("pad", x, padding=tuple(tuple(pair) for pair in padding), value=held)


def concat(nodes: Sequence[Node], axis: int) -> Node:
    return nodes[0] if len(nodes) == 1 else make("concat", *nodes, axis=axis)


def operands(op: str, *given: Operand) -> tuple[Node, ...]:
    """Nodes of one shape, numbers among them as tensors of the nodes' dtype."""
    nodes = [operand for operand in given if isinstance(operand, Node)]
    if not nodes:
        raise InvalidArgument(f"{op}: at least one operand must be a node")
    shape = broadcast(op, *[node.shape for node in nodes])
    return tuple(
        broadcast_to(operand, shape)
        if isinstance(operand, Node)
        else full(shape, operand, nodes[-1].dtype)
        for operand in given
    )


def binary(op: str, a: Operand, b: Operand) -> Node:
    return make(op, *operands(op, a, b))


def where(condition: Node, a: Operand, b: Operand) -> Node:
    dtype = a.dtype if isinstance(a, Node) else b.dtype if isinstance(b, Node) else None
    if dtype is None:
        raise InvalidArgument("where: at least one choice must be a node")
    shapes = [x.shape for x in (condition, a, b) if isinstance(x, Node)]
    shape: Shape = broadcast("where", *shapes)
    choices = [
        broadcast_to(x, shape) if isinstance(x, Node) else full(shape, x, dtype) for x in (a, b)
    ]
    return make("where", broadcast_to(condition, shape), *choices)


def size_like(dim: Dim, x: Node) -> Node:
    """The value of a size in the dtype of x, ready to broadcast with it."""
    return size_node(dim, x.dtype)


def iota(size: Dim, dtype: DType = INT64) -> Node:
    """0, 1, ... size - 1"""
    return make("iota", axis=0, shape=(size,), dtype=dtype)


def computing(x: Node) -> Node:
    """x in a dtype that long sums and exponentials are computed in: float32 for smaller floats."""
    small = x.dtype.kind is Kind.FLOAT and x.dtype.bits < 32
    return cast(x, FLOAT32) if small else x
