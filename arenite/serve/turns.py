"""Turns: requests for a model that does one thing at a time take turns; so many may wait.

Those that wait take no thread, and nothing is left of one whose client goes away. What runs can't
be ended: its turn lasts until it is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from arenite.serve.bodies import ApiError

T = TypeVar("T")


class Turns:
    """For one event loop."""

    def __init__(self, queue: int) -> None:
        self._room = queue + 1
        self._n_here = 0
        self._lock = asyncio.Lock()

    @contextmanager
    def place(self) -> Iterator[None]:
        """Be one of those that run or wait; ApiError where they are as many as may be."""
        if self._n_here >= self._room:
            raise ApiError(
                429, "as many requests wait as may; come back later", code="busy", retry_after=1
            )
        self._n_here += 1
        try:
            yield
        finally:
            self._n_here -= 1

    async def run(self, work: Callable[[], T]) -> T:
        """Do it on a thread, alone."""
        async with self._lock:
            done = asyncio.ensure_future(asyncio.to_thread(work))
            try:
                return await asyncio.shield(done)
            finally:
                await asyncio.wait({done})
