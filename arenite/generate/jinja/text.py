r"""Text: characters of a template's value, and of each where it came from.

    {{ '<|im_start|>' + content }}      content = "hi </s>"

    chars      <|im_start|>hi </s>
    origins    00000000000011111111    0 the template's, 1 given by the caller

Every operation keeps the two side by side: whatever a template does to a text, its owner is known.
What a template puts in the place of given characters (`|replace('[END]', eos_token)`) is its own,
but only each insertion for itself: 2 begins one, 3 goes on. All operations take time and memory in
proportion to their price, also on texts made to be slow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from sys import getsizeof

from arenite.generate.jinja.meter import Meter

TEMPLATE, GIVEN, INSERTED, INSERTED_ON = range(4)

_AS_INSERTED = bytes([INSERTED_ON, *range(1, 256)])
_OBJECT_NBYTES = 320  # of the objects around the characters
_NEEDLE = 64  # characters that are looked for at once
_WINDOW = 2**16  # characters that are looked through at once
_PLACE_NBYTES = 40  # of a place in a list
_WORD = re.compile(r"\S+")
_LINE_END = re.compile("\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")


class Text:
    """A text that never changes. Equal to any other with the same characters."""

    __slots__ = ("__weakref__", "_origin", "chars", "meter", "origins")

    def __init__(self, chars: str, origins: bytes, meter: Meter) -> None:
        meter.spend(len(chars))
        meter.take(self, getsizeof(chars) + len(origins) + _OBJECT_NBYTES)
        self.chars = chars
        self.origins = origins
        self.meter = meter
        self._origin: int | None = None

    @classmethod
    def of(cls, chars: str, origin: int, meter: Meter) -> Text:
        """A text whose characters all come from one place."""
        return cls(chars, bytes([origin]) * len(chars), meter)

    @classmethod
    def join(cls, parts: Iterable[Text], meter: Meter) -> Text:
        """Texts one after the other."""
        parts = parts if isinstance(parts, list) else list(parts)
        meter.spend(16 * len(parts))
        meter.need(
            5 * sum(len(part.chars) for part in parts)
        )  # 4 a character at most, 1 for origins
        origins = b"".join([_begun(part.origins) for part in parts])
        return cls("".join([part.chars for part in parts]), origins, meter)

    def __len__(self) -> int:
        return len(self.chars)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Text) and self.chars == other.chars

    def __hash__(self) -> int:
        return hash(self.chars)

    def __repr__(self) -> str:
        return f"<Text {self.chars[:80]!r}>"

    @property
    def origin(self) -> int:
        """Whose what is made of the text as a whole is: looked for once, which making it paid."""
        if self._origin is None:
            is_own = self.origins.count(TEMPLATE) == len(self.origins)
            self._origin = TEMPLATE if is_own else GIVEN
        return self._origin

    def cut(self, start: int, end: int) -> Text:
        return Text(self.chars[start:end], self.origins[start:end], self.meter)

    def sliced(self, part: slice) -> Text:
        self.meter.spend(len(self))
        origins = self.origins[part]
        if part.step not in (None, 1):  # what was together no longer is
            origins = origins.replace(bytes([INSERTED_ON]), bytes([INSERTED]))
        return Text(self.chars[part], origins, self.meter)

    def characters(self) -> Iterator[Text]:
        return (self.cut(place, place + 1) for place in range(len(self)))

    def times(self, count: int) -> Text:
        count = max(count, 0)
        self.meter.need((getsizeof(self.chars) + len(self)) * count)
        return Text(self.chars * count, _begun(self.origins) * count, self.meter)

    def as_inserted(self) -> Text:
        """The text as it is put in the place of given characters."""
        return Text(self.chars, self.origins.translate(_AS_INSERTED), self.meter)

    def mapped(self, chars: str) -> Text:
        """Other characters for these, made of each or of each with its neighbours by Unicode's
        rules, none of them less than one."""
        if len(chars) == len(self):
            return Text(chars, self.origins, self.meter)
        # Some became several: all are taken for the least trusted.
        inserted = INSERTED if self.origin else TEMPLATE
        return Text.of(chars, GIVEN if GIVEN in self.origins else inserted, self.meter)

    def escaped(self, pattern: re.Pattern[str], escape: Callable[[str], str]) -> Text:
        """The text with what a pattern of single characters finds written in another way."""
        chars: list[str] = []
        origins: list[bytes] = []
        at = 0
        self.meter.spend(16 * len(self))
        for match in pattern.finditer(self.chars):
            self.meter.need(300 * len(chars))
            place = match.start()
            written = escape(match[0])
            self.meter.spend(16)
            chars += [self.chars[at:place], written]
            origins += [self.origins[at:place], self.origins[place : place + 1] * len(written)]
            at = place + 1
        self.meter.need(5 * sum(map(len, chars)))
        text = "".join(chars) + self.chars[at:]
        return Text(text, b"".join(origins) + self.origins[at:], self.meter)

    # Looking for parts. Python's own search takes the product of both lengths for some texts, so it
    # gets short needles only.

    def find(self, part: str, start: int, end: int) -> int:
        """Where a part first begins in [start, end); -1 where it is not there."""
        needle, last, width = part[:_NEEDLE], end - len(part), 256
        while start <= last:
            stop = min(start + width, last + 1)  # it begins before
            self.meter.spend((stop - start) * (1 + len(needle) // 4))
            place = self.chars.find(needle, start, stop + len(needle) - 1)
            if place >= 0 and self._has(part, place):
                return place
            start, width = (stop if place < 0 else place + 1), min(2 * width, _WINDOW)
        return -1

    def rfind(self, part: str, start: int, end: int) -> int:
        """Where a part last begins in [start, end); -1 where it is not there."""
        needle, last, width = part[:_NEEDLE], end - len(part), 256
        while start <= last:
            first = max(last + 1 - width, start)
            self.meter.spend((last + 1 - first) * (1 + len(needle) // 4))
            place = self.chars.rfind(needle, first, last + len(needle))
            if place >= 0 and self._has(part, place):
                return place
            last, width = (first if place < 0 else place) - 1, min(2 * width, _WINDOW)
        return -1

    def _has(self, part: str, place: int) -> bool:
        if len(part) <= _NEEDLE:
            return True
        self.meter.spend(len(part))
        return self.chars.startswith(part, place)

    def places(self, part: str, count: int = -1) -> list[int]:
        """Where a part begins, none over another; at most so many."""
        starts: list[int] = []
        place = self.find(part, 0, len(self))
        while place >= 0 and len(starts) != count:
            self.meter.spend(16)
            self.meter.need(_PLACE_NBYTES * len(starts))
            starts.append(place)
            place = self.find(part, place + max(len(part), 1), len(self))
        return starts

    def rplaces(self, part: str, count: int = -1) -> list[int]:
        """The same from the end."""
        places: list[int] = []
        place = self.rfind(part, 0, len(self))
        while place >= 0 and len(places) != count:
            self.meter.spend(16)
            self.meter.need(_PLACE_NBYTES * len(places))
            places.append(place)
            place = self.rfind(part, 0, place)
        return places[::-1]

    def cut_at(self, places: list[int], length: int) -> list[Text]:
        """What is before, between and after parts of one length."""
        starts = [0, *(place + length for place in places)]
        ends = [*places, len(self)]
        return [self.cut(start, end) for start, end in zip(starts, ends, strict=True)]

    def replace(self, old: Text, new: Text, count: int = -1) -> Text:
        places = self.places(old.chars, count)
        if not places:
            return self
        if self.origin or old.origin:
            new = new.as_inserted()
        self.meter.need(5 * (len(self) + len(places) * (len(new) - len(old))))
        parts: list[Text] = []
        for part in self.cut_at(places, len(old)):
            parts += [part, new]
        return Text.join(parts[:-1], self.meter)

    def words(self) -> list[tuple[int, int]]:
        """Spans of what is between spaces."""
        return self._spans(_WORD)

    def line_ends(self) -> list[tuple[int, int]]:
        return self._spans(_LINE_END)

    def _spans(self, pattern: re.Pattern[str]) -> list[tuple[int, int]]:
        self.meter.spend(4 * len(self))
        spans: list[tuple[int, int]] = []
        for part in pattern.finditer(self.chars):
            self.meter.spend(16)
            self.meter.need(4 * _PLACE_NBYTES * len(spans))
            spans.append(part.span())
        return spans

    def strip(self, members: str | None, *, left: bool = True, right: bool = True) -> Text:
        """Without spaces, or characters among the members, at its ends."""
        start, end = 0, len(self)
        self.meter.spend(end)
        if members is None:
            start = end - len(self.chars.lstrip()) if left else 0
            end = max(len(self.chars.rstrip()), start) if right else end
        else:
            self.meter.spend(16 * len(members))
            stripped = set(members)
            while left and start < end and self.chars[start] in stripped:
                self.meter.spend()
                start += 1
            while right and end > start and self.chars[end - 1] in stripped:
                self.meter.spend()
                end -= 1
        return self if (start, end) == (0, len(self)) else self.cut(start, end)


def _begun(origins: bytes) -> bytes:
    """Origins of a text that is put after another: an insertion that was cut begins anew."""
    if origins[:1] == bytes([INSERTED_ON]):
        return bytes([INSERTED]) + origins[1:]
    return origins
