"""What every request passes: names, origins, keys, limits; one JSON object for all errors."""

from __future__ import annotations

import gzip
import json
import logging
import socket
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime
from typing import Any

import pytest

from arenite.errors import InvalidArgument
from arenite.serve import served_model
from arenite.serve import server as server_module
from arenite.serve.app import waiting_app
from arenite.serve.guard import Rules
from arenite.serve.logs import log_as_json
from arenite.serve.served_model import ServedText
from arenite.serve.server import bound_socket, check_exposure, meanwhile
from tests.serve.running import Address, serving

CHAT = "/v1/chat/completions"
BODY: dict[str, Any] = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 2}


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost:8080", "[::1]:80", "10.0.0.7:1"])
def test_a_server_is_known_by_its_addresses(server: Address, name: str) -> None:
    assert server.json("GET", "/health", headers={"Host": name})[0] == 200


@pytest.mark.parametrize("name", ["evil.example", "localhost.evil.example", "127.0.0.1.evil"])
def test_a_page_elsewhere_cannot_point_its_name_here(server: Address, name: str) -> None:
    status, told = server.json("POST", CHAT, BODY, headers={"Host": name})
    assert status == 403
    assert name in told["error"]["message"]


def test_pages_ask_from_the_servers_own_origin_alone(server: Address) -> None:
    other = {"Origin": "http://evil.example"}
    response, _ = server.ask("POST", CHAT, BODY, headers=other)
    assert response.status == 403
    assert response.headers["access-control-allow-origin"] is None
    own = {"Origin": server.url, "Host": server.url.removeprefix("http://")}
    assert server.ask("POST", CHAT, BODY, headers=own)[0].status == 200


def test_origins_that_were_named_may_ask(talker: ServedText) -> None:
    origin = "http://friend.example"
    with serving(talker, Rules(origins=(origin,))) as address:
        sent = {"Origin": origin, "Access-Control-Request-Headers": "authorization,x-stainless-os"}
        for method in ("OPTIONS", "POST"):
            response, _ = address.ask(method, CHAT, BODY, headers=sent)
            allowed = response.headers["access-control-allow-headers"]
            assert allowed == sent["Access-Control-Request-Headers"]
            assert response.status in (200, 204)
            assert response.headers["access-control-allow-origin"] == origin
        assert (
            address.ask("POST", CHAT, BODY, headers={"Origin": "http://x.example"})[0].status == 403
        )


def test_keys_are_asked_for(talker: ServedText) -> None:
    with serving(talker, Rules(keys=("first", "second"))) as address:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic first"}):
            status, told = address.json("POST", CHAT, BODY, headers=headers)
            assert (status, told["error"]["code"]) == (401, "invalid_api_key")
        for headers in ({"Authorization": "Bearer second"}, {"X-API-Key": "first"}):
            assert address.json("POST", CHAT, BODY, headers=headers)[0] == 200
        assert address.json("GET", "/health")[0] == 200
        assert address.ask("GET", "/")[0].status == 200
        for path in ("/stats", "/metrics", "/v1/models", "/api/tags"):
            response, _ = address.ask("GET", path)
            assert (response.status, response.headers["www-authenticate"]) == (401, "Bearer")


def test_nobody_else_is_let_in_without_a_key() -> None:
    for host in ("0.0.0.0", "192.168.1.5", "::"):
        with pytest.raises(InvalidArgument, match="no API key keeps them out"):
            check_exposure(host, Rules(), open_to_all=False)
        check_exposure(host, Rules(keys=("k",)), open_to_all=False)
        check_exposure(host, Rules(), open_to_all=True)
    for host in ("127.0.0.1", "::1", "localhost"):
        check_exposure(host, Rules(), open_to_all=False)


def test_who_asks_while_a_model_is_loaded_is_told(talker: ServedText) -> None:
    with bound_socket("127.0.0.1", 0) as bound:
        address = Address(bound.getsockname()[1])
        with meanwhile(waiting_app("tiny", Rules()), bound):
            assert address.json("GET", "/health") == (200, {"status": "loading", "model": "tiny"})
            for path in ("/ready", "/v2/health/ready", "/v1/models", "/api/tags", "/"):
                response, content = address.ask("GET", path)
                assert (response.status, response.headers["retry-after"]) == (503, "1")
                assert "error" in json.loads(content)
        with socket.create_connection(bound.getsockname()):  # it listens on
            pass


def test_a_port_that_is_taken_is_told() -> None:
    with bound_socket("127.0.0.1", 0) as bound:
        port = bound.getsockname()[1]
        with pytest.raises(InvalidArgument, match=f"port {port}: .*--port"):
            bound_socket("127.0.0.1", port)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff\xfe\x00", "not JSON"),
        (b"[1]", "an object is needed"),
        (b'{"messages": NaN}', "no number in JSON"),
        (b'{"a":' * 100 + b"1" + b"}" * 100, "nests over"),
        (b"[" * 200_000, "not JSON"),
        (b'{"messages": ' + b"9" * 10_000 + b"}", "JSON"),
    ],
)
def test_rubbish_is_one_error(server: Address, content: bytes, what: str) -> None:
    status, told = server.json("POST", CHAT, content)
    assert status == 400
    assert what in told["error"]["message"]


def test_a_large_body_is_refused_before_it_is_read(server: Address, talker: ServedText) -> None:
    assert server.json("POST", CHAT, b"x" * (talker.max_body + 1))[0] == 413
    # And one that says nothing of its length.
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                       b"Transfer-Encoding: chunked\r\n\r\n")  # fmt: skip
        part = b"10000\r\n" + b"x" * 65536 + b"\r\n"
        for _ in range(talker.max_body // 65536 + 1):
            client.sendall(part)
        answer = client.recv(65536)
    assert b" 413 " in answer.split(b"\r\n")[0]


def test_bodies_on_their_way_have_a_bound_together(
    talker: ServedText, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served_model, "BODY_SECONDS", 1.0)
    monkeypatch.setattr(served_model, "N_BODIES", 2)
    length = talker.max_body
    head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n"
    with serving(talker) as address, ExitStack() as stack:
        clients = [
            stack.enter_context(socket.create_connection(("127.0.0.1", address.port), timeout=30))
            for _ in range(3)
        ]
        for client in clients:
            client.sendall(head.encode() + b"x" * (length - 1))
        answers = sorted(_all(client, until=b"}}") for client in clients)
        assert [int(answer.split()[1]) for answer in answers] == [408, 408, 429]
        assert b"did not come within 1 s" in answers[0]
        assert address.json("POST", CHAT, BODY)[0] == 200  # and then there is room again


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_bodies_may_be_packed(server: Address, talker: ServedText, coding: str) -> None:
    pack = gzip.compress if coding == "gzip" else zlib.compress
    headers = {"Content-Encoding": coding}
    body = json.dumps(BODY).encode()
    assert server.json("POST", CHAT, pack(body), headers=headers)[0] == 200
    large = pack(body + b" " * talker.max_body)
    assert len(large) < 10_000
    assert server.json("POST", CHAT, large, headers=headers)[0] == 413
    status, told = server.json("POST", CHAT, body, headers=headers)
    assert (status, f"not {coding}" in told["error"]["message"]) == (400, True)
    assert server.json("POST", CHAT, body, headers={"Content-Encoding": "br"})[0] == 415


def test_a_body_has_room_for_a_whole_context(talker: ServedText) -> None:
    assert ServedText("tiny", talker.engine).max_body == 64 * talker.context + 2**16


def test_paths_and_methods_that_are_not_there(server: Address) -> None:
    status, told = server.json("GET", "/v1/nothing")
    assert (status, told["error"]["message"]) == (404, "there is nothing at /v1/nothing")
    assert server.json("GET", "/api/nothing") == (
        404,
        {"error": "there is nothing at /api/nothing"},
    )
    assert server.json("DELETE", "/api/chat")[0] == 405
    assert server.ask("DELETE", "/api/chat")[0].headers["allow"] == "POST"
    for path in ("/metrics/", "/../../etc/passwd", "/static/../app.py", "/%2e%2e/etc/passwd"):
        assert server.ask("GET", path)[0].status == 404


def test_an_answer_that_takes_too_long_is_ended(talker: ServedText) -> None:
    with serving(talker, Rules(timeout=0.005)) as address:
        body = BODY | {"max_tokens": 200, "logit_bias": {"2": -100}}
        status, told = address.json("POST", CHAT, body)
        assert status == 504
        assert "longer than 0.005 s" in told["error"]["message"]
    _wait_until_free(talker)


@pytest.fixture
def busy(talker: ServedText) -> Iterator[None]:
    """Nobody gets on: all slots are taken by texts whose listeners wait."""
    gate = threading.Event()
    for _ in range(talker.engine.settings.slots):
        talker.engine.submit([5, 6], max_tokens=2, listener=lambda _: gate.wait())
    yield
    gate.set()
    _wait_until_free(talker)


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize(("path", "start"), [(CHAT, b"data: "), ("/api/chat", b"")])
def test_a_stream_that_takes_too_long_says_so(talker: ServedText, path: str, start: bytes) -> None:
    with serving(talker, Rules(timeout=0.1)) as address:
        _, content = address.ask("POST", path, BODY | {"stream": True})
    events = [line for line in content.splitlines() if line and line != b"data: [DONE]"]
    error = json.loads(events[-1].removeprefix(start))["error"]
    assert "cut short" in (error if isinstance(error, str) else error["message"])


@pytest.mark.usefixtures("busy")
def test_a_server_that_ends_tells_those_who_wait(
    talker: ServedText, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests that run, and one whose body is not there yet; after a while for the first."""
    monkeypatch.setattr(server_module, "GRACE_SECONDS", 0.1)
    bodies = [json.dumps(BODY | {"stream": streams}).encode() for streams in (False, True)]
    with ExitStack() as stack:
        with serving(talker) as address:
            clients = [
                stack.enter_context(
                    socket.create_connection(("127.0.0.1", address.port), timeout=30)
                )
                for _ in range(3)
            ]
            for client, body in zip(clients, (*bodies, b"{"), strict=True):
                head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
                length = f"Content-Length: {max(len(body), 50)}\r\n\r\n"
                client.sendall(head.encode() + length.encode())
                # The server waits for the body: a connection that it has not seen is reset.
                assert _all(client, b"\r\n\r\n").startswith(b"HTTP/1.1 100 ")
                client.sendall(body)
            until = time.monotonic() + 20
            while talker.engine.stats().n_waiting < 2:
                assert time.monotonic() < until
        answers = [_all(client) for client in clients]
    for number in (0, 2):
        assert answers[number].startswith(b"HTTP/1.1 503 ")
        told = json.loads(answers[number].partition(b"\r\n\r\n")[2])
        assert told["error"]["message"] == "the server is ending"
    assert b"cut short" in answers[1]
    assert answers[1].rstrip().endswith(b"0")  # the last piece of a whole answer


def _all(client: socket.socket, until: bytes = b"") -> bytes:
    """What is sent until the connection is closed, or to an end."""
    content = b""
    while not (until and content.endswith(until)) and (part := client.recv(65536)):
        content += part
    return content


def _wait_until_free(talker: ServedText) -> None:
    until = time.monotonic() + 20
    while (now := talker.engine.stats()).n_waiting or any(now.slots):
        assert time.monotonic() < until, "a slot was not given back"
        time.sleep(0.01)


@pytest.mark.parametrize("streams", [False, True])
def test_a_client_that_goes_away_gives_its_slot_back(
    server: Address, talker: ServedText, streams: bool
) -> None:
    before = talker.engine.stats().n_cancelled
    body = {**BODY, "max_tokens": 200, "stream": streams, "logit_bias": {"2": -100}}
    content = json.dumps(body).encode()
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(content)}\r\n\r\n"
        client.sendall(head.encode() + content)
        until = time.monotonic() + 20
        while not any(talker.engine.stats().slots):
            assert time.monotonic() < until
    _wait_until_free(talker)
    assert talker.engine.stats().n_cancelled == before + 1


def test_who_finds_no_place_is_told_when_to_come_again(server: Address, talker: ServedText) -> None:
    engine, gate = talker.engine, threading.Event()
    room = engine.settings.slots + engine.queue
    streams = [
        engine.submit([5, 6, 7], max_tokens=3, listener=lambda _: gate.wait()) for _ in range(room)
    ]
    try:  # nobody gets on while the first waits for the gate
        response, content = server.ask("POST", CHAT, BODY)
    finally:
        gate.set()
    assert response.status == 429
    assert int(response.headers["retry-after"]) > 0
    assert json.loads(content)["error"]["type"] == "rate_limit_error"
    del streams
    _wait_until_free(talker)
    assert server.json("POST", CHAT, BODY)[0] == 200


def test_many_clients_get_what_each_would_alone(server: Address) -> None:
    def text(seed: int) -> str:
        options = BODY | {"seed": seed, "max_tokens": 16, "temperature": 1.3}
        while True:
            status, told = server.json("POST", CHAT, options)
            if status == 200:
                return str(told["choices"][0]["message"]["content"])
            assert status == 429
            time.sleep(0.01)

    alone = [text(seed) for seed in range(6)]
    found: dict[int, str] = {}
    threads = [
        threading.Thread(target=lambda seed=seed: found.update({seed: text(seed)}))
        for seed in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[seed] for seed in range(6)] == alone


def test_logs_are_an_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.getLogger("arenite.serve")
    usual = {name: logging.getLogger(name).handlers for name in ("arenite", "uvicorn")}
    try:
        log_as_json()
        log.warning("a text %s", "with\nlines", extra={"fields": {"path": "/\x1b[2J"}})
        logging.getLogger("uvicorn.error").error("one of %d", 2)
    finally:
        for name, handlers in usual.items():
            logging.getLogger(name).handlers = handlers
    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert (first["level"], first["path"]) == ("warning", "/\x1b[2J")
    assert second["message"] == "one of 2"
    assert datetime.fromisoformat(second["time"]).tzinfo is not None


def test_what_the_server_does_can_be_read(server: Address, talker: ServedText) -> None:
    server.json("POST", CHAT, BODY)
    status, stats = server.json("GET", "/stats")
    assert status == 200
    assert stats["slots"] == 4
    assert stats["pages"]["count"] == sum(stats["pages"][name] for name in ("free", "idle", "lent"))
    _, content = server.ask("GET", "/metrics")
    lines = [line for line in content.decode().splitlines() if not line.startswith("#")]
    values = {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}
    assert values["arenite_generated_tokens_total"] >= 2
    assert values["arenite_planned_bytes"] == talker.plan.total_nbytes
    assert values['arenite_requests_total{path="/stats",status="200"}'] >= 1
    assert values['arenite_requests_total{path="/v1/chat/completions",status="200"}'] >= 1
    page = server.ask("GET", "/")[1].decode()
    assert "connect-src 'self'" in page
    assert "tiny" in page
    assert b"<title>tiny: memory" in server.ask("GET", "/memory")[1]
