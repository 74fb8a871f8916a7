"""How far a prediction is from what was wanted: torch's losses, as methods of the prediction.

Each takes what was wanted and says with `reduction` what becomes of the losses of the elements:
"mean", "sum", or "none".
"""

from __future__ import annotations

from typing import Any, Self

from arenite.dtype import INT64, Kind
from arenite.errors import InvalidArgument, ShapeMismatch
from arenite.ir.compose import basic
from arenite.ir.compose.basic import cast
from arenite.ir.node import Node
from arenite.tensor.base import described, node_of
from arenite.tensor.elementwise import Operators, arithmetic
from arenite.tensor.indexing import IndexingMethods
from arenite.tensor.neural import NeuralMethods
from arenite.tensor.promote import INTEGERS, float_dtype
from arenite.tensor.reductions import ReductionMethods

_REDUCTIONS = ("mean", "sum", "none")


class LossMethods(Operators, NeuralMethods, IndexingMethods, ReductionMethods):
    __slots__ = ()

    def _float(self) -> Self:
        return self._new(cast(self._node, float_dtype(self.dtype)))

    def _like(self, value: object) -> Self:
        """Another operand in the dtype of this."""
        return self._new(cast(node_of(value), float_dtype(self.dtype)))

    def _reduced(self, losses: Self, reduction: str, weights: Self | None = None) -> Self:
        if reduction not in _REDUCTIONS:
            raise InvalidArgument(
                f"reduction is one of {', '.join(map(repr, _REDUCTIONS))}, not {reduction!r}"
            )
        if reduction == "none":
            return losses
        if reduction == "sum":
            return losses.sum()
        return losses.mean() if weights is None else losses.sum() / weights.sum()

    def mse_loss(self, target: object, reduction: str = "mean") -> Self:
        """(x - target) squared."""
        return self._reduced((self._float() - self._like(target)).square(), reduction)

    def l1_loss(self, target: object, reduction: str = "mean") -> Self:
        """|x - target|."""
        return self._reduced((self._float() - self._like(target)).abs(), reduction)

    def huber_loss(self, target: object, reduction: str = "mean", delta: float = 1.0) -> Self:
        """Half the square of the distance up to `delta`, beyond it a straight line."""
        if delta <= 0:
            raise InvalidArgument(f"huber_loss: delta is positive, not {delta}")
        far = (self._float() - self._like(target)).abs()
        losses = (far <= delta).where(far * far * 0.5, (far - 0.5 * delta) * delta)
        return self._reduced(losses, reduction)

    def smooth_l1_loss(self, target: object, reduction: str = "mean", beta: float = 1.0) -> Self:
        """`huber_loss` over `beta`; of beta 0 `l1_loss`."""
        if beta == 0:
            return self.l1_loss(target, reduction)
        return self.huber_loss(target, reduction, beta) / beta

    def binary_cross_entropy(
        self, target: object, weight: object = None, reduction: str = "mean"
    ) -> Self:
        """-(t log x + (1 - t) log(1 - x)) of probabilities x; logarithms are at least -100."""
        x, t = self._float(), self._like(target)
        losses = -(t * x.log().maximum(-100.0) + (1.0 - t) * (-x).log1p().maximum(-100.0))
        return self._reduced(losses if weight is None else losses * self._like(weight), reduction)

    def binary_cross_entropy_with_logits(
        self,
        target: object,
        weight: object = None,
        reduction: str = "mean",
        pos_weight: object = None,
    ) -> Self:
        """`binary_cross_entropy` of sigmoid(x), without overflow; `pos_weight` multiplies what
        positive targets cost."""
        x, t = self._float(), self._like(target)
        near = (-x.abs()).exp().log1p() + (-x).maximum(0.0)  # log(1 + exp(-x))
        factor = 1.0 if pos_weight is None else (self._like(pos_weight) - 1.0) * t + 1.0
        losses = (1.0 - t) * x + near * factor
        return self._reduced(losses if weight is None else losses * self._like(weight), reduction)

    def kl_div(self, target: object, reduction: str = "mean", log_target: bool = False) -> Self:
        """target * (log target - x) of logarithms x; `log_target`: of logarithms both. "batchmean"
        is the sum over the first axis' size."""
        x, t = self._float(), self._like(target)
        if log_target:
            losses = t.exp() * (t - x)
        else:
            is_some = t > 0
            losses = is_some.where(t * (is_some.where(t, 1.0).log() - x), 0.0)
        if reduction == "batchmean":
            return losses.sum() / self.shape[0]
        return self._reduced(losses, reduction)

    def nll_loss(
        self,
        target: object,
        weight: object = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> Self:
        """-x of the class that `target` names, of logarithms x [N, classes, ...]; targets that are
        `ignore_index` count nothing, the others as much as the `weight` of their class."""
        x, at = self._float(), self._classes(target)
        counts = self._new(arithmetic("ne", at, ignore_index))
        safe = counts.where(at, 0)
        axis = 1 if self.ndim > 1 else 0
        picked = x.take_along_axis(safe.expand_dims(axis), axis).squeeze(axis)
        factors = counts.astype(x.dtype)
        if weight is not None:
            factors = factors * self._like(weight).take(safe, 0)
        return self._reduced(counts.where(-picked * factors, 0.0), reduction, factors)

    def _classes(self, target: object) -> Self:
        node = node_of(target)
        places = (*self.shape[:1], *self.shape[2:]) if self.ndim > 1 else ()
        if node.dtype.kind not in INTEGERS or node.shape != places:
            raise ShapeMismatch(
                f"targets are integers of shape {places} for {described(self._node)}, not "
                f"{described(node)}"
            )
        return self._new(cast(node, INT64))

    def cross_entropy(
        self,
        target: object,
        weight: object = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> Self:
        """The cross entropy of softmax(x) over axis 1 and a class for each, or a share for each
        class. `label_smoothing` takes so much from the target and gives it to all alike.

        logits.cross_entropy(labels)
        """
        axis = 1 if self.ndim > 1 else 0
        logs = self._float().log_softmax(axis)
        node = node_of(target)
        classes = self.shape[axis]
        if node.dtype.kind is Kind.FLOAT and node.shape == self.shape:
            shares = self._like(target) * (1.0 - label_smoothing) + label_smoothing / _known(
                classes
            )
            losses = -(logs * shares * self._by_class(weight, axis)).sum(axis)
            if reduction == "mean" and losses.ndim:
                return losses.sum() / _known(losses.size)
            return self._reduced(losses, reduction)
        if not label_smoothing:
            return logs.nll_loss(target, weight, ignore_index, reduction)
        plain = logs.nll_loss(target, weight, ignore_index, "none")
        counts = self._new(arithmetic("ne", self._classes(target), ignore_index))
        spread = counts.where(-(logs * self._by_class(weight, axis)).sum(axis), 0.0)
        losses = plain * (1.0 - label_smoothing) + spread * (label_smoothing / _known(classes))
        factors = counts.astype(logs.dtype)
        if weight is not None:
            safe = counts.where(self._classes(target), 0)
            factors = factors * self._like(weight).take(safe, 0)
        return self._reduced(losses, reduction, factors)

    def _by_class(self, weight: object, axis: int) -> Self:
        if weight is None:
            return self._like(1.0)
        given: Node = self._like(weight).node
        return self._new(basic.along(given, axis, self.ndim))


def _known(size: Any) -> int:
    if not isinstance(size, int):
        raise ShapeMismatch(f"a loss of {size} classes: the size must be known")
    return size
