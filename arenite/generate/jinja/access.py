"""Attributes, items and slices of values, by Jinja's rules."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from jinja2.exceptions import SecurityError

from arenite.generate.jinja.formats import braces
from arenite.generate.jinja.meter import Meter
from arenite.generate.jinja.methods import DICT_METHODS, LIST_METHODS, TEXT_METHODS
from arenite.generate.jinja.text import TEMPLATE, Text
from arenite.generate.jinja.values import (
    ELEMENT_NBYTES,
    FUNCTION_NBYTES,
    Dict,
    Function,
    Group,
    Items,
    Namespace,
    Undefined,
    Value,
    View,
    hashable,
    kind,
)

#: Methods of Python's that no template may call: they change values, or are not ours to offer.
_REFUSED = {
    name
    for sort, known in ((str, TEXT_METHODS), (list, LIST_METHODS), (dict, DICT_METHODS))
    for name in dir(sort)
    if name not in known and name != "format"
}


def get_attribute(meter: Meter, value: Value, name: str) -> Value:
    """`value.name`: an attribute, or else an item."""
    meter.spend()
    attribute = _attribute(meter, value, name)
    if attribute is None and isinstance(value, Dict):
        key = Text.of(name, TEMPLATE, meter)
        if key in value:
            return value[key]
    return _missing(value, repr(name)) if attribute is None else attribute


def get_item(meter: Meter, value: Value, key: Value) -> Value:
    """`value[key]`: an item, or else an attribute."""
    meter.spend()
    if isinstance(value, Undefined):
        raise value.fail()
    if isinstance(value, Dict):
        found_key = hashable(meter, key)
        if found_key in value:
            return value[found_key]
    elif isinstance(key, int) and isinstance(value, Text | Items | tuple | range):
        if -len(value) <= key < len(value) and not isinstance(value, View):
            place = key % len(value)
            return value.cut(place, place + 1) if isinstance(value, Text) else value[place]
        return Undefined(f"{kind(value)} object has no element {int(key)}")
    attribute = _attribute(meter, value, key.chars) if isinstance(key, Text) else None
    shown = repr(key.chars[:80]) if isinstance(key, Text) else kind(key)
    return _missing(value, shown) if attribute is None else attribute


def get_slice(meter: Meter, value: Value, part: slice) -> Value:
    for bound in (part.start, part.stop, part.step):
        if bound is not None and not isinstance(bound, int):
            raise TypeError("slice indices must be integers or None")
    if isinstance(value, Undefined):
        raise value.fail()
    if isinstance(value, Text):
        return value.sliced(part)
    if isinstance(value, tuple):
        meter.keep(56 + ELEMENT_NBYTES * len(value))
        return value[part]
    if isinstance(value, range):
        return value[part]
    if type(value) is Items:
        meter.need(ELEMENT_NBYTES * len(value))
        return Items(meter, list(value)[part])
    raise TypeError(f"{kind(value)!r} object is not subscriptable")


def _missing(value: Value, shown: str) -> Undefined:
    owner = "None" if value is None else f"{kind(value)} object"
    return Undefined(f"'{owner}' has no attribute {shown}")


def _attribute(meter: Meter, value: Value, name: str) -> Value:
    """An attribute or a method; None where there is none of this name."""
    if isinstance(value, Undefined):
        raise value.fail()
    if isinstance(value, Namespace):
        return value.values.get(name)
    if isinstance(value, Group) and name in ("grouper", "list"):
        return value[name == "list"]
    if hasattr(type(value), "template_attribute"):
        return value.template_attribute(name)
    method = _method(meter, value, name)
    if method is not None:
        bound = Function(name, method)
        meter.take(bound, FUNCTION_NBYTES)
        return bound
    if name.startswith("__") or (
        name in _REFUSED and isinstance(value, Text | Items | tuple | Dict) and _has(value, name)
    ):
        raise SecurityError(f"uses {kind(value)}.{name[:80]}")
    return None


def _method(meter: Meter, value: Value, name: str) -> Callable[..., Value] | None:
    if isinstance(value, Text):
        if name == "format":
            return partial(_format, meter, value)
        return partial(TEXT_METHODS[name], value) if name in TEXT_METHODS else None
    for sort, known in ((Items, LIST_METHODS), (tuple, LIST_METHODS), (Dict, DICT_METHODS)):
        if isinstance(value, sort) and name in known:
            return partial(known[name], meter, value)
    return None


def _has(value: Value, name: str) -> bool:
    return hasattr(str if isinstance(value, Text) else type(value), name)


def _format(meter: Meter, form: Text, /, *args: Value, **kwargs: Value) -> Text:
    def look_up(value: Value, key: Value, is_attribute: bool) -> Value:
        if is_attribute:
            return get_attribute(meter, value, key.chars)
        return get_item(meter, value, key)

    return braces(meter, form, args, kwargs, look_up)
