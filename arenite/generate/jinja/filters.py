"""Jinja's filters: `x|trim`, `x|tojson`, and so on, those that chat templates have use for."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from jinja2.exceptions import SecurityError

from arenite.generate.jinja.access import get_item
from arenite.generate.jinja.comparison import Ordered, equal, in_order
from arenite.generate.jinja.conditions import TESTS
from arenite.generate.jinja.formats import percent
from arenite.generate.jinja.meter import Meter, OverBudget
from arenite.generate.jinja.methods import TEXT_METHODS, joined, need_text
from arenite.generate.jinja.operators import binary, derived
from arenite.generate.jinja.text import TEMPLATE, Text
from arenite.generate.jinja.values import (
    MAX_BITS,
    Dict,
    Given,
    Group,
    Items,
    Stream,
    Undefined,
    Value,
    as_list,
    hashable,
    is_number,
    is_true,
    kind,
    length,
)
from arenite.generate.jinja.writing import JsonWriter, text_of

Filter = Callable[..., Value]
Key = Callable[[Value], Value]

_MAX_NUMBER_LENGTH = 400  # characters of a text that is read as a number
_MAX_DIGITS = 30  # that a number is rounded to
_NOTHING = object()
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


# What values are looked at by.


def _getter(meter: Meter, attribute: Value, default: Value = None) -> Key:
    """What finds an attribute, by dots an attribute's attribute, a number an item."""
    steps: list[Value] = [] if attribute is None else [attribute]
    if isinstance(attribute, Text):
        names = attribute.cut_at(attribute.places("."), 1)
        steps = [int(n.chars) if n.chars.isdecimal() and len(n) < 10 else n for n in names]

    def get(item: Value) -> Value:
        for step in steps:
            item = get_item(meter, item, step)
            if default is not None and isinstance(item, Undefined):
                item = default
        return item

    return get


def _folded(value: Value) -> Value:
    return TEXT_METHODS["lower"](value) if isinstance(value, Text) else value


def _key(meter: Meter, attribute: Value, case_sensitive: Value, default: Value = None) -> Key:
    get = _getter(meter, attribute, default)
    return get if is_true(case_sensitive) else lambda item: _folded(get(item))


def _sorted(meter: Meter, values: list[Value], key: Key, reverse: Value) -> list[Value]:
    return sorted(values, key=lambda item: Ordered(meter, key(item)), reverse=is_true(reverse))


# Texts.


def _on_text(name: str) -> Filter:
    def run(meter: Meter, value: Value, /, *args: Value) -> Value:
        return TEXT_METHODS[name](text_of(meter, value), *args)

    return run


def _title(meter: Meter, value: Value, /) -> Text:
    text = text_of(meter, value)
    parts: list[Text] = []
    ends = [0]
    for found in _WORD_BEGINNING.finditer(text.chars):
        meter.spend(16)
        ends += found.span()
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
    get = _getter(meter, attribute)
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
    return derived(number, Given(0) if any(value.origins) else 0)


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
    found = text.strip(None).chars
    if len(found) <= _MAX_NUMBER_LENGTH:
        return found
    if found.lstrip("+-").replace("_", "").isalnum():
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


def _sum(meter: Meter, values: Value, /, attribute: Value = None, start: Value = 0) -> Value:
    get = _getter(meter, attribute)
    if isinstance(start, Text):
        raise TypeError("sum() can't sum strings: join them")
    for item in as_list(meter, values):
        start = binary(meter, "+", start, get(item))
    return start


# Lists and dicts.


def _first(meter: Meter, value: Value, /) -> Value:
    if isinstance(value, Text):
        return value.cut(0, 1) if value.chars else _empty("first")
    if isinstance(value, Stream):
        return next(iter(value), _empty("first"))
    items = as_list(meter, value)
    return items[0] if items else _empty("first")


def _last(meter: Meter, value: Value, /) -> Value:
    if isinstance(value, Text):
        return value.cut(len(value) - 1, len(value)) if value.chars else _empty("last")
    if isinstance(value, Stream):
        raise TypeError("'generator' object is not reversible")
    items = as_list(meter, value)
    return items[-1] if items else _empty("last")


def _empty(which: str) -> Undefined:
    return Undefined(f"No {which} item, sequence was empty.")


def _reverse(meter: Meter, value: Value, /) -> Value:
    if isinstance(value, Text):
        return value.sliced(slice(None, None, -1))
    return Stream(Items(meter, as_list(meter, value)[::-1]))


def _default(
    meter: Meter, value: Value, /, default_value: Value = _NOTHING, boolean: Value = False
) -> Value:
    if isinstance(value, Undefined) or (is_true(boolean) and not is_true(value)):
        return Text("", b"", meter) if default_value is _NOTHING else default_value
    return value


def _items_of(meter: Meter, value: Value, /) -> Stream:
    if isinstance(value, Undefined):
        return Stream(Items(meter))
    if not isinstance(value, Dict):
        raise TypeError("Can only get item pairs from a mapping.")
    meter.keep(80 * len(value))
    return Stream(Items(meter, list(value.items())))


def _sort(
    meter: Meter,
    value: Value,
    /,
    reverse: Value = False,
    case_sensitive: Value = False,
    attribute: Value = None,
) -> Items:
    values = as_list(meter, value)
    names = [attribute]
    if isinstance(attribute, Text):
        names = attribute.cut_at(attribute.places(","), 1)
    keys = [_key(meter, name, case_sensitive) for name in names]

    def key(item: Value) -> Value:
        meter.spend(16 * len(keys))
        return tuple(get(item) for get in keys)

    return Items(meter, _sorted(meter, values, key, reverse))


def _dictsort(
    meter: Meter,
    value: Value,
    /,
    case_sensitive: Value = False,
    by: Value = None,
    reverse: Value = False,
) -> Items:
    name = "key" if by is None else text_of(meter, by).chars
    if name not in ("key", "value"):
        raise ValueError('You can only sort by either "key" or "value"')
    if not isinstance(value, Dict):
        raise TypeError(f"a {kind(value)} is no mapping")
    meter.keep(80 * len(value))
    key = _key(meter, 0 if name == "key" else 1, case_sensitive)
    return Items(meter, _sorted(meter, list(value.items()), key, reverse))


def _groupby(
    meter: Meter,
    value: Value,
    /,
    attribute: Value,
    default: Value = None,
    case_sensitive: Value = False,
) -> Items:
    key = _key(meter, attribute, case_sensitive, default)
    get = _getter(meter, attribute, default)
    groups: list[Group] = []
    together: list[Value] = []
    for item in [*_sorted(meter, as_list(meter, value), key, False), groups]:
        is_end = item is groups
        if together and (is_end or not equal(meter, key(together[0]), key(item))):
            meter.keep(80)
            groups.append(Group((get(together[0]), Items(meter, together))))
            together = []
        together.append(item)
    return Items(meter, groups)


def _unique(
    meter: Meter, value: Value, /, case_sensitive: Value = False, attribute: Value = None
) -> Stream:
    key = _key(meter, attribute, case_sensitive)
    found: dict[Value, Value] = {}
    for item in as_list(meter, value):
        meter.need(200 * len(found))
        found.setdefault(hashable(meter, key(item)), item)
    return Stream(Items(meter, list(found.values())))


def _extreme(sign: str) -> Filter:
    def run(
        meter: Meter, value: Value, /, case_sensitive: Value = False, attribute: Value = None
    ) -> Value:
        key = _key(meter, attribute, case_sensitive)
        best: Value = Undefined("No aggregated item, sequence was empty.")
        for place, item in enumerate(as_list(meter, value)):
            if not place or in_order(meter, sign, key(item), key(best)):
                best = item
        return best

    return run


def _batch(meter: Meter, value: Value, /, linecount: Value, fill_with: Value = None) -> Stream:
    values = as_list(meter, value)
    if not isinstance(linecount, int) or linecount < 1:
        raise ValueError("a batch has one item at least")
    batches = [values[k : k + linecount] for k in range(0, len(values), linecount)]
    if fill_with is not None and batches:
        missing = int(linecount) - len(batches[-1])
        meter.need(8 * missing)
        batches[-1] += [fill_with] * missing
    return Stream(Items(meter, [Items(meter, batch) for batch in batches]))


# Filters that take a filter or a test.


def _map(meter: Meter, value: Value, /, *args: Value, **kwargs: Value) -> Stream:
    run: Key
    if not args and "attribute" in kwargs:
        if set(kwargs) - {"attribute", "default"}:
            raise TypeError("map takes an attribute and a default, or a filter")
        run = _getter(meter, kwargs["attribute"], kwargs.get("default"))
    elif args:
        name, *others = args

        def run(item: Value) -> Value:
            return apply(meter, need_text(name).chars, item, *others, **kwargs)

    else:
        raise TypeError("map requires a filter argument")
    return Stream(Items(meter, [run(item) for item in as_list(meter, value)]))


def _selecting(wanted: bool, by_attribute: bool) -> Filter:
    def run(meter: Meter, value: Value, /, *args: Value, **kwargs: Value) -> Stream:
        get = _getter(meter, args[0]) if by_attribute and args else _getter(meter, None)
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
    "abs": _abs,
    "batch": _batch,
    "capitalize": _on_text("capitalize"),
    "count": lambda _, value, /: length(value),
    "d": _default,
    "default": _default,
    "dictsort": _dictsort,
    "first": _first,
    "float": _float,
    "format": _format,
    "groupby": _groupby,
    "indent": _indent,
    "int": _int,
    "items": _items_of,
    "join": _join,
    "last": _last,
    "length": lambda _, value, /: length(value),
    "list": lambda meter, value, /: Items(meter, as_list(meter, value)),
    "lower": _on_text("lower"),
    "map": _map,
    "max": _extreme(">"),
    "min": _extreme("<"),
    "reject": _selecting(False, False),
    "rejectattr": _selecting(False, True),
    "replace": _replace,
    "reverse": _reverse,
    "round": _round,
    "safe": text_of,
    "select": _selecting(True, False),
    "selectattr": _selecting(True, True),
    "sort": _sort,
    "string": text_of,
    "sum": _sum,
    "title": _title,
    "tojson": _to_json,
    "trim": _trim,
    "unique": _unique,
    "upper": _on_text("upper"),
}

TESTS |= {
    "filter": lambda _, name, /: need_text(name).chars in FILTERS,
    "test": lambda _, name, /: need_text(name).chars in TESTS,
}
