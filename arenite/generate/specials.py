"""Splitting a text at tokens that stand for themselves: control tokens and a user's own.

In: a text. Out: its pieces in order, a `str` of plain text or the id of a token. Longer tokens are
looked for first, all over the text, then shorter ones in what is left.

    tokens, in order   <a    <ab    <ab>    <b>      each knows the longest that it begins with
    text               x <ab <b>                     at each "<" the order says what begins there
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

_SPACES = " \t\n\v\f\r"


class _Order(NamedTuple):
    """Texts in order; the rank of each among the tokens; the number of the longest other text that
    it begins with, or -1; all first characters; the longest length."""

    texts: list[str]
    ranks: list[int]
    begins_with: list[int]
    firsts: frozenset[str]
    longest: int


@dataclass(frozen=True)
class Specials:
    """Texts of tokens and their ids, longest first; `controls` are matched when asked for only;
    `swallowing` are those that take the spaces and line ends after them along."""

    tokens: tuple[tuple[str, int], ...]
    controls: frozenset[int]
    swallowing: frozenset[int]

    @classmethod
    def of(
        cls, ids: Mapping[str, int], controls: Iterable[int], swallowing: Iterable[int] = ()
    ) -> Specials:
        by_length = sorted(ids.items(), key=lambda item: len(item[0].encode()), reverse=True)
        tokens = tuple((text, token) for text, token in by_length if text)
        return cls(tokens, frozenset(controls), frozenset(swallowing))

    @property
    def control_texts(self) -> list[str]:
        return [text for text, token in self.tokens if token in self.controls]

    def split(self, text: str, *, controls: bool) -> list[str | int]:
        """The pieces of a text; none is an empty text."""
        is_taken = bytearray(len(text))
        spans: list[tuple[int, int, int]] = []  # start, end, token
        for rank in sorted(self._begun_in(text)):
            special, token = self.tokens[rank]
            if token in self.controls and not controls:
                continue
            places = _free_places(text, special, is_taken)
            if token in self.swallowing:
                places = [(start, _swallowed(text, end, is_taken)) for start, end in places]
            spans += [(start, end, token) for start, end in places]
        pieces: list[str | int] = []
        at = 0
        for start, end, token in sorted(spans):
            pieces += [text[at:start], token] if at < start else [token]
            at = end
        return [*pieces, text[at:]] if at < len(text) else pieces

    @cached_property
    def _order(self) -> _Order:
        ranked = sorted((text, rank) for rank, (text, _) in enumerate(self.tokens))
        texts, ranks = [text for text, _ in ranked], [rank for _, rank in ranked]
        begins_with: list[int] = []
        for number, text in enumerate(texts):
            other = number - 1
            while other >= 0 and not text.startswith(texts[other]):
                other = begins_with[other]
            begins_with.append(other)
        firsts = frozenset(text[0] for text in texts)
        return _Order(texts, ranks, begins_with, firsts, max(map(len, texts), default=0))

    def _begun_in(self, text: str) -> set[int]:
        """Ranks of the tokens that are somewhere in a text."""
        order = self._order
        numbers: set[int] = set()
        for first in order.firsts & set(text):
            at = text.find(first)
            while at >= 0:
                number = _longest_begin(order.texts, text[at : at + order.longest])
                while number >= 0 and number not in numbers:
                    numbers.add(number)
                    number = order.begins_with[number]
                at = text.find(first, at + 1)
        return {order.ranks[number] for number in numbers}


def _longest_begin(texts: list[str], window: str) -> int:
    """The number of the longest of some texts in order that a window begins with, or -1."""
    while window:
        number = bisect_right(texts, window) - 1
        if number < 0 or window.startswith(texts[number]):
            return number
        # What the window begins with comes before this text, and this text begins with it too.
        pairs = enumerate(zip(texts[number], window, strict=False))
        window = window[: next((k for k, (a, b) in pairs if a != b), len(texts[number]))]
    return -1


def _free_places(text: str, special: str, is_taken: bytearray) -> list[tuple[int, int]]:
    """Where a token is in what is left of a text, from the left on; these are taken then."""
    places = []
    at = text.find(special)
    while at >= 0:
        end = at + len(special)
        taken = is_taken.find(1, at, end)
        if taken < 0:
            is_taken[at:end] = b"\1" * len(special)
            places.append((at, end))
        else:
            end = is_taken.find(0, taken)
        at = text.find(special, end) if end >= 0 else -1
    return places


def _swallowed(text: str, at: int, is_taken: bytearray) -> int:
    """The end of spaces from here on that are left, which are taken then."""
    end = at
    while end < len(text) and text[end] in _SPACES and not is_taken[end]:
        end += 1
    is_taken[at:end] = b"\1" * (end - at)
    return end
