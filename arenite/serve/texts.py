"""Texts: what the APIs that make text share, from a client's fields to the pieces of an answer.

In: a checked body. Out: a `TextRequest` for the engine, and `Answers`: texts in the making as the
event loop sees them. Those that nobody reads any more give their places up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from arenite.errors import AreniteError, Busy
from arenite.generate.sampling import MAX_SEED, Sampling
from arenite.serve.bodies import ApiError, Body, api_error
from arenite.serve.delivery import Inbox
from arenite.serve.tool_calls import ToolStyle, style_of

if TYPE_CHECKING:
    from arenite.serve.engine import Engine
    from arenite.serve.stream import Chunk, Stream

MAX_MESSAGES = 4096
MAX_STOPS = 16
MAX_TOOLS = 128
MAX_TOP_LOGPROBS = 20
MAX_ANSWERS = 16  # to one request
RETRY_SECONDS = 1  # after which one that found no place may come again


@dataclass(frozen=True)
class TextRequest:
    """One text to make, or several that begin alike."""

    tokens: list[int]
    sampling: dict[str, Any]  # options of `Sampling`
    n_answers: int = 1
    n_logprobs: int | None = None  # likeliest tokens told beside each; None: nothing is told
    tools: ToolStyle | None = None


class TokenChoice(NamedTuple):
    """A token of an answer, or one that might have been in its place."""

    content: bytes
    logprob: float
    likeliest: tuple[TokenChoice, ...] = ()


class Answers:
    """The texts of one request in the making, as the event loop sees them: all of them, or none
    where one does not fit."""

    def __init__(
        self, engine: Engine, requests: Sequence[TextRequest], loop: asyncio.AbstractEventLoop
    ) -> None:
        self._inbox = Inbox(loop)
        #: What each answer was asked for with.
        self.requests = [one for one in requests for _ in range(one.n_answers)]
        self._streams: list[Stream] = []
        try:
            for request in requests:
                for number in range(request.n_answers):
                    self._submit(engine, request, number)
        except BaseException:
            self.cancel()
            raise
        self.n_open = len(self._streams)

    def _submit(self, engine: Engine, request: TextRequest, number: int) -> None:
        options = dict(request.sampling)
        if number and options.get("seed") is not None:
            options["seed"] = (options["seed"] + number) % (MAX_SEED + 1)
        try:
            stream = engine.submit(
                request.tokens,
                logprobs=request.n_logprobs,
                listener=self._inbox.listener(len(self._streams)),
                waker=self._inbox.post.wake,
                **options,
            )
        except Busy as problem:
            raise ApiError(429, str(problem), code="busy", retry_after=RETRY_SECONDS) from None
        except AreniteError as problem:
            raise api_error(problem) from None
        self._streams.append(stream)

    async def take(self) -> list[tuple[int, Chunk]]:
        """What has come of them, each chunk with the number of its answer; the last chunk of each
        says why it ended. Nothing more comes once `n_open` is 0."""
        arrived = [(number, _checked(one)) for number, one in await self._inbox.take()]
        self.n_open -= sum(chunk.finish is not None for _, chunk in arrived)
        return arrived

    def cancel(self) -> None:
        """Nobody wants the rest; nothing happens where all is complete."""
        for stream in self._streams:
            stream.cancel()


def _checked(arrived: Chunk | BaseException) -> Chunk:
    if isinstance(arrived, AreniteError):
        raise api_error(arrived)
    if isinstance(arrived, BaseException):
        raise arrived
    return arrived


def choices_of(chunk: Chunk, token_bytes: Callable[[int], bytes]) -> list[TokenChoice]:
    """The token of a chunk with its likelihood, where that was asked for; a token that ends a text
    is no part of it."""
    if chunk.token is None or chunk.logprob is None:
        return []
    content = token_bytes(chunk.token)
    others = tuple(TokenChoice(token_bytes(one), logprob) for one, logprob in chunk.top)
    return [TokenChoice(content, chunk.logprob, others)] if content else []


def sampling_of(body: Body, names: Mapping[str, str], **more: Any) -> dict[str, Any]:
    """How tokens are chosen, by the names that an API has for it, checked."""
    given = {ours: body.get(theirs) for theirs, ours in names.items() if theirs in body}
    given |= {name: value for name, value in more.items() if value is not None}
    try:
        Sampling(**given)
    except AreniteError as problem:
        raise api_error(problem) from None
    return given


def messages_of(body: Body) -> list[dict[str, Any]]:
    """The conversation, each content one text."""
    found = body.objects("messages", MAX_MESSAGES)
    if not found:
        raise body.wrong("messages", "a list with at least one message")
    return [_message(message) for message in found]


def _message(message: Body) -> dict[str, Any]:
    plain = {name: value for name, value in message.plain().items() if value is not None}
    plain["role"] = message.text("role")
    content = message.get("content")
    if isinstance(content, list):
        parts = message.objects("content", MAX_MESSAGES)
        for part in parts:
            if part.get("type") not in ("text", "input_text", "refusal"):
                raise part.wrong("type", 'a part of type "text": this model reads nothing else')
        content = "".join(part.text("text", "") for part in parts)
    elif content is not None and not isinstance(content, str):
        raise message.wrong("content", "a text or a list of parts")
    plain["content"] = content or ""
    if plain.get("images"):
        raise message.wrong("images", "no image: this model reads text alone")
    return plain


def functions_of(body: Body) -> list[dict[str, Any]]:
    """The functions that a model may call, checked."""
    found = []
    for tool in body.objects("tools", MAX_TOOLS):
        if tool.text("type", "function") != "function":
            raise tool.wrong("type", '"function"')
        function = tool.object("function")
        if function is None:
            raise tool.wrong("function", "an object with a name")
        function.text("name")
        function.object("parameters")
        found.append(function.plain())
    return found


def tool_style(template: str, body: Body) -> ToolStyle:
    """How the model writes calls; ApiError where its template has no place for tools."""
    style = style_of(template)
    if style is None:
        raise ApiError(
            400,
            "tools are given, and the chat template of this model knows none",
            field=body.name_of("tools"),
        )
    return style
