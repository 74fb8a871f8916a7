"""What is served: one model under its name, and how requests reach it.

`ServedText` is a language model behind an engine, or one for embeddings; `ServedArrays` an ONNX
model, whose runs take turns. Both refuse what they can't take before anything is computed.
"""

from __future__ import annotations

import asyncio
import os
import time
import zlib
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from starlette.requests import ClientDisconnect, Request

from arenite.errors import AreniteError
from arenite.generate.grammar import make_tables
from arenite.program.closing import Closing
from arenite.serve.bodies import ApiError, Body, api_error, tokens_of
from arenite.serve.engine import DEFAULT_QUEUE, Engine
from arenite.serve.metrics import Measures
from arenite.serve.turns import Turns

if TYPE_CHECKING:
    from arenite.generate.model import LanguageModel
    from arenite.memory.plan import MemoryPlan
    from arenite.model import CompiledModel, Model


#: The largest body where none is given: of a model for texts so many bytes for each token of its
#: context, and some for all else; of others so many.
TOKEN_NBYTES = 64
REST_NBYTES = 2**16
BODY_NBYTES = 8 * 2**20
#: How bodies may be packed, each with what unpacks the parts of one, so many bytes at the most.
Unpack: TypeAlias = Callable[[bytes, int], bytes]
CODINGS: dict[str, Callable[[], Unpack]] = {
    "identity": lambda: lambda part, _: part,
    "gzip": lambda: zlib.decompressobj(16 + zlib.MAX_WBITS).decompress,
    "deflate": lambda: zlib.decompressobj().decompress,
}
#: Bodies of the largest size that may be held at once: on their way, and until arrays in them are
#: run. The seconds that one has to come.
N_BODIES = 4
BODY_SECONDS = 60.0
#: Between two measurements of kernels, each of which runs a step once more.
PROFILE_SECONDS = 30.0
#: Kernels that the page shows.
N_DEAREST = 5


class Served(Closing):
    """A model under its name; `close()` gives its memory back."""

    makes_text = False
    about = ""  # what the page says of a model that does not chat

    def __init__(self, name: str, max_body: int | None) -> None:
        self.name = name
        self.created = int(time.time())
        self.max_body = BODY_NBYTES if max_body is None else max_body
        #: What the process had before the model: Python and the server's own code. 0: not known.
        self.program_nbytes = 0
        #: What holds texts to schemas and grammars, for all of them: made before the first one.
        self.grammar_nbytes = 0
        self._n_held = 0  # bytes of bodies
        self._began = time.monotonic()

    @property
    @abstractmethod
    def plan(self) -> MemoryPlan:
        """Every byte of it."""

    def stats(self) -> dict[str, Any]:
        """What the page shows, now."""
        return {"uptime": time.monotonic() - self._began, "resident": resident_nbytes()}

    def measures(self) -> tuple[Measures, Measures]:
        """What goes up and down, and what only grows."""
        return {
            "planned_bytes": ("Memory that was planned.", self.plan.total_nbytes),
            "program_bytes": ("Memory before the model was loaded.", self.program_nbytes),
            "grammar_bytes": ("Memory of tables for grammars.", self.grammar_nbytes),
            "resident_bytes": ("Memory of the process.", resident_nbytes()),
        }, {}

    @asynccontextmanager
    async def content(self, request: Request) -> AsyncIterator[bytearray]:
        """The body of a request, which counts among those that are held until the block is left;
        ApiError where it is larger than is read, or does not come."""
        told = request.headers.get("content-length", "0")
        if told.isdecimal() and len(told) < 20 and int(told) > self.max_body:
            raise self._too_large()
        coding = request.headers.get("content-encoding", "identity").lower()
        if coding not in CODINGS:
            raise ApiError(415, f"a body in {coding[:40]!r} is not read; {', '.join(CODINGS)} are")
        unpack = CODINGS[coding]()
        content = bytearray()
        try:
            await self._read(request, unpack, content)
            yield content
        finally:
            self._n_held -= len(content)

    async def _read(self, request: Request, unpack: Unpack, content: bytearray) -> None:
        coding = request.headers.get("content-encoding", "identity").lower()
        try:
            async with asyncio.timeout(BODY_SECONDS):
                async for packed in request.stream():
                    part = unpack(packed, self.max_body + 1)
                    content += part
                    self._n_held += len(part)
                    if len(content) > self.max_body:
                        raise self._too_large()
                    if self._n_held > N_BODIES * self.max_body:
                        raise ApiError(429, "many bodies are here; come back", retry_after=1)
        except ClientDisconnect:
            raise ApiError(499, "the client went away") from None
        except TimeoutError:
            raise ApiError(408, f"the body did not come within {BODY_SECONDS:g} s") from None
        except zlib.error as error:
            raise ApiError(400, f"the body is not {coding}: {error}") from None

    def _too_large(self) -> ApiError:
        return ApiError(
            413,
            f"the body has more than {self.max_body} bytes; no more are read: send less, or start "
            "the server with a larger --max-body",
        )

    async def body(self, request: Request) -> Body:
        """The JSON object of a request, for this model."""
        async with self.content(request) as content:
            body = Body.read(content)
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
    """A language model: an engine, or a model for embeddings."""

    def __init__(
        self,
        name: str,
        maker: Engine | LanguageModel,
        *,
        queue: int = DEFAULT_QUEUE,
        max_body: int | None = None,
    ) -> None:
        """`queue`: requests that wait for a model for embeddings; an engine has its own."""
        self.makes_text = isinstance(maker, Engine)
        if max_body is None and self.makes_text:
            max_body = maker.context * TOKEN_NBYTES + REST_NBYTES
        super().__init__(name, max_body)
        self._maker = maker
        self.about = "A model for embeddings: /v1/embeddings and /api/embed make vectors of texts."
        self.file = maker.file
        self.context = maker.context
        self.tokenizer = maker.tokenizer
        self._turns = Turns(queue)
        self._costs: list[dict[str, Any]] = []
        self._costs_at = 0.0
        if self.makes_text:
            before = resident_nbytes()
            make_tables(self.tokenizer)
            self.grammar_nbytes = max(resident_nbytes() - before, 0)

    @property
    def engine(self) -> Engine:
        """Who makes texts; ApiError for a model that makes none."""
        if not isinstance(self._maker, Engine):
            raise ApiError(400, f"{self.name} is a model for embeddings: it writes no text")
        return self._maker

    @property
    def plan(self) -> MemoryPlan:
        return self._maker.plan

    def close(self) -> None:
        self._maker.close()

    @property
    def template(self) -> str:
        """The source of the chat template; empty where the model has none."""
        template = self.tokenizer.chat_template
        return "" if template is None else template.source

    def chat_tokens(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()
    ) -> list[int]:
        """A conversation as the model reads it."""
        engine = self.engine
        try:
            return engine.chat_tokens(messages, tools)
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

    def check_dimensions(self, body: Body) -> None:
        """ApiError where vectors of another length are asked for than the model makes."""
        width = self.file.description.width
        if body.get("dimensions") not in (None, width):
            raise body.wrong("dimensions", f"{width}, which is what this model makes")

    async def embed(
        self, inputs: Sequence[Sequence[int]], *, truncate: bool = False
    ) -> NDArray[np.float32]:
        """A row for each text, given as tokens; those of several requests take turns."""
        maker = self._maker
        if isinstance(maker, Engine):
            raise ApiError(400, f"{self.name} writes text; embeddings need a model made for them")

        try:
            if not truncate:
                maker.check_lengths(inputs)
            with self._turns.place():
                rows = [
                    await self._turns.run(partial(maker.embed_tokens, [tokens], truncate=True))
                    for tokens in inputs
                ]
        except AreniteError as problem:
            raise api_error(problem) from None
        return np.concatenate(rows)

    # What it does.

    def stats(self) -> dict[str, Any]:
        if not isinstance(self._maker, Engine):
            return super().stats() | {"requests": 0, "kernels": []}
        now = self._maker.stats()
        texts = [slot for slot in now.slots if slot is not None]
        return super().stats() | {
            "requests": now.n_finished,
            "tokens_a_second": now.tokens_a_second,
            "prompt_tokens_a_second": now.prompt_tokens_a_second,
            "slots": len(now.slots),
            "waiting": now.n_waiting,
            "queue": self._maker.queue,
            "texts": [
                {
                    "slot": slot.number,
                    "number": slot.text,
                    "state": slot.state,
                    "tokens": slot.read_tokens,
                    "pages": slot.pages,
                }
                for slot in texts
            ],
            "pages": {
                "count": now.n_pages,
                "tokens": now.page_tokens,
                "free": now.n_free_pages,
                "idle": now.n_idle_pages,
                "lent": now.n_pages - now.n_free_pages - now.n_idle_pages,
            },
            "kernels": self._kernels(self._maker, bool(texts)),
        }

    def _kernels(self, engine: Engine, is_busy: bool) -> list[dict[str, Any]]:
        """The kernels that cost most, measured now and then while there is work."""
        if is_busy and time.monotonic() - self._costs_at > PROFILE_SECONDS:
            self._costs_at = time.monotonic()
            self._costs = dearest(engine.kernel_seconds())
        return self._costs

    def measures(self) -> tuple[Measures, Measures]:
        gauges, counters = super().measures()
        if not isinstance(self._maker, Engine):
            return gauges, counters
        now = self._maker.stats()
        waits = sorted(now.first_token_seconds)
        gauges |= {
            "slots": ("Texts that are written at once, at the most.", len(now.slots)),
            "active_texts": (
                "Texts that are read or written now.",
                sum(slot is not None for slot in now.slots),
            ),
            "waiting_texts": ("Texts that wait for a slot.", now.n_waiting),
            "pages": ("Pages of keys and values.", now.n_pages),
            "free_pages": ("Pages that hold nothing.", now.n_free_pages),
            "idle_pages": ("Pages kept for texts that begin alike.", now.n_idle_pages),
            "tokens_per_second": ("Tokens made, over the last seconds.", now.tokens_a_second),
        }
        for share in (0.5, 0.95):
            if waits:
                name = f"first_token_seconds_p{share * 100:.0f}"
                value = waits[min(int(share * len(waits)), len(waits) - 1)]
                gauges[name] = ("From a request to its first token, of the last ones.", value)
        counters |= {
            "texts_total": ("Texts that were asked for.", now.n_requests),
            "texts_finished_total": ("Texts that came to their end.", now.n_finished),
            "texts_cancelled_total": ("Texts that somebody gave up.", now.n_cancelled),
            "texts_failed_total": ("Texts that ended with an error.", now.n_failed),
            "texts_refused_total": ("Texts that found no place to wait.", now.n_refused),
            "prompt_tokens_total": ("Tokens of prompts that were read.", now.prompt_tokens),
            "reused_tokens_total": ("Tokens of prompts that were known.", now.reused_tokens),
            "generated_tokens_total": ("Tokens that were made.", now.generated_tokens),
            "steps_total": ("Steps of the program.", now.n_steps),
            "step_seconds_total": ("Seconds inside the program.", now.step_seconds),
            "busy_seconds_total": ("Seconds in steps and between them.", now.busy_seconds),
        }
        return gauges, counters


class ServedArrays(Served):
    """An ONNX model, whose runs take turns."""

    def __init__(
        self,
        name: str,
        model: Model,
        program: CompiledModel,
        plan: MemoryPlan,
        *,
        queue: int,
        max_body: int | None,
    ) -> None:
        super().__init__(name, max_body)
        self.model, self.program = model, program
        self.about = f"An ONNX model: /v2/models/{name}/infer runs it."
        self._plan = plan
        self._turns = Turns(queue)
        self._n_runs = 0

    @property
    def plan(self) -> MemoryPlan:
        return self._plan

    def close(self) -> None:
        self.program.close()

    def stats(self) -> dict[str, Any]:
        return super().stats() | {"requests": self._n_runs, "kernels": []}

    def measures(self) -> tuple[Measures, Measures]:
        gauges, counters = super().measures()
        return gauges, counters | {"runs_total": ("Runs of the model.", self._n_runs)}

    async def run(self, inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """The outputs by their names; runs take turns."""
        try:
            with self._turns.place():
                return await self._turns.run(partial(self._run, inputs))
        except AreniteError as problem:
            raise api_error(problem) from None

    def _run(self, inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        self._n_runs += 1
        return dict(self.program(inputs))


def dearest(seconds: Mapping[str, float]) -> list[dict[str, Any]]:
    """The kernels that cost most, and the share of each; those of all layers count as one."""
    kinds: dict[str, float] = {}
    for kernel, took in seconds.items():
        name = kernel.rstrip("0123456789").rstrip("_")
        kinds[name] = kinds.get(name, 0.0) + took
    total = sum(kinds.values()) or 1.0
    dear = sorted(kinds.items(), key=lambda one: -one[1])[:N_DEAREST]
    return [{"name": name, "share": took / total} for name, took in dear]


def resident_nbytes() -> int:
    """Memory that the process has now."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
