"""Texts: what the APIs that make text share, from a client's fields to the pieces of an answer.

In: a checked body. Out: a `TextRequest` for the engine, and `Answers`: texts in the making as the
event loop sees them. Those that nobody reads any more give their places up.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from arenite.errors import AreniteError, Busy
from arenite.generate.sampling import MAX_SEED, Sampling
from arenite.serve.bodies import ApiError, Body, api_error
from arenite.serve.delivery import Inbox
from arenite.serve.tool_calls import Tools
from arenite.serve.tool_styles import ToolStyle, style_of

if TYPE_CHECKING:
    from arenite.serve.engine import Engine
    from arenite.serve.served_model import ServedText
    from arenite.serve.stream import Chunk, Stream

MAX_MESSAGES = 4096
MAX_STOPS = 16
MAX_TOOLS = 128
MAX_NAME = 128  # characters of the name of a tool
NAME = re.compile(rf"[\w.-]{{1,{MAX_NAME}}}")
#: What parts of a content call their text, by their types.
PARTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
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
    tools: Tools | None = None


def cut_short() -> ApiError:
    """What ends a stream that is not to go on: there is no other status once it has begun."""
    return ApiError(503, "the answer is cut short: it took too long, or the server is ending")


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
        most = engine.settings.slots + engine.queue
        if len(self.requests) > most:
            told = f"{len(self.requests)} texts are asked for; at most {most} are made or wait here"
            raise ApiError(400, told)
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
    given = {name: value for name, value in more.items() if value is not None}
    for theirs, ours in names.items():
        if theirs not in body:
            continue
        given[ours] = _seed(body) if ours == "seed" else body.get(theirs)
        try:
            Sampling(**{ours: given[ours]})
        except AreniteError as problem:
            told = str(problem).replace(ours, body.name_of(theirs), 1)
            raise ApiError(400, told, field=body.name_of(theirs)) from None
    try:
        Sampling(**given)
    except AreniteError as problem:
        raise api_error(problem) from None
    return given


def _seed(body: Body) -> int | None:
    """A seed, which may be a number below zero."""
    seed = body.whole("seed", -(2**63), MAX_SEED)
    return None if seed is None else seed % (MAX_SEED + 1)


def messages_of(body: Body, template: str) -> list[dict[str, Any]]:
    """The conversation as a template reads it, each content one text."""
    found = body.objects("messages", MAX_MESSAGES)
    if not found:
        raise body.wrong("messages", "a list with at least one message")
    style = style_of(template)
    messages = [_message(message, style) for message in found]
    for message in messages:  # templates that don't know developers know them as the system
        if message["role"] == "developer" and "developer" not in template:
            message["role"] = "system"
    _name_calls(messages)
    return messages


def _name_calls(messages: Sequence[dict[str, Any]]) -> None:
    """Calls and results without an id, as Ollama's API has them, get what templates ask for."""
    called: deque[str] = deque()
    n_calls = 0
    for message in messages:
        for call in message.get("tool_calls", ()):
            n_calls += 1
            called.append(call.setdefault("id", f"call{n_calls:05d}"))
        if message["role"] == "tool":
            message.setdefault("name", message.get("tool_name", ""))
            message.setdefault("tool_call_id", called.popleft() if called else "")


def _message(message: Body, style: ToolStyle | None) -> dict[str, Any]:
    plain = {name: value for name, value in message.plain().items() if value is not None}
    plain["role"] = message.text("role")
    content = message.get("content")
    if isinstance(content, list):
        parts = message.objects("content", MAX_MESSAGES)
        for part in parts:
            if part.get("type") not in PARTS:
                raise part.wrong("type", '"text", for this model reads nothing else,')
        content = "".join(part.text(PARTS[part.text("type")]) for part in parts)
    elif content is not None and not isinstance(content, str):
        raise message.wrong("content", "a text or a list of parts")
    plain["content"] = content or ""
    if plain.get("images"):
        raise message.refused("images", "this model reads text alone")
    if "tool_calls" in plain:
        calls = message.objects("tool_calls", MAX_TOOLS)
        plain["tool_calls"] = [_earlier_call(call, style) for call in calls]
    return plain


def _earlier_call(call: Body, style: ToolStyle | None) -> dict[str, Any]:
    """A call that a model has made, as its template reads it: with arguments as an object, which
    is a text in OpenAI's API, or the other way round."""
    function = call.object("function")
    if function is None:
        raise call.wrong("function", "an object with a name and arguments")
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            raise function.wrong("arguments", "JSON, as a text,") from None
    if not isinstance(arguments, dict | None):
        raise function.wrong("arguments", "an object")
    if style is not None and style.takes_text:
        arguments = json.dumps(arguments or {}, ensure_ascii=False)
    told = {"name": function.text("name"), "arguments": arguments or {}}
    return {"type": "function", **call.plain(), "function": told}


def functions_of(body: Body) -> list[dict[str, Any]]:
    """The functions that a model may call, checked."""
    found = []
    for tool in body.objects("tools", MAX_TOOLS):
        if tool.text("type", "function") != "function":
            raise tool.wrong("type", '"function"')
        function = tool.object("function")
        if function is None:
            raise tool.wrong("function", "an object with a name")
        if not NAME.fullmatch(function.text("name")):
            raise function.wrong("name", f"a name of up to {MAX_NAME} letters, digits, _, - and .")
        function.object("parameters")
        found.append(function.plain())
    return found


def tools_of(body: Body, functions: Sequence[dict[str, Any]], served: ServedText) -> Tools:
    """How the model calls these; ApiError where its template has no place for tools."""
    style = style_of(served.template)
    if style is None:
        raise ApiError(
            400,
            "tools are given, and the chat template of this model knows none",
            field=body.name_of("tools"),
        )
    specials = served.tokenizer.specials
    controls = [one for one in specials.tokens if one[1] in specials.controls]
    most = None if body.flag("parallel_tool_calls", usual=True) else 1
    return Tools(style, functions, style.markers(controls), most)
