"""Clients of a server: each asks for a text as a stream of events and takes note of when it came.

In: an address and prompts, one a client. Out: a `Load`: tokens, seconds, waits for the first event.
One thread looks at all sockets and keeps what they bring unread until the end, for it works on the
processors that it measures; `seconds_worked` is what it took of them.
"""

from __future__ import annotations

import json
import selectors
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter, process_time
from typing import Any

#: Seconds without a byte from any client after which a server is given up.
PATIENCE = 120.0
END = b"data: [DONE]"


@dataclass(frozen=True)
class Load:
    """What came of so many requests at once."""

    n_tokens: int
    seconds: float  # from the first request to the last token
    waits: list[float]  # of each client, from its request to its first event
    seconds_worked: float  # processor time of the clients
    errors: list[str]  # told in streams that ended early; their tokens count as far as they came

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self.n_tokens / self.seconds


class Client:
    """One request on a connection of its own."""

    def __init__(self, port: int, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        self._request = (
            f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        ).encode() + content
        self._port = port
        self.parts: list[bytes] = []
        self.wait: float | None = None

    def ask(self) -> socket.socket:
        self._asked = perf_counter()
        self.socket = socket.create_connection(("127.0.0.1", self._port))
        self.socket.sendall(self._request)
        return self.socket

    def hear(self) -> bool:
        """Take what is there; whether the answer is complete."""
        part = self.socket.recv(2**16)
        if not part and self.error() is not None:
            return True
        if not part:
            raise RuntimeError(f"a server closed before the end: {self.answer()[-500:]!r}")
        self.parts.append(part)
        if self.wait is None and b"data: " in part:
            self.wait = perf_counter() - self._asked
        return END in part or (self.wait is None and b" 200 " not in self.parts[0][:15])

    def answer(self) -> bytes:
        return b"".join(self.parts)

    def _events(self) -> list[bytes]:
        return [line for line in self.answer().split(b"\n") if line.startswith(b"data: {")]

    def error(self) -> str | None:
        """What the server says went wrong in the middle of its answer."""
        errors = [line for line in self._events() if line.startswith(b'data: {"error"')]
        return errors[-1].decode() if errors else None

    def n_tokens(self) -> int:
        """Tokens of the answer, as its last events tell it; one for each where it ended early."""
        events = self._events()
        if self.error() is not None:
            return len(events) - 1
        told = [json.loads(line[6:]).get("usage") for line in events[-2:]]
        if not any(told):
            raise RuntimeError(f"no usage in an answer: {self.answer()[-500:]!r}")
        return next(int(usage["completion_tokens"]) for usage in told if usage)


def request_of(prompt: Sequence[int], n_tokens: int) -> dict[str, Any]:
    """The likeliest tokens after a prompt, `n_tokens` of them whatever they are."""
    return {
        "prompt": list(prompt),
        "max_tokens": n_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def ask(port: int, prompts: Sequence[Sequence[int]], n_tokens: int) -> Load:
    """All at once; RuntimeError where an answer is not whole."""
    clients = [Client(port, request_of(prompt, n_tokens)) for prompt in prompts]
    worked, began = process_time(), perf_counter()
    with selectors.DefaultSelector() as selector:
        for client in clients:
            selector.register(client.ask(), selectors.EVENT_READ, client)
        while selector.get_map():
            ready = selector.select(PATIENCE)
            if not ready:
                raise RuntimeError(f"nothing came for {PATIENCE:g} s")
            for key, _ in ready:
                if key.data.hear():
                    selector.unregister(key.fileobj)
    seconds, worked = perf_counter() - began, process_time() - worked
    for client in clients:
        client.socket.close()
        if client.n_tokens() != n_tokens and client.error() is None:
            raise RuntimeError(f"{client.n_tokens()} tokens came instead of {n_tokens}")
    waits = [client.wait for client in clients if client.wait is not None]
    errors = [error for client in clients if (error := client.error()) is not None]
    total = sum(client.n_tokens() for client in clients)
    return Load(total, seconds, waits, worked, errors)
