"""OpenAI's API: chat completions, completions, embeddings, models.

In: requests as the `openai` package sends them. Out: objects and streams of events as it reads
them. Fields that would change an answer and are not known here are refused, others passed over.
"""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
import time
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from arenite.serve import texts
from arenite.serve.bodies import ApiError, Body
from arenite.serve.connection import until_gone
from arenite.serve.texts import Answer, TextRequest, TokenChoice
from arenite.serve.tool_calls import CallReader, ToolCall

if TYPE_CHECKING:
    from arenite.serve.served import ServedText
    from arenite.serve.stream import Chunk

#: Fields by their names here and in `Sampling`.
SAMPLING = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "repetition_penalty": "repetition_penalty",
    "seed": "seed",
}
#: What ends a text, in the words of this API.
FINISH = {"stop": "stop", "length": "length", "context": "length", "cancelled": "stop"}
#: Tokens of a completion where the request says nothing, as the API has it.
USUAL_COMPLETION = 16
MAX_INPUTS = 2048  # texts of one request for embeddings or completions


def routes(served: ServedText) -> list[Route]:
    """What this API answers to."""
    api = OpenAi(served)
    return [
        Route("/v1/models", api.models),
        Route("/v1/models/{name:path}", api.model),
        Route("/v1/chat/completions", api.chat, methods=["POST"]),
        Route("/v1/completions", api.completions, methods=["POST"]),
        Route("/v1/embeddings", api.embeddings, methods=["POST"]),
    ]


def error_body(problem: ApiError) -> dict[str, Any]:
    """An error as this API has it."""
    kinds = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
    usual = "invalid_request_error" if problem.status < 500 else "server_error"
    return {
        "error": {
            "message": problem.message,
            "type": kinds.get(problem.status, usual),
            "param": problem.field,
            "code": problem.code,
        }
    }


class OpenAi:
    """The handlers, each for one route."""

    def __init__(self, served: ServedText) -> None:
        self.served = served

    async def models(self, _: Request) -> Response:
        return JSONResponse({"object": "list", "data": [self._model()]})

    async def model(self, request: Request) -> Response:
        self.served.check_name(request.path_params["name"])
        return JSONResponse(self._model())

    def _model(self) -> dict[str, Any]:
        return {
            "id": self.served.name,
            "object": "model",
            "created": self.served.created,
            "owned_by": "arenite",
        }

    # Text.

    async def chat(self, request: Request) -> Response:
        body = await self.served.body(request)
        wanted = await asyncio.to_thread(self._chat_request, body)
        reply = ChatReply(self.served, body, wanted)
        return await _respond(request, reply, body)

    def _chat_request(self, body: Body) -> TextRequest:
        messages = texts.messages_of(body)
        for name in ("functions", "function_call", "audio", "prediction", "web_search_options"):
            if name in body:
                raise body.wrong(name, "nothing: this server does not know it")
        functions = texts.functions_of(body)
        choice = body.get("tool_choice")
        if choice == "none":
            functions = []
        style, grammar = None, None
        if functions:
            style = texts.tool_style(self.served.template, body)
            wanted = _wanted_functions(body, choice, functions)
            grammar = style.grammar(wanted) if wanted else None
        sampling = texts.sampling_of(
            body,
            SAMPLING,
            stop=body.texts("stop", texts.MAX_STOPS),
            max_tokens=_max_tokens(body),
            logit_bias=_biases(body),
            json_schema=None if grammar else _schema(body),
            grammar=grammar or body.get("grammar"),
            regex=body.get("regex"),
        )
        tools = [{"type": "function", "function": function} for function in functions]
        return TextRequest(
            self.served.chat_tokens(messages, tools),
            sampling,
            body.whole("n", 1, texts.MAX_ANSWERS) or 1,
            _chat_logprobs(body),
            style,
        )

    async def completions(self, request: Request) -> Response:
        body = await self.served.body(request)
        for name in ("suffix", "best_of"):
            if body.get(name) not in (None, 1, ""):
                raise body.wrong(name, "nothing: this server does not know it")
        wanted = await asyncio.to_thread(self._completion_requests, body)
        reply = CompletionReply(self.served, body, wanted)
        return await _respond(request, reply, body)

    def _completion_requests(self, body: Body) -> list[TextRequest]:
        n_answers = body.whole("n", 1, texts.MAX_ANSWERS) or 1
        prompts = self.served.prompts(body, "prompt", MAX_INPUTS)
        if len(prompts) * n_answers > texts.MAX_ANSWERS:
            raise body.wrong("prompt", f"at most {texts.MAX_ANSWERS} texts, n of each counted")
        sampling = texts.sampling_of(
            body,
            SAMPLING,
            stop=body.texts("stop", texts.MAX_STOPS),
            max_tokens=_max_tokens(body) or USUAL_COMPLETION,
            logit_bias=_biases(body),
            json_schema=_schema(body),
            grammar=body.get("grammar"),
            regex=body.get("regex"),
        )
        n_logprobs = body.whole("logprobs", 0, texts.MAX_TOP_LOGPROBS)
        return [TextRequest(prompt, sampling, n_answers, n_logprobs) for prompt in prompts]

    # Embeddings.

    async def embeddings(self, request: Request) -> Response:
        body = await self.served.body(request)
        form = body.text("encoding_format", "float")
        if form not in ("float", "base64"):
            raise body.wrong("encoding_format", '"float" or "base64"')
        inputs = await asyncio.to_thread(self.served.prompts, body, "input", MAX_INPUTS)
        rows = await self.served.embed(inputs)
        if body.get("dimensions") not in (None, rows.shape[1]):
            raise body.wrong("dimensions", f"{rows.shape[1]}, which is what this model makes")
        n_tokens = sum(map(len, inputs))
        data = [
            {"object": "embedding", "index": number, "embedding": _vector(row, form)}
            for number, row in enumerate(rows)
        ]
        usage = {"prompt_tokens": n_tokens, "total_tokens": n_tokens}
        return JSONResponse(
            {"object": "list", "data": data, "model": self.served.name, "usage": usage}
        )


class Reply:
    """The answers to one request, whole or as a stream."""

    #: What this kind is called in objects, whole and in pieces, and how its ids begin.
    kind, chunk_kind, prefix = "", "", ""

    def __init__(
        self, served: ServedText, body: Body, requests: TextRequest | list[TextRequest]
    ) -> None:
        self.requests = requests if isinstance(requests, list) else [requests]
        self.served = served
        options = body.object("stream_options")
        self.tells_usage = options is not None and options.flag("include_usage")
        self.body = body
        self.id = f"{self.prefix}-{secrets.token_hex(12)}"
        self.created = int(time.time())
        self.answers: list[tuple[TextRequest, Answer]] = []
        self.n_prompt = self.n_reused = self.n_made = 0

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Hand all answers to the engine; ApiError, and nothing begun, where they don't fit."""
        try:
            for request in self.requests:
                for answer in texts.answers(self.served.engine, request, loop):
                    self.answers.append((request, answer))
        except BaseException:
            self.cancel()
            raise

    def cancel(self) -> None:
        for _, answer in self.answers:
            answer.cancel()

    def count(self, piece: Chunk) -> None:
        """What the answers took, told by each one's last piece."""
        if piece.stats is not None:
            self.n_prompt += piece.stats.prompt_tokens
            self.n_reused += piece.stats.reused_tokens
            self.n_made += piece.stats.generated_tokens

    def usage(self) -> dict[str, Any]:
        # Answers to one prompt read it once.
        n_prompt = sum(len(request.tokens) for request in self.requests)
        return {
            "prompt_tokens": n_prompt,
            "completion_tokens": self.n_made,
            "total_tokens": n_prompt + self.n_made,
            "prompt_tokens_details": {"cached_tokens": min(self.n_reused, n_prompt)},
        }

    def object(self, kind: str, choices: list[Any], **more: Any) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.served.name,
            "choices": choices,
            **more,
        }

    async def whole(self) -> dict[str, Any]:
        """All answers in one object."""
        parts = (self.choice(at, *both) for at, both in enumerate(self.answers))
        choices = await asyncio.gather(*parts)
        return self.object(self.kind, list(choices), usage=self.usage())

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        """The answers as they come, in pieces of one choice each."""
        queue: asyncio.Queue[dict[str, Any] | BaseException | None] = asyncio.Queue()

        async def follow(index: int, request: TextRequest, answer: Answer) -> None:
            try:
                async for choice in self.deltas(index, request, answer):
                    queue.put_nowait(choice)
            except Exception as error:
                queue.put_nowait(error)
            else:
                queue.put_nowait(None)

        tasks = [asyncio.ensure_future(follow(at, *both)) for at, both in enumerate(self.answers)]
        try:
            n_open = len(tasks)
            while n_open:
                arrived = await queue.get()
                if isinstance(arrived, BaseException):
                    raise arrived
                if arrived is None:
                    n_open -= 1
                else:
                    more: dict[str, Any] = {"usage": None} if self.tells_usage else {}
                    yield self.object(self.chunk_kind, [arrived], **more)
            if self.tells_usage:
                yield self.object(self.chunk_kind, [], usage=self.usage())
        finally:
            for task in tasks:
                task.cancel()
            self.cancel()

    async def choice(self, index: int, request: TextRequest, answer: Answer) -> dict[str, Any]:
        raise NotImplementedError

    def deltas(
        self, index: int, request: TextRequest, answer: Answer
    ) -> AsyncIterator[dict[str, Any]]:
        raise NotImplementedError


class ChatReply(Reply):
    """Answers to a conversation."""

    kind, chunk_kind, prefix = "chat.completion", "chat.completion.chunk", "chatcmpl"

    async def choice(self, index: int, request: TextRequest, answer: Answer) -> dict[str, Any]:
        reader = None if request.tools is None else CallReader(request.tools)
        text, finish = "", "stop"
        chosen: list[TokenChoice] = []
        calls: list[ToolCall] = []
        async for piece in answer.chunks():
            self.count(piece)
            text += piece.text if reader is None else reader.push(piece.text)
            chosen += answer.choices(piece)
            finish = FINISH[piece.finish or "stop"]
        if reader is not None:
            rest, calls = reader.finish()
            text += rest
        message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
        if calls:
            message |= {"content": text or None, "tool_calls": [_call(call) for call in calls]}
            finish = "tool_calls"
        return {
            "index": index,
            "message": message,
            "logprobs": _chat_choices(chosen) if request.n_logprobs is not None else None,
            "finish_reason": finish,
        }

    async def deltas(
        self, index: int, request: TextRequest, answer: Answer
    ) -> AsyncIterator[dict[str, Any]]:
        def delta(
            content: dict[str, Any], finish: str | None = None, chosen: Iterable[TokenChoice] = ()
        ) -> dict[str, Any]:
            told = _chat_choices(chosen) if request.n_logprobs is not None else None
            return {"index": index, "delta": content, "logprobs": told, "finish_reason": finish}

        reader = None if request.tools is None else CallReader(request.tools)
        yield delta({"role": "assistant", "content": ""})
        calls: list[ToolCall] = []
        finish = "stop"
        async for piece in answer.chunks():
            self.count(piece)
            text = piece.text if reader is None else reader.push(piece.text)
            if piece.finish is not None:
                finish = FINISH[piece.finish]
                if reader is not None:
                    rest, calls = reader.finish()
                    text += rest
            chosen = answer.choices(piece)
            if text or chosen:
                yield delta({"content": text}, chosen=chosen)
        if calls:
            finish = "tool_calls"
            yield delta({"tool_calls": [{"index": n, **_call(c)} for n, c in enumerate(calls)]})
        yield delta({}, finish)


class CompletionReply(Reply):
    """Texts that go on from prompts."""

    kind, chunk_kind, prefix = "text_completion", "text_completion", "cmpl"

    async def choice(self, index: int, request: TextRequest, answer: Answer) -> dict[str, Any]:
        text = self._echo(request)
        told = Told(len(text), request.n_logprobs)
        finish = "stop"
        async for piece in answer.chunks():
            self.count(piece)
            text += piece.text
            told.add(answer.choices(piece))
            finish = FINISH[piece.finish or "stop"]
        return {
            "index": index,
            "text": text,
            "logprobs": told.object(),
            "finish_reason": finish,
        }

    async def deltas(
        self, index: int, request: TextRequest, answer: Answer
    ) -> AsyncIterator[dict[str, Any]]:
        echoed = self._echo(request)
        if echoed:
            yield {"index": index, "text": echoed, "logprobs": None, "finish_reason": None}
        at = len(echoed)
        async for piece in answer.chunks():
            self.count(piece)
            told = Told(at, request.n_logprobs)
            told.add(answer.choices(piece))
            at += len(piece.text)
            finish = None if piece.finish is None else FINISH[piece.finish]
            yield {
                "index": index,
                "text": piece.text,
                "logprobs": told.object(),
                "finish_reason": finish,
            }

    def _echo(self, request: TextRequest) -> str:
        if not self.body.flag("echo"):
            return ""
        return self.served.tokenizer.decode(request.tokens)


class Told:
    """The likelihoods of tokens, in the columns that completions have them in."""

    def __init__(self, offset: int, n_logprobs: int | None) -> None:
        self._offset = offset
        self._n_logprobs = n_logprobs
        self._chosen: list[TokenChoice] = []

    def add(self, chosen: Iterable[TokenChoice]) -> None:
        self._chosen += chosen

    def object(self) -> dict[str, Any] | None:
        if self._n_logprobs is None:
            return None
        tokens = [_text(choice.content) for choice in self._chosen]
        offsets, at = [], self._offset
        for token in tokens:
            offsets.append(at)
            at += len(token)
        return {
            "tokens": tokens,
            "token_logprobs": [choice.logprob for choice in self._chosen],
            "top_logprobs": [
                {_text(other.content): other.logprob for other in choice.likeliest}
                for choice in self._chosen
            ],
            "text_offset": offsets,
        }


async def _respond(request: Request, reply: Reply, body: Body) -> Response:
    """Begin the answers, then hand them out whole or as they come."""
    streams = body.flag("stream")
    await asyncio.to_thread(reply.begin, asyncio.get_running_loop())
    if not streams:
        whole = await until_gone(request, reply.whole(), reply.cancel)
        return JSONResponse(whole)
    return StreamingResponse(_lines(reply), media_type="text/event-stream",
                             headers={"Cache-Control": "no-store"})  # fmt: skip


async def _lines(reply: Reply) -> AsyncIterator[bytes]:
    try:
        async for event in reply.events():
            yield b"data: " + _json(event) + b"\n\n"
    except ApiError as problem:
        yield b"data: " + _json(error_body(problem)) + b"\n\n"
    yield b"data: [DONE]\n\n"


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _max_tokens(body: Body) -> int | None:
    limit = body.whole("max_completion_tokens", 1, 2**31)
    return body.whole("max_tokens", 1, 2**31) if limit is None else limit


def _chat_logprobs(body: Body) -> int | None:
    count = body.whole("top_logprobs", 0, texts.MAX_TOP_LOGPROBS)
    if not body.flag("logprobs"):
        if count is not None:
            raise body.wrong("top_logprobs", "logprobs beside it, true,")
        return None
    return count or 0


def _biases(body: Body) -> dict[int, float] | None:
    given = body.object("logit_bias")
    if given is None:
        return None
    found = {}
    for token in given.plain():
        if not token.isdecimal() or len(token) > 10:
            raise given.wrong(token, "the number of a token as its name")
        bias = given.number(token, -100, 100)
        found[int(token)] = 0.0 if bias is None else bias
    return found


def _schema(body: Body) -> Any:
    """The JSON schema that a text is held to."""
    form = body.object("response_format")
    if form is None:
        return None
    kind = form.text("type")
    if kind == "text":
        return None
    if kind == "json_object":
        return {"type": "object"}
    named = form.object("json_schema")
    if kind != "json_schema" or named is None:
        raise form.wrong("type", '"text", "json_object", or "json_schema" with a schema beside it,')
    schema = named.object("schema")
    if schema is None:
        raise named.wrong("schema", "a JSON schema")
    return schema.plain()


def _wanted_functions(
    body: Body, choice: object, functions: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The functions of which one must be called; none: the model is free."""
    if choice in (None, "auto"):
        return []
    if choice == "required":
        return functions
    named = body.object("tool_choice") if isinstance(choice, dict) else None
    function = None if named is None else named.object("function")
    name = None if function is None else function.text("name")
    wanted = [one for one in functions if one["name"] == name]
    if not wanted:
        names = ", ".join(one["name"] for one in functions)
        raise body.wrong("tool_choice", f'"none", "auto", "required", or one of {names}')
    return wanted


def _call(call: ToolCall) -> dict[str, Any]:
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    }


def _chat_choices(chosen: Iterable[TokenChoice]) -> dict[str, Any]:
    def told(choice: Any) -> dict[str, Any]:
        return {
            "token": _text(choice.content),
            "logprob": choice.logprob,
            "bytes": list(choice.content),
        }

    content = [
        told(choice) | {"top_logprobs": [told(other) for other in choice.likeliest]}
        for choice in chosen
    ]
    return {"content": content, "refusal": None}


def _text(content: bytes) -> str:
    return content.decode(errors="replace")


def _vector(row: Any, form: str) -> list[float] | str:
    if form == "base64":
        return base64.b64encode(row.astype("<f4").tobytes()).decode()
    return [float(value) for value in row.astype(np.float64)]
