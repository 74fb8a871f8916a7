"""Filters that choose, sort and group the values of lists and dicts."""

from __future__ import annotations

from collections.abc import Callable

from arenite.generate.jinja.access import get_item
from arenite.generate.jinja.comparison import Ordered, equal, in_order
from arenite.generate.jinja.meter import Meter
from arenite.generate.jinja.methods import TEXT_METHODS
from arenite.generate.jinja.operators import binary
from arenite.generate.jinja.text import Text
from arenite.generate.jinja.values import (
    Dict,
    Group,
    Items,
    Stream,
    Undefined,
    Value,
    as_list,
    hashable,
    is_true,
    kind,
    length,
)
from arenite.generate.jinja.writing import text_of

Filter = Callable[..., Value]
Key = Callable[[Value], Value]

_NOTHING = object()


def getter(meter: Meter, attribute: Value, default: Value = None) -> Key:
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
    get = getter(meter, attribute, default)
    return get if is_true(case_sensitive) else lambda item: _folded(get(item))


def _sorted(meter: Meter, values: list[Value], key: Key, reverse: Value) -> list[Value]:
    meter.need(200 * len(values))
    return sorted(values, key=lambda item: Ordered(meter, key(item)), reverse=is_true(reverse))


def _sum(meter: Meter, values: Value, /, attribute: Value = None, start: Value = 0) -> Value:
    get = getter(meter, attribute)
    if isinstance(start, Text):
        raise TypeError("sum() can't sum strings: join them")
    for item in as_list(meter, values):
        start = binary(meter, "+", start, get(item))
    return start


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
    get = getter(meter, attribute, default)
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
    by_key: dict[Value, Value] = {}
    for item in as_list(meter, value):
        meter.need(200 * len(by_key))
        by_key.setdefault(hashable(meter, key(item)), item)
    return Stream(Items(meter, list(by_key.values())))


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


LIST_FILTERS: dict[str, Filter] = {
    "batch": _batch,
    "count": lambda _, value, /: length(value),
    "d": _default,
    "default": _default,
    "dictsort": _dictsort,
    "first": _first,
    "groupby": _groupby,
    "items": _items_of,
    "last": _last,
    "length": lambda _, value, /: length(value),
    "list": lambda meter, value, /: Items(meter, as_list(meter, value)),
    "max": _extreme(">"),
    "min": _extreme("<"),
    "reverse": _reverse,
    "sort": _sort,
    "sum": _sum,
    "unique": _unique,
}
