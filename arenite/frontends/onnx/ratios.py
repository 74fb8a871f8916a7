"""Arithmetic on shapes in floats: sizes times numbers, and rounded to sizes again.

    Shape -> Cast to float32 -> Mul by 0.5 -> Floor -> Cast to int64

Only what floats compute exactly is done while a model is read: numbers over powers of two, of few
enough bits. The rest is left to the run.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from arenite.dtype import BY_NAME, Kind
from arenite.frontends.onnx.values import Array, Ratio, Value
from arenite.ir import Dim, bounds

if TYPE_CHECKING:
    from arenite.frontends.onnx.call import Call

#: Whole numbers that float32 has all of.
EXACT = 1 << 24
#: Parts of a whole that numbers may have.
MAX_DENOMINATOR = 1 << 10

FLOATS = (BY_NAME["float32"], BY_NAME["float64"])


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
