"""The client's end: answers in pieces, and work for a client that goes away, which is given up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from arenite.serve.bodies import ApiError
from arenite.serve.stream import nobody

T = TypeVar("T")


async def until_gone(
    request: Request, work: Coroutine[Any, Any, T], cancel: Callable[[], None] = nobody
) -> T:
    """What `work` gives; where the client goes away before it is done, the work is cancelled."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(request.receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ApiError(499, "the client went away")
        return task.result()
    finally:
        cancel()
        task.cancel()
        gone.cancel()


class StreamedResponse(Response):
    """Pieces as they come. `cancel` is called when the client goes away, and in any case at the
    end: the pieces end soon after it."""

    def __init__(
        self, pieces: AsyncIterator[bytes], cancel: Callable[[], None], media_type: str
    ) -> None:
        self.status_code = 200
        self.media_type = media_type
        self.background = None
        self._pieces, self._cancel = pieces, cancel
        self.init_headers({"Cache-Control": "no-store"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gone = asyncio.ensure_future(_gone(receive))
        gone.add_done_callback(lambda _: self._cancel())
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async for piece in self._pieces:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            gone.cancel()


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
