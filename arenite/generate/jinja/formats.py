"""`text % values` and `text.format(...)`, with fields of a bounded width."""

from __future__ import annotations

import re
from collections.abc import Callable

from jinja2.exceptions import SecurityError

from arenite.generate.jinja.meter import Meter
from arenite.generate.jinja.text import GIVEN, TEMPLATE, Text
from arenite.generate.jinja.values import Dict, Given, Undefined, Value, hashable, is_number, kind
from arenite.generate.jinja.writing import quoted, text_of

MAX_WIDTH = 999  # of a field, and of digits after the point

_PERCENT = re.compile(
    r"%(?:\((?P<key>[^()]*)\))?(?P<flags>[#0\- +]*)(?P<width>\*|\d*)"
    r"(?:\.(?P<precision>\*|\d*))?[hlL]?(?P<type>.)",
    re.DOTALL,
)
_FIELD = re.compile(
    r"(?P<name>[^.\[!:]*)(?P<path>(?:\.[^.\[!:]+|\[[^\]]+\])*)(?:!(?P<conversion>[rs]))?"
    r"(?::(?P<spec>.*))?",
    re.DOTALL,
)
_STEP = re.compile(r"\.([^.\[!:]+)|\[([^\]]+)\]")
_TEXT_SPEC = re.compile(
    r"(?:(?P<fill>.)?(?P<align>[<>^]))?(?P<width>\d*)(?:\.(?P<precision>\d+))?s?", re.DOTALL
)


def percent(meter: Meter, form: Text, given: Value) -> Text:
    """`form % given`."""
    values = iter(given if isinstance(given, tuple) else (given,))
    parts: list[Text] = []
    at = 0
    meter.spend(len(form))
    for place in form.places("%"):
        if place < at:
            continue  # the second of %%
        match = _PERCENT.match(form.chars, place)
        if match is None:
            raise ValueError("incomplete format")
        meter.spend(16 + match.end() - place)
        parts.append(form.cut(at, place))
        at = match.end()
        if match["type"] == "%":
            parts.append(form.cut(at - 1, at))
            continue
        width = _number(match["width"], values)
        precision = None if match["precision"] is None else _number(match["precision"], values)
        if match["key"] is not None:
            if not isinstance(given, Dict):
                raise TypeError("format requires a mapping")
            value = given[hashable(meter, form.cut(*match.span("key")))]
        else:
            value = _next(values)
        parts.append(
            _converted(form.origin, match["type"], match["flags"], width, precision, value, meter)
        )
    if next(values, None) is not None and not isinstance(given, Dict | list):
        raise TypeError("not all arguments converted during string formatting")
    return Text.join([*parts, form.cut(at, len(form))], meter)


def _next(values: Value) -> Value:
    try:
        return next(values)
    except StopIteration:
        raise TypeError("not enough arguments for format string") from None


def _number(digits: str, values: Value) -> int:
    """A width or a precision, of the form or of the values."""
    if digits == "*":
        number = _next(values)
        if not isinstance(number, int):
            raise TypeError("* wants int")
    else:
        number = MAX_WIDTH + 1 if len(digits) > 4 else int(digits or "0")
    if abs(number) > MAX_WIDTH:
        raise SecurityError(f"formats a field wider than {MAX_WIDTH} characters")
    return int(number)


def _converted(
    origin: int,
    sort: str,
    flags: str,
    width: int,
    precision: int | None,
    value: Value,
    meter: Meter,
) -> Text:
    if width < 0:
        flags, width = flags + "-", -width
    if sort in "sr":
        text = text_of(meter, value) if sort == "s" else quoted_or_text(meter, value)
        text = text if precision is None else text.cut(0, precision)
        return padded(text, width, "<" if "-" in flags else ">")
    if sort == "c" and isinstance(value, Text) and len(value) == 1:
        return padded(value, width, "<" if "-" in flags else ">")
    if sort not in "diuoxXeEfFgGc":
        raise ValueError(f"unsupported format character {sort!r}")
    if not is_number(value):
        raise TypeError(f"%{sort} format: a number is required, not {kind(value)}")
    point = "" if precision is None else f".{precision}"
    written = f"%{flags}{width or ''}{point}{sort}" % _plain(value)
    return Text.of(written, max(origin, _origin(value)), meter)


def _plain(number: float) -> float:
    return int(number) if isinstance(number, Given) else number


def _origin(number: float) -> int:
    return TEMPLATE if type(number) is int else GIVEN


def quoted_or_text(meter: Meter, value: Value) -> Text:
    """As `repr` has it."""
    if isinstance(value, Undefined):
        return Text.of("Undefined", GIVEN, meter)
    return quoted(value) if isinstance(value, Text) else text_of(meter, value)


def padded(text: Text, width: int, align: str, fill: Text | None = None) -> Text:
    """A text in a field; `align` as in a format's specification."""
    missing = width - len(text)
    if missing <= 0:
        return text
    fill = Text.of(" ", TEMPLATE, text.meter) if fill is None else fill
    before = {"<": 0, ">": missing, "^": missing // 2}[align]
    return Text.join([fill.times(before), text, fill.times(missing - before)], text.meter)


def braces(
    meter: Meter,
    form: Text,
    args: tuple[Value, ...],
    kwargs: dict[str, Value],
    look_up: Callable[[Value, Value, bool], Value],
) -> Text:
    """`form.format(*args, **kwargs)`; `look_up` finds attributes and items of values."""
    parts: list[Text] = []
    chars, at, n_unnamed = form.chars, 0, 0
    for place in sorted(form.places("{") + form.places("}")):
        if place < at:
            continue
        parts.append(form.cut(at, place))
        if chars[place : place + 2] in ("{{", "}}"):
            parts.append(form.cut(place, place + 1))
            at = place + 2
            continue
        end = form.find("}", place, len(form))
        if chars[place] == "}" or end < 0:
            raise ValueError("a brace stands alone in a format string")
        if form.find("{", place + 1, end) >= 0:
            raise SecurityError("formats a field whose width is a field")
        if end - place > MAX_WIDTH:
            raise SecurityError(f"has a format's field of over {MAX_WIDTH} characters")
        match = _FIELD.fullmatch(chars, place + 1, end)
        if match is None:
            raise ValueError(f"no field of a format: {chars[place : end + 1][:80]}")
        meter.spend(16 + 4 * (end - place))
        name, at = match["name"], end + 1
        if not name:
            name, n_unnamed = str(n_unnamed), n_unnamed + 1
        if name.isdecimal():
            if len(name) > 4 or int(name) >= len(args):
                raise IndexError(f"there is no argument {name[:20]} for a format string")
            value = args[int(name)]
        else:
            value = kwargs[name]
        for step in _STEP.finditer(chars, *match.span("path")):
            is_item = step[2] is not None
            key: Value = form.cut(*step.span(2 if is_item else 1))
            if is_item and key.chars.isdecimal() and len(key) < 10:
                key = int(key.chars)
            value = look_up(value, key, not is_item)
        if match["conversion"] == "r":
            value = quoted_or_text(meter, value)
        elif match["conversion"] == "s":
            value = text_of(meter, value)
        parts.append(_specified(meter, value, match["spec"] or "", form.origin))
    return Text.join([*parts, form.cut(at, len(form))], meter)


def _specified(meter: Meter, value: Value, spec: str, origin: int) -> Text:
    if any(int(digits[:5]) > MAX_WIDTH for digits in re.findall(r"\d+", spec[:100])):
        raise SecurityError(f"formats a field wider than {MAX_WIDTH} characters")
    if isinstance(value, Text):
        match = _TEXT_SPEC.fullmatch(spec)
        if match is None or len(spec) > 100:
            raise ValueError(f"invalid format specifier {spec[:80]!r} for a text")
        text = value if match["precision"] is None else value.cut(0, int(match["precision"]))
        fill = Text.of(match["fill"] or " ", origin, meter)
        return padded(text, int(match["width"] or 0), match["align"] or "<", fill)
    if not spec:
        return text_of(meter, value)
    if is_number(value) and len(spec) <= 100:
        written = format(_plain(value), spec)
        return Text.of(written, max(origin, _origin(value)), meter)
    raise TypeError(f"unsupported format string passed to {kind(value)}.__format__")
