"""Replies in OpenAI's words: answers in the making become objects, or streams of events.

In: requests for texts, which the engine makes. Out: what the `openai` package reads; errors too.
"""

from __future__ import annotations

import asyncio
import codecs
import json
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from arenite.serve import texts
from arenite.serve.bodies import ApiError, Body
from arenite.serve.connection import StreamedResponse, until_gone
from arenite.serve.texts import Answers, TextRequest, TokenChoice
from arenite.serve.tool_calls import CallReader, ToolCall

if TYPE_CHECKING:
    from arenite.generate.continuation import Finish
    from arenite.generate.tokenizer import Tokenizer
    from arenite.serve.served_model import ServedText
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
        self.answers: Answers | None = None
        self.n_reused = self.n_made = 0

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Hand all answers to the engine; ApiError, and nothing begun, where they don't fit."""
        self.answers = Answers(self.served.engine, self.requests, loop)

    def cancel(self) -> None:
        if self.answers is not None:
            self.answers.cancel()

    async def take(self) -> list[tuple[int, Chunk]]:
        """What has come of the answers; what they took is told by each one's last chunk."""
        assert self.answers is not None
        arrived = await self.answers.take()
        for _, chunk in arrived:
            if chunk.stats is not None:
                self.n_reused += chunk.stats.reused_tokens
                self.n_made += chunk.stats.generated_tokens
        return arrived

    @property
    def is_open(self) -> bool:
        """Whether more is to come."""
        return self.answers is not None and self.answers.n_open > 0

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

    def choices(self) -> list[Choice]:
        """One for each answer."""
        assert self.answers is not None
        return [self.choice(*one) for one in enumerate(self.answers.requests)]

    async def whole(self) -> dict[str, Any]:
        """All answers in one object."""
        choices = self.choices()
        made: list[list[Chunk]] = [[] for _ in choices]
        while self.is_open:
            for number, chunk in await self.take():
                made[number].append(chunk)
        told = [choice.whole(chunks) for choice, chunks in zip(choices, made, strict=True)]
        return self.object(self.kind, told, usage=self.usage())

    async def events(self) -> AsyncIterator[bytes]:
        """The answers as they come, an event for each piece of a choice; those that came together
        are one piece of the body."""
        more: dict[str, Any] = {"usage": None} if self.tells_usage else {}
        # All that stands around a choice is the same in every event.
        around = _json(self.object(self.chunk_kind, [], **more))
        start, end = (b"data: " + around + b"\n\n").split(b'"choices":[]')

        def lines(deltas: Iterable[dict[str, Any]]) -> bytes:
            return b"".join(b'%b"choices":[%b]%b' % (start, _json(delta), end) for delta in deltas)

        choices = self.choices()
        if begun := lines(delta for choice in choices for delta in choice.begin()):
            yield begun
        try:
            while self.is_open:
                arrived = await self.take()
                parts = [choices[number].push(chunk) for number, chunk in arrived]
                if any(parts):
                    yield lines(delta for deltas in parts for delta in deltas)
            if self.tells_usage:
                told = self.object(self.chunk_kind, [], usage=self.usage())
                yield b"data: " + _json(told) + b"\n\n"
        except ApiError as problem:
            yield b"data: " + _json(error_body(problem)) + b"\n\n"
        except asyncio.CancelledError:
            yield b"data: " + _json(error_body(texts.cut_short())) + b"\n\n"
        finally:
            self.cancel()
        yield b"data: [DONE]\n\n"

    @abstractmethod
    def choice(self, index: int, request: TextRequest) -> Choice:
        """How one answer is told."""


class Choice(ABC):
    """One answer in the words of its API: piece by piece, or whole."""

    def __init__(self, index: int, request: TextRequest, tokenizer: Tokenizer) -> None:
        self.index, self.request, self.tokenizer = index, request, tokenizer

    def tokens(self, chunk: Chunk) -> list[TokenChoice]:
        """The likelihoods of a chunk's token, where they were asked for."""
        return texts.choices_of(chunk, self.tokenizer.token_bytes)

    def begin(self) -> list[dict[str, Any]]:
        """What is told before anything was made."""
        return []

    @abstractmethod
    def push(self, chunk: Chunk) -> list[dict[str, Any]]:
        """What a chunk adds."""

    @abstractmethod
    def whole(self, chunks: Sequence[Chunk]) -> dict[str, Any]:
        """All of it."""


class ChatChoice(Choice):
    """An answer to a conversation."""

    def __init__(self, index: int, request: TextRequest, tokenizer: Tokenizer) -> None:
        super().__init__(index, request, tokenizer)
        self._reader = None if request.tools is None else CallReader(request.tools)
        self._n_calls = 0

    def begin(self) -> list[dict[str, Any]]:
        return [self._delta({"role": "assistant", "content": ""})]

    def push(self, chunk: Chunk) -> list[dict[str, Any]]:
        text, calls = self._text(chunk)
        chosen = self.tokens(chunk)
        deltas = [self._delta({"content": text}, chosen=chosen)] if text or chosen else []
        if calls:
            told = [{"index": n, **_call(call)} for n, call in enumerate(calls, self._n_calls)]
            self._n_calls += len(calls)
            deltas.append(self._delta({"tool_calls": told}))
        if chunk.finish is not None:
            reason = "tool_calls" if self._n_calls else FINISH[chunk.finish]
            deltas.append(self._delta({}, reason))
        return deltas

    def _text(self, chunk: Chunk) -> tuple[str, list[ToolCall]]:
        """What may be shown with a chunk, and the calls that are complete with it."""
        return (chunk.text, []) if self._reader is None else self._reader.take(chunk)

    def _delta(
        self,
        content: dict[str, Any],
        finish: str | None = None,
        chosen: Iterable[TokenChoice] = (),
    ) -> dict[str, Any]:
        told = _chat_choices(chosen) if self.request.n_logprobs is not None else None
        return {"index": self.index, "delta": content, "logprobs": told, "finish_reason": finish}

    def whole(self, chunks: Sequence[Chunk]) -> dict[str, Any]:
        parts = [self._text(chunk) for chunk in chunks]
        text = "".join(text for text, _ in parts)
        calls = [call for _, calls in parts for call in calls]
        finish = FINISH[chunks[-1].finish or "stop"]
        message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
        if calls:
            message |= {"content": text or None, "tool_calls": [_call(call) for call in calls]}
            finish = "tool_calls"
        told = None
        if self.request.n_logprobs is not None:
            told = _chat_choices(choice for chunk in chunks for choice in self.tokens(chunk))
        return {"index": self.index, "message": message, "logprobs": told, "finish_reason": finish}


class CompletionChoice(Choice):
    """A text that goes on from a prompt, which may be told before it."""

    def __init__(
        self, index: int, request: TextRequest, tokenizer: Tokenizer, *, echo: bool
    ) -> None:
        super().__init__(index, request, tokenizer)
        self._echoed = tokenizer.decode(request.tokens) if echo else ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._n_characters = 0  # of the tokens that were told

    def begin(self) -> list[dict[str, Any]]:
        return [self._part(self._echoed, None, None)] if self._echoed else []

    def push(self, chunk: Chunk) -> list[dict[str, Any]]:
        return [self._part(chunk.text, self._told([chunk]), chunk.finish)]

    def whole(self, chunks: Sequence[Chunk]) -> dict[str, Any]:
        text = self._echoed + "".join(chunk.text for chunk in chunks)
        return self._part(text, self._told(chunks), chunks[-1].finish)

    def _part(
        self, text: str, told: dict[str, Any] | None, finish: Finish | None
    ) -> dict[str, Any]:
        reason = None if finish is None else FINISH[finish]
        return {"index": self.index, "text": text, "logprobs": told, "finish_reason": reason}

    def _told(self, chunks: Sequence[Chunk]) -> dict[str, Any] | None:
        """The likelihoods of tokens, in the columns that completions have them in."""
        if self.request.n_logprobs is None:
            return None
        chosen = [choice for chunk in chunks for choice in self.tokens(chunk)]
        offsets = []
        for choice in chosen:
            offsets.append(self._n_characters)
            self._n_characters += len(self._decoder.decode(choice.content))
        return {
            "tokens": [_named(choice.content) for choice in chosen],
            "token_logprobs": [choice.logprob for choice in chosen],
            "top_logprobs": [
                {_named(other.content): other.logprob for other in choice.likeliest}
                for choice in chosen
            ],
            "text_offset": offsets,
        }


class ChatReply(Reply):
    """Answers to a conversation."""

    kind, chunk_kind, prefix = "chat.completion", "chat.completion.chunk", "chatcmpl"

    def choice(self, index: int, request: TextRequest) -> Choice:
        return ChatChoice(index, request, self.served.tokenizer)


class CompletionReply(Reply):
    """Texts that go on from prompts."""

    kind, chunk_kind, prefix = "text_completion", "text_completion", "cmpl"

    def choice(self, index: int, request: TextRequest) -> Choice:
        return CompletionChoice(index, request, self.served.tokenizer, echo=self.body.flag("echo"))


async def respond(request: Request, reply: Reply, body: Body) -> Response:
    """Begin the answers, then hand them out whole or as they come."""
    streams = body.flag("stream")
    await asyncio.to_thread(reply.begin, asyncio.get_running_loop())
    if not streams:
        whole = await until_gone(request, reply.whole(), reply.cancel)
        return JSONResponse(whole)
    return StreamedResponse(reply.events(), reply.cancel, "text/event-stream")


#: Made once: `json.dumps` makes one for each call that is not the plainest.
_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def _json(value: Any) -> bytes:
    return _encoder.encode(value).encode()


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


def _named(content: bytes) -> str:
    """A token as a name: parts of characters are told apart by their bytes."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in content)
