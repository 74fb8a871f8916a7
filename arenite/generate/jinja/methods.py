"""Methods of texts, lists and dicts that a template may call."""

from __future__ import annotations

from collections.abc import Callable

from arenite.generate.jinja.comparison import equal_item
from arenite.generate.jinja.formats import padded
from arenite.generate.jinja.meter import Meter
from arenite.generate.jinja.text import TEMPLATE, Text
from arenite.generate.jinja.values import (
    Dict,
    Items,
    Value,
    View,
    as_list,
    counted,
    hashable,
    kind,
)


def need_text(value: Value) -> Text:
    if not isinstance(value, Text):
        raise TypeError(f"a text is needed, not a {kind(value)}")
    return value


def _need_int(value: Value) -> int:
    if not isinstance(value, int):
        raise TypeError(f"a whole number is needed, not a {kind(value)}")
    return int(value)


def _span(text: Text, start: Value, end: Value) -> tuple[int, int]:
    """Where a search begins and ends, as slices count."""
    first = None if start is None else _need_int(start)
    last = None if end is None else _need_int(end)
    low, high, _ = slice(first, last).indices(len(text))
    # Beyond the end nothing is found, not even nothing.
    return (low, high) if first is None or first <= len(text) else (len(text) + 1, high)


def find(text: Text, part: Value, start: Value = None, end: Value = None, /) -> int:
    return counted(text, text.find(need_text(part).chars, *_span(text, start, end)))


def rfind(text: Text, part: Value, start: Value = None, end: Value = None, /) -> int:
    return counted(text, text.rfind(need_text(part).chars, *_span(text, start, end)))


def index(text: Text, part: Value, start: Value = None, end: Value = None, /) -> int:
    return _found(find(text, part, start, end))


def rindex(text: Text, part: Value, start: Value = None, end: Value = None, /) -> int:
    return _found(rfind(text, part, start, end))


def _found(place: int) -> int:
    if place < 0:
        raise ValueError("substring not found")
    return place


def count(text: Text, part: Value, start: Value = None, end: Value = None, /) -> int:
    low, high = _span(text, start, end)
    if low > min(high, len(text)):
        return 0
    return counted(text, len(text.cut(low, high).places(need_text(part).chars)))


def startswith(text: Text, parts: Value, start: Value = None, end: Value = None, /) -> bool:
    return _has_at(text, parts, start, end, at_end=False)


def endswith(text: Text, parts: Value, start: Value = None, end: Value = None, /) -> bool:
    return _has_at(text, parts, start, end, at_end=True)


def _has_at(text: Text, parts: Value, start: Value, end: Value, *, at_end: bool) -> bool:
    low, high = _span(text, start, end)
    for part in parts if isinstance(parts, tuple) else (parts,):
        chars = need_text(part).chars
        text.meter.spend(len(chars))
        test = text.chars.endswith if at_end else text.chars.startswith
        if test(chars, low, high):
            return True
    return False


def split(text: Text, sep: Value = None, maxsplit: Value = -1) -> Items:
    limit = _need_int(maxsplit)
    if sep is None:
        spans = text.words()
        if 0 <= limit < len(spans):
            spans = [*spans[:limit], (spans[limit][0], len(text))]
        return Items(text.meter, [text.cut(*span) for span in spans])
    part = _separator(sep)
    return Items(text.meter, text.cut_at(text.places(part, limit), len(part)))


def rsplit(text: Text, sep: Value = None, maxsplit: Value = -1) -> Items:
    limit = _need_int(maxsplit)
    if sep is None:
        spans = text.words()
        if 0 <= limit < len(spans):
            n_left = len(spans) - limit
            spans = [(0, spans[n_left - 1][1]), *spans[n_left:]]
        return Items(text.meter, [text.cut(*span) for span in spans])
    part = _separator(sep)
    return Items(text.meter, text.cut_at(text.rplaces(part, limit), len(part)))


def _separator(sep: Value) -> str:
    part = need_text(sep).chars
    if not part:
        raise ValueError("empty separator")
    return part


def partition(text: Text, sep: Value, /) -> tuple[Text, Text, Text]:
    part = _separator(sep)
    place = text.find(part, 0, len(text))
    if place < 0:
        place, part = len(text), ""
    return _three(text, place, len(part))


def rpartition(text: Text, sep: Value, /) -> tuple[Text, Text, Text]:
    part = _separator(sep)
    place = text.rfind(part, 0, len(text))
    return _three(text, 0, 0) if place < 0 else _three(text, place, len(part))


def _three(text: Text, place: int, n_between: int) -> tuple[Text, Text, Text]:
    text.meter.keep(100)
    after = place + n_between
    return text.cut(0, place), text.cut(place, after), text.cut(after, len(text))


def splitlines(text: Text, keepends: Value = False) -> Items:
    lines, at = [], 0
    for end, after in text.line_ends():
        lines.append(text.cut(at, after if keepends else end))
        at = after
    if at < len(text):
        lines.append(text.cut(at, len(text)))
    return Items(text.meter, lines)


def replace(text: Text, old: Value, new: Value, count: Value = -1, /) -> Text:
    return text.replace(need_text(old), need_text(new), _need_int(count))


def removeprefix(text: Text, part: Value, /) -> Text:
    return text.cut(len(part), len(text)) if startswith(text, need_text(part)) else text


def removesuffix(text: Text, part: Value, /) -> Text:
    return text.cut(0, len(text) - len(part)) if endswith(text, need_text(part)) else text


def join(separator: Text, values: Value, /) -> Text:
    return joined(
        separator.meter, [need_text(v) for v in as_list(separator.meter, values)], separator
    )


def joined(meter: Meter, texts: list[Text], separator: Text) -> Text:
    """Texts with another between them. It is an insertion unless all is the template's."""
    if not separator.chars:
        return Text.join(texts, meter)
    if not all(len(text) and not text.origin for text in texts):
        separator = separator.as_inserted()
    meter.spend(16 * len(texts))
    parts: list[Text] = []
    for text in texts:
        parts += [text, separator]
    return Text.join(parts[:-1], meter)


def _strip(left: bool, right: bool) -> Callable[..., Text]:
    def strip(text: Text, chars: Value = None, /) -> Text:
        members = None if chars is None else need_text(chars).chars
        return text.strip(members, left=left, right=right)

    return strip


def _mapped(name: str) -> Callable[[Text], Text]:
    change: Callable[[str], str] = getattr(str, name)

    def mapped(text: Text, /) -> Text:
        text.meter.spend(4 * len(text))
        text.meter.need(16 * len(text))
        return text.mapped(change(text.chars))

    return mapped


def _asked(name: str) -> Callable[[Text], bool]:
    ask: Callable[[str], bool] = getattr(str, name)

    def asked(text: Text, /) -> bool:
        text.meter.spend(4 * len(text))
        return ask(text.chars)

    return asked


def _aligned(align: str) -> Callable[..., Text]:
    def aligned(text: Text, width: Value, fillchar: Value = None, /) -> Text:
        fill = None if fillchar is None else need_text(fillchar)
        if fill is not None and len(fill) != 1:
            raise TypeError("The fill character must be exactly one character long")
        return padded(text, _need_int(width), align, fill)

    return aligned


def zfill(text: Text, width: Value, /) -> Text:
    signs = 1 if text.chars[:1] in ("+", "-") else 0
    body = text.cut(signs, len(text))
    zeros = padded(body, _need_int(width) - signs, ">", Text.of("0", TEMPLATE, text.meter))
    return Text.join([text.cut(0, signs), zeros], text.meter)


TEXT_METHODS: dict[str, Callable[..., Value]] = {
    function.__name__: function
    for function in (
        count, endswith, find, index, join, partition, removeprefix, removesuffix, replace, rfind,
        rindex, rpartition, rsplit, split, splitlines, startswith, zfill,
    )
}  # fmt: skip
TEXT_METHODS |= {
    name: _mapped(name) for name in "capitalize casefold lower swapcase title upper".split()
}
TEXT_METHODS |= {
    name: _asked(name)
    for name in (
        "isalnum isalpha isascii isdecimal isdigit isidentifier islower isnumeric isprintable "
        "isspace istitle isupper"
    ).split()
}
TEXT_METHODS |= {
    "strip": _strip(True, True),
    "lstrip": _strip(True, False),
    "rstrip": _strip(False, True),
    "ljust": _aligned("<"),
    "rjust": _aligned(">"),
}

# Lists, tuples and dicts; the meter comes first.


def _list_count(meter: Meter, items: Value, item: Value, /) -> int:
    return sum(equal_item(meter, each, item) for each in items)


def _list_index(
    meter: Meter, items: Value, item: Value, start: Value = 0, end: Value = None, /
) -> int:
    for place in range(*slice(start, end).indices(len(items))):
        if equal_item(meter, items[place], item):
            return place
    raise ValueError("the value is not in the list")


def _copied(meter: Meter, items: Value, /) -> Value:
    return Items(meter, items)


LIST_METHODS: dict[str, Callable[..., Value]] = {
    "copy": _copied,
    "count": _list_count,
    "index": _list_index,
}


def _get(meter: Meter, mapping: Dict, key: Value, default: Value = None, /) -> Value:
    return mapping.get(hashable(meter, key), default)


def _items(meter: Meter, mapping: Dict, /) -> View:
    meter.need(80 * len(mapping))
    view = View(meter, list(mapping.items()))
    meter.keep(80 * len(mapping))
    return view


DICT_METHODS: dict[str, Callable[..., Value]] = {
    "copy": lambda meter, mapping, /: Dict(meter, mapping.items()),
    "get": _get,
    "items": _items,
    "keys": lambda meter, mapping, /: View(meter, mapping),
    "values": lambda meter, mapping, /: View(meter, list(mapping.values())),
}
