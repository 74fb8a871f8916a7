"""What templates find without being given it: range, namespace, dict, cycler, joiner, loop."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import NoReturn

from jinja2.exceptions import SecurityError

from arenite.generate.jinja.comparison import equal
from arenite.generate.jinja.meter import Meter
from arenite.generate.jinja.methods import need_text
from arenite.generate.jinja.text import GIVEN, TEMPLATE, Text
from arenite.generate.jinja.values import (
    ELEMENT_NBYTES,
    FUNCTION_NBYTES,
    Dict,
    Function,
    Given,
    Items,
    Namespace,
    Undefined,
    Value,
    as_list,
)
from arenite.generate.jinja.writing import text_of

MAX_RANGE = 100_000
_MAX_DATE_LENGTH = 100


class Refused(Exception):
    """What a template says about messages it does not take."""


class Loop:
    """`loop`: where a loop is, looking one value ahead at the most."""

    def __init__(
        self, meter: Meter, values: Value, depth: int, again: Callable[[Value, int], Text] | None
    ) -> None:
        self.index0 = -1
        self._meter = meter
        self._items: Text | list[Value] = values
        if not isinstance(values, Text):  # whose characters are made one by one
            self._items = as_list(meter, values)
        self._depth = depth
        self._again = again
        self._changed: tuple[Value, ...] | None = None

    def __iter__(self) -> Iterator[Value]:
        for place in range(len(self._items)):
            self._meter.spend()
            self.index0 = place
            yield self._item(place)

    def _item(self, place: int) -> Value:
        items = self._items
        return items.cut(place, place + 1) if isinstance(items, Text) else items[place]

    def template_attribute(self, name: str) -> Value:
        place, n_items = self.index0, len(self._items)
        numbers = {
            "index": place + 1,
            "index0": place,
            "revindex": n_items - place,
            "revindex0": n_items - place - 1,
            "length": n_items,
            "depth": self._depth,
            "depth0": self._depth - 1,
            "first": place == 0,
            "last": place == n_items - 1,
        }
        if name in numbers:
            return numbers[name]
        if name == "previtem":
            return self._item(place - 1) if place else Undefined("there is no previous item")
        if name == "nextitem":
            is_last = place == n_items - 1
            return Undefined("there is no next item") if is_last else self._item(place + 1)
        if name == "cycle":
            return Function(name, lambda *values: cycled(values, place))
        return Function(name, self._has_changed) if name == "changed" else None

    def _has_changed(self, *values: Value) -> bool:
        before, self._changed = self._changed, values
        return before is None or not equal(self._meter, before, values)

    def again(self, values: Value) -> Text:
        """The loop's body for further values, inside of it."""
        if self._again is None:
            raise TypeError("the loop must have the 'recursive' marker to be called")
        return self._again(values, self._depth + 1)


def cycled(values: tuple[Value, ...], place: int) -> Value:
    if not values:
        raise TypeError("no items for cycling given")
    return values[place % len(values)]


class Cycler:
    """`cycler(...)`: its values in turn."""

    def __init__(self, values: tuple[Value, ...]) -> None:
        cycled(values, 0)
        self._values = values
        self._place = 0

    def template_attribute(self, name: str) -> Value:
        if name == "current":
            return cycled(self._values, self._place)
        return {"next": Function(name, self._next), "reset": Function(name, self._reset)}.get(name)

    def _next(self) -> Value:
        self._place += 1
        return cycled(self._values, self._place - 1)

    def _reset(self) -> None:
        self._place = 0


def functions(meter: Meter) -> dict[str, Value]:
    """Functions by name."""

    def joiner(sep: Value = None) -> Function:
        meter.keep(FUNCTION_NBYTES)
        texts = [Text("", b"", meter)]

        def call() -> Value:
            if texts:
                return texts.pop()
            return Text.of(", ", TEMPLATE, meter) if sep is None else sep

        return Function("joiner", call)

    def cycler(*values: Value) -> Cycler:
        made = Cycler(values)
        meter.take(made, FUNCTION_NBYTES + ELEMENT_NBYTES * len(values))
        return made

    def ranged(*bounds: Value) -> Value:
        numbers = range(*bounds)
        if max(map(abs, bounds)) > 2**62 or len(numbers) > MAX_RANGE:
            raise SecurityError(f"counts over a range of more than {MAX_RANGE}")
        if any(isinstance(bound, Given) for bound in bounds):
            return Items(meter, [Given(number) for number in numbers])
        return numbers

    def mapping(*args: Value, **kwargs: Value) -> Dict:
        pairs: list[tuple[Value, Value]] = []
        for given in args:
            if isinstance(given, Dict):
                pairs += given.items()
            else:
                for pair in as_list(meter, given):
                    key, item = as_list(meter, pair)
                    pairs.append((key, item))
        pairs += [(Text.of(name, GIVEN, meter), item) for name, item in kwargs.items()]
        return Dict(meter, pairs)

    def namespace(*args: Value, **kwargs: Value) -> Namespace:
        named = {need_text(key).chars: item for key, item in mapping(*args).items()}
        made = Namespace({**named, **kwargs})
        meter.take(made, FUNCTION_NBYTES + 120 * len(made.values))
        return made

    def refuse(message: Value = None) -> NoReturn:
        raise Refused(text_of(meter, message).chars[:400])

    def date(form: Value) -> Text:
        chars = need_text(form).chars
        if len(chars) > _MAX_DATE_LENGTH or re.search(r"%(?!-?[A-Za-z%])", chars):
            raise ValueError(f"no way to write a date: {chars[:100]!r}")
        return Text.of(datetime.now().strftime(chars), form.origin, meter)

    return {
        "cycler": Function("cycler", cycler),
        "dict": Function("dict", mapping),
        "joiner": Function("joiner", joiner),
        "namespace": Function("namespace", namespace),
        "raise_exception": Function("raise_exception", refuse),
        "range": Function("range", ranged),
        "strftime_now": Function("strftime_now", date),
    }
