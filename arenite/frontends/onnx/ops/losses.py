"""Losses, and operators of training."""

from __future__ import annotations

from collections.abc import Sequence

from arenite.dtype import FLOAT64, INT64
from arenite.frontends.onnx.call import Call
from arenite.frontends.onnx.registry import TRAINING, Result, operator
from arenite.ir import Node, full, make
from arenite.ir.compose import neural
from arenite.ir.compose.basic import binary, cast, computing, expand_dims, reshape, where
from arenite.ir.compose.reductions import mean, reduce


@operator("NegativeLogLikelihoodLoss", since=12)
def negative_log_likelihood(call: Call) -> Result:
    return _loss(call, call.node(0))


@operator("SoftmaxCrossEntropyLoss", since=12)
def softmax_cross_entropy(call: Call) -> Result:
    scores = call.node(0)
    likelihood = neural.log_softmax(scores, 1)
    return _loss(call, likelihood), likelihood


def _loss(call: Call, likelihood: Node) -> Node:
    """What a target's class lacks, weighed by class; without targets that are to be ignored."""
    targets, weights = cast(call.node(1), INT64), call.optional(2)
    ignored, reduction = call.attr("ignore_index"), call.attr("reduction", "mean")
    if reduction not in ("none", "mean", "sum"):
        call.fail(f"reduction is {reduction!r}, not none, mean or sum")
    if targets.shape != (likelihood.shape[0], *likelihood.shape[2:]):
        call.fail(f"targets of shape {targets.shape} for scores of shape {likelihood.shape}")
    wide = computing(likelihood)
    is_ignored = None if ignored is None else binary("eq", targets, ignored)
    # An ignored target may be no class at all.
    places = targets if is_ignored is None else where(is_ignored, 0, targets)
    taken = make("gather_elements", wide, expand_dims(places, 1), axis=1)
    loss = -reshape(taken, targets.shape)
    weight: Node | None = None
    if weights is not None:
        weight = make("gather", cast(weights, wide.dtype), places, axis=0)
    if is_ignored is not None:
        weight = full(targets.shape, 1.0, wide.dtype) if weight is None else weight
        weight = where(is_ignored, 0.0, weight)
        loss = where(is_ignored, 0.0, loss)
    if weight is not None:
        loss = loss * weight
    axes = list(range(targets.ndim))
    if reduction == "sum":
        loss = reduce("sum", loss, axes)
    elif reduction == "mean":
        if weight is None:
            loss = mean(loss, axes)
        else:
            loss = reduce("sum", loss, axes) / reduce("sum", weight, axes)
    return cast(loss, likelihood.dtype)


def _groups(call: Call, n: int) -> list[list[Node]]:
    """Tensors behind rate and count, in `n` kinds: one list for each that is optimised."""
    rest = [call.node(k) for k in range(2, len(call))]
    if not rest or len(rest) % n:
        call.fail(f"{len(rest)} tensors are not {n} for each one that is optimised")
    count = len(rest) // n
    return [rest[k::count] for k in range(count)]


def _number(node: Node, like: Node) -> Node:
    """A rate or a count, as a number to compute with."""
    return cast(reshape(node, ()), like.dtype)


def _in_order(made: Sequence[tuple[Node, ...]]) -> tuple[Node, ...]:
    return tuple(one for kind in zip(*made, strict=True) for one in kind)


@operator("Adagrad", domain=TRAINING)
def adagrad(call: Call) -> Result:
    decay, norm = call.attr("decay_factor", 0.0), call.attr("norm_coefficient", 0.0)
    made = []
    for x, gradient, squares in _groups(call, 3):
        rate = _number(call.node(0), x)
        rate = rate / (_number(call.node(1), x) * decay + 1.0)
        slope = x * norm + gradient
        total = squares + slope * slope
        away = make("sqrt", total) + call.attr("epsilon", 1e-6)
        made.append((x - slope * rate / away, total))
    return _in_order(made)


@operator("Momentum", domain=TRAINING)
def momentum(call: Call) -> Result:
    alpha, beta = call.need_attr("alpha"), call.need_attr("beta")
    norm, mode = call.need_attr("norm_coefficient"), call.need_attr("mode")
    if mode not in ("nesterov", "standard"):
        call.fail(f"mode is {mode!r}, not nesterov or standard")
    made = []
    for x, gradient, before in _groups(call, 3):
        rate, count = _number(call.node(0), x), _number(call.node(1), x)
        slope = x * norm + gradient
        share = where(count > 0.0, full((), beta, x.dtype), 1.0)
        moved = before * alpha + slope * share
        step = slope + moved * alpha if mode == "nesterov" else moved
        made.append((x - step * rate, moved))
    return _in_order(made)


@operator("Adam", domain=TRAINING)
def adam(call: Call) -> Result:
    alpha, beta = call.attr("alpha", 0.9), call.attr("beta", 0.999)
    norm, after = call.attr("norm_coefficient", 0.0), call.attr("norm_coefficient_post", 0.0)
    made = []
    for x, gradient, before, squares in _groups(call, 4):
        slope = x * norm + gradient
        moved = before * alpha + slope * (1 - alpha)
        total = squares * beta + slope * slope * (1 - beta)
        away = make("sqrt", total) + call.attr("epsilon", 1e-6)
        rate = _number(call.node(0), x)
        count = cast(reshape(call.node(1), ()), FLOAT64)
        is_later = count > 0.0
        top = make("sqrt", 1.0 - make("pow", full((), beta, FLOAT64), count))
        bottom = 1.0 - make("pow", full((), alpha, FLOAT64), count)
        factor = where(is_later, top / where(is_later, bottom, 1.0), 1.0)
        new = x - moved * (rate * cast(factor, x.dtype)) / away
        made.append((new * (1 - after), moved, total))
    return _in_order(made)
