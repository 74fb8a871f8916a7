"""Merges of byte pairs: two tokens, the rank of their merge and the token that it makes.

In: the file's list, best first, each "left right". Out: `Merges`, 16 bytes a merge.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from arenite.errors import InvalidFile
from arenite.frontends.gguf import Metadata
from arenite.frontends.stored import quoted
from arenite.generate.hashed import Hashed, Places, blocks
from arenite.generate.texts import Texts
from arenite.generate.vocabulary import Vocabulary

_KEY = "tokenizer.ggml.merges"

#: Left, right and what they make, a row for each merge.
Pairs = NDArray[np.int32]


def read_pairs(metadata: Metadata, texts: Texts, others: Mapping[bytes, int]) -> Pairs:
    """The file's merges by the numbers of tokens; `others` has numbers for texts that may be merged
    without being tokens."""
    raw, starts = metadata.array(_KEY).packed_texts()
    pairs = [np.empty((0, 3), np.int32)]
    for first, part, places in blocks(raw, starts):
        pairs.append(_pairs(part, places[:-1], places[1:], texts, others))
        _refuse(metadata, pairs[-1] < 0, first)
    return np.concatenate(pairs)


def _pairs(
    raw: bytes, starts: Places, ends: Places, texts: Texts, others: Mapping[bytes, int]
) -> Pairs:
    """The numbers of some merges, -1 where there is none."""
    blanks = np.append(np.flatnonzero(np.frombuffer(raw, np.uint8) == ord(" ")), len(raw))
    blank = np.minimum(blanks[np.searchsorted(blanks, starts)], ends)  # the first in each
    left, right = Hashed.of(raw, starts, blank), Hashed.of(raw, np.minimum(blank + 1, ends), ends)
    parts = (left, right, left.then(right))
    pairs = np.stack([texts.find_all(part) for part in parts], 1).astype(np.int32)
    for row, side in np.argwhere(pairs[:, :2] < 0).tolist():
        merge = raw[starts[row] : ends[row]]
        pairs[row, side] = others.get(merge.partition(b" ")[2 * side], -1)
    return pairs


def without_controls(
    metadata: Metadata, pairs: Pairs, vocabulary: Vocabulary, others: Mapping[bytes, int]
) -> Pairs:
    """The merges as text meets them: no text makes a control token. One of `others` stands for
    what its text means otherwise; without such a merge is wrong."""
    pairs = pairs.copy()
    for token in vocabulary.controls:
        number = others.get(vocabulary.texts.encoded(token))
        if number is not None:
            pairs[pairs == token] = number
    _refuse(metadata, np.isin(pairs, list(vocabulary.controls)))
    return pairs


def _refuse(metadata: Metadata, is_wrong: NDArray[np.bool_], first: int = 0) -> None:
    """Fail where some part of a merge is wrong, with the first such; they count from `first`."""
    if not is_wrong.any():
        return
    row, part = divmod(int(is_wrong.argmax()), is_wrong.shape[1])
    rank = first + row
    merge = metadata.texts(_KEY)[rank]
    left, _, right = merge.partition(" ")
    wrong = quoted((left, right, left + right)[part])
    reason = f"and {wrong} is no token" if left and right else "which is no pair of tokens"
    raise InvalidFile(f"{metadata.path}: merge {rank} is {quoted(merge)}, {reason}")


class Merges:
    """Pairs by their left token: those of token t are at `first[t]` to `first[t + 1]`, in the order
    of their right tokens, of equal pairs the first in the file."""

    def __init__(self, pairs: Pairs, n_numbers: int) -> None:
        keys = pairs[:, 0].astype(np.int64) << 32 | pairs[:, 1]
        order = np.argsort(keys, kind="stable")
        first = np.searchsorted(keys[order], np.arange(n_numbers + 1) << 32)
        self._first = _compact(first)
        self._right = _compact(pairs[order, 1])
        self._rank = _compact(order)
        self._made = _compact(pairs[order, 2])

    def find(self, left: int, right: int) -> tuple[int, int] | None:
        """The rank of a pair and the token it makes."""
        end = self._first[left + 1]
        at = bisect_left(self._right, right, self._first[left], end)
        if at == end or self._right[at] != right:
            return None
        return self._rank[at], self._made[at]


def _compact(numbers: NDArray[np.integer]) -> memoryview[int]:
    return numbers.astype(np.uint32).data
