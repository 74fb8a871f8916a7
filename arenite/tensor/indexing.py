"""Indexing: x[...] as NumPy has it, values put where an index points, gathers and scatters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import numpy as np

from arenite.dtype import BOOL, INT64
from arenite.errors import IndexOutOfRange, NotSupported, ShapeMismatch
from arenite.ir import Dim, Expr, Node, full, make
from arenite.ir.compose import basic
from arenite.ir.compose import indexing as places
from arenite.ir.compose.basic import cast
from arenite.ir.compose.counted_sizes import positions_on_axes
from arenite.ir.node import Shape
from arenite.tensor.base import Base, axis_of, described, node_of, operand_of
from arenite.tensor.movement import MovementMethods
from arenite.tensor.promote import INTEGERS, cast_all, common_dtype
from arenite.tensor.realize import part_of_array


def items_of(key: object, x: Node) -> list[places.Item]:
    """The items of an index, masks turned into the places where they are true."""
    given = key if isinstance(key, tuple) else (key,)
    items: list[places.Item] = []
    axis = 0
    for item in given:
        if _is_mask(item):
            _check_mask(item, axis, x)
        items += _items(item)
        axis += x.ndim - sum(map(_axes_used, given)) if item is Ellipsis else _axes_used(item)
    return items


def _is_mask(item: object) -> bool:
    if isinstance(item, Base):
        return item.dtype.name == "bool"
    return isinstance(item, list | np.ndarray | bool | np.bool_) and np.asarray(item).dtype == bool


def _axes_used(item: object) -> int:
    if item is None or item is Ellipsis:
        return 0
    return len(_mask_shape(item)) if _is_mask(item) else 1


def _mask_array(item: object) -> Any:
    """A mask as an array, where it is known; else None."""
    if not isinstance(item, Base):
        return np.asarray(item)
    if 0 in item.shape and all(isinstance(size, int) for size in item.shape):
        return np.zeros([size for size in item.shape if isinstance(size, int)], bool)
    return part_of_array(item.node)


def _mask_shape(item: object) -> Shape:
    return item.shape if isinstance(item, Base) else np.asarray(item).shape


def _check_mask(item: object, axis: int, x: Node) -> None:
    shape = _mask_shape(item)
    if x.shape[axis : axis + len(shape)] != shape:
        raise IndexOutOfRange(
            f"a mask of shape {shape} does not match axes {axis} to {axis + len(shape) - 1} of "
            f"{described(x)}"
        )


def _items(item: object) -> list[places.Item]:
    if item is None or item is Ellipsis or isinstance(item, Expr):
        return [item]
    if isinstance(item, slice):
        return [slice(*(_bound(part) for part in (item.start, item.stop, item.step)))]
    if _is_mask(item):
        if not _mask_shape(item):
            raise NotSupported("a single bool is no index here; use where, or x[None] and x[:0]")
        mask = _mask_array(item)
        if mask is None:
            return [*positions_on_axes(node_of(item))]
        return list(np.nonzero(mask))
    if isinstance(item, Base):
        if item.dtype.kind not in INTEGERS:
            raise IndexOutOfRange(f"indices are integers or a mask, not {described(item.node)}")
        return [item.node]
    if isinstance(item, int | np.integer):
        return [int(item)]
    array = np.asarray(item)
    return [array.astype(np.int64) if array.size == 0 else array]


def _bound(part: object) -> Dim | None:
    if part is None or isinstance(part, Expr):
        return part
    if hasattr(part, "__index__"):
        return int(part.__index__())
    raise IndexOutOfRange(f"the parts of a slice are whole numbers or sizes, not {part!r}")


_REDUCTIONS = {"add": "add", "mul": "mul", "min": "minimum", "max": "maximum"}


def _masked(x: Node, key: object, value: Node, reduction: str) -> Node | None:
    """x with one value wherever a mask is true that is not known yet; None where the index is no
    such mask, or each of its places has a value of its own."""
    given = key if isinstance(key, tuple) else (key,)
    masks = [k for k, item in enumerate(given) if _is_mask(item)]
    rest = [item for item in given if not _is_mask(item)]
    is_whole = all(
        item is Ellipsis or (isinstance(item, slice) and item == slice(None)) for item in rest
    )
    if len(masks) != 1 or not is_whole or rest.count(Ellipsis) > 1:
        return None
    item = given[masks[0]]
    if not _mask_shape(item) or _mask_array(item) is not None:
        return None
    mask = node_of(item)
    dots = [k for k, one in enumerate(given) if one is Ellipsis]
    at = masks[0] if not dots or masks[0] < dots[0] else x.ndim - (len(given) - masks[0] - 1)
    at -= mask.ndim if dots and masks[0] > dots[0] else 0
    _check_mask(item, at, x)
    behind = x.ndim - at - mask.ndim
    # The value has one axis where the mask has its own, and there the size 1, or fewer axes.
    if value.ndim > behind and value.shape[value.ndim - behind - 1] != 1:
        return None
    if value.ndim > at + 1 + behind:
        return None
    front = value.shape[: max(value.ndim - behind - 1, 0)]
    tail = value.shape[max(value.ndim - behind, 0) :]
    ones = (1,) * mask.ndim if value.ndim > behind else ()
    spread = basic.broadcast_to(basic.reshape(value, (*front, *ones, *tail)), x.shape)
    where = basic.broadcast_to(basic.reshape(mask, (*mask.shape, *(1,) * behind)), x.shape)
    if reduction in _REDUCTIONS:
        spread = make(_REDUCTIONS[reduction], x, spread)
    elif reduction != "none":
        return None  # which the general way refuses
    return basic.where(where, spread, x)


class IndexingMethods(MovementMethods):
    __slots__ = ()

    def __getitem__(self, key: Any) -> Self:
        """NumPy's indexing. With a mask that is not known yet the result has a size that is found
        while running."""
        if isinstance(key, Base) and _is_mask(key) and not key.shape:
            # A mask of no axes makes an axis of one element, or of none.
            wide, mask = self.expand_dims(0), basic.reshape(key.node, (1,))
            return wide[self._new(mask) if _mask_array(key) is None else _mask_array(key)[None]]
        return self._new(places.index(self._node, items_of(key, self._node)))

    def nonzero(self) -> tuple[Self, ...]:
        """For each axis where along it the elements are that are not zero; how many there are is
        found while running."""
        node = self._node
        if not node.ndim:
            raise ShapeMismatch("nonzero of a tensor without axes; use reshape(1) first")
        if node.dtype != BOOL:
            node = make("ne", node, full(node.shape, 0, node.dtype))
        return tuple(self._new(at) for at in positions_on_axes(node))

    def __setitem__(self, key: Any, value: Any) -> None:
        raise NotSupported("tensors are values and don't change; use t = t.set(index, value)")

    def set(self, key: Any, value: Any, reduction: str = "none") -> Self:
        """A tensor like this one with `value` at [key]; or combined: add, mul, min, max.

        A mask may be found while running, and so may the number of values for it: as many as the
        mask has true elements, or IndexOutOfRange when it runs.

            x.set(x < 0, 0)                     # NumPy's x[x < 0] = 0, without a change of x
            x.set((0, slice(2)), 1, "add")      # x[0, :2] += 1
        """
        given = self._fitting(value)
        masked = _masked(self._node, key, given, reduction)
        if masked is not None:
            return self._new(masked)
        items = items_of(key, self._node)
        return self._new(places.updated(self._node, items, given, reduction))

    def _fitting(self, value: Any) -> Node:
        """A value in this tensor's dtype; a Python integer that does not fit is an error."""
        operands = [self._node, operand_of(value)]
        cast_all(operands, common_dtype(operands))
        return cast(node_of(value), self.dtype)

    def take(self, indices: Any, axis: int | None = None) -> Self:
        """Elements at these indices along an axis, or of all elements in row-major order.

        x.take([0, -1], axis=1)     # the first and the last column
        """
        if axis is None:
            return self.ravel().take(indices, 0)
        at = axis_of(axis, self.ndim)
        (item,) = _items(indices)
        if isinstance(item, int):
            item = np.asarray(item)
        return self._new(places.index(self._node, [*[slice(None)] * at, item]))

    def take_along_axis(self, indices: Any, axis: int = -1) -> Self:
        """For each place of `indices` the element there along an axis.

        x.take_along_axis(x.argsort(1), 1)     # x sorted along axis 1
        """
        at, index = self._aligned(indices, axis)
        return self._new(make("gather_elements", *self._spread(at, index), axis=at))

    gather = take_along_axis

    def _aligned(self, indices: Any, axis: int) -> tuple[int, Node]:
        at = axis_of(axis, self.ndim)
        index = node_of(indices)
        if index.dtype.kind not in INTEGERS:
            raise IndexOutOfRange(f"indices are integers, not {described(index)}")
        if index.ndim != self.ndim:
            raise ShapeMismatch(
                f"indices {described(index)} must have as many axes as {described(self._node)}"
            )
        return at, places.counted_from_front(cast(index, INT64), self.shape[at])

    def _spread(self, axis: int, index: Node) -> tuple[Node, Node]:
        """Data and indices broadcast against each other but for the axis."""
        data = self._node
        sizes = [a if b == 1 else b for a, b in zip(data.shape, index.shape, strict=True)]
        data_shape, index_shape = list(sizes), list(sizes)
        data_shape[axis], index_shape[axis] = data.shape[axis], index.shape[axis]
        return basic.broadcast_to(data, data_shape), basic.broadcast_to(index, index_shape)

    def scatter(self, indices: Any, values: Any, axis: int = -1, reduction: str = "none") -> Self:
        """A tensor like this one with values put along an axis (put_along_axis), or combined."""
        at, index = self._aligned(indices, axis)
        given = basic.broadcast_to(self._fitting(values), index.shape)
        for i, (size, used) in enumerate(zip(self.shape, index.shape, strict=True)):
            if i != at and size != used:
                raise ShapeMismatch(
                    f"scatter: indices of shape {index.shape} differ from {described(self._node)} "
                    f"elsewhere than on axis {at}"
                )
        return self._new(
            make("scatter_elements", self._node, index, given, axis=at, reduction=reduction)
        )

    def __len__(self) -> int:
        if self.ndim == 0:
            raise TypeError("a tensor of no axes has no len()")
        if not isinstance(self.shape[0], int):
            raise TypeError(f"len() of {described(self._node)}: its first size is not a number yet")
        return self.shape[0]

    def __iter__(self) -> Iterator[Self]:
        return (self[i] for i in range(len(self)))
