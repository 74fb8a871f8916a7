"""Jinja's tests: `x is defined`, `x is string`, and so on."""

from __future__ import annotations

from collections.abc import Callable

from arenite.generate.jinja.comparison import contains, equal, in_order
from arenite.generate.jinja.meter import Meter
from arenite.generate.jinja.operators import binary
from arenite.generate.jinja.text import Text
from arenite.generate.jinja.values import (
    Dict,
    Function,
    Items,
    Macro,
    Stream,
    Undefined,
    Value,
    is_number,
)
from arenite.generate.jinja.writing import text_of

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
