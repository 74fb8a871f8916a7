"""Ollama's API: chat, generate, embed, and what tells of models.

In: requests as the `ollama` package sends them. Out: objects, or streams of a line of JSON each.
Fields that choose a model's files or how long it stays in memory are passed over: one model is
here, and it stays.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from arenite import __version__
from arenite.memory.plan import HOST
from arenite.serve import texts
from arenite.serve.bodies import ApiError, Body
from arenite.serve.connection import StreamedResponse, until_gone
from arenite.serve.texts import Answers, TextRequest, TokenChoice
from arenite.serve.tool_calls import CallReader, ToolCall
from arenite.serve.tool_styles import style_of

if TYPE_CHECKING:
    from arenite.serve.served_model import ServedText
    from arenite.serve.stream import Chunk

#: Options by their names here and in `Sampling`.
SAMPLING = {
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "seed": "seed",
    "repeat_penalty": "repetition_penalty",
    "repeat_last_n": "penalty_window",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
}
FINISH = {"stop": "stop", "length": "length", "context": "length", "cancelled": "stop"}
MAX_INPUTS = 2048


def routes(served: ServedText) -> list[Route]:
    """What this API answers to."""
    api = Ollama(served)
    return [
        Route("/api/version", api.version),
        Route("/api/tags", api.tags),
        Route("/api/ps", api.running),
        Route("/api/show", api.show, methods=["POST"]),
        Route("/api/chat", api.chat, methods=["POST"]),
        Route("/api/generate", api.generate, methods=["POST"]),
        Route("/api/embed", api.embed, methods=["POST"]),
        Route("/api/embeddings", api.embedding, methods=["POST"]),
    ]


def error_body(problem: ApiError) -> dict[str, Any]:
    """An error as this API has it."""
    return {"error": problem.message}


class Ollama:
    """The handlers, each for one route."""

    def __init__(self, served: ServedText) -> None:
        self.served = served

    async def version(self, _: Request) -> Response:
        return JSONResponse({"version": __version__})

    async def tags(self, _: Request) -> Response:
        return JSONResponse({"models": [self._model()]})

    async def running(self, _: Request) -> Response:
        plan = self.served.plan
        model = self._model() | {
            "expires_at": "9999-12-31T23:59:59Z",
            "size": plan.total_nbytes,
            "size_vram": plan.total_nbytes - plan.nbytes_by_device.get(HOST, 0),
            "context_length": self.served.context,
        }
        return JSONResponse({"models": [model]})

    async def show(self, request: Request) -> Response:
        await self.served.body(request)
        can = ["completion"] if self.served.makes_text else ["embedding"]
        can += ["tools"] if style_of(self.served.template) is not None else []
        return JSONResponse(
            {
                "modelfile": "",
                "parameters": "",
                "template": self.served.template,
                "details": self._details(),
                "model_info": {
                    "general.architecture": self.served.file.description.architecture,
                    "context_length": self.served.context,
                },
                "capabilities": can,
            }
        )

    def _model(self) -> dict[str, Any]:
        return {
            "name": self.served.name,
            "model": self.served.name,
            "modified_at": _time(self.served.created),
            "size": self.served.file.nbytes,
            "digest": "",
            "details": self._details(),
        }

    def _details(self) -> dict[str, Any]:
        family = self.served.file.description.architecture
        form = "gguf" if self.served.file.gguf is not None else "safetensors"
        return {
            "parent_model": "",
            "format": form,
            "family": family,
            "families": [family],
            "parameter_size": "",
            "quantization_level": "",
        }

    # Text.

    async def chat(self, request: Request) -> Response:
        body = await self.served.body(request)
        if not body.get("messages"):
            return JSONResponse(self._loaded({"message": {"role": "assistant", "content": ""}}))
        wanted = await asyncio.to_thread(self._chat_request, body)
        return await self._respond(request, body, Talk(self.served, wanted))

    def _chat_request(self, body: Body) -> TextRequest:
        self._refuse(body, "think")
        messages = texts.messages_of(body, self.served.template)
        functions = texts.functions_of(body)
        tools = texts.tools_of(body, functions, self.served) if functions else None
        offered = [{"type": "function", "function": function} for function in functions]
        tokens = self.served.chat_tokens(messages, offered)
        return TextRequest(tokens, _sampling(body), n_logprobs=_n_logprobs(body), tools=tools)

    async def generate(self, request: Request) -> Response:
        body = await self.served.body(request)
        self._refuse(body, "suffix", "images", "context", "template", "think")
        if not body.get("prompt"):
            return JSONResponse(self._loaded({"response": ""}))
        wanted = await asyncio.to_thread(self._generate_request, body)
        return await self._respond(request, body, Story(self.served, wanted))

    def _refuse(self, body: Body, *names: str) -> None:
        """ApiError where something is asked for that nothing is done with."""
        for name in names:
            if body.get(name):
                raise body.refused(name, "this server does not know it")

    def _generate_request(self, body: Body) -> TextRequest:
        prompt = body.text("prompt")
        if body.flag("raw") or not self.served.template:
            tokens = self.served.encoded(prompt)
            return TextRequest(tokens, _sampling(body), n_logprobs=_n_logprobs(body))
        told = [{"role": "system", "content": body.text("system")}] if "system" in body else []
        messages = [*told, {"role": "user", "content": prompt}]
        tokens = self.served.chat_tokens(messages)
        return TextRequest(tokens, _sampling(body), n_logprobs=_n_logprobs(body))

    def _loaded(self, content: dict[str, Any]) -> dict[str, Any]:
        """The answer to a request that only asks for the model to be in memory."""
        return {
            "model": self.served.name,
            "created_at": _time(),
            **content,
            "done": True,
            "done_reason": "load",
        }

    async def _respond(self, request: Request, body: Body, reply: Talk | Story) -> Response:
        await asyncio.to_thread(reply.begin, asyncio.get_running_loop())
        if body.flag("stream", usual=True):
            return StreamedResponse(_lines(reply), reply.cancel, "application/x-ndjson")
        whole = await until_gone(request, reply.whole(), reply.cancel)
        return JSONResponse(whole)

    # Embeddings.

    async def embed(self, request: Request) -> Response:
        body = await self.served.body(request)
        started = time.perf_counter_ns()
        inputs = await asyncio.to_thread(self.served.prompts, body, "input", MAX_INPUTS)
        self.served.check_dimensions(body)
        made = self.served.embed(inputs, truncate=body.flag("truncate", usual=True))
        rows = await until_gone(request, made)
        return JSONResponse(
            {
                "model": self.served.name,
                "embeddings": [[float(value) for value in row] for row in rows],
                "total_duration": time.perf_counter_ns() - started,
                "load_duration": 0,
                "prompt_eval_count": sum(map(len, inputs)),
            }
        )

    async def embedding(self, request: Request) -> Response:
        """The way to ask for one that older clients know."""
        body = await self.served.body(request)
        tokens = await asyncio.to_thread(self.served.encoded, body.text("prompt"))
        [row] = await until_gone(request, self.served.embed([tokens], truncate=True))
        return JSONResponse({"embedding": [float(value) for value in row]})


class Story:
    """The text that goes on from a prompt, whole or as a stream."""

    def __init__(self, served: ServedText, request: TextRequest) -> None:
        self.served = served
        self.request = request
        self.answers: Answers | None = None
        self.started = time.perf_counter_ns()

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        self.answers = Answers(self.served.engine, [self.request], loop)

    def cancel(self) -> None:
        if self.answers is not None:
            self.answers.cancel()

    def content(self, text: str, calls: list[ToolCall]) -> dict[str, Any]:
        """What this kind of answer calls its text."""
        return {"response": text}

    async def parts(self) -> AsyncIterator[dict[str, Any]]:
        """The answer as it comes; the last part has what it took."""
        assert self.answers is not None
        tools = self.request.tools
        reader = None if tools is None else CallReader(tools)
        token_bytes = self.served.tokenizer.token_bytes
        while self.answers.n_open:
            for _, piece in await self.answers.take():
                text, calls = (piece.text, []) if reader is None else reader.take(piece)
                likely = [_told(one) for one in texts.choices_of(piece, token_bytes)]
                if text or calls or likely:
                    told = {"logprobs": likely} if likely else {}
                    yield self.object(text, calls) | {"done": False} | told
                if piece.finish is not None:
                    yield self.object("", []) | self.end(piece)

    async def whole(self) -> dict[str, Any]:
        """All of it in one object."""
        parts = [part async for part in self.parts()]
        text, calls, likely = "", [], []
        for part in parts:
            likely += part.get("logprobs", [])
            content = part.get("message", part)
            text += content.get("content", content.get("response", ""))
            calls += content.get("tool_calls", [])
        last = parts[-1]
        if "message" in last:
            last["message"]["content"] = text
            if calls:
                last["message"]["tool_calls"] = calls
        else:
            last["response"] = text
        return last | ({"logprobs": likely} if likely else {})

    def object(self, text: str, calls: list[ToolCall]) -> dict[str, Any]:
        return {
            "model": self.served.name,
            "created_at": _time(),
            **self.content(text, calls),
        }

    def end(self, piece: Chunk) -> dict[str, Any]:
        """Why the answer ended and what it took, times in nanoseconds."""
        stats = piece.stats
        assert stats is not None
        return {
            "done": True,
            "done_reason": FINISH[piece.finish or "stop"],
            "total_duration": time.perf_counter_ns() - self.started,
            "load_duration": 0,
            "prompt_eval_count": stats.prompt_tokens,
            "prompt_eval_duration": int(stats.prompt_seconds * 1e9),
            "eval_count": stats.generated_tokens,
            "eval_duration": int(stats.generation_seconds * 1e9),
        }


class Talk(Story):
    """The answer to a conversation."""

    def content(self, text: str, calls: list[ToolCall]) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if calls:
            message["tool_calls"] = [
                {"function": {"name": call.name, "arguments": call.arguments}} for call in calls
            ]
        return {"message": message}


async def _lines(reply: Story) -> AsyncIterator[bytes]:
    try:
        async for part in reply.parts():
            yield json.dumps(part, ensure_ascii=False).encode() + b"\n"
    except ApiError as problem:
        yield json.dumps(error_body(problem)).encode() + b"\n"
    except asyncio.CancelledError:
        yield json.dumps(error_body(texts.cut_short())).encode() + b"\n"
    finally:
        reply.cancel()


def _n_logprobs(body: Body) -> int | None:
    count = body.whole("top_logprobs", 0, texts.MAX_TOP_LOGPROBS) or 0
    return count if body.flag("logprobs") else None


def _told(choice: TokenChoice) -> dict[str, Any]:
    """A token's likelihood, and those of the likeliest."""
    content = choice.content
    told = {"token": content.decode(errors="replace"), "logprob": choice.logprob}
    others = [_told(other) for other in choice.likeliest]
    return told | {"bytes": list(content)} | ({"top_logprobs": others} if others else {})


def _sampling(body: Body) -> dict[str, Any]:
    options = body.object("options") or Body({}, "options.")
    form = body.get("format")
    if form not in (None, "", "json") and not isinstance(form, dict):
        raise body.wrong("format", '"json" or a JSON schema')
    limit = options.whole("num_predict", -2, 2**31)
    # A seed of -1 is none.
    names = {one: name for one, name in SAMPLING.items() if (one, options.get(one)) != ("seed", -1)}
    return texts.sampling_of(
        options,
        names,
        stop=options.texts("stop", texts.MAX_STOPS),
        max_tokens=limit if limit is not None and limit > 0 else None,
        json_schema={"type": "object"} if form == "json" else (form or None),
    )


def _time(seconds: float | None = None) -> str:
    when = datetime.now(UTC) if seconds is None else datetime.fromtimestamp(seconds, UTC)
    return when.isoformat().replace("+00:00", "Z")
