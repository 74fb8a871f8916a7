"""Operators along axes: sums and their kin, ArgMax, cumulative ones, TopK, Hardmax."""

from __future__ import annotations

from collections.abc import Callable

from arenite.dtype import FLOAT64, INT64, Kind
from arenite.frontends.onnx.call import Call
from arenite.frontends.onnx.registry import Handler, Result, operator
from arenite.frontends.onnx.structure import checked
from arenite.ir import Dim, Node, known_le, make, product
from arenite.ir import size as size_node
from arenite.ir.compose import basic, reductions
from arenite.ir.compose.basic import (
    binary,
    cast,
    computing,
    expand_dims,
    flip,
    iota,
    pad,
    reshape,
    size_like,
    slice_axis,
)
from arenite.ir.compose.reductions import reduce
from arenite.ir.ops.control import cut

#: Operators, and the version since which they take their axes as an input.
AXES_AS_INPUT = {
    "ReduceL1": 18,
    "ReduceL2": 18,
    "ReduceLogSum": 18,
    "ReduceLogSumExp": 18,
    "ReduceMax": 18,
    "ReduceMean": 18,
    "ReduceMin": 18,
    "ReduceProd": 18,
    "ReduceSum": 13,
    "ReduceSumSquare": 18,
}


def _axes(call: Call, ndim: int) -> list[int]:
    """Which axes go; none, where an empty list means that."""
    if call.version < AXES_AS_INPUT[call.op]:
        given = call.attr("axes") or []
    else:
        given = call.integers(1) if call.has(1) else []
    if not given:
        return [] if call.attr("noop_with_empty_axes", 0) else list(range(ndim))
    return call.axes(given, ndim)


def _real(x: Node) -> Node:
    """In a type for roots, logarithms and means."""
    return computing(x) if x.dtype.kind is Kind.FLOAT else cast(x, FLOAT64)


def _square(x: Node) -> Node:
    return x * x


def _sum(x: Node, axes: list[int], keep: bool) -> Node:
    return reduce("sum", x, axes, keep)


def _extreme(op: str) -> Callable[[Node, list[int], bool], Node]:
    return lambda x, axes, keep: reduce(op, x, axes, keep)


def _mean(x: Node, axes: list[int], keep: bool) -> Node:
    return reductions.mean(_real(x), axes, keep)


REDUCTIONS: dict[str, Callable[[Node, list[int], bool], Node]] = {
    "ReduceL1": lambda x, axes, keep: _sum(abs(computing(x)), axes, keep),
    "ReduceL2": lambda x, axes, keep: make("sqrt", _sum(_square(_real(x)), axes, keep)),
    "ReduceLogSum": lambda x, axes, keep: make("log", _sum(_real(x), axes, keep)),
    "ReduceLogSumExp": lambda x, axes, keep: reductions.logsumexp(_real(x), axes, keep),
    "ReduceMax": _extreme("max"),
    "ReduceMean": _mean,
    "ReduceMin": _extreme("min"),
    "ReduceProd": _extreme("prod"),
    "ReduceSum": lambda x, axes, keep: _sum(computing(x), axes, keep),
    "ReduceSumSquare": lambda x, axes, keep: _sum(_square(computing(x)), axes, keep),
}


def _reduction(function: Callable[[Node, list[int], bool], Node]) -> Handler:
    def handle(call: Call) -> Result:
        x = call.node(0)
        keep = bool(call.attr("keepdims", 1))
        return cast(function(x, _axes(call, x.ndim), keep), x.dtype)

    return handle


for _name, _function in REDUCTIONS.items():
    operator(_name)(_reduction(_function))


@operator("ArgMax", "ArgMin")
def arg_extreme(call: Call) -> Result:
    x = call.node(0)
    axis = call.axis(call.attr("axis", 0), x.ndim)
    if x.ndim == 0:
        x = reshape(x, (1,))
    is_last = bool(call.attr("select_last_index", 0))
    given = flip(x, [axis]) if is_last else x
    made = make("argmax" if call.op == "ArgMax" else "argmin", given, axis=axis)
    if is_last:
        made = size_like(x.shape[axis] - 1, made) - made
    if call.node(0).ndim == 0:
        return reshape(made, ())
    return expand_dims(made, axis) if call.attr("keepdims", 1) else made


@operator("CumSum", "CumProd")
def cumulative(call: Call) -> Result:
    x = call.node(0)
    axis = call.some_axis(call.integer(1), x.ndim)
    is_sum = call.op == "CumSum"
    wide = computing(x)
    is_reverse = bool(call.attr("reverse", 0))
    wide = flip(wide, [axis]) if is_reverse else wide
    made = make("cumsum" if is_sum else "cumprod", wide, axis=axis)
    if call.attr("exclusive", 0) and x.shape[axis] != 0:
        shorter = slice_axis(made, axis, 0, x.shape[axis] - 1)
        padding: list[tuple[Dim, Dim]] = [(0, 0)] * x.ndim
        padding[axis] = (1, 0)
        made = pad(shorter, padding, 0 if is_sum else 1)
    return cast(flip(made, [axis]) if is_reverse else made, x.dtype)


@operator("TopK")
def top_k(call: Call) -> Result:
    """The greatest or least along an axis, and where they stand; of equal ones the first."""
    x = call.node(0)
    axis = call.axis_of(x, -1)
    places = make("argsort", x, axis=axis, descending=bool(call.attr("largest", 1)))
    if call.version >= 10 and call.is_found_in_run(1):
        first = make("gather", places, _first_places(call, x.shape[axis]), axis=axis)
        return make("gather_elements", x, first, axis=axis), first
    k: Dim = call.size(1) if call.version >= 10 else call.need_attr("k")
    if not known_le(0, k) or not known_le(k, x.shape[axis]):
        call.fail(f"k = {k} of an axis of size {x.shape[axis]}")
    first = slice_axis(places, axis, 0, k)
    return make("gather_elements", x, first, axis=axis), first


def _first_places(call: Call, size: Dim) -> Node:
    """0, 1, ... before a k that only a run knows."""
    count, most = reshape(call.node(1), ()), size_node(size, INT64)
    what = "k, and the size of its axis, were found to be"
    return cut(iota(size), checked(call, what, count, most, lambda k, n: 0 <= k <= n))


@operator("Hardmax")
def hardmax(call: Call) -> Result:
    """1 at the first greatest element, 0 elsewhere; before version 13 over all axes from one on."""
    x = call.node(0)
    if call.version >= 13:
        return _first_greatest(x, call.axis_of(x, -1))
    axis = call.axis_of(x, 1)
    flat = reshape(x, (product(x.shape[:axis]), product(x.shape[axis:])))
    return reshape(_first_greatest(flat, 1), x.shape)


def _first_greatest(x: Node, axis: int) -> Node:
    if x.shape[axis] == 0:
        return x
    at = expand_dims(make("argmax", x, axis=axis), axis)
    places = basic.along(iota(x.shape[axis]), axis, x.ndim)
    return cast(binary("eq", places, at), x.dtype)
