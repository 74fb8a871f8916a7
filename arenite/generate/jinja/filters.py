"""Jinja's filters: `x|trim`, `x|tojson`, and so on, those that chat templates have use for; and
those that take the name of a filter or of a test."""

from __future__ import annotations

import math
import re

from jinja2.exceptions import SecurityError

from arenite.generate.jinja.formats import percent
from arenite.generate.jinja.list_filters import LIST_FILTERS, Filter, Key, getter
from arenite.generate.jinja.meter import Meter, OverBudget
from arenite.generate.jinja.methods import TEXT_METHODS, joined, need_text
from arenite.generate.jinja.operators import TESTS, binary, derived
from arenite.generate.jinja.text import TEMPLATE, Text
from arenite.generate.jinja.values import (
    MAX_BITS,
    Dict,
    Given,
    Items,
    Stream,
    Undefined,
    Value,
    as_list,
    is_number,
    is_true,
    kind,
)
from arenite.generate.jinja.writing import JsonWriter, text_of

_MAX_NUMBER_LENGTH = 400  # characters of a text that is read as a number
_MAX_DIGITS = 30  # that a number is rounded to
_WORD_BEGINNING = re.compile(r"[-\s({\[<]+")


def apply(meter: Meter, name: str, /, *args: Value, **kwargs: Value) -> Value:
    """A filter's result; the value comes first."""
    meter.spend()
    if name not in FILTERS:
        raise SecurityError(f"uses the filter {name[:80]!r}, which is not there")
    return FILTERS[name](meter, *args, **kwargs)


def check(meter: Meter, name: str, /, *args: Value, **kwargs: Value) -> bool:
    """Whether a test holds; the value comes first."""
    meter.spend()
    if name not in TESTS:
        raise SecurityError(f"uses the test {name[:80]!r}, which is not there")
    return TESTS[name](meter, *args, **kwargs)


# Texts.


def _on_text(name: str) -> Filter:
    def run(meter: Meter, value: Value, /, *args: Value) -> Value:
        return TEXT_METHODS[name](text_of(meter, value), *args)

    return run


def _title(meter: Meter, value: Value, /) -> Text:
    text = text_of(meter, value)
    parts: list[Text] = []
    ends = [0]
    for blank in _WORD_BEGINNING.finditer(text.chars):
        meter.spend(16)
        ends += blank.span()
    for start, end in zip(ends, [*ends[1:], len(text)], strict=True):
        if start < end:
            parts.append(TEXT_METHODS["upper"](text.cut(start, start + 1)))
            parts.append(TEXT_METHODS["lower"](text.cut(start + 1, end)))
    return Text.join(parts, meter)


def _trim(meter: Meter, value: Value, /, chars: Value = None) -> Text:
    members = None if chars is None else need_text(chars).chars
    return text_of(meter, value).strip(members)


def _replace(meter: Meter, s: Value, /, old: Value, new: Value, count: Value = None) -> Text:
    n_times = -1 if count is None else int(count)
    return text_of(meter, s).replace(text_of(meter, old), text_of(meter, new), n_times)


def _indent(
    meter: Meter, s: Value, /, width: Value = 4, first: Value = False, blank: Value = False
) -> Text:
    text = binary(meter, "+", s, Text.of("\n", TEMPLATE, meter))
    margin = width if isinstance(width, Text) else Text.of(" ", TEMPLATE, meter).times(width)
    parts: list[Text] = [margin] if is_true(first) else []
    for place, line in enumerate(TEXT_METHODS["splitlines"](text)):
        if place:
            parts.append(Text.of("\n", TEMPLATE, meter))
            if line.chars or is_true(blank):
                parts.append(margin)
        parts.append(line)
    return Text.join(parts, meter)


def _format(meter: Meter, value: Value, /, *args: Value, **kwargs: Value) -> Text:
    if args and kwargs:
        raise TypeError("can't handle positional and keyword arguments at the same time")
    named = ((Text.of(name, TEMPLATE, meter), item) for name, item in kwargs.items())
    return percent(meter, text_of(meter, value), Dict(meter, named) if kwargs else args)


def _join(meter: Meter, value: Value, /, d: Value = None, attribute: Value = None) -> Text:
    get = getter(meter, attribute)
    separator = Text("", b"", meter) if d is None else text_of(meter, d)
    return joined(meter, [text_of(meter, get(v)) for v in as_list(meter, value)], separator)


def _to_json(
    meter: Meter,
    value: Value,
    /,
    ensure_ascii: Value = False,
    indent: Value = None,
    separators: Value = None,
    sort_keys: Value = False,
) -> Text:
    writer = JsonWriter(meter, is_true(ensure_ascii), indent, separators, is_true(sort_keys))
    writer.write(value)
    return Text.join(writer.parts, meter)


# Numbers.


def _int(meter: Meter, value: Value, /, default: Value = 0, base: Value = 10) -> Value:
    if isinstance(value, Undefined):
        raise value.fail()
    if is_number(value):
        return (
            default
            if isinstance(value, float) and not math.isfinite(value)
            else derived(int(value), value)
        )
    if not isinstance(value, Text):
        return default
    chars = _number_chars(value)
    if chars is None:
        return default
    number: int
    try:
        number = int(chars, base)
    except (TypeError, ValueError):
        try:
            number = int(float(chars))
        except (ValueError, OverflowError):
            return default
    return derived(number, Given(0) if value.origin else 0)


def _float(meter: Meter, value: Value, /, default: Value = 0.0) -> Value:
    if isinstance(value, Undefined):
        raise value.fail()
    chars = _number_chars(value) if isinstance(value, Text) else None
    if not is_number(value) and chars is None:
        return default
    try:
        return float(value if chars is None else chars)
    except ValueError:
        return default


def _number_chars(text: Text) -> str | None:
    """What of a text may be read as a number; None where it is too long for any."""
    chars = text.strip(None).chars
    if len(chars) <= _MAX_NUMBER_LENGTH:
        return chars
    if chars.lstrip("+-").replace("_", "").isalnum():
        raise OverBudget(f"makes a number of over {MAX_BITS} bits")
    return None


def _abs(_meter: Meter, value: Value, /) -> Value:
    if not is_number(value):
        raise TypeError(f"bad operand type for abs(): {kind(value)!r}")
    return derived(abs(value), value)


def _round(meter: Meter, value: Value, /, precision: Value = 0, method: Value = None) -> Value:
    if not is_number(value) or not isinstance(precision, int):
        raise TypeError(f"a {kind(value)} is not rounded to {kind(precision)} digits")
    if abs(precision) > _MAX_DIGITS:
        raise SecurityError(f"rounds to {precision} digits")
    name = "common" if method is None else text_of(meter, method).chars
    if name == "common":
        return derived(round(value, precision), value)
    if name not in ("ceil", "floor"):
        raise ValueError("method must be common, ceil or floor")
    return getattr(math, name)(value * (10**precision)) / (10**precision)


# Filters that take a filter or a test.


def _map(meter: Meter, value: Value, /, *args: Value, **kwargs: Value) -> Stream:
    run: Key
    if not args and "attribute" in kwargs:
        if set(kwargs) - {"attribute", "default"}:
            raise TypeError("map takes an attribute and a default, or a filter")
        run = getter(meter, kwargs["attribute"], kwargs.get("default"))
    elif args:
        name, *others = args

        def run(item: Value) -> Value:
            return apply(meter, need_text(name).chars, item, *others, **kwargs)

    else:
        raise TypeError("map requires a filter argument")
    return Stream(Items(meter, [run(item) for item in as_list(meter, value)]))


def _selecting(wanted: bool, by_attribute: bool) -> Filter:
    def run(meter: Meter, value: Value, /, *args: Value, **kwargs: Value) -> Stream:
        get = getter(meter, args[0]) if by_attribute and args else getter(meter, None)
        if by_attribute and not args:
            raise TypeError("Missing parameter for attribute name")
        rest = args[1:] if by_attribute else args

        def holds(item: Value) -> bool:
            meter.spend()
            if not rest:
                return is_true(get(item))
            return check(meter, need_text(rest[0]).chars, get(item), *rest[1:], **kwargs)

        values = as_list(meter, value)
        return Stream(Items(meter, [item for item in values if holds(item) == wanted]))

    return run


FILTERS: dict[str, Filter] = {
    **LIST_FILTERS,
    "abs": _abs,
    "capitalize": _on_text("capitalize"),
    "float": _float,
    "format": _format,
    "indent": _indent,
    "int": _int,
    "join": _join,
    "lower": _on_text("lower"),
    "map": _map,
    "reject": _selecting(False, False),
    "rejectattr": _selecting(False, True),
    "replace": _replace,
    "round": _round,
    "safe": text_of,
    "select": _selecting(True, False),
    "selectattr": _selecting(True, True),
    "string": text_of,
    "title": _title,
    "tojson": _to_json,
    "trim": _trim,
    "upper": _on_text("upper"),
}

TESTS |= {
    "filter": lambda _, name, /: need_text(name).chars in FILTERS,
    "test": lambda _, name, /: need_text(name).chars in TESTS,
}
