"""The server: an app on a socket, until it is told to end; another one while a model is loaded.

It listens on this machine alone unless told otherwise, and elsewhere only with keys. Told to end,
it takes no more requests, lets those that run finish for a while, then closes what is left.
"""

from __future__ import annotations

import asyncio
import importlib
import ipaddress
import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress

import uvicorn

from arenite.errors import InvalidArgument
from arenite.serve.guard import App, Rules
from arenite.serve.protocol import MAX_HEAD_NBYTES, Protocol

#: Seconds that running requests have to finish once the server is told to end.
GRACE_SECONDS = 10
#: Seconds a connection may be silent between two requests.
KEEP_ALIVE_SECONDS = 30
#: Seconds in which a client takes nothing of what it is sent, after which it counts as gone.
STALL_SECONDS = 120
#: What requests would import: a server has its code, and tells how large it is, before they come.
REQUESTED_MODULES = (
    "arenite.generate.jinja.renderer",
    "arenite.memory.page",
    "concurrent.futures.thread",
    "llguidance",
    "numpy.random",
)


def import_requested_modules() -> None:
    """Have the code of all that requests may ask for, where it is installed."""
    for name in REQUESTED_MODULES:
        with suppress(ModuleNotFoundError):
            importlib.import_module(name)


def is_loopback(host: str) -> bool:
    """Whether a server on this address is reached from this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_exposure(host: str, rules: Rules, *, open_to_all: bool) -> None:
    """InvalidArgument where others could reach the server and no key keeps them out."""
    if not is_loopback(host) and not rules.keys and not open_to_all:
        raise InvalidArgument(
            f"others could reach a server on {host}, and no API key keeps them out; pass "
            "--api-keys FILE, or --open to let everyone in"
        )


def bound_socket(host: str, port: int) -> socket.socket:
    """A socket that listens; InvalidArgument where the address can't be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # connections have what their listener has
            milliseconds = STALL_SECONDS * 1000
            bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
        bound.bind((host, port))
        bound.listen(128)
    except (OSError, OverflowError) as error:
        bound.close()
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidArgument(
            f"can't listen on {host} port {port}: {reason}; choose another --port"
        ) from None
    return bound


def config_of(app: App) -> uvicorn.Config:
    """How the app is served."""
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
        h11_max_incomplete_event_size=MAX_HEAD_NBYTES,
        http=Protocol,
        ws="none",
    )


def run(app: App, bound: socket.socket, *, on_ready: Callable[[], None] = lambda: None) -> None:
    """Serve until SIGINT or SIGTERM; in the main thread."""
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    server = _Server(config_of(app), on_ready)
    # The signal that ends it comes again once all is closed, and is not to end the process there.
    usual = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with suppress(KeyboardInterrupt):
            server.run(sockets=[bound])
    finally:
        signal.signal(signal.SIGTERM, usual)


@contextmanager
def meanwhile(app: App, bound: socket.socket) -> Iterator[None]:
    """Serve this app on a thread, until the block is left; the socket goes on to listen."""
    server = _Meanwhile(config_of(app))
    thread = threading.Thread(target=server.run, args=([bound.dup()],), name="arenite meanwhile")
    thread.start()
    try:
        yield
    finally:
        server.ended.set_result(None)
        thread.join()


class _Meanwhile(uvicorn.Server):
    """Ends when it is told to, and not up to a tenth of a second later."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        config.timeout_graceful_shutdown = 1
        self.ended: Future[None] = Future()

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await asyncio.wrap_future(self.ended)


class _Server(uvicorn.Server):
    """Tells when it listens."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()
