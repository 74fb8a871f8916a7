"""Comparing values: equality, order, membership, each paid for as it goes."""

from __future__ import annotations

import operator
from collections.abc import Callable
from itertools import zip_longest
from typing import Any

from arenite.generate.jinja.meter import Meter
from arenite.generate.jinja.text import Text
from arenite.generate.jinja.values import (
    Dict,
    Stream,
    Undefined,
    Value,
    as_list,
    hashable,
    is_number,
    kind,
)

_SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def equal(meter: Meter, one: Value, other: Value) -> bool:
    meter.spend()
    if is_number(one) and is_number(other):
        return bool(one == other)
    if one is other:
        return True
    if isinstance(one, Text) and isinstance(other, Text):
        meter.spend(min(len(one), len(other)))
        return one.chars == other.chars
    if isinstance(one, Undefined) and isinstance(other, Undefined):
        return True
    for sort in (list, tuple, range):
        if isinstance(one, sort) and isinstance(other, sort):
            pairs = zip(one, other, strict=False)
            return len(one) == len(other) and all(equal_item(meter, a, b) for a, b in pairs)
    if isinstance(one, Dict) and isinstance(other, Dict):
        return len(one) == len(other) and all(
            hashable(meter, key) in other and equal_item(meter, item, other[key])
            for key, item in one.items()
        )
    return False


def equal_item(meter: Meter, one: Value, other: Value) -> bool:
    """Inside of lists Python takes what is the same object for equal, also what is no number."""
    meter.spend()
    return one is other or equal(meter, one, other)


def in_order(meter: Meter, sign: str, one: Value, other: Value) -> bool:
    """`one < other` and the like."""
    meter.spend()
    for value in (one, other):
        if isinstance(value, Undefined):
            raise value.fail()
    if is_number(one) and is_number(other):
        return _SIGNS[sign](one, other)
    if isinstance(one, Text) and isinstance(other, Text):
        meter.spend(min(len(one), len(other)))
        return _SIGNS[sign](one.chars, other.chars)
    for sort in (list, tuple):
        if isinstance(one, sort) and isinstance(other, sort):
            end = object()
            for a, b in zip_longest(one, other, fillvalue=end):
                if a is end or b is end:
                    break
                if not equal_item(meter, a, b):
                    return in_order(meter, sign, a, b)
            return _SIGNS[sign](len(one), len(other))
    raise TypeError(
        f"{sign!r} not supported between instances of {kind(one)!r} and {kind(other)!r}"
    )


def contains(meter: Meter, container: Value, item: Value) -> bool:
    """`item in container`."""
    if isinstance(container, Text):
        if not isinstance(item, Text):
            raise TypeError(f"'in <string>' requires string as left operand, not {kind(item)}")
        return container.find(item.chars, 0, len(container)) >= 0
    if isinstance(container, Dict):
        return hashable(meter, item) in container
    if isinstance(container, Stream):
        return any(equal_item(meter, each, item) for each in container)
    if isinstance(container, range):
        return isinstance(item, int) and item in container
    return any(equal_item(meter, each, item) for each in as_list(meter, container))


class Ordered:
    """A value that sorts by what it costs to compare it."""

    __slots__ = ("meter", "value")

    def __init__(self, meter: Meter, value: Value) -> None:
        meter.spend(16)
        self.meter = meter
        self.value = value

    def __lt__(self, other: Ordered) -> bool:
        return in_order(self.meter, "<", self.value, other.value)
