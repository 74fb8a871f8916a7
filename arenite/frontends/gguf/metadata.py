"""Metadata of a GGUF file: typed values by key; arrays stay in the file until they are asked for.

In: a Cursor at the first key. Out: `Metadata`. Opening walks over arrays to find their ends and
checks that they lie in the file; it decodes none, so a vocabulary of 150,000 tokens costs some
5 ms. What is decoded later is checked then: text for UTF-8, flags for being 0 or 1.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from typing import Any, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from arenite.errors import InvalidFile, printable
from arenite.frontends.gguf.cursor import ByteOrder, Cursor
from arenite.frontends.stored_tensor import quoted

#: Kinds of values by their number in a file: a name, and the letter of the struct module.
SCALARS: dict[int, tuple[str, str]] = {
    0: ("uint8", "B"),
    1: ("int8", "b"),
    2: ("uint16", "H"),
    3: ("int16", "h"),
    4: ("uint32", "I"),
    5: ("int32", "i"),
    6: ("float32", "f"),
    7: ("bool", "B"),
    10: ("uint64", "Q"),
    11: ("int64", "q"),
    12: ("float64", "d"),
}
BOOL, STRING, ARRAY = 7, 8, 9
KINDS = {number: name for number, (name, _) in SCALARS.items()} | {STRING: "text", ARRAY: "array"}

MAX_KEYS = 2**16
MAX_DEPTH = 4  # of arrays in arrays
MAX_WALKED = 2**24  # strings and inner arrays of one file, which are walked one by one
#: Bytes that are looked through at once for the lengths of strings; where that finds less than a
#: few, so many strings are walked over one by one.
SEEN_NBYTES = 2**16
FEW_TEXTS = 16
WALKED_TEXTS = 256
LEAST_KEY_NBYTES = 8 + 1 + 4 + 1  # length, a letter, kind, the smallest value


def text_ends(
    data: bytes | memoryview, start: int, length: int, order: ByteOrder
) -> NDArray[np.int64]:
    """Where each of so many strings ends, from `start` on; without those that would end behind the
    data. A string is its length in 8 bytes, then its own."""
    parts: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
    while length:
        ends = _short_text_ends(data, start, length) if order == "<" else parts[0]
        if len(ends) < FEW_TEXTS:
            wanted = min(length, WALKED_TEXTS)
            ends = _walked_text_ends(data, start, wanted, order)
            if len(ends) < wanted:
                return np.concatenate([*parts, ends])
        parts.append(ends)
        start, length = int(ends[-1]), length - len(ends)
    return np.concatenate(parts)


def _walked_text_ends(
    data: bytes | memoryview, start: int, length: int, order: ByteOrder
) -> NDArray[np.int64]:
    """The same, one by one."""
    unpack = struct.Struct(order + "Q").unpack_from
    ends: list[int] = []
    with suppress(struct.error):
        for _ in range(length):
            start += 8 + unpack(data, start)[0]
            if start > len(data):
                break
            ends.append(start)
    return np.array(ends, np.int64)


def _short_text_ends(data: bytes | memoryview, start: int, length: int) -> NDArray[np.int64]:
    """The same for the next strings under 256 bytes, up to one that is not sure, many at once:
    lengths are looked for where 7 bytes are zero, as behind the lowest of each. What is found so is
    right as long as each string starts where the one before it ends."""
    seen = np.frombuffer(data, np.uint8, min(len(data) - start, SEEN_NBYTES), start)
    if len(seen) < 8:
        return np.empty(0, np.int64)
    zero = seen[1:] == 0
    twice = zero[:-1] & zero[1:]
    fourfold = twice[:-2] & twice[2:]
    at = np.flatnonzero(fourfold[:-3] & fourfold[3:])[:length]
    ends = at + 8 + seen[at]
    is_next = np.concatenate([at[:1] == 0, at[1:] == ends[:-1]]) & (ends <= len(seen))
    n_sure = len(at) if is_next.all() else int(np.argmin(is_next))
    return start + ends[:n_sure].astype(np.int64)


class MetadataArray:
    """An array of the file, not decoded yet."""

    __slots__ = ("end", "kind", "length", "place", "source", "start")

    def __init__(
        self, kind: int, place: str, start: int, end: int, length: int, source: Cursor
    ) -> None:
        self.kind = kind  # of its elements
        self.place = place  # for errors
        self.start = start  # of the elements' bytes
        self.end = end
        self.length = length
        self.source = source

    def __repr__(self) -> str:
        return f"MetadataArray(kind={self.kind}, length={self.length})"

    def __len__(self) -> int:
        return self.length

    def numbers(self) -> NDArray[Any]:
        """Numbers or flags as an array."""
        if self.kind not in SCALARS:
            self._cursor().fail(f"{self.place} holds {KINDS[self.kind]}, not numbers")
        _, code = SCALARS[self.kind]
        stored = np.dtype(self.source.order + code)
        section = self.source.section(self.start, self.start + self.length * stored.itemsize)
        values = np.frombuffer(section, stored)
        if self.kind == BOOL:
            if values.size and values.max() > 1:
                self._cursor().fail(f"{self.place} holds a flag that is neither 0 nor 1")
            return values.astype(np.bool_)
        return values.astype(stored.newbyteorder("="), copy=False)

    def texts(self) -> list[str]:
        """Strings, in order."""
        raw, starts = self.packed_texts()
        return [raw[start:end].decode() for start, end in pairwise(starts.tolist())]

    def packed_texts(self) -> tuple[bytes, NDArray[np.int64]]:
        """Strings one after the other in UTF-8, and where each starts; the last number is where
        the last one ends."""
        cursor = self._cursor()
        if self.kind != STRING:
            cursor.fail(f"{self.place} holds {KINDS[self.kind]}, not text")
        section = cursor.section(self.start, self.end)
        # Bounds were checked when the file was opened.
        stored = np.concatenate([[0], text_ends(section, 0, self.length, cursor.order)])
        is_text = np.ones(len(section), np.bool_)
        for offset in range(8):  # lengths
            is_text[stored[:-1] + offset] = False
        raw = np.frombuffer(section, np.uint8)[is_text].tobytes()
        starts = stored - 8 * np.arange(len(stored))
        self._check_utf8(raw, starts)
        return raw, starts

    def _check_utf8(self, raw: bytes, starts: NDArray[np.int64]) -> None:
        """All of it has to be UTF-8, and no string may start inside a character."""
        firsts = np.frombuffer(raw, np.uint8)[starts[:-1][np.diff(starts) > 0]]
        try:
            str(raw, "utf-8")
            if not (firsts & 0xC0 == 0x80).any():
                return
        except UnicodeDecodeError:
            pass
        for index, (start, end) in enumerate(pairwise(starts.tolist())):
            try:
                raw[start:end].decode()
            except UnicodeDecodeError as error:
                self._cursor().fail(
                    f"element {index} of {self.place} is not UTF-8: {error.reason}",
                    self.start + start + 8 * (index + 1),
                )

    def tolist(self) -> list[Any]:
        """The elements as Python values, inner arrays as lists."""
        if self.kind == STRING:
            return self.texts()
        if self.kind != ARRAY:
            values: list[Any] = self.numbers().tolist()
            return values
        cursor = self._cursor()
        walk = _Walk(cursor, self.place)
        return [walk.array(2).tolist() for _ in range(self.length)]

    def _cursor(self) -> Cursor:
        source = self.source
        source.file.allocator.check()
        return Cursor(source.file, source.data, source.path, source.order, self.start)


Value: TypeAlias = bool | int | float | str | MetadataArray


class Metadata:
    """Values by key. A method that is given a default returns it where the key is not there."""

    def __init__(self, path: str, values: dict[str, Value]) -> None:
        self.path = path
        self._values = values

    def __getitem__(self, key: str) -> Value:
        if key not in self._values:
            from difflib import get_close_matches

            similar = get_close_matches(key, self._values, 3)
            hint = f"; it has {', '.join(map(quoted, similar))}" if similar else ""
            raise InvalidFile(f"{self.path}: the metadata has no key {quoted(key)}{hint}")
        return self._values[key]

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"<Metadata of {printable(self.path)}: {len(self)} keys>"

    def _value(self, key: str, default: Value | None) -> Value:
        return self[key] if default is None or key in self else default

    def text(self, key: str, default: str | None = None) -> str:
        """A text; the default where the key is missing."""
        value = self._value(key, default)
        return value if isinstance(value, str) else self._refuse(key, value, "text")

    def integer(self, key: str, default: int | None = None) -> int:
        """A whole number; the default where the key is missing."""
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            self._refuse(key, value, "an integer")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """An integer or a float, as a float."""
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._refuse(key, value, "a number")
        return float(value)

    def flag(self, key: str, default: bool | None = None) -> bool:
        """A truth value; the default where the key is missing."""
        value = self._value(key, default)
        return value if isinstance(value, bool) else self._refuse(key, value, "a flag")

    def array(self, key: str) -> MetadataArray:
        """An array; the default where the key is missing."""
        value = self[key]
        return value if isinstance(value, MetadataArray) else self._refuse(key, value, "an array")

    def texts(self, key: str) -> list[str]:
        """An array of texts; the default where the key is missing."""
        return self.array(key).texts()

    def numbers(self, key: str) -> NDArray[Any]:
        """An array of numbers; the default where the key is missing."""
        return self.array(key).numbers()

    def _refuse(self, key: str, value: Value, wanted: str) -> NoReturn:
        shown = repr(value) if isinstance(value, MetadataArray) else quoted(str(value))
        raise InvalidFile(f"{self.path}: key {quoted(key)} should be {wanted}; it is {shown}")


def read_metadata(cursor: Cursor, n_keys: int) -> Metadata:
    """The keys from here on; the cursor ends after the last."""
    values: dict[str, Value] = {}
    walk = _Walk(cursor, "")
    for index in range(n_keys):
        start = cursor.position
        key = cursor.name(f"the name of key {index}")
        if key in values:
            cursor.fail(f"key {quoted(key)} is there twice", start)
        walk.place = f"key {quoted(key)}"
        kind = cursor.integer("I", f"the kind of {walk.place}")
        values[key] = walk.value(kind)
    return Metadata(cursor.path, values)


class _Walk:
    """Steps over values, checking that they lie in the file."""

    def __init__(self, cursor: Cursor, place: str) -> None:
        self.cursor = cursor
        self.place = place
        self.n_walked = 0

    def value(self, kind: int) -> Value:
        cursor, place = self.cursor, self.place
        if kind == STRING:
            return cursor.text(place)
        if kind == ARRAY:
            return self.array(1)
        if kind not in SCALARS:
            cursor.fail(f"{place} is of an unknown kind, {kind}", cursor.position - 4)
        value = cursor.number(SCALARS[kind][1], place)
        if kind != BOOL:
            return value
        if value > 1:
            cursor.fail(f"{place} is a flag of value {value}, neither 0 nor 1", cursor.position - 1)
        return bool(value)

    def array(self, depth: int) -> MetadataArray:
        cursor, place = self.cursor, self.place
        begin = cursor.position
        if depth > MAX_DEPTH:
            cursor.fail(f"{place} has arrays in arrays deeper than {MAX_DEPTH}")
        kind = cursor.integer("I", f"the kind of the elements of {place}")
        if kind in SCALARS:
            width = struct.calcsize("=" + SCALARS[kind][1])
            length = cursor.count(f"elements of {place}", width, len(cursor.data))
            start = cursor.take(length * width, place)
            return MetadataArray(kind, place, start, cursor.position, length, cursor)
        if kind not in (STRING, ARRAY):
            cursor.fail(f"{place} has elements of an unknown kind, {kind}", begin)
        least = 8 if kind == STRING else 4 + 8
        length = cursor.count(f"elements of {place}", least, MAX_WALKED - self.n_walked)
        self.n_walked += length
        start = cursor.position
        if kind == STRING:
            self._skip_texts(length)
        else:
            for _ in range(length):
                self.array(depth + 1)
        return MetadataArray(kind, place, start, cursor.position, length, cursor)

    def _skip_texts(self, length: int) -> None:
        cursor = self.cursor
        ends = text_ends(cursor.data, cursor.position, length, cursor.order)
        cursor.position = int(ends[-1]) if len(ends) else cursor.position
        if len(ends) < length:
            cursor.fail(f"element {len(ends)} of {self.place} goes past the end of the file")
