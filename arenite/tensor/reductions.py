"""Reductions, running sums, sorting: NumPy's names, axes and dtypes."""

from __future__ import annotations

from typing import Self

from arenite.dtype import FLOAT64, INT64, Kind
from arenite.dtype import of as dtype_of
from arenite.errors import InvalidArgument, ShapeMismatch
from arenite.ir import Node, make, product
from arenite.ir.compose import basic, reductions
from arenite.ir.compose.basic import cast
from arenite.ir.compose.complex_numbers import is_complex, magnitude, parts
from arenite.tensor.base import Axis, DTypeLike, axes_of, axis_of, described
from arenite.tensor.elementwise import ElementwiseMethods, truth
from arenite.tensor.promote import float_dtype, sum_dtype


def _one_of(ddof: float, correction: float | None) -> float:
    """One number under two names."""
    if correction is None:
        return ddof
    if ddof:
        raise InvalidArgument(f"ddof={ddof} and correction={correction} are the same; give one")
    return correction


class ReductionMethods(ElementwiseMethods):
    __slots__ = ()

    def _accumulated(self, op: str, axis: Axis, keepdims: bool, dtype: DTypeLike | None) -> Self:
        wanted = sum_dtype(self.dtype) if dtype is None else dtype_of(dtype)
        axes = axes_of(axis, self.ndim)
        return self._new(reductions.reduce(op, cast(self._node, wanted), axes, keepdims))

    def sum(
        self, axis: Axis = None, dtype: DTypeLike | None = None, keepdims: bool = False
    ) -> Self:
        """The sum over an axis, several, or all; of integers in 64 bits, unless `dtype` says else.

        x.sum(axis=0, keepdims=True)
        """
        return self._accumulated("sum", axis, keepdims, dtype)

    def prod(
        self, axis: Axis = None, dtype: DTypeLike | None = None, keepdims: bool = False
    ) -> Self:
        """The product over an axis, several, or all; of integers in 64 bits, or in `dtype`."""
        return self._accumulated("prod", axis, keepdims, dtype)

    def _extreme(self, op: str, axis: Axis, keepdims: bool) -> Self:
        axes = axes_of(axis, self.ndim)
        if product(self.shape[i] for i in axes) == 0:
            raise ShapeMismatch(f"{op} of no elements: axes {axes} of {described(self._node)}")
        return self._new(reductions.reduce(op, self._node, axes, keepdims))

    def max(self, axis: Axis = None, keepdims: bool = False) -> Self:
        """The largest over an axis, several, or all; NaN where one is among them."""
        return self._extreme("max", axis, keepdims)

    def min(self, axis: Axis = None, keepdims: bool = False) -> Self:
        """The smallest over an axis, several, or all; NaN where one is among them."""
        return self._extreme("min", axis, keepdims)

    def ptp(self, axis: Axis = None, keepdims: bool = False) -> Self:
        """The largest less the smallest."""
        high = self._extreme("max", axis, keepdims)
        low = self._extreme("min", axis, keepdims)
        return self._new(high._node - low._node)

    def any(self, axis: Axis = None, keepdims: bool = False) -> Self:
        """Whether some element is true, or not zero."""
        return self._new(reductions.reduce("any", truth(self), axes_of(axis, self.ndim), keepdims))

    def all(self, axis: Axis = None, keepdims: bool = False) -> Self:
        """Whether all elements are true, or not zero."""
        return self._new(reductions.reduce("all", truth(self), axes_of(axis, self.ndim), keepdims))

    def count_nonzero(self, axis: Axis = None, keepdims: bool = False) -> Self:
        """How many elements are true, or not zero."""
        counted = cast(truth(self), INT64)
        return self._new(reductions.reduce("sum", counted, axes_of(axis, self.ndim), keepdims))

    def _float_node(self) -> Node:
        """For means: integers in float64."""
        if self.dtype.kind in (Kind.FLOAT, Kind.COMPLEX):
            return self._node
        return cast(self._node, FLOAT64)

    def mean(self, axis: Axis = None, keepdims: bool = False) -> Self:
        """The mean over an axis, several, or all; of integers in float64."""
        return self._new(reductions.mean(self._float_node(), axes_of(axis, self.ndim), keepdims))

    def _variance(self, axis: Axis, ddof: float, keepdims: bool) -> Node:
        axes = axes_of(axis, self.ndim)
        node = self._float_node()
        if is_complex(node):
            # What the parts vary by adds up.
            of_parts = (reductions.variance(p, axes, keepdims, float(ddof)) for p in parts(node))
            return make("add", *of_parts)
        return reductions.variance(node, axes, keepdims, float(ddof))

    def var(
        self,
        axis: Axis = None,
        ddof: float = 0,
        keepdims: bool = False,
        correction: float | None = None,
    ) -> Self:
        """The variance over an axis, several, or all: squared distances from the mean, summed, over
        their number less `ddof`, which the array API calls `correction`."""
        return self._new(self._variance(axis, _one_of(ddof, correction), keepdims))

    def std(
        self,
        axis: Axis = None,
        ddof: float = 0,
        keepdims: bool = False,
        correction: float | None = None,
    ) -> Self:
        """The standard deviation over an axis, several, or all: the square root of `var`."""
        variance = self._variance(axis, _one_of(ddof, correction), keepdims)
        return self._new(make("sqrt", variance))

    def logsumexp(self, axis: Axis = None, keepdims: bool = False) -> Self:
        """log(sum(exp(x))), without overflow."""
        node = cast(self._node, float_dtype(self.dtype))
        return self._new(reductions.logsumexp(node, axes_of(axis, self.ndim), keepdims))

    def norm(self, axis: Axis = None, keepdims: bool = False) -> Self:
        """The square root of the sum of squares."""
        node = basic.computing(self._float_node())
        if is_complex(node):
            node = magnitude(node)
        total = reductions.reduce("sum", node * node, axes_of(axis, self.ndim), keepdims)
        root = make("sqrt", total)
        return self._new(root if is_complex(self._node) else cast(root, self._float_node().dtype))

    def _place(self, op: str, axis: int | None, keepdims: bool) -> Self:
        node = self._node if axis is not None else basic.reshape(self._node, (self.size,))
        at = 0 if axis is None else axis_of(axis, self.ndim)
        if node.shape[at] == 0:
            raise ShapeMismatch(f"{op} of no elements: axis {at} of {described(node)}")
        index = make(op, node, axis=at)
        if keepdims:
            gone = axes_of(axis, self.ndim)
            sizes = [1 if i in gone else size for i, size in enumerate(self.shape)]
            index = basic.reshape(index, sizes)
        return self._new(index)

    def argmax(self, axis: int | None = None, keepdims: bool = False) -> Self:
        """The first place of the largest; NaN is the largest."""
        return self._place("argmax", axis, keepdims)

    def argmin(self, axis: int | None = None, keepdims: bool = False) -> Self:
        """The first place of the smallest; NaN counts as the smallest."""
        return self._place("argmin", axis, keepdims)

    def _running(self, op: str, axis: int | None, dtype: DTypeLike | None, reverse: bool) -> Self:
        node = self._node
        if axis is None:
            node, axis = basic.reshape(node, (self.size,)), 0
        at = axis_of(axis, node.ndim)
        if op in ("cumsum", "cumprod"):
            node = cast(node, sum_dtype(node.dtype) if dtype is None else dtype_of(dtype))
        if not reverse:
            return self._new(make(op, node, axis=at))
        return self._new(basic.flip(make(op, basic.flip(node, [at]), axis=at), [at]))

    def cumsum(
        self, axis: int | None = None, dtype: DTypeLike | None = None, reverse: bool = False
    ) -> Self:
        """The sums of all elements up to each one along an axis; `reverse` begins at the end.

        Tensor([1, 2, 3]).cumsum()      # [1, 3, 6]
        """
        return self._running("cumsum", axis, dtype, reverse)

    def cumprod(
        self, axis: int | None = None, dtype: DTypeLike | None = None, reverse: bool = False
    ) -> Self:
        """The products of all elements up to each along an axis; `reverse` begins at the end."""
        return self._running("cumprod", axis, dtype, reverse)

    def cummax(self, axis: int | None = None, reverse: bool = False) -> Self:
        """The largest of all elements up to each one along an axis; `reverse` begins at the end."""
        return self._running("cummax", axis, None, reverse)

    def cummin(self, axis: int | None = None, reverse: bool = False) -> Self:
        """The smallest of all elements up to each along an axis; `reverse` begins at the end."""
        return self._running("cummin", axis, None, reverse)

    def _sorted(self, op: str, axis: int | None, descending: bool) -> Self:
        node = self._node
        if axis is None:
            node, axis = basic.reshape(node, (self.size,)), 0
        return self._new(make(op, node, axis=axis_of(axis, node.ndim), descending=descending))

    def sort(self, axis: int | None = -1, descending: bool = False, stable: bool = True) -> Self:
        """Sorted along an axis; always stable, and NaN is greater than every number."""
        return self._sorted("sort", axis, descending)

    def argsort(self, axis: int | None = -1, descending: bool = False, stable: bool = True) -> Self:
        """The indices that sort along an axis; equal elements always stay in order."""
        return self._sorted("argsort", axis, descending)

    def topk(self, k: int, axis: int = -1, largest: bool = True) -> tuple[Self, Self]:
        """The k largest (or smallest) in order, and where they stand."""
        at = axis_of(axis, self.ndim)
        size = self.shape[at]
        if k < 0 or (isinstance(size, int) and k > size):
            raise ShapeMismatch(f"topk: {k} of axis {at} of {described(self._node)}")
        values, places = reductions.top(self._node, k, at, largest)
        return self._new(values), self._new(places)
