"""The app: routes of every API, the page, and what tells of the server itself.

In: what is served and the rules. Out: an ASGI app behind its guard. Every error, also of paths
that don't exist, is one JSON object in the words of the API whose path was asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from arenite.serve import inference_api, ollama_api, openai_api
from arenite.serve.bodies import ApiError
from arenite.serve.guard import App, Guard, Rules
from arenite.serve.metrics import Metrics
from arenite.serve.page import page
from arenite.serve.served import Served, ServedArrays, ServedText

#: How an API words its errors, by how its paths begin.
ERRORS: dict[str, Callable[[ApiError], dict[str, Any]]] = {
    "/api/": ollama_api.error_body,
    "/v2": inference_api.error_body,
    "": openai_api.error_body,
}


def app_of(served: Served, rules: Rules) -> App:
    """The app for one model."""
    routes = list(_routes_of(served))
    metrics = Metrics(frozenset(route.path for route in routes))
    routes += About(served, metrics).routes()
    inner = Starlette(routes=routes, exception_handlers={HTTPException: _http_error})
    return Guard(inner, rules, metrics, error_body)


def _routes_of(served: Served) -> list[Route]:
    if isinstance(served, ServedText):
        return [*openai_api.routes(served), *ollama_api.routes(served)]
    assert isinstance(served, ServedArrays)
    return inference_api.routes(served)


def error_body(path: str, problem: ApiError) -> dict[str, Any]:
    """An error in the words of the API that a path belongs to."""
    return next(word(problem) for start, word in ERRORS.items() if path.startswith(start))


async def _http_error(request: Request, error: Exception) -> Response:
    """What the router finds wrong: no such path, or another method."""
    assert isinstance(error, HTTPException)
    what = {404: "there is nothing at", 405: f"{request.method} is not answered at"}
    message = f"{what.get(error.status_code, str(error.detail))} {request.url.path[:200]}"
    body = error_body(request.url.path, ApiError(error.status_code, message))
    return JSONResponse(body, error.status_code, headers=error.headers)


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
            Route("/plan", self.plan),
        ]

    async def page(self, _: Request) -> Response:
        return HTMLResponse(page(self._served))

    async def health(self, _: Request) -> Response:
        return JSONResponse({"status": "ok", "model": self._served.name})

    async def stats(self, _: Request) -> Response:
        return JSONResponse(self._served.stats())

    async def plan(self, _: Request) -> Response:
        return JSONResponse(self._served.plan_data())

    async def metrics(self, _: Request) -> Response:
        text = self._metrics.text(*self._served.measures())
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")
