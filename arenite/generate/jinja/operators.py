"""Arithmetic of values, and what `+`, `*` and `%` do to texts and lists."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from arenite.generate.jinja.formats import percent
from arenite.generate.jinja.meter import Meter, OverBudget
from arenite.generate.jinja.text import Text
from arenite.generate.jinja.values import (
    ELEMENT_NBYTES,
    MAX_BITS,
    Given,
    Items,
    Undefined,
    Value,
    is_number,
    kind,
    whole,
)

_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
}


def binary(meter: Meter, sign: str, left: Value, right: Value) -> Value:
    """`left sign right`."""
    meter.spend()
    if sign == "%" and isinstance(left, Text):
        return percent(meter, left, right)
    for value in (left, right):
        if isinstance(value, Undefined):
            raise value.fail()
    if is_number(left) and is_number(right):
        return _number(sign, left, right)
    if sign == "+":
        if isinstance(left, Text) and isinstance(right, Text):
            return Text.join([left, right], meter)
        if type(left) is Items and type(right) is Items:
            meter.need(ELEMENT_NBYTES * (len(left) + len(right)))
            return Items(meter, [*left, *right])
        if isinstance(left, tuple) and isinstance(right, tuple):
            meter.spend(16 * (len(left) + len(right)))
            meter.keep(56 + ELEMENT_NBYTES * (len(left) + len(right)))
            return (*left, *right)
    if sign == "*":
        value, times = (right, left) if isinstance(left, int) else (left, right)
        if isinstance(times, int) and (isinstance(value, Text | tuple) or type(value) is Items):
            return _repeated(meter, value, max(int(times), 0))
    raise TypeError(f"unsupported operand type(s) for {sign}: {kind(left)!r} and {kind(right)!r}")


def _number(sign: str, left: float, right: float) -> Value:
    if sign == "**" and isinstance(left, int) and isinstance(right, int):
        n_bits = left.bit_length() * right if abs(left) > 1 else 0
        if n_bits > 2 * MAX_BITS:
            raise OverBudget(f"makes a number of over {MAX_BITS} bits")
    result = _ARITHMETIC[sign](left, right)
    return derived(result, left, right)


def derived(result: Value, *operands: Value) -> Value:
    """A number that was computed; one of a number that was given counts as given too."""
    if isinstance(result, bool | float):
        return result
    if not isinstance(result, int):
        raise TypeError(f"a template has no numbers of type {type(result).__name__}")
    is_given = any(isinstance(operand, Given) for operand in operands)
    return Given(whole(result)) if is_given else whole(int(result))


def unary(sign: str, value: Value) -> Value:
    if isinstance(value, Undefined):
        raise value.fail()
    if not is_number(value):
        raise TypeError(f"bad operand type for unary {sign}: {kind(value)!r}")
    return derived(-value if sign == "-" else +value, value)


def _repeated(meter: Meter, value: Value, times: int) -> Value:
    if isinstance(value, Text):
        return value.times(times)
    meter.spend(16 * len(value) * times)
    meter.need(ELEMENT_NBYTES * len(value) * times)
    if isinstance(value, tuple):
        meter.keep(56 + ELEMENT_NBYTES * len(value) * times)
        return tuple(value) * times
    return Items(meter, list(value) * times)
