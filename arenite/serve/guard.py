"""Guard: what every request passes before it reaches a handler.

It refuses hosts and origins that have no business here, asks for a key where keys are set, ends
what takes too long, turns every error into one JSON object in the words of the API that was
asked, counts, and writes one line of log for each request.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from starlette.exceptions import HTTPException
from starlette.routing import Route

from arenite.errors import AreniteError
from arenite.serve.bodies import ApiError, api_error
from arenite.serve.metrics import Metrics

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

#: Paths that need no key: they say nothing of what is asked and answered.
OPEN_PATHS = frozenset({"/health", "/ready", "/v2/health/live", "/v2/health/ready"})
#: What is shown to all: the page, which asks for the rest with a key, and the plan.
PAGE_PATHS = frozenset({"/", "/memory", "/favicon.ico"})

#: What counts paths that no route answers to: they share it, so that no client can make more.
OTHER_PATH = "other"
#: What is read of a body that is not wanted, at the most.
PASS_OVER_NBYTES = 2**28
PASS_OVER_SECONDS = 30.0

_log = logging.getLogger("arenite.serve")


@dataclass(frozen=True)
class Rules:
    """What a server allows."""

    keys: tuple[str, ...] = ()  # of which a request must bring one; none: all are let in
    origins: tuple[str, ...] = ()  # of pages in browsers that may ask; beside the server's own
    hosts: tuple[str, ...] = ()  # names the server is reached by; beside addresses of this machine
    timeout: float = 600.0  # seconds from a request to the end of its answer


class Guard:
    """The outermost layer of the app."""

    def __init__(
        self,
        app: App,
        routes: Iterable[Route],
        rules: Rules,
        metrics: Metrics,
        error_body: Callable[[str, ApiError], dict[str, Any]],
    ) -> None:
        self._app = app
        self._routes = {route.path: route.path_regex for route in routes}
        self._rules = rules
        self._metrics = metrics
        self._error_body = error_body

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = Exchange(scope, receive, send, self._cors(scope))
        scope["app"] = self  # then the router raises what it finds wrong
        try:
            self._check(scope)
            if scope["method"] == "OPTIONS" and exchange.cors:
                await exchange.answer(204, b"")
            else:
                async with asyncio.timeout(self._rules.timeout):
                    await self._app(scope, exchange.receive, exchange.send)
        except ApiError as problem:
            await self._tell(exchange, problem)
        except AreniteError as problem:
            await self._tell(exchange, api_error(problem))
        except HTTPException as problem:
            await self._tell(exchange, _routing_error(problem, exchange))
        except asyncio.CancelledError:  # by the server, when it has waited long enough
            exchange.is_read = True  # as far as it will be
            await self._tell(exchange, ApiError(503, "the server is ending", retry_after=1))
        except TimeoutError:
            limit = f"{self._rules.timeout:g} s"
            await self._tell(exchange, ApiError(504, f"the answer took longer than {limit}"))
        except Exception:
            _log.exception("request %s failed", exchange.id)
            await self._tell(exchange, ApiError(500, f"request {exchange.id} failed; see the log"))
        finally:
            self._record(exchange)

    def _check(self, scope: Message) -> None:
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1")
        if not self._is_known(host):
            # A page elsewhere can have its own name point here; its browser would let it read.
            raise ApiError(
                403, f"this server is not called {host[:100]!r}; start it with --host-name"
            )
        origin = headers.get(b"origin", b"").decode("latin-1")
        if origin and not self._may_ask(origin, host):
            raise ApiError(
                403, f"pages of {origin[:100]!r} may not ask; start the server with --cors"
            )
        path = scope["path"]
        if (
            self._rules.keys
            and path not in OPEN_PATHS | PAGE_PATHS
            and scope["method"] != "OPTIONS"
        ):
            self._check_key(headers)

    def _check_key(self, headers: dict[bytes, bytes]) -> None:
        given = headers.get(b"authorization", b"")
        kind, _, key = given.partition(b" ")
        key = key.strip() if kind.lower() == b"bearer" else headers.get(b"x-api-key", b"")
        # Each is compared in a time that does not tell how much of it is right.
        if not any(hmac.compare_digest(key, own.encode()) for own in self._rules.keys):
            raise ApiError(
                401,
                "an API key is needed: Authorization: Bearer KEY, with one of the server's",
                code="invalid_api_key",
                headers={"www-authenticate": "Bearer"},
            )

    def _is_known(self, host: str) -> bool:
        name = host.rsplit("]", 1)[0].lstrip("[") if host.startswith("[") else host.split(":")[0]
        if not name or name.lower() in ("localhost", *(one.lower() for one in self._rules.hosts)):
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def _may_ask(self, origin: str, host: str) -> bool:
        own = (f"http://{host}", f"https://{host}")
        return origin in (*own, *self._rules.origins) or "*" in self._rules.origins

    def _cors(self, scope: Message) -> list[tuple[bytes, bytes]]:
        headers = dict(scope["headers"])
        origin = headers.get(b"origin", b"").decode("latin-1")
        if not origin or not self._rules.origins:
            return []
        if origin not in self._rules.origins and "*" not in self._rules.origins:
            return []
        return [
            (b"access-control-allow-origin", origin.encode("latin-1")),
            # Clients have headers of their own; an origin that may ask may send them.
            (b"access-control-allow-headers", headers.get(b"access-control-request-headers", b"*")),
            (b"access-control-allow-methods", b"GET, POST, OPTIONS"),
            (b"access-control-expose-headers", b"retry-after, x-request-id"),
            (b"vary", b"Origin, Access-Control-Request-Headers"),
        ]

    async def _tell(self, exchange: Exchange, problem: ApiError) -> None:
        exchange.problem = problem.message
        if exchange.status is not None:
            return  # the answer has begun: what is wrong was told in it, or the client is gone
        content = json.dumps(self._error_body(exchange.path, problem)).encode()
        headers = [(b"content-type", b"application/json")]
        headers += [(name.encode(), value.encode()) for name, value in problem.headers.items()]
        await exchange.answer(problem.status, content, headers)

    def _route_of(self, path: str) -> str:
        """The route that answers to a path, with names as {name}."""
        if path in self._routes:
            return path
        found = (route for route, pattern in self._routes.items() if pattern.match(path))
        return next(found, OTHER_PATH)

    def _record(self, exchange: Exchange) -> None:
        seconds = time.perf_counter() - exchange.started
        status = exchange.status or 499
        self._metrics.request(self._route_of(exchange.path), status, seconds)
        told: dict[str, Any] = {
            "id": exchange.id,
            "method": exchange.method,
            "path": exchange.path[:200],
            "status": status,
            "seconds": round(seconds, 4),
        }
        if exchange.problem:
            told["error"] = exchange.problem[:300]
        # As JSON no character of a path or a message can do anything to a terminal or a log.
        line = f"{told['method']} {json.dumps(told['path'])} {status} {seconds:.3f} s"
        line += f" {json.dumps(told['error'])}" if exchange.problem else ""
        _log.info("%s", line, extra={"fields": told})


def _routing_error(problem: HTTPException, exchange: Exchange) -> ApiError:
    """What the router finds wrong: no such path, or another method."""
    what = {404: "there is nothing at", 405: f"{exchange.method[:20]} is not answered at"}
    told = what.get(problem.status_code, str(problem.detail))
    path = exchange.path[:200]
    return ApiError(problem.status_code, f"{told} {path}", headers=problem.headers)


class Exchange:
    """One request and the answer to it."""

    def __init__(
        self, scope: Message, receive: Receive, send: Send, cors: list[tuple[bytes, bytes]]
    ) -> None:
        self.id = secrets.token_hex(8)
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.started = time.perf_counter()
        self.status: int | None = None
        self.problem = ""
        self.cors = cors
        self._receive, self._send = receive, send
        # All that the client sends; one that waits to be asked for its body sends none before.
        self.is_read = dict(scope["headers"]).get(b"expect", b"").lower() == b"100-continue"

    async def receive(self) -> Message:
        message = await self._receive()
        self.is_read = not message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [
                *message.get("headers", ()),
                *self.cors,
                (b"x-request-id", self.id.encode()),
                (b"x-content-type-options", b"nosniff"),
            ]
        await self._send(message)

    async def answer(
        self, status: int, content: bytes, headers: list[tuple[bytes, bytes]] | None = None
    ) -> None:
        length = (b"content-length", str(len(content)).encode())
        await self.send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [*(headers or ()), length],
            }
        )
        await self._send({"type": "http.response.body", "body": content, "more_body": True})
        await self._pass_over()
        await self._send({"type": "http.response.body", "body": b""})

    async def _pass_over(self) -> None:
        """Read what is left of a request that nobody wants: a client that still sends while its
        connection is closed never sees the answer."""
        n_read = 0
        with suppress(TimeoutError):
            async with asyncio.timeout(PASS_OVER_SECONDS):
                while not self.is_read and n_read < PASS_OVER_NBYTES:
                    n_read += len((await self.receive()).get("body", b""))
