"""Values as text: printed, as Python writes them in lists, and as JSON.

Signs around what was given (quotes, brackets, commas) count as given too, and so do none, true,
false and fractions: no control token is made of them.
"""

from __future__ import annotations

import json
import re
from json.encoder import encode_basestring, encode_basestring_ascii

from jinja2.exceptions import SecurityError

from arenite.generate.jinja.comparison import Ordered
from arenite.generate.jinja.meter import Meter
from arenite.generate.jinja.text import GIVEN, TEMPLATE, Text
from arenite.generate.jinja.values import (
    Dict,
    Given,
    Items,
    Undefined,
    Value,
    is_number,
    kind,
    whole,
)

_UNLIKE_PYTHON = re.compile(r"[^ !#-&(-\[\]-~]")
_UNLIKE_JSON = re.compile(r'[\\"\x00-\x1f]')
_UNLIKE_ASCII_JSON = re.compile(r"[^ !#-\[\]-~]")


def text_of(meter: Meter, value: Value) -> Text:
    """A value as it is printed."""
    if isinstance(value, Text):
        return value
    if isinstance(value, Undefined):
        return Text("", b"", meter)
    if is_number(value):
        return number_text(meter, value)
    writer = _PythonWriter(meter)
    writer.write(value)
    return Text.join(writer.parts, meter)


def quoted(text: Text) -> Text:
    """A text as Python writes it in a list."""
    text.meter.need(12 * len(text))
    written = repr(text.chars)
    if len(written) == len(text) + 2:
        return Text(written, _around(text), text.meter)
    quote = written[0]

    def escape(character: str) -> str:
        if character in "'\"":
            return "\\" + character if character == quote else character
        return repr(character)[1:-1]

    body = text.escaped(_UNLIKE_PYTHON, escape)
    return Text(quote + body.chars + quote, _around(body), text.meter)


def json_quoted(text: Text, ensure_ascii: bool) -> Text:
    """A text as JSON writes it."""
    text.meter.need(16 * len(text))
    write = encode_basestring_ascii if ensure_ascii else encode_basestring
    written = write(text.chars)
    if len(written) == len(text) + 2:
        return Text(written, _around(text), text.meter)
    pattern = _UNLIKE_ASCII_JSON if ensure_ascii else _UNLIKE_JSON
    body = text.escaped(pattern, lambda character: write(character)[1:-1])
    return Text(f'"{body.chars}"', _around(body), text.meter)


def _around(text: Text) -> bytes:
    return bytes([GIVEN]) + text.origins + bytes([GIVEN])


def number_text(meter: Meter, number: float) -> Text:
    is_own = isinstance(number, int) and not isinstance(number, bool | Given)
    shown = int(whole(number)) if isinstance(number, Given) else number
    return Text.of(str(shown), TEMPLATE if is_own else GIVEN, meter)


class _PythonWriter:
    """Writes values as `repr` does."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self.parts: list[Text] = []

    def write(self, value: Value) -> None:
        self._meter.spend(16)
        if isinstance(value, Text):
            self.parts.append(quoted(value))
        elif is_number(value):
            self.parts.append(number_text(self._meter, value))
        elif value is None:
            self._sign("None")
        elif isinstance(value, Undefined):
            self._sign("Undefined")
        elif isinstance(value, tuple):
            self._items("(", value, ",)" if len(value) == 1 else ")")
        elif type(value) is Items:
            self._items("[", value, "]")
        elif isinstance(value, Dict):
            self._items("{", value, "}")
        else:
            raise SecurityError(f"prints an object of type {kind(value)}")

    def _items(self, begin: str, items: Value, end: str) -> None:
        self._sign(begin)
        for place, item in enumerate(items):
            if place:
                self._sign(", ")
            self.write(item)
            if isinstance(items, Dict):
                self._sign(": ")
                self.write(items[item])
        self._sign(end)

    def _sign(self, signs: str) -> None:
        self.parts.append(Text.of(signs, GIVEN, self._meter))


class JsonWriter:
    """Writes values as `json.dumps` does."""

    def __init__(
        self,
        meter: Meter,
        ensure_ascii: bool,
        indent: Value,
        separators: Value,
        sort_keys: bool,
    ) -> None:
        self._meter = meter
        self._ensure_ascii = ensure_ascii
        self._sort_keys = sort_keys
        self._indent: Text | None = None
        self.parts: list[Text] = []
        if isinstance(indent, int):
            self._indent = self._sign(" ").times(indent)
        elif isinstance(indent, Text):
            self._indent = indent
        elif indent is not None:
            raise TypeError(f"JSON is indented by a number or a text, not by a {kind(indent)}")
        if separators is None:
            separators = (self._sign(", " if indent is None else ","), self._sign(": "))
        self._comma, self._colon = separators
        if not isinstance(self._comma, Text) or not isinstance(self._colon, Text):
            raise TypeError("separators of JSON are two texts")

    def write(self, value: Value, level: int = 1) -> None:
        self._meter.spend(16)
        if isinstance(value, tuple) or type(value) is Items:
            self._items("[", value, "]", level)
        elif isinstance(value, Dict):
            keys = list(value)
            if self._sort_keys:
                keys.sort(key=lambda key: Ordered(self._meter, key))
            self._items("{", {key: value[key] for key in keys}, "}", level)
        elif isinstance(value, Text):
            self.parts.append(json_quoted(value, self._ensure_ascii))
        else:
            self.parts.append(self._scalar(value))

    def _items(self, begin: str, items: Value, end: str, level: int) -> None:
        self.parts.append(self._sign(begin))
        for place, item in enumerate(items):
            if place:
                self.parts.append(self._comma)
            self._line(level)
            if isinstance(items, dict):
                key = item if isinstance(item, Text) else self._scalar(item)
                self.parts += [json_quoted(key, self._ensure_ascii), self._colon]
                self.write(items[item], level + 1)
            else:
                self.write(item, level + 1)
        if items:
            self._line(level - 1)
        self.parts.append(self._sign(end))

    def _line(self, level: int) -> None:
        if self._indent is not None:
            self.parts += [self._sign("\n"), self._indent.times(level)]

    def _sign(self, signs: str) -> Text:
        return Text.of(signs, GIVEN, self._meter)

    def _scalar(self, value: Value) -> Text:
        if isinstance(value, int) and not isinstance(value, bool):
            return number_text(self._meter, value)
        if value is None or isinstance(value, bool | float):
            return self._sign(json.dumps(value))
        raise TypeError(f"Object of type {kind(value)} is not JSON serializable")
