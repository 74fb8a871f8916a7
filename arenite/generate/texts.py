"""Texts: the texts of a vocabulary in a few bytes each, by token and back.

    raw      t h e Ġ t h e ...          all texts in UTF-8, one after the other
    starts   0     3       8 ...        where each starts
    table    . . 1 . 0 7 . ...          tokens, each where the hash of its text says or soon after

A dict of 49,000 texts takes some 8 MiB; this takes 1.5, and looks many up at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np

from arenite.generate.hashed import Hashed, Keys, Places, blocks, hash_of


class Texts:
    """Texts by number, no two alike. `starts` has one number more, where the last one ends."""

    def __init__(self, raw: bytes, starts: Places) -> None:
        self._raw = raw
        self._starts = starts.astype(np.uint32 if len(raw) < 2**32 else np.uint64).data
        self._slots = np.full(2 ** (2 * len(self)).bit_length(), len(self), np.uint32)
        self._table, self._last = self._slots.data, len(self._slots) - 1  # no token: len(self)
        self._keys = np.empty(len(self), np.uint64)
        #: Two tokens with the same text, where there are such: the first of them.
        self.repeated: tuple[int, int] | None = None
        for first, part, places in blocks(raw, starts):
            keys = Hashed.of(part, places[:-1], places[1:]).keys
            self._keys[first : first + len(keys)] = keys
            self.repeated = self._put(first, keys)
            if self.repeated:
                break

    @classmethod
    def of(cls, texts: Iterable[str]) -> Texts:
        parts = [text.encode() for text in texts]
        return cls(b"".join(parts), np.cumsum([0, *map(len, parts)], dtype=np.int64))

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, token: int) -> str:
        return self.encoded(token).decode()

    def encoded(self, token: int) -> bytes:
        """A text in UTF-8."""
        return self._raw[self._starts[token] : self._starts[token + 1]]

    def __iter__(self) -> Iterator[str]:
        for start, end in pairwise(self._starts):
            yield self._raw[start:end].decode()

    def find(self, text: bytes) -> int | None:
        """The token with this text."""
        table, starts, n_tokens = self._table, self._starts, len(self)
        slot = hash_of(text) & self._last
        while (token := table[slot]) != n_tokens:
            if self._raw[starts[token] : starts[token + 1]] == text:
                return token
            slot = (slot + 1) & self._last
        return None

    def find_all(self, texts: Hashed) -> Places:
        """The token of each, -1 where there is none. Keys are taken for texts."""
        keys = texts.keys
        tokens = np.full(len(keys), -1, np.int64)
        slot, sought = self._slot(keys), np.arange(len(keys))
        while sought.size:
            token = self._slots[slot]
            is_there = token < len(self)
            same = is_there.copy()
            same[is_there] = self._keys[token[is_there]] == keys[sought[is_there]]
            tokens[sought[same]] = token[same]
            goes_on = is_there & ~same
            sought, slot = sought[goes_on], (slot[goes_on] + 1) & self._last
        return tokens

    def n_characters(self) -> Places:
        """The length of each."""
        lengths = np.empty(len(self), np.int64)
        for first, part, places in blocks(self._raw, np.asarray(self._starts, np.int64)):
            before = np.zeros(len(part) + 1, np.int64)
            np.cumsum(np.frombuffer(part, np.uint8) & 0xC0 != 0x80, out=before[1:])
            lengths[first : first + len(places) - 1] = np.diff(before[places])
        return lengths

    def _slot(self, keys: Keys) -> Places:
        return (keys & np.uint64(self._last)).astype(np.int64)

    def _put(self, first: int, keys: Keys) -> tuple[int, int] | None:
        """Put tokens where their keys say, or into the next slot that is free; two with the same
        text, where that is found."""
        slots, token, slot = self._slots, np.arange(first, first + len(keys)), self._slot(keys)
        while token.size:
            is_free = slots[slot] == len(self)
            slots[slot[is_free]] = token[is_free]
            other = slots[slot].astype(np.int64)
            goes_on = other != token
            token, other, slot = token[goes_on], other[goes_on], (slot[goes_on] + 1) & self._last
            if (self._keys[other] == self._keys[token]).any() and (pair := self._repeated()):
                return pair
        return None

    def _repeated(self) -> tuple[int, int] | None:
        seen: dict[str, int] = {}
        for token, text in enumerate(self):
            first = seen.setdefault(text, token)
            if first != token:
                return first, token
        return None
