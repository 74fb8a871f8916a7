"""Operators that make tensors up: Constant, ConstantOfShape, Range, EyeLike, Trilu."""

from __future__ import annotations

import math

import numpy as np

from arenite.dtype import BOOL, FLOAT32, FLOAT64, INT64, DType, Kind
from arenite.frontends.onnx.call import Call, Unknown
from arenite.frontends.onnx.operators import sparse
from arenite.frontends.onnx.registry import Result, operator
from arenite.frontends.onnx.structure import least_of, most_apart
from arenite.frontends.onnx.values import Value
from arenite.ir import Dim, Expr, Node, bounds, ceildiv, full, make, maximum, size
from arenite.ir.compose.basic import (
    along,
    binary,
    broadcast_to,
    cast,
    iota,
    reshape,
    size_like,
    where,
)
from arenite.ir.element import widened
from arenite.ir.ops.control import cut
from arenite.ir.ops.define import INTEGER
from arenite.ir.ops.unbounded import arange

#: Elements of a range; more are a mistake.
MAX_RANGE = 1 << 40


@operator("Constant")
def constant(call: Call) -> Result:
    """The one attribute that is given says what it is."""
    given = {name: one for name, one in call.attrs.items() if name != "overload"}
    if len(given) != 1:
        call.fail(f"it needs one attribute, not {sorted(given)}")
    [(name, value)] = given.items()
    if name == "value" and isinstance(value, Value):
        return value
    if name == "sparse_value":
        return sparse(call.translator.source, value)
    if name in ("value_float", "value_floats"):
        return Value.of_known(np.asarray(value, np.float32))
    if name in ("value_int", "value_ints"):
        return Value.of_known(np.asarray(value, np.int64))
    if name not in ("value_string", "value_strings"):
        call.fail(f"attribute {name!r} says nothing about a constant")
    places = call.translator.source.strings.keep(np.asarray(value, object))
    return Value.of_known(places, INT64, is_string=True)


@operator("ConstantOfShape", since=9)
def constant_of_shape(call: Call) -> Result:
    shape = call.sizes(0)
    if any(bounds(one)[0] < 0 for one in shape):
        call.fail(f"shape {shape} has a size that may be negative")
    value = call.attr("value")
    if value is None:
        return full(shape, 0.0, FLOAT32)
    known = value.known
    if known is None or known.size != 1:
        call.fail("its value is one element")
    made = full(shape, widened(known, value.dtype).reshape(()).item(), value.dtype)
    return Value.of(made, is_string=value.is_string)


@operator("Range", since=11)
def counted(call: Call) -> Result:
    """start, start + delta, ... before limit."""
    dtype = call.value(0).dtype
    for index in range(3):
        if any(one != 1 for one in call.value(index).shape):
            call.fail(f"input {index} is one number, not of shape {call.value(index).shape}")
    if any(call.is_found_in_run(index) for index in range(3)):
        return _range_in_run(call, dtype)
    try:
        if dtype.kind in INTEGER:
            return _range_of_sizes(call, dtype)
        numbers = [widened(call.number(k), dtype).item() for k in range(3)]
    except Unknown:
        return _range_in_run(call, dtype)
    start, limit, delta = numbers
    if delta == 0 or not all(map(math.isfinite, numbers)):
        call.fail(f"a range from {start} to {limit} by {delta}")
    return _line(_checked(call, math.ceil((limit - start) / delta)), start, delta, dtype)


def _range_of_sizes(call: Call, dtype: DType) -> Result:
    start, limit, delta = call.size(0), call.size(1), call.size(2)
    if isinstance(delta, Expr):
        raise Unknown(call, 2)
    if delta == 0:
        call.fail("its step is 0")
    distance = limit - start if delta > 0 else start - limit
    count = _checked(call, ceildiv(maximum(0, distance), abs(delta)))
    steps = iota(count) * delta if delta != 1 else iota(count)
    return cast(steps + size(start, INT64) if start != 0 else steps, dtype)


def _checked(call: Call, count: Dim) -> Dim:
    if bounds(count)[0] > MAX_RANGE:
        call.fail(f"it would have {count} elements; at most {MAX_RANGE} are made")
    return maximum(0, count)


def _line(count: Dim, start: float, delta: float, dtype: DType) -> Node:
    wide = FLOAT64 if dtype == FLOAT64 else FLOAT32
    return cast(iota(count, wide) * delta + start, dtype)


def _range_in_run(call: Call, dtype: DType) -> Node:
    """Its length is found while running."""
    start, limit, delta = (reshape(call.node(k), ()) for k in range(3))
    if dtype.kind is Kind.FLOAT:
        wide = [cast(one, FLOAT64) for one in (start, limit, delta)]
        count = cast(make("ceil", (wide[1] - wide[0]) / wide[2]), INT64)
        steps = cast(arange(binary("maximum", count, 0)), FLOAT32)
        steps = cast(steps, dtype if dtype == FLOAT64 else FLOAT32)
        line = steps * cast(delta, steps.dtype) + cast(start, steps.dtype)
        return cast(line, dtype)
    first, last, step = (cast(one, INT64) for one in (start, limit, delta))
    # As many as the distance has steps, the last one begun counted: rounded up.
    count = binary("maximum", -((first - last) // step), 0)
    by_one = call.value(2).known is not None and int(call.number(2)) == 1
    most = most_apart(first, last) if by_one else None
    from_0 = by_one and call.value(0).known is not None and int(call.number(0)) == 0
    least = least_of(last) if from_0 else 0
    steps = arange(count, least) if most is None else cut(iota(most), count)
    return cast(steps * step + first, dtype)


@operator("EyeLike", since=9)
def eye_like(call: Call) -> Result:
    x = call.value(0)
    if x.ndim != 2:
        call.fail(f"it takes a matrix, not shape {x.shape}")
    rows, columns = x.shape
    i, j = along(iota(rows), 0, 2), along(iota(columns), 1, 2)
    ones = binary("eq", j, i + int(call.attr("k", 0)))
    return cast(ones, call.dtype_attr("dtype", x.dtype))


@operator("Trilu", since=14)
def triangle(call: Call) -> Result:
    """What lies above, or below, a diagonal is kept, that itself too; the rest is 0."""
    x = call.node(0)
    if x.ndim < 2:
        call.fail(f"it takes matrices, not shape {x.shape}")
    rows, columns = x.shape[-2:]
    i, j = along(iota(rows), 0, 2), along(iota(columns), 1, 2)
    if call.has(1):
        k = reshape(call.node(1), ())
        # Beyond every diagonal there is no other: sums stay within 64 bits.
        k = binary("minimum", k, size_like(rows + columns, k))
        k = binary("maximum", k, -size_like(rows + columns, k))
        i = i + k
    kept = binary("ge" if call.attr("upper", 1) else "le", j, i)
    return where(broadcast_to(kept, x.shape), x, False if x.dtype == BOOL else 0)
