"""Strings of a model: in a graph each is its place in a table, an int64.

Equal strings have equal places, so that what moves and compares strings is done by native code;
what looks into them is done on the host. Those of the file are kept; those that come and are made
in a call are forgotten when no call is in progress.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from arenite import locks
from arenite.dtype import Array


class Strings:
    """Places from 0 on are of the file, negative ones of calls."""

    def __init__(self) -> None:
        self._lock = locks.reentrant()
        self._kept: list[str] = []
        self._made: list[str] = []
        self._places: dict[str, int] = {}
        self._n_calls = 0

    @property
    def has_kept(self) -> bool:
        """Whether the file has strings."""
        return bool(self._kept)

    def keep(self, texts: Array) -> Array:
        """Places of strings that stay: of the file itself."""
        with self._lock:
            return _mapped(self._keep, texts, np.int64)

    def _keep(self, text: str) -> int:
        place = self._places.get(text)
        if place is None or place < 0:
            place = self._places[text] = len(self._kept)
            self._kept.append(text)
        return place

    def places(self, texts: Array) -> Array:
        """Places of strings that come or are made in a call."""
        with self._lock:
            return _mapped(self._place, texts, np.int64)

    def _place(self, text: str) -> int:
        place = self._places.get(text)
        if place is None:
            self._made.append(text)
            place = self._places[text] = -len(self._made)
        return place

    def texts(self, places: Array) -> Array:
        """The strings at these places, as an array of objects."""
        return _mapped(self._text, places, object)

    def _text(self, place: int) -> str:
        return self._kept[place] if place >= 0 else self._made[-1 - place]

    @contextmanager
    def in_call(self) -> Iterator[None]:
        """A call: what it makes is forgotten when the last one ends."""
        with self._lock:
            self._n_calls += 1
        try:
            yield
        finally:
            with self._lock:
                self._n_calls -= 1
                if not self._n_calls:
                    for text in self._made:
                        if self._places[text] < 0:
                            del self._places[text]
                    self._made.clear()


def _mapped(function: Any, given: Array, dtype: Any) -> Array:
    """The function of each element."""
    made = np.empty(np.shape(given), dtype)
    flat = made.reshape(-1)
    for k, one in enumerate(np.asarray(given).reshape(-1).tolist()):
        flat[k] = function(one.decode("utf-8", "replace") if isinstance(one, bytes) else one)
    return made
