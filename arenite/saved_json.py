"""JSON as the cache keeps it, by what CPython's `json` is made of: importing that package compiles
six regular expressions, which would take each start 1.5 ms."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or sys.implementation.name != "cpython":
    from json import dumps as dumps
    from json import loads as loads
else:
    from _json import encode_basestring_ascii, make_encoder, make_scanner

    class _Strict:
        """What the scanner asks for: each kind of value as Python has it."""

        strict = True
        object_hook = object_pairs_hook = None
        parse_int = int
        parse_float = parse_constant = float  # NaN and Infinity too

    def _refuse(value: object) -> None:
        raise TypeError(f"{type(value).__name__} can't be written as JSON")

    _scan = make_scanner(_Strict)

    def loads(text: str | bytes) -> Any:
        """The value that a text stands for; ValueError where it is none. No space may be around
        it."""
        text = text if isinstance(text, str) else text.decode()
        try:
            value, end = _scan(text, 0)
        except StopIteration as stop:
            raise ValueError(f"no JSON value at character {stop.value}") from None
        if end != len(text):
            raise ValueError(f"a JSON value ends at character {end} of {len(text)}")
        return value

    def dumps(value: Any) -> str:
        """A value of numbers, texts, lists, tuples and dicts as text."""
        marks: dict[int, Any] = {}  # of what it is in: what holds itself is refused
        write = make_encoder(
            marks, _refuse, encode_basestring_ascii, None, ": ", ", ", False, False, True
        )
        return "".join(write(value, 0))
