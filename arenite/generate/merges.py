"""Merges of byte pairs: two tokens, the rank of their merge and the token that it makes.

In: the file's list, best first, each "left right". Out: `Merges`, 16 bytes a merge.

Merging neighbours, lowest rank first, the leftmost of equals.

h e l l o        ranks: ll 1, he 2, llo 3, hello 4
h e (ll) o       (he) (ll) o       (he) (llo)       (hello)
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappop, heappush

import numpy as np
from numpy.typing import NDArray

from arenite.errors import InvalidFile
from arenite.frontends.gguf import Metadata
from arenite.frontends.stored_tensor import quoted
from arenite.generate.hashed import Hashed, Places, blocks
from arenite.generate.texts import Texts
from arenite.generate.vocabulary import Vocabulary

#: What two neighbours become, given where the left one starts, where the right one starts and
#: where it ends: the rank of that merge and the token, or None.
Find = Callable[[int, int, int], tuple[float, int] | None]

_MAX_CACHED_WORDS = 2**12
_MAX_CACHED_LENGTH = 32


def merge(tokens: list[int], find: Find) -> list[int]:
    """The tokens after all merges; `tokens` has them where they start from then on, and what is
    returned are those places. `ends[i]` is where the token that starts at i ends, 0 once it is
    part of another."""
    n = len(tokens)
    ends = list(range(1, n + 1))
    before = list(range(-1, n - 1))
    heap = []
    for right in range(1, n):
        found = find(right - 1, right, right + 1)
        if found is not None:
            heap.append((found[0], right - 1, right, right + 1, found[1]))
    heapify(heap)
    while heap:
        _, left, right, end, token = heappop(heap)
        if ends[left] != right or ends[right] != end:
            continue  # one of the two has been merged since
        tokens[left], ends[left], ends[right] = token, end, 0
        if end < n:
            before[end] = left
            found = find(left, end, ends[end])
            if found is not None:
                heappush(heap, (found[0], left, end, ends[end], found[1]))
        previous = before[left]
        if previous >= 0:
            found = find(previous, left, end)
            if found is not None:
                heappush(heap, (found[0], previous, left, end, found[1]))
    starts, start = [], 0
    while start < n:
        starts.append(start)
        start = ends[start]
    return starts


class WordCache(dict[str, Sequence[int]]):
    """Tokens of words that were met lately; of others they are made."""

    def __init__(self, encode: Callable[[str], Sequence[int]]) -> None:
        super().__init__()
        self._encode = encode

    def __missing__(self, word: str) -> Sequence[int]:
        tokens = self._encode(word)
        if len(word) <= _MAX_CACHED_LENGTH:
            if len(self) >= _MAX_CACHED_WORDS:
                self.clear()
            self[word] = tuple(tokens)
        return tokens


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
