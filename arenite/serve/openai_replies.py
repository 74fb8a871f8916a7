"""Replies in OpenAI's words: answers in the making become objects, or streams of events.

In: requests for texts, which the engine makes. Out: what the `openai` package reads; errors too.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from arenite.serve import texts
from arenite.serve.bodies import ApiError, Body
from arenite.serve.connection import until_gone
from arenite.serve.texts import Answer, TextRequest, TokenChoice
from arenite.serve.tool_calls import CallReader, ToolCall

if TYPE_CHECKING:
    from arenite.serve.served import ServedText
    from arenite.serve.stream import Chunk

#: What ends a text, in the words of this API.
FINISH = {"stop": "stop", "length": "length", "context": "length", "cancelled": "stop"}


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


class Reply(ABC):
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

    @abstractmethod
    async def choice(self, index: int, request: TextRequest, answer: Answer) -> dict[str, Any]:
        """One answer, whole."""

    @abstractmethod
    def deltas(
        self, index: int, request: TextRequest, answer: Answer
    ) -> AsyncIterator[dict[str, Any]]:
        """One answer as it comes."""


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


async def respond(request: Request, reply: Reply, body: Body) -> Response:
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
