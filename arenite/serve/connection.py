"""The client's end: work for a client that goes away is given up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from starlette.requests import Request

from arenite.serve.bodies import ApiError

T = TypeVar("T")


async def until_gone(
    request: Request, work: Coroutine[Any, Any, T], cancel: Callable[[], None]
) -> T:
    """What `work` gives; where the client goes away before it is done, the work is cancelled."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ApiError(499, "the client went away")
        return task.result()
    finally:
        cancel()
        task.cancel()
        gone.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
