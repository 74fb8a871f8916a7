"""Products of tensors, convolution, pooling, attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from arenite.dtype import BOOL, INT8
from arenite.errors import InvalidArgument, ShapeMismatch
from arenite.ir import Dim, Node, make
from arenite.ir.compose import basic, linear, neural
from arenite.ir.compose import convolution as conv
from arenite.ir.compose.basic import cast
from arenite.ir.compose.convolution import Padding, PerAxis
from arenite.tensor.base import Base, axes_of, described, node_of
from arenite.tensor.promote import common_dtype, sum_dtype


def promoted_nodes(*values: object) -> list[Node]:
    nodes = [node_of(value) for value in values]
    dtype = common_dtype(list(nodes))
    return [cast(node, dtype) for node in nodes]


def product_of(a: object, b: object) -> Node:
    """numpy.matmul. Products of bools are bools; of 8-bit integers they wrap, as NumPy's do."""
    left, right = promoted_nodes(a, b)
    if left.dtype == BOOL:
        return cast(linear.matmul(cast(left, INT8), cast(right, INT8)), BOOL)
    return cast(linear.matmul(left, right), left.dtype)


def summed_products(subscripts: str, *operands: object) -> Node:
    """numpy.einsum"""
    nodes = promoted_nodes(*operands)
    return cast(linear.einsum(subscripts, *nodes), nodes[0].dtype)


class LinearMethods(Base):
    __slots__ = ()

    def matmul(self, other: object) -> Self:
        """The matrix product, as `a @ b`, over the last two axes; those before broadcast."""
        return self._new(product_of(self, other))

    __matmul__ = matmul

    def __rmatmul__(self, other: object) -> Self:
        return self._new(product_of(other, self))

    def dot(self, other: object) -> Self:
        """numpy.dot: the last axis of this with the last but one of the other."""
        a, b = promoted_nodes(self, other)
        if a.ndim == 0 or b.ndim == 0:
            return self._new(a * b)
        if b.ndim <= 2:
            return self._new(product_of(self, other))
        return self._new(linear.tensordot(a, b, [a.ndim - 1], [b.ndim - 2]))

    def outer(self, other: object) -> Self:
        """Each element of this with each of the other: one axis each."""
        return self._new(linear.outer(*promoted_nodes(self, other)))

    def tensordot(self, other: object, axes: Any = 2) -> Self:
        """Sums of products over axes of both: the last `axes` of this with the first of the other,
        or pairs of axes by number.

            a.tensordot(b, axes=((1, 0), (0, 1)))
        """
        a, b = promoted_nodes(self, other)
        if isinstance(axes, int):
            left, right = list(range(a.ndim - axes, a.ndim)), list(range(axes))
        else:
            left, right = axes_of(axes[0], a.ndim), axes_of(axes[1], b.ndim)
        return self._new(cast(linear.tensordot(a, b, left, right), a.dtype))

    def trace(self, offset: int = 0) -> Self:
        """The sum along the diagonal of the first two axes."""
        if self.ndim != 2:
            raise ShapeMismatch(f"trace is of a matrix, not of {described(self._node)}")
        diagonal = linear.diagonal(cast(self._node, sum_dtype(self.dtype)), offset, 0, 1)
        return self._new(make("sum", diagonal, axes=(0,)))

    def conv(
        self,
        weight: object,
        bias: object = None,
        stride: PerAxis = 1,
        padding: Padding = 0,
        dilation: PerAxis = 1,
        groups: int = 1,
    ) -> Self:
        """[N, C, *S] by weight [O, C/groups, *K], over one to three spatial axes. Padding is a
        number, a number or (before, after) for each axis, "same" or "valid"."""
        return self._convolved("conv", weight, bias, stride, padding, dilation, groups)

    def conv_transpose(
        self,
        weight: object,
        bias: object = None,
        stride: PerAxis = 1,
        padding: Padding = 0,
        output_padding: PerAxis = 0,
        dilation: PerAxis = 1,
        groups: int = 1,
    ) -> Self:
        """[N, C, *S] by weight [C, O/groups, *K]: the transpose of conv as a linear map."""
        more = {"output_padding": output_padding}
        given = (weight, bias, stride, padding, dilation, groups)
        return self._convolved("conv_transpose", *given, **more)

    def _convolved(self, op: str, weight: object, bias: object, *given: Any, **more: Any) -> Self:
        x, w = promoted_nodes(self, weight)
        b = None if bias is None else node_of(bias)
        return self._new(conv.convolved(op, x, w, b, *given, **more))

    def _pooled(
        self,
        kernel: PerAxis,
        stride: PerAxis | None,
        padding: Padding,
        dilation: PerAxis,
        ceil_mode: bool,
    ) -> tuple[tuple[int, ...], tuple[int, ...], list[tuple[Dim, Dim]], tuple[int, ...], Any]:
        """(sizes, strides, padding, dilations, padding before ceil_mode)"""
        n = len(kernel) if isinstance(kernel, Sequence) else self.ndim - 2
        if not 1 <= n <= self.ndim:
            raise ShapeMismatch(f"pooling over {n} axes of {described(self._node)}")
        sizes = conv.per_axis("kernel", kernel, n)
        strides = sizes if stride is None else conv.per_axis("stride", stride, n)
        dilations = conv.per_axis("dilation", dilation, n)
        spatial = self.shape[self.ndim - n :]
        given = conv.pairs(padding, spatial, sizes, strides, dilations)
        grown = list(given)
        if ceil_mode:
            grown = [
                neural.ceil_padding(*each)
                for each in zip(spatial, sizes, strides, given, dilations, strict=True)
            ]
        return sizes, strides, grown, dilations, given

    def max_pool(
        self,
        kernel: PerAxis,
        stride: PerAxis | None = None,
        padding: Padding = 0,
        dilation: PerAxis = 1,
        ceil_mode: bool = False,
    ) -> Self:
        """The largest of each window over the last axes (all but two for one number)."""
        sizes, strides, pads, dilations, _ = self._pooled(
            kernel, stride, padding, dilation, ceil_mode
        )
        return self._new(neural.max_pool(self._node, sizes, strides, pads, dilations))

    def avg_pool(
        self,
        kernel: PerAxis,
        stride: PerAxis | None = None,
        padding: Padding = 0,
        dilation: PerAxis = 1,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> Self:
        """The mean of each window; padding counts as zeros, or not at all."""
        if self.dtype.kind.value != "float":
            raise InvalidArgument(f"avg_pool is of floats, not {described(self._node)}; cast first")
        sizes, strides, pads, dilations, given = self._pooled(
            kernel, stride, padding, dilation, ceil_mode
        )
        counted = given if count_include_pad else [(0, 0)] * len(sizes)
        return self._new(neural.avg_pool(self._node, sizes, strides, pads, dilations, counted))

    def attention(
        self,
        key: object,
        value: object,
        mask: object = None,
        scale: float | None = None,
        causal: bool = False,
        offset: Dim = 0,
        window: int | None = None,
    ) -> Self:
        """softmax(scale * self @ key.mT + mask) @ value, over [..., heads, length, width].

        Keys and values may have fewer heads, each for a group of these. `causal`: place i sees
        keys up to i + offset, of these the last `window`. A bool mask is True where a key is seen;
        scale is 1/sqrt(width).
        """
        q, k, v = promoted_nodes(self, key, value)
        kept = promoted_nodes(key, value)
        if kept[0].dtype.kind is q.dtype.kind and kept[0].dtype.bits < q.dtype.bits:
            k, v = kept  # narrower floats are read as they are
        squeezed = q.ndim == 2 == k.ndim == v.ndim
        if squeezed:
            q, k, v = (basic.expand_dims(x, 0) for x in (q, k, v))
        given: Node | None = None
        if mask is not None:
            given = node_of(mask)
            if given.dtype != BOOL:
                given = cast(given, q.dtype)
            if given.ndim > q.ndim:
                raise ShapeMismatch(f"attention: mask {described(given)} for q {described(q)}")
            given = basic.reshape(given, (1,) * (q.ndim - given.ndim) + given.shape)
        result = neural.attention(
            q, k, v, given, scale=scale, causal=causal, offset=offset, window=window
        )
        return self._new(basic.reshape(result, result.shape[1:]) if squeezed else result)
