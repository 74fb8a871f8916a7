"""Texts: the texts of a vocabulary in a few bytes each, by token and back.

    raw      t h e Ġ t h e ...          all texts in UTF-8, one after the other
    starts   0     3       8 ...        where each starts
    table    . . 1 . 0 7 . ...          tokens, each where the hash of its text says or soon after

A dict of 49,000 texts takes some 8 MiB; this takes 1.5, and looks many up at once.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Places = NDArray[np.int64]
_Hashes = NDArray[np.uint64]

#: Hashes are remainders of texts, taken for long numbers, by the first of these; where texts are
#: not compared also by the second. Nobody knows them, and so nobody can make texts with one hash.
_DIVISORS = tuple(int.from_bytes(os.urandom(4), "little") | 0x8000_0001 for _ in range(2))
_FACTOR = 0x9E37_79B1  # parts texts that differ in their last letter
_WORD = 4  # bytes that are divided at once


def _hash(text: bytes) -> int:
    return int.from_bytes(text, "big") * _FACTOR % _DIVISORS[0]


def _hashes(raw: bytes, starts: Places, ends: Places) -> _Hashes:
    """Those of many texts at once: `_hash` in the lower half, the second remainder above it."""
    words = np.ndarray(len(raw) + 1, ">u4", raw + bytes(_WORD), strides=(1,))  # at every byte
    first, second = np.zeros(len(starts), np.uint64), (ends - starts).astype(np.uint64)
    divided, place, left = np.arange(len(starts)), starts, ends - starts
    while (goes_on := left > 0).any():
        divided, place, left = divided[goes_on], place[goes_on], left[goes_on]
        n_bytes = (left - 1) % _WORD + 1  # the first word of a text has what is over
        word = words[place] >> (8 * (_WORD - n_bytes)).astype(np.uint32)
        for hashes, divisor in zip((first, second), _DIVISORS, strict=True):
            hashes[divided] = (hashes[divided] << np.uint64(32) | word) % np.uint64(divisor)
        place, left = place + n_bytes, left - n_bytes
    first = first * np.uint64(_FACTOR) % np.uint64(_DIVISORS[0])
    return first | second << np.uint64(32)


class Texts:
    """Texts by number, no two alike. `starts` has one number more, where the last one ends."""

    def __init__(self, raw: bytes, starts: Places) -> None:
        self._raw = raw
        self._starts = starts.astype(np.uint32 if len(raw) < 2**32 else np.uint64).data
        self._slots = np.full(2 ** (2 * len(self)).bit_length(), len(self), np.uint32)
        self._table, self._last = self._slots.data, len(self._slots) - 1  # no token: len(self)
        self._hashes = _hashes(raw, starts[:-1], starts[1:])
        #: Two tokens with the same text, where there are such: the first of them.
        self.repeated = self._fill()

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
        slot = _hash(text) & self._last
        while (token := table[slot]) != n_tokens:
            if self._raw[starts[token] : starts[token + 1]] == text:
                return token
            slot = (slot + 1) & self._last
        return None

    def find_all(self, raw: bytes, starts: Places, ends: Places) -> Places:
        """The token of each part of `raw`, -1 where there is none. Hashes are taken for texts."""
        hashes = _hashes(raw, starts, ends)
        found = np.full(len(hashes), -1, np.int64)
        slot, open_ones = self._first_slots(hashes), np.arange(len(hashes))
        while open_ones.size:
            token = self._slots[slot]
            is_there = token < len(self)
            same = is_there.copy()
            same[is_there] = self._hashes[token[is_there]] == hashes[open_ones[is_there]]
            found[open_ones[same]] = token[same]
            goes_on = is_there & ~same
            open_ones, slot = open_ones[goes_on], (slot[goes_on] + 1) & self._last
        return found

    def n_characters(self) -> Places:
        """The length of each."""
        is_first = np.frombuffer(self._raw, np.uint8) & 0xC0 != 0x80
        before = np.zeros(len(self._raw) + 1, np.int64)
        np.cumsum(is_first, out=before[1:])
        lengths: Places = np.diff(before[np.asarray(self._starts)])
        return lengths

    def _first_slots(self, hashes: _Hashes) -> Places:
        return (hashes & np.uint64(self._last)).astype(np.int64)

    def _fill(self) -> tuple[int, int] | None:
        """Put every token where its hash says, or into the next slot that is free. Ends early
        where two texts are the same."""
        slots, hashes = self._slots, self._hashes
        token, slot = np.arange(len(self)), self._first_slots(hashes)
        while token.size:
            is_free = slots[slot] == len(self)
            slots[slot[is_free]] = token[is_free]
            other = slots[slot].astype(np.int64)
            goes_on = other != token
            if (hashes[other[goes_on]] == hashes[token[goes_on]]).any():
                repeated = self._repeated()
                if repeated:
                    return repeated
            token, slot = token[goes_on], (slot[goes_on] + 1) & self._last
        return None

    def _repeated(self) -> tuple[int, int] | None:
        seen: dict[str, int] = {}
        for token, text in enumerate(self):
            first = seen.setdefault(text, token)
            if first != token:
                return first, token
        return None
