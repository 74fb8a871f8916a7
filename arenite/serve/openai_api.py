"""OpenAI's API: chat completions, completions, embeddings, models.

In: requests as the `openai` package sends them. Out: objects and streams of events as it reads
them. Fields that would change an answer and are not known here are refused, others passed over.
"""

from __future__ import annotations

import asyncio
import base64
import math
from typing import TYPE_CHECKING, Any

import numpy as np
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from arenite.serve import texts
from arenite.serve.bodies import Body
from arenite.serve.connection import until_gone
from arenite.serve.openai_replies import ChatReply, CompletionReply, respond
from arenite.serve.texts import TextRequest

if TYPE_CHECKING:
    from arenite.serve.served_model import ServedText

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
#: Fields of a chat that would change its answer, and that nothing is done with.
UNKNOWN = (
    "audio",
    "chat_template_kwargs",
    "function_call",
    "functions",
    "prediction",
    "reasoning_effort",
    "web_search_options",
)
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
        return await respond(request, reply, body)

    def _chat_request(self, body: Body) -> TextRequest:
        messages = texts.messages_of(body, self.served.template)
        for name in UNKNOWN:
            if name in body:
                raise body.refused(name, "this server does not know it")
        if set(body.texts("modalities", 2)) - {"text"}:
            raise body.wrong("modalities", '["text"]')
        functions = texts.functions_of(body)
        functions, wanted = _chosen(body, functions)
        tools, grammar = None, None
        if functions:
            tools = texts.tools_of(body, functions, self.served)
            grammar = tools.style.grammar(wanted, tools.markers) if wanted else None
        sampling = texts.sampling_of(
            body,
            SAMPLING,
            stop=body.texts("stop", texts.MAX_STOPS),
            max_tokens=_max_tokens(body),
            logit_bias=self._biases(body),
            json_schema=None if grammar else _schema(body),
            grammar=grammar or body.get("grammar"),
            regex=body.get("regex"),
        )
        offered = [{"type": "function", "function": function} for function in functions]
        return TextRequest(
            self.served.chat_tokens(messages, offered),
            sampling,
            body.whole("n", 1, texts.MAX_ANSWERS) or 1,
            _chat_logprobs(body),
            tools,
        )

    async def completions(self, request: Request) -> Response:
        body = await self.served.body(request)
        if body.get("suffix"):
            raise body.refused("suffix", "this server does not know it")
        if body.get("best_of") not in (None, body.get("n") or 1):
            raise body.wrong("best_of", "what n is")
        if body.flag("echo") and "logprobs" in body:
            raise body.refused("logprobs", "those of a prompt, with echo, are not known here")
        wanted = await asyncio.to_thread(self._completion_requests, body)
        reply = CompletionReply(self.served, body, wanted)
        return await respond(request, reply, body)

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
            logit_bias=self._biases(body),
            json_schema=_schema(body),
            grammar=body.get("grammar"),
            regex=body.get("regex"),
        )
        n_logprobs = body.whole("logprobs", 0, texts.MAX_TOP_LOGPROBS)
        return [TextRequest(prompt, sampling, n_answers, n_logprobs) for prompt in prompts]

    def _biases(self, body: Body) -> dict[int, float]:
        """What is added to logits; with `ignore_eos`, as llama.cpp's server and vLLM know it, no
        token ends the text."""
        found = {}
        given = body.object("logit_bias") or Body({})
        for token in given.plain():
            if not token.isdecimal() or len(token) > 10:
                raise given.wrong(token, "the number of a token as its name")
            bias = given.number(token, -100, 100)
            found[int(token)] = 0.0 if bias is None else bias
        if body.flag("ignore_eos"):
            found |= dict.fromkeys(self.served.tokenizer.end_tokens, -math.inf)
        return found

    # Embeddings.

    async def embeddings(self, request: Request) -> Response:
        body = await self.served.body(request)
        form = body.text("encoding_format", "float")
        if form not in ("float", "base64"):
            raise body.wrong("encoding_format", '"float" or "base64"')
        inputs = await asyncio.to_thread(self.served.prompts, body, "input", MAX_INPUTS)
        self.served.check_dimensions(body)
        rows = await until_gone(request, self.served.embed(inputs))
        n_tokens = sum(map(len, inputs))
        data = [
            {"object": "embedding", "index": number, "embedding": _vector(row, form)}
            for number, row in enumerate(rows)
        ]
        usage = {"prompt_tokens": n_tokens, "total_tokens": n_tokens}
        return JSONResponse(
            {"object": "list", "data": data, "model": self.served.name, "usage": usage}
        )


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


def _chosen(
    body: Body, functions: list[dict[str, Any]]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The functions that a model is told of, and those of which it must call one; none: it is
    free."""
    choice = body.get("tool_choice")
    if choice == "none":
        return [], []
    if choice in (None, "auto"):
        return functions, []
    if not functions:
        raise body.wrong("tool_choice", "tools beside it, of which to choose,")
    if choice == "required":
        return functions, functions
    given = body.object("tool_choice") if isinstance(choice, dict) else None
    allowed = None if given is None else given.object("allowed_tools")
    tools = [given] if allowed is None else allowed.objects("tools", texts.MAX_TOOLS)
    named = [one.object("function") for one in tools if one is not None]
    names = {one.text("name") for one in named if one is not None}
    found = [one for one in functions if one["name"] in names]
    if not found or len(found) < len(names):
        known = ", ".join(one["name"] for one in functions)
        raise body.wrong("tool_choice", f'"none", "auto", "required", or one of {known}')
    if allowed is None:
        return functions, found
    return found, found if allowed.text("mode", "auto") == "required" else []


def _vector(row: Any, form: str) -> list[float] | str:
    if form == "base64":
        return base64.b64encode(row.astype("<f4").tobytes()).decode()
    return [float(value) for value in row.astype(np.float64)]
