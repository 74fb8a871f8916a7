"""What is served: one model under its name, and how requests reach it.

`ServedText` is a language model behind an engine, or one for embeddings; `ServedArrays` an ONNX
model, whose runs take turns. Both refuse what they can't take before anything is computed.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from starlette.requests import ClientDisconnect, Request

from arenite.errors import AreniteError
from arenite.program.closing import Closing
from arenite.serve.bodies import ApiError, Body, api_error, tokens_of

if TYPE_CHECKING:
    from arenite.generate.model import LanguageModel
    from arenite.generate.tokenizer import Tokenizer
    from arenite.memory.plan import MemoryPlan
    from arenite.model.compiled import CompiledModel
    from arenite.serve.engine import Engine


#: What `/metrics` tells of a model: what each is, and how much.
Measures = dict[str, tuple[str, float]]


class Served(Closing):
    """A model under its name; `close()` gives its memory back."""

    makes_text = False
    about = ""  # what the page says of a model that does not chat

    def __init__(self, name: str, max_body: int) -> None:
        self.name = name
        self.created = int(time.time())
        self.max_body = max_body
        self._began = time.monotonic()

    @property
    def plan(self) -> MemoryPlan:
        """Every byte of it."""
        raise NotImplementedError

    def stats(self) -> dict[str, Any]:
        """What the page shows, now."""
        return {"uptime": time.monotonic() - self._began, "resident": resident_nbytes()}

    def measures(self) -> tuple[Measures, Measures]:
        """What goes up and down, and what only grows."""
        return {
            "planned_bytes": ("Memory that was planned.", self.plan.total_nbytes),
            "resident_bytes": ("Memory of the process.", resident_nbytes()),
        }, {}

    async def content(self, request: Request) -> bytes:
        """The body of a request; ApiError where it is larger than is read."""
        told = request.headers.get("content-length", "0")
        if told.isdecimal() and len(told) < 20 and int(told) > self.max_body:
            raise self._too_large()
        content = bytearray()
        try:
            async for part in request.stream():
                content += part
                if len(content) > self.max_body:
                    raise self._too_large()
        except ClientDisconnect:
            raise ApiError(499, "the client went away") from None
        return bytes(content)

    def _too_large(self) -> ApiError:
        return ApiError(413, f"the body has more than {self.max_body} bytes, which are read at most")

    async def body(self, request: Request) -> Body:
        """The JSON object of a request, for this model."""
        body = Body.read(await self.content(request))
        if "model" in body:
            self.check_name(body.text("model"))
        return body

    def check_name(self, name: str) -> None:
        """ApiError where another model is asked for; a tag behind the name says nothing here."""
        if name not in (self.name, f"{self.name}:latest"):
            raise ApiError(
                404,
                f"the model {name[:200]!r} is not served here; {self.name!r} is",
                field="model",
                code="model_not_found",
            )


class ServedText(Served):
    """A language model."""

    def __init__(
        self, name: str, model: LanguageModel, engine: Engine | None, *, max_body: int
    ) -> None:
        super().__init__(name, max_body)
        self.model = model
        self._engine = engine
        self._embedding = asyncio.Lock()

    @property
    def engine(self) -> Engine:
        """Who makes texts; ApiError for a model that makes none."""
        if self._engine is None:
            raise ApiError(400, f"{self.name} is a model for embeddings: it writes no text")
        return self._engine

    @property
    def makes_text(self) -> bool:
        return self._engine is not None

    @property
    def tokenizer(self) -> Tokenizer:
        return self.model.tokenizer

    @property
    def plan(self) -> MemoryPlan:
        return self.model.plan

    @property
    def template(self) -> str:
        """The source of the chat template; empty where the model has none."""
        template = self.tokenizer.chat_template
        return "" if template is None else template.source

    def chat_tokens(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()
    ) -> list[int]:
        """A conversation as the model reads it."""
        _ = self.engine
        try:
            return self.model.chat_tokens(messages, tools=tools)
        except AreniteError as problem:
            raise api_error(problem) from None

    def prompts(self, body: Body, field: str, most: int) -> list[list[int]]:
        """One text or several, each as text or as tokens."""
        value = body.get(field)
        if isinstance(value, str):
            return [self.encoded(value)]
        if isinstance(value, list) and 0 < len(value) <= most:
            n_tokens = self.tokenizer.n_tokens
            if all(isinstance(item, str) for item in value):
                return [self.encoded(item) for item in value]
            if all(isinstance(item, list) and item for item in value):
                return [tokens_of(body, field, n_tokens, item) for item in value]
            return [tokens_of(body, field, n_tokens, value)]
        raise body.wrong(field, f"a text, tokens, or a list of at most {most} of them")

    def encoded(self, text: str) -> list[int]:
        try:
            return self.tokenizer.encode(text)
        except AreniteError as problem:
            raise api_error(problem) from None

    async def embed(
        self, inputs: Sequence[Sequence[int]], *, truncate: bool = False
    ) -> NDArray[np.float32]:
        """A row for each text, given as tokens."""
        if self.makes_text:
            raise ApiError(400, f"{self.name} writes text; embeddings need a model made for them")
        async with self._embedding:
            try:
                return await asyncio.to_thread(
                    self.model.embed_tokens, inputs, truncate=truncate
                )
            except AreniteError as problem:
                raise api_error(problem) from None


class ServedArrays(Served):
    """An ONNX model."""

    def __init__(self, name: str, program: CompiledModel, *, waiting: int, max_body: int) -> None:
        super().__init__(name, max_body)
        self.program = program
        self._turn = threading.Lock()
        self._waiting = asyncio.Semaphore(waiting)

    @property
    def plan(self) -> MemoryPlan:
        return self.program.plan

    async def run(self, inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """The outputs by their names; runs take turns."""
        if self._waiting.locked():
            raise ApiError(429, "as many requests wait as may; come back later", retry_after=1)
        async with self._waiting:
            return await asyncio.to_thread(self._run, inputs)

    def _run(self, inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        try:
            with self._turn:
                return dict(self.program(**inputs))
        except AreniteError as problem:
            raise api_error(problem) from None


def resident_nbytes() -> int:
    """Memory that the process has now."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
