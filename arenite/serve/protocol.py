"""Protocol: a connection, up to where there is a request; what is wrong before that is JSON too.

It refuses what is no HTTP, connections beyond a number, and those whose request does not come: a
client that opens connections and says nothing, or a byte now and then, is not to keep others out.
"""

from __future__ import annotations

import asyncio
import json
import threading
from http import HTTPStatus

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from arenite.serve.bodies import ApiError
from arenite.serve.openai_replies import error_body

#: Connections at once; what is over it is told to come back.
MAX_CONNECTIONS = 1024
#: Bytes of a request before its body.
MAX_HEAD_NBYTES = 64 * 1024
#: Bytes that are read of a connection at once.
PIECE_NBYTES = 64 * 1024
#: Seconds from the first byte of a request, or the beginning of a connection, to its body.
HEAD_SECONDS = 30.0


class _Received(threading.local):
    """What all connections of a thread read into, one after the other. asyncio would take a block
    for each piece, four times as large, and side by side with others these leave gaps in the
    heap."""

    def __init__(self) -> None:
        self.piece = memoryview(bytearray(PIECE_NBYTES))


_received = _Received()


class Protocol(H11Protocol, asyncio.BufferedProtocol):
    """One connection."""

    max_connections = MAX_CONNECTIONS
    head_seconds = HEAD_SECONDS
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.max_connections:
            self._refuse(503, f"{self.max_connections} connections are open, as many as may be")
        else:
            self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._end_watch()

    def get_buffer(self, sizehint: int) -> memoryview:
        return _received.piece

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(bytes(_received.piece[:nbytes]))
        self._watch()

    def _watch(self) -> None:
        """See to it that the head of a request, where one is due, comes to its end."""
        if self.conn.their_state is not h11.IDLE:
            self._end_watch()
        elif self._timer is None and not self.transport.is_closing():
            self._timer = self.loop.call_later(self.head_seconds, self._give_up)

    def _end_watch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._refuse(408, f"the request did not come within {self.head_seconds:g} s")

    def send_400_response(self, msg: str) -> None:
        self._refuse(
            400, f"this is no request in HTTP/1.1, or its head has over {MAX_HEAD_NBYTES} bytes"
        )

    def _refuse(self, status: int, message: str) -> None:
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            content = json.dumps(error_body(ApiError(status, message))).encode()
            head = (
                f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
                f"content-type: application/json\r\ncontent-length: {len(content)}\r\n"
                "retry-after: 1\r\nconnection: close\r\n\r\n"
            )
            self.transport.write(head.encode() + content)
        self.transport.close()
