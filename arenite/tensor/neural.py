"""Activations, softmax, norms, embeddings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self, TypeVar

from arenite.dtype import INT64, Kind
from arenite.dtype import of as dtype_of
from arenite.errors import InvalidArgument, ShapeMismatch
from arenite.ir import Dim, Node, make
from arenite.ir.compose import basic, neural
from arenite.ir.compose.basic import binary, cast
from arenite.ir.compose.indexing import counted_from_front
from arenite.tensor.base import Base, DTypeLike, axis_of, described, node_of, operand_of
from arenite.tensor.promote import INTEGERS, cast_all, float_dtype

S = TypeVar("S", bound="NeuralMethods")


def _float_node(tensor: Base) -> Node:
    return cast(tensor.node, float_dtype(tensor.dtype))


def _activation(function: Callable[[Node], Node], name: str, formula: str) -> Callable[[S], S]:
    def method(self: S) -> S:
        return self._new(function(_float_node(self)))

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"{formula}, element by element; integers become floats."
    return method


def _parameter(value: object, x: Node) -> Node | None:
    return None if value is None else cast(node_of(value), x.dtype)


class NeuralMethods(Base):
    __slots__ = ()

    sigmoid = _activation(neural.sigmoid, "sigmoid", "1 / (1 + exp(-x))")
    log_sigmoid = _activation(neural.log_sigmoid, "log_sigmoid", "log(1 / (1 + exp(-x)))")
    softplus = _activation(neural.softplus, "softplus", "log(1 + exp(x))")
    softsign = _activation(neural.softsign, "softsign", "x / (1 + |x|)")
    silu = swish = _activation(neural.silu, "silu", "x / (1 + exp(-x))")
    mish = _activation(neural.mish, "mish", "x * tanh(log(1 + exp(x)))")
    hard_sigmoid = _activation(neural.hard_sigmoid, "hard_sigmoid", "x / 6 + 1 / 2, in 0..1")
    hard_swish = _activation(neural.hard_swish, "hard_swish", "x * hard_sigmoid(x)")

    def gelu(self, approximate: str = "none") -> Self:
        """x times the share of a normal distribution below x; "tanh" approximates it."""
        if approximate not in ("none", "tanh"):
            raise InvalidArgument(f"gelu: approximate is 'none' or 'tanh', not {approximate!r}")
        function = neural.gelu if approximate == "none" else neural.gelu_tanh
        return self._new(function(_float_node(self)))

    def relu(self) -> Self:
        """max(x, 0)."""
        zero = 0.0 if self.dtype.kind is Kind.FLOAT else 0
        return self._new(binary("maximum", self._node, zero))

    def relu6(self) -> Self:
        """x held within 0 and 6."""
        return self._new(neural.clip(_float_node(self), 0.0, 6.0))

    def hard_tanh(self, low: float = -1.0, high: float = 1.0) -> Self:
        """x held within `low` and `high`."""
        return self._new(neural.clip(_float_node(self), low, high))

    def leaky_relu(self, slope: float = 0.01) -> Self:
        """x, times `slope` where it is negative."""
        return self._new(neural.leaky_relu(_float_node(self), slope))

    def prelu(self, slope: object) -> Self:
        """A slope below 0 for all, or for each channel (axis 1)."""
        x = _float_node(self)
        [given] = cast_all([operand_of(slope)], x.dtype)
        if isinstance(given, Node) and given.ndim == 1 and given.shape[0] != 1 and x.ndim > 1:
            given = basic.along(given, 1, x.ndim)
        return self._new(neural.leaky_relu(x, given))

    def elu(self, alpha: float = 1.0) -> Self:
        """x, or alpha * (exp(x) - 1) where it is negative."""
        return self._new(neural.elu(_float_node(self), alpha))

    def celu(self, alpha: float = 1.0) -> Self:
        """x, or alpha * (exp(x / alpha) - 1) where it is negative."""
        return self._new(neural.elu(_float_node(self), alpha, beta=alpha))

    def selu(self) -> Self:
        """With the constants of Klambauer et al., "Self-normalizing neural networks" (2017)."""
        alpha, scale = 1.6732632423543772, 1.0507009873554805
        return self._new(neural.elu(_float_node(self), alpha, scale))

    def glu(self, axis: int = -1) -> Self:
        """The first half of an axis times the sigmoid of the second."""
        x = _float_node(self)
        at = axis_of(axis, x.ndim)
        size = x.shape[at]
        if size % 2 != 0:
            raise ShapeMismatch(f"glu: axis {at} of {described(x)} has no two halves")
        first = basic.slice_axis(x, at, 0, size // 2)
        second = basic.slice_axis(x, at, size // 2, size)
        return self._new(first * neural.sigmoid(second))

    def softmax(self, axis: int = -1) -> Self:
        """exp(x) over its sum along an axis, without overflow."""
        return self._new(neural.softmax(_float_node(self), axis_of(axis, self.ndim)))

    def log_softmax(self, axis: int = -1) -> Self:
        """log(softmax(x)), without overflow."""
        return self._new(neural.log_softmax(_float_node(self), axis_of(axis, self.ndim)))

    def layer_norm(
        self,
        weight: object = None,
        bias: object = None,
        eps: float = 1e-5,
        n_axes: int = 1,
    ) -> Self:
        """Over the last `n_axes` axes."""
        x = self._normalizable(n_axes)
        w, b = _parameter(weight, x), _parameter(bias, x)
        return self._new(neural.layer_norm(x, n_axes, w, b, eps))

    def rms_norm(self, weight: object = None, eps: float = 1e-6, n_axes: int = 1) -> Self:
        """x over the root mean square of the last `n_axes` axes, times a weight."""
        x = self._normalizable(n_axes)
        return self._new(neural.rms_norm(x, n_axes, _parameter(weight, x), eps))

    def _normalizable(self, n_axes: int) -> Node:
        x = _float_node(self)
        if not 1 <= n_axes <= x.ndim:
            raise ShapeMismatch(f"a norm over {n_axes} axes of {described(x)}")
        return x

    def batch_norm(
        self,
        mean: object,
        var: object,
        weight: object = None,
        bias: object = None,
        eps: float = 1e-5,
        axis: int = 1,
    ) -> Self:
        """By known statistics of each channel."""
        x = _float_node(self)
        average, spread, w, b = (_parameter(p, x) for p in (mean, var, weight, bias))
        if average is None or spread is None:
            raise InvalidArgument("batch_norm needs the mean and the variance of each channel")
        at = axis_of(axis, x.ndim)
        return self._new(neural.batch_norm(x, average, spread, w, b, eps, at))

    def group_norm(
        self, groups: int, weight: object = None, bias: object = None, eps: float = 1e-5
    ) -> Self:
        """Over the channels (axis 1) of each group and all later axes."""
        x = _float_node(self)
        w, b = _parameter(weight, x), _parameter(bias, x)
        return self._new(neural.group_norm(x, groups, w, b, eps))

    def instance_norm(self, weight: object = None, bias: object = None, eps: float = 1e-5) -> Self:
        """Over all axes after the channels."""
        channels = self.shape[1] if self.ndim > 1 else 0
        if not isinstance(channels, int) or channels < 1:
            raise ShapeMismatch(f"instance_norm: {described(self._node)} has no known channels")
        return self.group_norm(channels, weight, bias, eps)

    def one_hot(self, classes: int, dtype: DTypeLike = "float32") -> Self:
        """A last axis of `classes`, 1 where the integer says so; other integers give zeros."""
        if self.dtype.kind not in INTEGERS:
            raise InvalidArgument(f"one_hot is of integers, not {described(self._node)}")
        shape: tuple[Dim, ...] = (*self.shape, classes)
        wide = basic.broadcast_to(basic.expand_dims(cast(self._node, INT64), self.ndim), shape)
        counts = basic.broadcast_to(basic.iota(classes), shape)
        return self._new(cast(make("eq", wide, counts), dtype_of(dtype)))

    def embedding(self, indices: object) -> Self:
        """Rows of this table."""
        places = node_of(indices)
        if places.dtype.kind not in INTEGERS:
            raise InvalidArgument(f"embedding: indices are integers, not {described(places)}")
        if self.ndim == 0:
            raise ShapeMismatch("embedding: a table has rows")
        front = counted_from_front(places, self.shape[0])
        return self._new(make("gather", self._node, front, axis=0))
