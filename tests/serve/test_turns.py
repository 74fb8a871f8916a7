"""Turns: one at a time, and those that wait keep nobody else from a thread."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

import pytest

from arenite.serve.bodies import ApiError
from arenite.serve.turns import Turns


def test_those_that_wait_take_no_thread_and_who_leaves_never_runs() -> None:
    """A server's metrics are read on the same threads."""

    async def scene() -> None:
        turns = Turns(queue=100)
        release = threading.Event()
        ran: list[int] = []

        def work(number: int) -> int:
            ran.append(number)
            release.wait(60)
            return number

        waiting = [asyncio.ensure_future(turns.run(partial(work, n))) for n in range(100)]
        await asyncio.sleep(0)
        assert await asyncio.wait_for(asyncio.to_thread(len, "free"), 30) == 4
        for one in waiting[1:98]:
            one.cancel()
        waiting[0].cancel()  # runs, and can't be ended
        while not ran:
            await asyncio.sleep(0.001)
        assert not waiting[0].done()
        release.set()
        told = await asyncio.gather(*waiting, return_exceptions=True)
        assert ran == [0, 98, 99]
        assert told[98:] == [98, 99]
        assert all(isinstance(one, asyncio.CancelledError) for one in told[:98])

    asyncio.run(scene())


def test_who_finds_no_place_is_told() -> None:
    turns = Turns(queue=1)
    with turns.place(), turns.place():
        with pytest.raises(ApiError, match="come back") as told, turns.place():
            pass
        assert told.value.headers["retry-after"] == "1"
    with turns.place():
        pass
