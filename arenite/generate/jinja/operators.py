"""Arithmetic of values, what `+`, `*` and `%` do to texts and lists, and Jinja's tests:
`x is defined`, `x is string`, and so on.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from arenite.generate.jinja.comparison import contains, equal, in_order
from arenite.generate.jinja.formats import percent
from arenite.generate.jinja.meter import Meter, OverBudget
from arenite.generate.jinja.text import Text
from arenite.generate.jinja.values import (
    ELEMENT_NBYTES,
    MAX_BITS,
    Dict,
    Function,
    Given,
    Items,
    Macro,
    Stream,
    Undefined,
    Value,
    is_number,
    kind,
    whole,
)
from arenite.generate.jinja.writing import text_of

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


Condition = Callable[..., bool]


def _is_sequence(_meter: Meter, value: Value, /) -> bool:
    is_plain = isinstance(value, Text | tuple | Dict | range | Undefined)
    return is_plain or type(value) is Items


def _divides(meter: Meter, value: Value, by: Value, /) -> bool:
    return equal(meter, binary(meter, "%", value, by), 0)


def _ordered(sign: str) -> Condition:
    return lambda meter, one, other, /: in_order(meter, sign, one, other)


def _not_equal(meter: Meter, one: Value, other: Value, /) -> bool:
    return not equal(meter, one, other)


def _is_cased(name: str) -> Condition:
    def is_cased(meter: Meter, value: Value, /) -> bool:
        text = text_of(meter, value)
        meter.spend(4 * len(text))
        return text.chars.islower() if name == "lower" else text.chars.isupper()

    return is_cased


_ITERABLE = (Text, list, tuple, dict, range, Stream, Undefined)
_LESS, _LESS_EQUAL, _MORE, _MORE_EQUAL = map(_ordered, ("<", "<=", ">", ">="))

TESTS: dict[str, Condition] = {
    "boolean": lambda _, value, /: isinstance(value, bool),
    "callable": lambda _, value, /: isinstance(value, Function | Macro | Undefined),
    "defined": lambda _, value, /: not isinstance(value, Undefined),
    "divisibleby": _divides,
    "escaped": lambda _, value, /: False,
    "even": lambda meter, value, /: equal(meter, binary(meter, "%", value, 2), 0),
    "false": lambda _, value, /: value is False,
    "float": lambda _, value, /: isinstance(value, float),
    "in": lambda meter, value, container, /: contains(meter, container, value),
    "integer": lambda _, value, /: isinstance(value, int) and not isinstance(value, bool),
    "iterable": lambda _, value, /: isinstance(value, _ITERABLE),
    "lower": _is_cased("lower"),
    "mapping": lambda _, value, /: isinstance(value, Dict),
    "none": lambda _, value, /: value is None,
    "number": lambda _, value, /: is_number(value),
    "odd": lambda meter, value, /: equal(meter, binary(meter, "%", value, 2), 1),
    "sameas": lambda _, value, other, /: value is other,
    "sequence": _is_sequence,
    "string": lambda _, value, /: isinstance(value, Text),
    "true": lambda _, value, /: value is True,
    "undefined": lambda _, value, /: isinstance(value, Undefined),
    "upper": _is_cased("upper"),
}
TESTS |= dict.fromkeys(("==", "eq", "equalto"), equal)
TESTS |= dict.fromkeys(("!=", "ne"), _not_equal)
TESTS |= dict.fromkeys(("<", "lt", "lessthan"), _LESS)
TESTS |= dict.fromkeys(("<=", "le"), _LESS_EQUAL)
TESTS |= dict.fromkeys((">", "gt", "greaterthan"), _MORE)
TESTS |= dict.fromkeys((">=", "ge"), _MORE_EQUAL)
