"""Merging neighbours, lowest rank first, the leftmost of equals.

h e l l o        ranks: ll 1, he 2, llo 3, hello 4
h e (ll) o       (he) (ll) o       (he) (llo)       (hello)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush

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
