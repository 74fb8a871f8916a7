"""Stream: what an engine makes of one request, chunk by chunk, for whoever waits for it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TypeAlias

from arenite.errors import InvalidArgument, RunFailed
from arenite.generate.continuation import Finish
from arenite.generate.generation import Stats

_log = logging.getLogger("arenite.serve")


@dataclass(frozen=True, slots=True)
class Chunk:
    """A token and the text that is certain with it, which may be none; the last chunk has `finish`
    and `stats`, and no token where none was made."""

    token: int | None
    text: str
    logprob: float | None = None  # of the token, where it was asked for
    top: tuple[tuple[int, float], ...] = ()  # the likeliest tokens and their logprobs
    finish: Finish | None = None
    stats: Stats | None = None


#: Hears of each chunk, or of the error that ends a stream, on the engine's thread: be quick.
Listener: TypeAlias = Callable[[Chunk | BaseException], object]
#: Wakes who waits for what listeners have heard: a thread is woken once a step, not once a chunk.
Waker: TypeAlias = Callable[[], object]


def nobody() -> None:
    """The waker of those who need none."""


class Stream:
    """Iterate for its chunks, once; or give `submit` a listener. `cancel()` from any thread."""

    def __init__(
        self, prompt: list[int], listener: Listener | None = None, waker: Waker = nobody
    ) -> None:
        self.prompt = tuple(prompt)
        self.waker = waker
        self._queue: SimpleQueue[Chunk | BaseException] = SimpleQueue()
        self._put: Listener = listener or self._queue.put
        self._is_read = listener is not None
        self._process = os.getpid()
        self._is_cancelled = False

    def cancel(self) -> None:
        """End the text within one step: its last chunk says "cancelled"."""
        self._is_cancelled = True

    @property
    def is_cancelled(self) -> bool:
        return self._is_cancelled

    def put(self, chunk: Chunk | BaseException) -> None:
        """For the engine: hand out a chunk, or the error that ends the stream. A listener that
        fails hears no more."""
        try:
            self._put(chunk)
        except Exception:
            _log.exception("the listener of a stream has failed; its text is cancelled")
            self._put = lambda chunk: None
            self.cancel()

    def __iter__(self) -> Iterator[Chunk]:
        """The chunks as they come. Who stops early cancels the rest."""
        if self._is_read:
            raise InvalidArgument("a stream is read once, by its listener where it has one")
        if self._process != os.getpid():
            raise RunFailed("what makes this text runs in the process that was forked")
        self._is_read = True
        return self._chunks()

    def _chunks(self) -> Iterator[Chunk]:
        try:
            while True:
                chunk = self._queue.get()
                if isinstance(chunk, BaseException):
                    raise chunk
                yield chunk
                if chunk.finish:
                    return
        finally:
            self.cancel()

    def text(self) -> str:
        """All of the text, once it is there."""
        return "".join(chunk.text for chunk in self)


def hand_out(made: Sequence[tuple[Stream, Chunk | BaseException]]) -> None:
    """For the engine: what it has made goes to the streams, and then those are woken who wait."""
    for stream, chunk in made:
        stream.put(chunk)
    for wake in {stream.waker for stream, _ in made}:
        wake()
