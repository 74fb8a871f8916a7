"""Arithmetic on shapes: operators on sizes that are no numbers yet are done while a model is read.

Each function gets arrays of objects, sizes, and returns one, or None where the result is none.

So is arithmetic in floats: sizes times numbers, and rounded to sizes again.

    Shape -> Cast to float32 -> Mul by 0.5 -> Floor -> Cast to int64

Only what floats compute exactly is done while a model is read: numbers over powers of two, of few
enough bits. The rest is left to the run.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from fractions import Fraction
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from arenite.dtype import BOOL, FLOAT32, FLOAT64, INT64, Array, DType, Kind
from arenite.frontends.onnx.values import MAX_FOLDED, Ratio, Value
from arenite.ir import Dim, Expr, bounds, maximum, minimum, product

if TYPE_CHECKING:
    from arenite.frontends.onnx.call import Call


#: Whole numbers that float32 has all of.
EXACT = 1 << 24
#: Parts of a whole that numbers may have.
MAX_DENOMINATOR = 1 << 10

FLOATS = (FLOAT32, FLOAT64)


def folded_ratios(call: Call, values: list[Value]) -> Value | None:
    """The output of an operator on floats that follow from shapes, or on sizes that become some."""
    made = _made(call, values)
    if made is None or any(one is None for one in made.reshape(-1)):
        return None
    dtype = call.dtype_attr("to") if call.op == "Cast" else values[0].dtype
    return Value.of_sizes(made, dtype)


def _made(call: Call, values: list[Value]) -> Array | None:
    x = values[0]
    if call.op == "Cast":
        to = call.dtype_attr("to")
        if to in FLOATS and x.sizes is not None:
            return _each(_float_of, x.sizes)
        is_whole = to.kind is Kind.SIGNED and to.bits >= 32
        return _each(_truncated, x.sizes) if is_whole and x.sizes is not None else None
    if call.op in ROUNDINGS:
        return None if x.sizes is None else _each(ROUNDINGS[call.op], x.sizes)
    if call.op not in ("Mul", "Div") or len(values) != 2:
        return None
    other = values[1]
    if call.op == "Mul" and x.sizes is None:
        x, other = other, x
    if x.sizes is None or other.known is None or other.known.size != 1:
        return None
    number = float(other.known.reshape(()))
    if not np.isfinite(number) or number <= 0:
        return None
    factor = Fraction(number) if call.op == "Mul" else 1 / Fraction(number)
    shape = np.broadcast_shapes(x.shape, other.shape)  # type: ignore[arg-type]
    return None if len(shape) != x.ndim else _each(lambda one: _times(one, factor), x.sizes)


def _each(function: Callable[[Any], Any], sizes: Array) -> Array:
    made = np.empty(sizes.shape, object)
    for at, one in np.ndenumerate(sizes):
        made[at] = function(one)
    return made


def _exact(numerator: Dim, denominator: int) -> Ratio | None:
    """The number, if floats have all that it may be."""
    low, high = bounds(numerator)
    is_exact = low >= 0 and high <= EXACT and 0 < denominator <= MAX_DENOMINATOR
    is_binary = denominator & (denominator - 1) == 0
    return Ratio(numerator, denominator) if is_exact and is_binary else None


def _float_of(one: Dim | Ratio) -> Ratio | None:
    return one if isinstance(one, Ratio) else _exact(one, 1)


def _times(one: Ratio, factor: Fraction) -> Ratio | None:
    return _exact(one.numerator * factor.numerator, one.denominator * factor.denominator)


def _truncated(one: Ratio) -> Dim:
    return one.numerator // one.denominator


def _rounded_down(one: Ratio) -> Ratio:
    return Ratio(one.numerator // one.denominator, 1)


def _rounded_up(one: Ratio) -> Ratio:
    return Ratio((one.numerator + one.denominator - 1) // one.denominator, 1)


ROUNDINGS: dict[str, Callable[[Ratio], Ratio]] = {"Floor": _rounded_down, "Ceil": _rounded_up}


#: Operators that are known when sizes are, whatever their input.
ALWAYS_FOLDED = ("Shape", "Size")

#: Operators that leave elements as they are.
MOVES = ("Concat", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Unsqueeze")

Fold: TypeAlias = Callable[["Call", list[Array]], "Array | None"]


def folded_sizes(call: Call) -> Value | None:
    """The output of an operator that is known when sizes are; None: it is computed in a run."""
    if call.domain:
        return None
    if call.op == "Shape":
        return _shape(call)
    if call.op == "Size":
        value = call.value(0)
        return Value.of_sizes(np.asarray(product(value.shape), object))
    fold = FOLDS.get(call.op)
    if (fold is None and call.op not in ROUNDINGS) or not call.inputs:
        return None
    values = [one for one in call.inputs if isinstance(one, Value)]
    if len(values) != len([one for one in call.inputs if one is not None]):
        return None
    if not any(one.is_symbolic for one in values):
        return None
    if call.op not in MOVES and _has_floats(call, values):
        return folded_ratios(call, values)
    sizes = [one.known if one.dtype == BOOL else one.sizes for one in values]
    if any(one is None for one in sizes):
        return None
    made = None if fold is None else fold(call, sizes)  # type: ignore[arg-type]
    if made is None:
        return None
    made = np.asarray(made, object)  # of arrays without axes NumPy makes the object itself
    if made.size > MAX_FOLDED:
        return None
    return Value.of_sizes(made, _dtype(call, values))


def _has_floats(call: Call, values: list[Value]) -> bool:
    to_float = call.op == "Cast" and call.dtype_attr("to").kind is Kind.FLOAT
    return to_float or any(one.dtype.kind is Kind.FLOAT for one in values)


def _dtype(call: Call, values: list[Value]) -> DType:
    if call.op == "Cast":
        return call.dtype_attr("to")
    if call.op in COMPARISONS:
        return BOOL
    return values[1 if call.op == "Where" else 0].dtype


def _shape(call: Call) -> Value:
    shape = call.value(0).shape
    start, end = call.attr("start", 0), call.attr("end")
    return Value.of_sizes(_objects(shape[slice(start, end)]), INT64)


def _objects(items: Any) -> Array:
    made = np.empty(len(items), object)
    made[:] = items
    return made


def _elementwise(function: Callable[[Dim, Dim], Dim]) -> Fold:
    def fold(call: Call, sizes: list[Array]) -> Array | None:
        result = sizes[0]
        for other in sizes[1:]:
            a, b = np.broadcast_arrays(result, other)
            flat = [function(x, y) for x, y in zip(a.reshape(-1), b.reshape(-1), strict=True)]
            result = _objects(flat).reshape(a.shape)
        return result

    return fold


def _pairwise(function: Callable[[Dim, Dim], Dim | None]) -> Fold:
    """None where it is not known of some pair."""

    def fold(call: Call, sizes: list[Array]) -> Array | None:
        a, b = np.broadcast_arrays(*sizes)
        flat = [function(x, y) for x, y in zip(a.reshape(-1), b.reshape(-1), strict=True)]
        return None if any(one is None for one in flat) else _objects(flat).reshape(a.shape)

    return fold


def _are_positive(x: Dim, y: Dim) -> bool:
    """Whether a division rounds down, and not towards zero from below."""
    return bounds(x)[0] >= 0 and bounds(y)[0] >= 1


def _compared(holds: Callable[[int, int], bool]) -> Fold:
    """`holds(difference, 0)`, where all differences that there may be agree."""

    def compare(x: Dim, y: Dim) -> bool | None:
        low, high = bounds(x - y)
        if low <= 0 <= high:
            answers = {holds(one, 0) for one in {low, 0, high}}
        else:
            answers = {holds(low, 0), holds(high, 0)}
        return answers.pop() if len(answers) == 1 else None

    return _pairwise(compare)


def _chosen(call: Call, sizes: list[Array]) -> Array | None:
    return np.where(*np.broadcast_arrays(*sizes))


def _expanded(call: Call, sizes: list[Array]) -> Array | None:
    shape = _integers(sizes[1])
    if shape is None or math.prod(shape) > MAX_FOLDED:
        return None
    return sizes[0] * np.ones(shape, object)


def _gathered(call: Call, sizes: list[Array]) -> Array | None:
    data, places = sizes
    if any(isinstance(one, Expr) for one in places.reshape(-1)):
        return None
    axis = call.axis(call.attr("axis", 0), data.ndim)
    indices = places.astype(np.int64)
    size = data.shape[axis]
    if ((indices < -size) | (indices >= size)).any():
        call.fail(f"an index is outside of an axis of size {size}")
    return np.take(data, indices, axis)


def _sliced(call: Call, sizes: list[Array]) -> Array | None:
    data, *rest = sizes
    if call.version < 10:
        starts, ends = call.need_attr("starts"), call.need_attr("ends")
        rest = [np.asarray(one) for one in (starts, ends, call.attr("axes", range(len(starts))))]
    plain = [_integers(one) for one in rest]
    if any(one is None for one in plain):
        return None
    starts, ends, *more = [[int(x) for x in one] for one in plain if one is not None]
    axes = more[0] if more else list(range(len(starts)))
    steps = more[1] if len(more) > 1 else [1] * len(starts)
    if call.has(4) and not call.has(3):
        return None
    items = [slice(None)] * data.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if step == 0:
            call.fail("a step is 0")
        low = None if step < 0 and end < -data.shape[axis] else end
        items[call.axis(axis, data.ndim)] = slice(start, low, step)
    return data[tuple(items)]


def _integers(sizes: Array) -> list[int] | None:
    flat = list(sizes.reshape(-1))
    return None if any(isinstance(one, Expr) for one in flat) else [int(one) for one in flat]


def _concatenated(call: Call, sizes: list[Array]) -> Array | None:
    return np.concatenate(sizes, call.need_attr("axis"))


def _squeezed(call: Call, sizes: list[Array]) -> Array | None:
    axes = call.attr("axes") if call.version < 13 else _axes(sizes)
    if axes is None:
        return sizes[0].squeeze()
    return sizes[0].squeeze(tuple(axes)) if axes else sizes[0]


def _unsqueezed(call: Call, sizes: list[Array]) -> Array | None:
    axes = call.attr("axes") if call.version < 13 else _axes(sizes)
    return None if axes is None else np.expand_dims(sizes[0], tuple(axes))


def _axes(sizes: list[Array]) -> list[int] | None:
    return _integers(sizes[1]) if len(sizes) > 1 else None


def _reshaped(call: Call, sizes: list[Array]) -> Array | None:
    shape = _integers(sizes[1])
    if shape is None or call.attr("allowzero", 0) or 0 in shape:
        return None
    return sizes[0].reshape(shape)


def _reduced(function: Callable[[Dim, Dim], Dim]) -> Fold:
    """All of a row becomes one."""

    def fold(call: Call, sizes: list[Array]) -> Array | None:
        data = sizes[0]
        axes = (_axes(sizes) if len(sizes) > 1 else call.attr("axes")) or []
        is_kept = not axes and call.attr("noop_with_empty_axes", 0)
        if data.ndim != 1 or data.size == 0 or axes not in ([], [0], [-1]) or is_kept:
            return None
        made = np.empty((), object)
        made[()] = reduce(function, data)
        return made.reshape((1,)) if call.attr("keepdims", 1) else made

    return fold


def _cast(call: Call, sizes: list[Array]) -> Array | None:
    is_integer = call.dtype_attr("to").kind in (Kind.SIGNED, Kind.UNSIGNED)
    return sizes[0] if is_integer and call.dtype_attr("to").bits >= 32 else None


#: Comparisons of sizes, by what they ask of a difference and 0.
COMPARISONS = {
    "Equal": operator.eq,
    "Greater": operator.gt,
    "GreaterOrEqual": operator.ge,
    "Less": operator.lt,
    "LessOrEqual": operator.le,
}

FOLDS: dict[str, Fold] = {
    **{name: _compared(holds) for name, holds in COMPARISONS.items()},
    "Add": _elementwise(lambda a, b: a + b),
    "Sub": _elementwise(lambda a, b: a - b),
    "Mul": _elementwise(lambda a, b: a * b),
    "Max": _elementwise(maximum),
    "Min": _elementwise(minimum),
    "Sum": _elementwise(lambda a, b: a + b),
    "Div": _pairwise(lambda a, b: a // b if _are_positive(a, b) else None),
    "Mod": _pairwise(lambda a, b: a % b if _are_positive(a, b) else None),
    "Neg": lambda call, sizes: -sizes[0],
    "Where": _chosen,
    "Expand": _expanded,
    "Gather": _gathered,
    "Slice": _sliced,
    "Concat": _concatenated,
    "Squeeze": _squeezed,
    "Unsqueeze": _unsqueezed,
    "Reshape": _reshaped,
    "ReduceProd": _reduced(lambda a, b: a * b),
    "ReduceSum": _reduced(lambda a, b: a + b),
    "ReduceMax": _reduced(maximum),
    "ReduceMin": _reduced(minimum),
    "Cast": _cast,
    "Identity": lambda call, sizes: sizes[0],
}
