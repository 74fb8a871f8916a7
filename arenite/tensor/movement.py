"""Shapes and places: reshape, transpose, broadcasting, padding, splitting."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Self

import numpy as np

from arenite.errors import InvalidArgument, NotSupported, ShapeMismatch
from arenite.ir import Dim, Node, constant, make, product
from arenite.ir.compose import basic
from arenite.ir.compose import indexing as places
from arenite.ir.compose.basic import cast
from arenite.ir.compose.linear import diagonal, triangle
from arenite.tensor.base import Axis, Base, axes_of, axis_of, described, node_of, shape_of
from arenite.tensor.promote import common_dtype


class MovementMethods(Base):
    __slots__ = ()

    def reshape(self, *shape: Any) -> Self:
        """The same elements in row-major order; one size may be -1."""
        return self._new(basic.reshape(self._node, shape_of(shape)))

    def flatten(self, start: int = 0, end: int = -1) -> Self:
        """Axes from `start` to `end`, both included, as one."""
        if self.ndim == 0:
            return self.reshape(1)
        first, last = axis_of(start, self.ndim), axis_of(end, self.ndim)
        middle = product(self.shape[first : last + 1])
        return self._new(
            basic.reshape(self._node, (*self.shape[:first], middle, *self.shape[last + 1 :]))
        )

    def ravel(self) -> Self:
        """All elements along one axis, in row-major order."""
        return self._new(basic.reshape(self._node, (self.size,)))

    def transpose(self, *axes: Any) -> Self:
        """All axes in the order given, or backwards."""
        if not axes or axes == (None,):
            order = list(range(self.ndim))[::-1]
        else:
            given = axes[0] if len(axes) == 1 and isinstance(axes[0], Sequence) else axes
            order = axes_of(given, self.ndim)
            if len(order) != self.ndim:
                raise ShapeMismatch(f"axes {given} do not match {described(self._node)}")
        return self._new(basic.permute(self._node, order))

    permute = transpose

    @property
    def T(self) -> Self:  # noqa: N802
        """All axes backwards; of a matrix its transpose."""
        return self.transpose()

    @property
    def mT(self) -> Self:  # noqa: N802
        """The last two axes swapped."""
        return self.swapaxes(-1, -2)

    def swapaxes(self, axis1: int, axis2: int) -> Self:
        """Two axes in each other's place."""
        a, b = axis_of(axis1, self.ndim), axis_of(axis2, self.ndim)
        return self._new(basic.swap_axes(self._node, a, b))

    def moveaxis(self, source: int | Sequence[int], destination: int | Sequence[int]) -> Self:
        """Some axes moved to other places; the rest stay in order.

        x.moveaxis(0, -1)      # the first axis becomes the last
        """
        sources, targets = axes_of(source, self.ndim), axes_of(destination, self.ndim)
        if len(sources) != len(targets):
            raise ShapeMismatch(f"moveaxis: {source} and {destination} are not equally many")
        order = [axis for axis in range(self.ndim) if axis not in sources]
        for target, axis in sorted(zip(targets, sources, strict=True)):
            order.insert(target, axis)
        return self._new(basic.permute(self._node, order))

    def expand_dims(self, axis: int | Sequence[int]) -> Self:
        """New axes of size 1, at these places of the result.

        x.expand_dims(0)       # float32[3] becomes float32[1, 3]
        """
        given = axis if isinstance(axis, Sequence) else [axis]
        ndim = self.ndim + len(given)
        return self._new(basic.insert_axes(self._node, axes_of(list(given), ndim)))

    unsqueeze = expand_dims

    def squeeze(self, axis: Axis = None) -> Self:
        """Without axes of size 1: all of them, or those named."""
        if axis is None:
            axes = [i for i, size in enumerate(self.shape) if size == 1]
        else:
            axes = axes_of(axis, self.ndim)
        wrong = [i for i in axes if self.shape[i] != 1]
        if wrong:
            raise ShapeMismatch(f"squeeze: axis {wrong[0]} of {described(self._node)} is not 1")
        kept = [size for i, size in enumerate(self.shape) if i not in axes]
        return self._new(basic.reshape(self._node, kept))

    def broadcast_to(self, *shape: Any) -> Self:
        """Axes of size 1, and missing ones at the front, stretched to a shape.

        x.broadcast_to(4, 3)   # float32[3] becomes float32[4, 3]
        """
        return self._new(basic.broadcast_to(self._node, shape_of(shape)))

    def expand(self, *shape: Any) -> Self:
        """Like broadcast_to; -1 keeps a size."""
        sizes = list(shape_of(shape))
        offset = len(sizes) - self.ndim
        for i, size in enumerate(sizes):
            if size == -1 and i >= offset:
                sizes[i] = self.shape[i - offset]
        return self._new(basic.broadcast_to(self._node, sizes))

    def flip(self, axis: Axis = None) -> Self:
        """Elements in reverse order along an axis, along several, or along all."""
        return self._new(basic.flip(self._node, axes_of(axis, self.ndim)))

    def roll(self, shift: int | Sequence[int], axis: Axis = None) -> Self:
        """Elements moved along an axis; those pushed out come back at the start.

        Tensor([1, 2, 3]).roll(1, 0)    # [3, 1, 2]
        """
        if axis is None:
            return self.ravel().roll(shift, 0).reshape(self.shape)
        axes = axis if isinstance(axis, Sequence) else [axis]
        shifts = shift if isinstance(shift, Sequence) else [shift] * len(axes)
        node = self._node
        for amount, given in zip(shifts, axes, strict=True):
            node = basic.roll(node, axis_of(given, self.ndim), amount)
        return self._new(node)

    def pad(self, padding: Any, value: Any = 0, mode: str = "constant") -> Self:
        """numpy.pad's widths: one number, (before, after), or one pair for each axis."""
        if mode != "constant":
            raise NotSupported(f"pad: only mode='constant' is lazy, not {mode!r}")
        pairs = np.asarray(padding, object)
        if pairs.ndim == 0:
            pairs = np.array([[padding, padding]] * self.ndim, object).reshape(self.ndim, 2)
        elif pairs.shape in ((2,), (1, 2)) and self.ndim != 0:
            pairs = np.array([pairs.reshape(2)] * self.ndim, object)
        if pairs.shape != (self.ndim, 2):
            raise ShapeMismatch(f"pad: {padding} is not one pair for each of {self.ndim} axes")
        sides = [shape_of(tuple(pair)) for pair in pairs]
        return self._new(basic.pad(self._node, [(a, b) for a, b in sides], value))

    def repeat(self, repeats: Any, axis: int | None = None) -> Self:
        """Each element `repeats` times: one number for all, or one for each along the axis, which
        are computed at once."""
        if axis is None:
            return self.ravel().repeat(repeats, 0)
        at = axis_of(axis, self.ndim)
        if not isinstance(repeats, int):
            counts = np.asarray(repeats)
            if counts.dtype.kind not in "iu" or counts.ndim > 1 or counts.min(initial=0) < 0:
                raise InvalidArgument(f"repeat: counts are whole numbers, not {repeats!r}")
            if counts.size != 1:
                if counts.size != self.shape[at]:
                    raise ShapeMismatch(
                        f"repeat: {counts.size} counts for axis {at} of {described(self._node)}"
                    )
                rows = constant(np.repeat(np.arange(counts.size), counts))
                return self._new(make("gather", self._node, rows, axis=at))
            repeats = int(counts.reshape(-1)[0])
        shape = [*self.shape[: at + 1], repeats, *self.shape[at + 1 :]]
        wide = basic.broadcast_to(basic.expand_dims(self._node, at + 1), shape)
        sizes = [*self.shape]
        sizes[at] = sizes[at] * repeats
        return self._new(basic.reshape(wide, sizes))

    def tile(self, *repeats: Any) -> Self:
        """The whole tensor again and again."""
        counts = shape_of(repeats)
        ndim = max(len(counts), self.ndim)
        counts = (1,) * (ndim - len(counts)) + counts
        sizes = (1,) * (ndim - self.ndim) + self.shape
        split = basic.reshape(self._node, [s for size in sizes for s in (1, size)])
        wide = basic.broadcast_to(
            split, [s for pair in zip(counts, sizes, strict=True) for s in pair]
        )
        both = zip(counts, sizes, strict=True)
        return self._new(basic.reshape(wide, [count * size for count, size in both]))

    def split(self, parts: int | Sequence[int], axis: int = 0) -> list[Self]:
        """numpy.split: so many equal parts, or cut at these places."""
        at = axis_of(axis, self.ndim)
        size = self.shape[at]
        if isinstance(parts, int):
            if parts < 1 or size % parts != 0:
                raise ShapeMismatch(
                    f"split: axis {at} of {described(self._node)} does not divide into {parts}"
                )
            cuts: list[Dim] = [size // parts * i for i in range(parts + 1)]
        else:
            cuts = [0, *parts, size]
        pieces = []
        for start, stop in pairwise(cuts):
            begin, end, _ = places.resolved(slice(start, stop), size)
            pieces.append(self._new(basic.slice_axis(self._node, at, begin, end)))
        return pieces

    def chunk(self, chunks: int, axis: int = 0) -> list[Self]:
        """At most `chunks` parts of equal size; the last may be smaller."""
        at = axis_of(axis, self.ndim)
        size = self.shape[at]
        if not isinstance(size, int):
            return self.split(chunks, axis)
        each = max(-(-size // chunks), 1)
        return self.split(list(range(each, size, each)), axis)

    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Self:
        """The diagonals of two axes, as a new last axis; `offset` counts from the main one."""
        a, b = axis_of(axis1, self.ndim), axis_of(axis2, self.ndim)
        if a == b:
            raise ShapeMismatch("diagonal: the two axes are the same one")
        return self._new(diagonal(self._node, offset, a, b))

    def tril(self, k: int = 0) -> Self:
        """Zeros above the k-th diagonal of the last two axes."""
        return self._new(triangle(self._node, k, lower=True))

    def triu(self, k: int = 0) -> Self:
        """Zeros below the k-th diagonal of the last two axes."""
        return self._new(triangle(self._node, k, lower=False))


def joined(tensors: Sequence[object], what: str) -> list[Node]:
    """Nodes of one dtype."""
    if not tensors:
        raise InvalidArgument(f"{what}: there is nothing to join")
    nodes = [node_of(tensor) for tensor in tensors]
    dtype = common_dtype(list(nodes))
    return [cast(node, dtype) for node in nodes]
