"""Delivery: chunks on their way from the engine's thread to the event loop that answers clients.

A step of the engine makes a chunk of each text. All of them come to the loop in one wake-up, and
what has come for one request is handed over together: a wake-up costs more than what it brings.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from arenite.serve.stream import Chunk, Listener

#: A chunk, or the error that ends a text, with the number of the text within its request.
Arrival: TypeAlias = "tuple[int, Chunk | BaseException]"


class Post:
    """What the engine has made and a loop has not yet seen."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)  # or those that have ended would never go
        self._sent: deque[tuple[Inbox, Arrival]] = deque()

    def send(self, inbox: Inbox, arrival: Arrival) -> None:
        """From the engine's thread; the loop looks at it once it is woken."""
        self._sent.append((inbox, arrival))

    def wake(self) -> None:
        loop = self._loop()
        if loop is not None:
            with suppress(RuntimeError):  # the loop has ended: nobody waits
                loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        while self._sent:
            inbox, arrival = self._sent.popleft()
            inbox.put(arrival)


class Inbox:
    """What has come for one request, on the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.post = post_of(loop)
        self._arrived: list[Arrival] = []
        self._waiter: asyncio.Future[None] | None = None

    def listener(self, number: int) -> Listener:
        """Who hears of the chunks of one text, on the engine's thread."""
        return lambda chunk: self.post.send(self, (number, chunk))

    def put(self, arrival: Arrival) -> None:
        self._arrived.append(arrival)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def take(self) -> list[Arrival]:
        """All that has come; waits where nothing has. For one task at a time."""
        while not self._arrived:
            self._waiter = self._loop.create_future()
            await self._waiter
        arrived, self._arrived = self._arrived, []
        return arrived


_posts: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Post] = weakref.WeakKeyDictionary()


def post_of(loop: asyncio.AbstractEventLoop) -> Post:
    """The post of a loop: one for all requests that it answers."""
    return _posts.setdefault(loop, Post(loop))
