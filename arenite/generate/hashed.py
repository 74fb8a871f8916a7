"""Hashes of many short texts at once, in arrays.

A text in UTF-8 is taken for one long number, and its hash is what two divisions leave of it. So the
hash of two texts in a row is found without either text. Nobody knows the divisors, which are chosen
anew in each process, and so nobody can write texts with one hash.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Places = NDArray[np.int64]
Keys = NDArray[np.uint64]

#: Of longer texts no more is hashed.
MAX_NBYTES = 2**14
#: Texts that are worked on at a time: arrays of them stay small.
BLOCK = 2**13

_DIVISORS = tuple(int.from_bytes(os.urandom(4), "little") | 0x8000_0001 for _ in range(2))
_FACTOR = 0x9E37_79B1  # parts texts that differ in the last letter
_WORD = 4  # bytes that are divided at once


def hash_of(text: bytes) -> int:
    """The lower half of a text's key."""
    return int.from_bytes(text, "big") * _FACTOR % _DIVISORS[0]


def blocks(raw: bytes, starts: Places) -> Iterator[tuple[int, bytes, Places]]:
    """Some texts at a time: the number of the first, their bytes, and where they start in these.
    `starts` has one number more, where the last one ends."""
    for first in range(0, len(starts) - 1, BLOCK):
        some = starts[first : first + BLOCK + 1]
        yield first, raw[some[0] : some[-1]], some - some[0]


@dataclass(frozen=True, eq=False)
class Hashed:
    """Lengths of texts and what the two divisions leave of each."""

    nbytes: Places
    remainders: tuple[Keys, Keys]

    @classmethod
    def of(cls, raw: bytes, starts: Places, ends: Places) -> Hashed:
        """Of parts of `raw`."""
        words = np.ndarray(len(raw) + 1, ">u4", raw + bytes(_WORD), strides=(1,))  # at every byte
        nbytes = np.minimum(ends - starts, MAX_NBYTES)
        remainders = np.zeros(len(starts), np.uint64), np.zeros(len(starts), np.uint64)
        divided, place, left = np.arange(len(starts)), starts, nbytes
        while (goes_on := left > 0).any():
            divided, place, left = divided[goes_on], place[goes_on], left[goes_on]
            n_taken = (left - 1) % _WORD + 1  # the first word of a text has what is over
            word = words[place] >> (8 * (_WORD - n_taken)).astype(np.uint32)
            for remainder, divisor in zip(remainders, _DIVISORS, strict=True):
                above = remainder[divided] << np.uint64(8 * _WORD)
                remainder[divided] = (above | word) % np.uint64(divisor)
            place, left = place + n_taken, left - n_taken
        return cls(ends - starts, remainders)

    def then(self, other: Hashed) -> Hashed:
        """Of each text with one of another's behind it."""
        n_shifted = np.minimum(other.nbytes, MAX_NBYTES)
        most = int(n_shifted.max(initial=0))
        joined = []
        for left, right, divisor in zip(self.remainders, other.remainders, _DIVISORS, strict=True):
            shifts = np.array([pow(256, n, divisor) for n in range(most + 1)], np.uint64)
            joined.append((left * shifts[n_shifted] + right) % np.uint64(divisor))
        return Hashed(self.nbytes + other.nbytes, (joined[0], joined[1]))

    @property
    def keys(self) -> Keys:
        """What is the same for the same texts: `hash_of` in the lower half."""
        first, second = self.remainders
        lower = first * np.uint64(_FACTOR) % np.uint64(_DIVISORS[0])
        return lower | (second + self.nbytes.astype(np.uint64)) << np.uint64(32)
