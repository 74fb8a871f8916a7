"""Sequences and mappings that are read when one of their items is looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar, overload

T = TypeVar("T")
K = TypeVar("K")


class LazySequence(Sequence[T]):
    """`n` items that `read` gives; those in `known` are there at once."""

    __slots__ = ("_known", "_n", "_read")

    def __init__(
        self, n: int, read: Callable[[], Sequence[T]], known: Mapping[int, T] | None = None
    ) -> None:
        self._n = n
        self._read = read
        self._known = known or {}

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        if isinstance(index, int) and index in self._known:
            return self._known[index]
        return self._read()[index]

    def __iter__(self) -> Iterator[T]:
        return iter(self._read())

    def __len__(self) -> int:
        return self._n


class LazyMapping(Mapping[K, T]):
    """What `read` gives."""

    __slots__ = ("_read",)

    def __init__(self, read: Callable[[], Mapping[K, T]]) -> None:
        self._read = read

    def __getitem__(self, key: K) -> T:
        return self._read()[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())
