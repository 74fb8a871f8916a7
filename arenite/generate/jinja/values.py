"""Values of a template: texts, numbers, lists, tuples, dicts, and what can be called.

Lists and dicts are Python's, counted by the meter while they live; nothing changes them. What Jinja
makes lazily (`|map`, `|select`) is made at once, and can be read once all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from jinja2 import nodes
from jinja2.exceptions import SecurityError, UndefinedError

from arenite.generate.jinja.meter import Meter, OverBudget
from arenite.generate.jinja.text import GIVEN, TEMPLATE, Text

MAX_BITS = 1024  # of a whole number
ELEMENT_NBYTES = 40  # of a list, with a number in it
FUNCTION_NBYTES = 500  # of what can be called, and of a namespace
MAX_KEY_BITS = 63  # of one that is hashed: beyond, many numbers share a hash

Value = Any

_STRUCTURE = ("role", "content", "type")


class Items(list[Value]):
    """A list."""

    __slots__ = ("__weakref__",)

    def __init__(self, meter: Meter, values: Iterable[Value] = ()) -> None:
        super().__init__(values)
        meter.spend(16 * len(self))
        meter.take(self, 240 + ELEMENT_NBYTES * len(self))


class View(Items):
    """What `dict.items()` and the like give: to go through, not to look up in."""

    __slots__ = ()


class Dict(dict[Value, Value]):
    """A dict; its keys are texts, numbers, none, true or false."""

    __slots__ = ("__weakref__",)

    def __init__(self, meter: Meter, pairs: Iterable[tuple[Value, Value]] = ()) -> None:
        pairs = list(pairs)
        meter.need(120 * len(pairs))
        super().__init__((hashable(meter, key), value) for key, value in pairs)
        meter.spend(16 * len(self))
        meter.take(self, 440 + 120 * len(self))


class Group(tuple[Value, ...]):
    """What `|groupby` makes: a value and the list of those that have it."""

    __slots__ = ()


class Stream:
    """Values that can be gone through once."""

    def __init__(self, values: Items) -> None:
        self._values: Iterator[Value] = iter(values)

    def __iter__(self) -> Iterator[Value]:
        return self._values


class Undefined:
    """A name or attribute that is not there; most uses of it fail with its message."""

    __slots__ = ("message",)

    def __init__(self, message: str) -> None:
        self.message = message

    def fail(self) -> UndefinedError:
        return UndefinedError(self.message)


class Given(int):
    """A whole number that the caller gave, or that was computed of one."""


class Namespace:
    """`namespace()`: attributes that a template may set from inside a loop."""

    def __init__(self, values: dict[str, Value]) -> None:
        self.values = values


class Function:
    """What a template can call: methods, and functions of ours."""

    def __init__(self, name: str, call: Callable[..., Value]) -> None:
        self.name = name
        self.call = call


class Scope:
    """Names by where they are set: a loop, a macro and the like have scopes of their own."""

    __slots__ = ("parent", "values")

    def __init__(self, parent: Scope | None, values: dict[str, Value] | None = None) -> None:
        self.parent = parent
        self.values: dict[str, Value] = {} if values is None else values

    def find(self, name: str) -> Value:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.parent
        return Undefined(f"{name!r} is undefined")


class Macro:
    """A macro, or the body of a call block; `scope` is where it is written."""

    def __init__(
        self,
        node: nodes.Macro | nodes.CallBlock,
        scope: Scope,
        arguments: list[str],
        takes: frozenset[str],
    ) -> None:
        self.node = node
        self.scope = scope
        self.name = node.name if isinstance(node, nodes.Macro) else "caller"
        self.arguments = arguments
        self.takes = takes  # of varargs, kwargs and caller


def kind(value: Value) -> str:
    """A value's type as Python calls it."""
    names = {Text: "str", Items: "list", View: "list", Dict: "dict", Given: "int", Group: "tuple"}
    return names.get(type(value), type(value).__name__)


def is_number(value: Value) -> bool:
    return isinstance(value, int | float)


def is_true(value: Value) -> bool:
    if isinstance(value, Undefined):
        return False
    return bool(value)


def whole(number: int) -> int:
    """A whole number that is not too large."""
    if number.bit_length() > MAX_BITS:
        raise OverBudget(f"makes a number of over {MAX_BITS} bits")
    return number


def hashable(meter: Meter, value: Value) -> Value:
    """A value as the key of a dict."""
    if isinstance(value, Text):
        meter.spend(len(value))
        return value
    if isinstance(value, int) and value.bit_length() > MAX_KEY_BITS:
        raise OverBudget(f"uses a number of over {MAX_KEY_BITS} bits as a key")
    if value is None or is_number(value):
        meter.spend()
        return value
    if isinstance(value, Items | Dict):
        raise TypeError(f"unhashable type: {kind(value)!r}")
    raise SecurityError(f"uses a {kind(value)} as a key")


def as_list(meter: Meter, value: Value) -> list[Value]:
    """The values in a value."""
    if isinstance(value, Text):
        return list(value.characters())
    if isinstance(value, Undefined):
        return []
    if not isinstance(value, list | tuple | dict | range | Stream):
        raise TypeError(f"{kind(value)!r} object is not iterable")
    if not isinstance(value, Stream):
        meter.spend(16 * len(value))
        meter.need(ELEMENT_NBYTES * len(value))
    return list(value)


def counted(text: Text, number: int) -> int:
    """A number that was found in a text: given, when the text was."""
    return Given(number) if text.origin else number


def length(value: Value) -> int:
    if isinstance(value, Text):
        return counted(value, len(value))
    if isinstance(value, list | tuple | dict | range):
        return len(value)
    if isinstance(value, Undefined):
        return 0
    raise TypeError(f"object of type {kind(value)!r} has no len()")


def value_of(meter: Meter, given: Any, is_name: Callable[[str], bool], place: str = "") -> Value:
    """Plain data as a value, its texts marked as given. Roles of messages and types of their
    parts may be names that a template writes control tokens with."""
    if isinstance(given, str):
        is_structure = place in ("message role", "part type")
        return Text.of(given, TEMPLATE if is_structure and is_name(given) else GIVEN, meter)
    if isinstance(given, Mapping):
        return Dict(
            meter,
            (
                (value_of(meter, key, is_name), value_of(meter, item, is_name, inner))
                for key, item in given.items()
                for inner in [f"{place} {key}" if place and key in _STRUCTURE else ""]
            ),
        )
    if isinstance(given, list):
        inner = {"messages": "message", "message content": "part"}.get(place, "")
        return Items(meter, [value_of(meter, item, is_name, inner) for item in given])
    if isinstance(given, int) and not isinstance(given, bool):
        return Given(whole(given))
    return given
