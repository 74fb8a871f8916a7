"""A server among clients that hang, vanish, send rubbish and ask for too much (`bench.soak` does
the same for half an hour): those who ask as they should get what they got alone."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Iterator

import pytest
from uvicorn.protocols.http.h11_impl import H11Protocol

from arenite.serve.protocol import PIECE_NBYTES, Protocol
from arenite.serve.served_model import ServedText
from bench.soak_clients import COUNTS, Soak, answer_of
from tests.serve.running import Address, serving

SECONDS = 5.0


def test_nobody_is_lost_among_clients_that_behave_badly(
    server: Address, talker: ServedText
) -> None:
    soak = Soak(server.port, counts=COUNTS | {"hang": 0, "slow": 0})
    asyncio.run(soak.run(SECONDS))
    assert soak.problems == []
    asked = {kind for kind, count in COUNTS.items() if count} - {"hang", "slow"}
    assert asked <= {kind for kind, count in soak.counts.items() if count}
    until = time.monotonic() + 20
    while any(talker.engine.stats().slots) or talker.engine.stats().n_waiting:
        assert time.monotonic() < until, "a slot was not given back"
        time.sleep(0.01)


@pytest.fixture
def strict(talker: ServedText, monkeypatch: pytest.MonkeyPatch) -> Iterator[Address]:
    """A server that has room for two connections and waits for requests a moment."""
    monkeypatch.setattr(Protocol, "max_connections", 2)
    monkeypatch.setattr(Protocol, "head_seconds", 0.2)
    with serving(talker) as address:
        yield address


def error_of(connection: socket.socket) -> tuple[int, str]:
    content = b""
    while part := connection.recv(65536):
        content += part
    answer = answer_of(content)
    return answer.status, json.loads(answer.body)["error"]["message"]


@pytest.mark.parametrize("sent", [b"", b"POST /v1/completions HTTP/1.1\r\nHost: local"])
def test_a_request_that_does_not_come_is_given_up(strict: Address, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", strict.port), timeout=30) as client:
        client.sendall(sent)
        assert error_of(client) == (408, "the request did not come within 0.2 s")


def test_a_byte_now_and_then_does_not_hold_a_connection(strict: Address) -> None:
    with socket.create_connection(("127.0.0.1", strict.port), timeout=30) as client:
        until = time.monotonic() + 30
        while takes(client, b"G"):
            assert time.monotonic() < until, "the connection is still open"
            time.sleep(0.05)


def takes(connection: socket.socket, content: bytes) -> bool:
    try:
        connection.sendall(content)
    except OSError:
        return False
    return True


def test_connections_beyond_the_limit_are_told_to_come_back(strict: Address) -> None:
    address = ("127.0.0.1", strict.port)
    with socket.create_connection(address) as one, socket.create_connection(address) as two:
        with socket.create_connection(address, timeout=30) as third:
            status, message = error_of(third)
        assert (status, message) == (503, "2 connections are open, as many as may be")
        del one, two


@pytest.mark.parametrize("sent", [b"\x16\x03\x01\r\n\r\n", b"GET /\r\n\r\n", b"A" * 70000])
def test_what_is_no_request_is_answered_in_json(server: Address, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as client:
        client.sendall(sent)
        status, message = error_of(client)
    assert status == 400
    assert "no request in HTTP/1.1" in message


def test_connections_are_read_in_small_pieces(
    talker: ServedText, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large ones, of many connections side by side, leave a heap that never shrinks."""
    sizes: list[int] = []

    def recorded(self: Protocol, data: bytes) -> None:
        sizes.append(len(data))
        H11Protocol.data_received(self, data)

    monkeypatch.setattr(Protocol, "data_received", recorded)
    with serving(talker) as address:
        assert address.ask("POST", "/v1/completions", b"x" * 2**23)[0].status == 413
    assert sum(sizes) > 2**23
    assert max(sizes) <= PIECE_NBYTES


def test_what_goes_wrong_within_a_body_is_answered_in_json(server: Address) -> None:
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as client:
        client.sendall(head + b"2\r\n{}\r\n")
        time.sleep(0.1)  # the request is being read
        client.sendall(b"no length\r\n")
        assert error_of(client)[0] == 400


def test_a_body_that_waits_to_be_asked_for_is_not_waited_for(server: Address) -> None:
    head = b"POST /nothing HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
        client.sendall(head + b"Connection: close\r\nContent-Length: 100\r\n\r\n")
        assert error_of(client)[0] == 404  # and the connection is closed


@pytest.mark.parametrize(("path", "status"), [("/v1/completions", 413), ("/nothing", 404)])
def test_who_still_sends_a_body_sees_what_is_wrong_with_it(
    server: Address, path: str, status: int
) -> None:
    """Closed at once, the connection would be reset before the answer is read."""
    n_bytes = 2**25
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as client:
        client.sendall(f"{head}Content-Length: {n_bytes}\r\n\r\n".encode() + b"x" * n_bytes)
        assert error_of(client)[0] == status
