"""A server in a thread of the tests, and models for it."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from typing import Any

import uvicorn

from arenite.serve.app import app_of
from arenite.serve.guard import Rules
from arenite.serve.served_model import Served
from arenite.serve.server import config_of

#: What a small model of random weights is told: roles in words, tools where there are any.
TEMPLATE = (
    "{% for t in tools or [] %}<tool_call> {{ t.function.name }}\n{% endfor %}"
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


class Address:
    """Where a server of a test is."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[HTTPResponse, bytes]:
        """One request by hand, with whatever headers and bytes."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        try:
            connection.request(method, path, content, headers or {})
            response = connection.getresponse()
            return response, response.read()
        finally:
            connection.close()

    def json(self, method: str, path: str, body: Any = None, **more: Any) -> tuple[int, Any]:
        response, content = self.ask(method, path, body, **more)
        return response.status, json.loads(content)


@contextmanager
def serving(served: Served, rules: Rules | None = None) -> Iterator[Address]:
    """What is served, on a port of its own until the block is left."""
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    bound.listen()
    server = uvicorn.Server(config_of(app_of(served, rules or Rules())))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
    thread.start()
    try:
        yield Address(bound.getsockname()[1])
    finally:
        server.should_exit = True
        thread.join()
        bound.close()
