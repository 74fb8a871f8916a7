"""The app: routes of every API, the page, and what tells of the server itself.

In: what is served and the rules. Out: an ASGI app behind its guard. Every error, also of paths
that don't exist, is one JSON object in the words of the API whose path was asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from arenite.serve import inference_api, ollama_api, openai_api, openai_replies
from arenite.serve.bodies import ApiError
from arenite.serve.guard import App, Guard, Rules
from arenite.serve.metrics import Metrics
from arenite.serve.page import page
from arenite.serve.served_model import Served, ServedArrays, ServedText

#: How an API words its errors, by how its paths begin.
ERRORS: dict[str, Callable[[ApiError], dict[str, Any]]] = {
    "/api/": ollama_api.error_body,
    "/v2": inference_api.error_body,
    "": openai_replies.error_body,
}


def app_of(served: Served, rules: Rules) -> App:
    """The app for one model."""
    metrics = Metrics()
    routes = [*_routes_of(served), *About(served, metrics).routes()]
    # The router alone: the layers that come with an app would answer errors in their own words.
    router = Router(routes, redirect_slashes=False)
    return Guard(router, routes, rules, metrics, error_body)


def waiting_app(name: str, rules: Rules) -> App:
    """The app while a model is loaded: it lives, and what it is asked for is to come."""

    async def health(_: Request) -> Response:
        return JSONResponse({"status": "loading", "model": name})

    async def anything(scope: Scope, receive: Receive, send: Send) -> None:
        raise ApiError(503, "the model is being loaded", code="loading", retry_after=1)

    routes = [Route(path, health) for path in ("/health", "/v2/health/live")]
    return Guard(Router(routes, default=anything), routes, rules, Metrics(), error_body)


def _routes_of(served: Served) -> list[Route]:
    if isinstance(served, ServedText):
        return [*openai_api.routes(served), *ollama_api.routes(served)]
    assert isinstance(served, ServedArrays)
    return inference_api.routes(served)


def error_body(path: str, problem: ApiError) -> dict[str, Any]:
    """An error in the words of the API that a path belongs to."""
    return next(word(problem) for start, word in ERRORS.items() if path.startswith(start))


class About:
    """The server itself: its page, its state, its health."""

    def __init__(self, served: Served, metrics: Metrics) -> None:
        self._served = served
        self._metrics = metrics

    def routes(self) -> list[Route]:
        return [
            Route("/", self.page),
            Route("/health", self.health),
            Route("/ready", self.health),
            Route("/metrics", self.metrics),
            Route("/stats", self.stats),
            Route("/memory", self.memory),
        ]

    async def page(self, _: Request) -> Response:
        return HTMLResponse(page(self._served))

    async def health(self, _: Request) -> Response:
        return JSONResponse({"status": "ok", "model": self._served.name})

    async def stats(self, _: Request) -> Response:
        return JSONResponse(await asyncio.to_thread(self._served.stats))

    async def memory(self, _: Request) -> Response:
        plan = self._served.plan
        return HTMLResponse(await asyncio.to_thread(plan.to_html, self._served.name))

    async def metrics(self, _: Request) -> Response:
        measures = await asyncio.to_thread(self._served.measures)
        text = self._metrics.text(*measures)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")
