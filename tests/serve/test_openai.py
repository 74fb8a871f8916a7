"""OpenAI's API, judged by its own client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from arenite.serve.served import ServedText
from tests.serve.running import Address

MESSAGES: list[Any] = [{"role": "user", "content": "in the air"}]
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather at a place.",
        "parameters": {
            "type": "object",
            "properties": {"place": {"type": "string", "enum": ["here", "there"]}},
            "required": ["place"],
            "additionalProperties": False,
        },
    },
}


@pytest.fixture
def client(server: Address) -> Iterator[openai.OpenAI]:
    url = f"{server.url}/v1"
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as made:
        yield made


def test_the_model_is_listed(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").object == "model"
    with pytest.raises(openai.NotFoundError, match="'other' is not served"):
        client.models.retrieve("other")


def test_no_token_ends_a_text_where_none_may(client: openai.OpenAI, talker: ServedText) -> None:
    likeliest = {str(token): 100 for token in talker.tokenizer.end_tokens}
    given: dict[str, Any] = {"model": "tiny", "prompt": "a", "logit_bias": likeliest}
    ended = client.completions.create(**given, max_tokens=5)
    assert ended.choices[0].finish_reason == "stop"
    assert ended.usage is not None
    assert ended.usage.completion_tokens == 0
    goes_on = client.completions.create(**given, max_tokens=5, extra_body={"ignore_eos": True})
    assert goes_on.choices[0].finish_reason == "length"
    assert goes_on.usage is not None
    assert goes_on.usage.completion_tokens == 5


def test_an_answer_is_the_engines_text(client: openai.OpenAI, talker: ServedText) -> None:
    tokens = talker.engine.chat_tokens(MESSAGES)
    stream = talker.engine.submit(tokens, max_tokens=12, seed=3)
    chunks = list(stream)
    answer = client.chat.completions.create(
        model="tiny", messages=MESSAGES, max_completion_tokens=12, seed=3
    )
    [choice] = answer.choices
    assert choice.message.content == "".join(chunk.text for chunk in chunks)
    assert choice.finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == len(tokens)
    assert answer.usage.completion_tokens == 12
    assert answer.usage.total_tokens == len(tokens) + 12


def test_a_stream_adds_up_to_the_whole(client: openai.OpenAI) -> None:
    options: dict[str, Any] = {"model": "tiny", "messages": MESSAGES, "max_tokens": 15, "seed": 7}
    whole = client.chat.completions.create(**options)
    events = list(
        client.chat.completions.create(
            stream=True, stream_options={"include_usage": True}, **options
        )
    )
    text = "".join(e.choices[0].delta.content or "" for e in events if e.choices)
    assert text == whole.choices[0].message.content
    assert events[0].choices[0].delta.role == "assistant"
    assert [e.choices[0].finish_reason for e in events if e.choices][-1] == "length"
    assert events[-1].usage is not None
    assert events[-1].usage.completion_tokens == 15


def test_several_answers_have_seeds_of_their_own(client: openai.OpenAI) -> None:
    def texts(seed: int, n: int) -> list[str | None]:
        answer = client.chat.completions.create(
            model="tiny", messages=MESSAGES, n=n, seed=seed, max_tokens=10, temperature=1.5
        )
        assert [choice.index for choice in answer.choices] == list(range(n))
        return [choice.message.content for choice in answer.choices]

    three = texts(5, 3)
    assert three == [*texts(5, 1), *texts(6, 1), *texts(7, 1)]
    assert len({*three}) > 1


def test_likelihoods_are_told(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="tiny", messages=MESSAGES, max_tokens=6, temperature=0, logprobs=True, top_logprobs=4
    )
    told = answer.choices[0].logprobs
    assert told is not None
    assert told.content
    joined = b"".join(bytes(one.bytes or []) for one in told.content)
    assert joined.decode(errors="replace") == answer.choices[0].message.content
    for one in told.content:
        # The likeliest token is the one that is taken, and comes first.
        assert one.top_logprobs[0].logprob == one.logprob <= 0
        assert [other.logprob for other in one.top_logprobs] == sorted(
            (other.logprob for other in one.top_logprobs), reverse=True
        )


def test_stop_texts_end_an_answer(client: openai.OpenAI) -> None:
    options: dict[str, Any] = {"model": "tiny", "messages": MESSAGES, "seed": 3, "max_tokens": 20}
    text = client.chat.completions.create(**options).choices[0].message.content or ""
    stop = text[5:8]
    cut = client.chat.completions.create(stop=[stop], **options).choices[0]
    assert cut.message.content == text[: text.index(stop)]
    assert cut.finish_reason == "stop"


def test_json_is_held_to_a_schema(client: openai.OpenAI) -> None:
    schema = {
        "type": "object",
        "properties": {"age": {"type": "integer", "minimum": 1, "maximum": 5}},
        "required": ["age"],
        "additionalProperties": False,
    }
    form: Any = {"type": "json_schema", "json_schema": {"name": "person", "schema": schema}}
    answer = client.chat.completions.create(
        model="tiny", messages=MESSAGES, response_format=form, seed=1, max_tokens=100
    )
    assert json.loads(answer.choices[0].message.content or "")["age"] in range(1, 6)


@pytest.mark.parametrize("streams", [False, True])
def test_a_tool_is_called(client: openai.OpenAI, streams: bool) -> None:
    options: dict[str, Any] = {
        "model": "tiny",
        "messages": MESSAGES,
        "tools": [TOOL],
        "tool_choice": "required",
        "seed": 2,
        "max_tokens": 150,
    }
    if streams:
        events = list(client.chat.completions.create(stream=True, **options))
        [call] = [c for e in events for c in e.choices[0].delta.tool_calls or []]
        assert events[-1].choices[0].finish_reason == "tool_calls"
    else:
        [choice] = client.chat.completions.create(**options).choices
        [call] = choice.message.tool_calls or []
        assert choice.finish_reason == "tool_calls"
        assert choice.message.content is None
    assert call.function is not None
    assert call.function.name == "weather"
    assert json.loads(call.function.arguments or "")["place"] in ("here", "there")


def test_completions_go_on_from_texts_and_tokens(client: openai.OpenAI, talker: ServedText) -> None:
    text = "the in an"
    tokens = talker.tokenizer.encode(text)
    options: dict[str, Any] = {"model": "tiny", "max_tokens": 5, "seed": 4}
    one = client.completions.create(prompt=text, **options).choices[0]
    same = client.completions.create(prompt=tokens, **options).choices[0]
    assert one.text == same.text
    two = client.completions.create(prompt=[text, "he"], echo=True, logprobs=2, **options).choices
    assert two[0].text == talker.tokenizer.decode(tokens) + one.text
    assert two[0].logprobs is not None
    assert len(two[0].logprobs.tokens or []) == 5


def test_a_text_over_the_context_is_refused(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="the context holds 384"):
        client.completions.create(model="tiny", prompt="a b " * 500)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -1),
        ("temperature", "hot"),
        ("top_p", 2),
        ("n", 0),
        ("n", 1000),
        ("stop", 3),
        ("seed", 1.5),
        ("max_tokens", 0),
        ("logit_bias", {"x": 1}),
        ("logit_bias", {"1": 10**9}),
        ("messages", []),
        ("messages", "hello"),
        ("messages", [{"role": "user", "content": [{"type": "image_url"}]}]),
        ("response_format", {"type": "xml"}),
        ("top_logprobs", 3),
        ("tools", [{"type": "function"}]),
        ("tool_choice", "sometimes"),
        ("stream", "yes"),
        ("functions", [{}]),
        ("model", "other"),
    ],
)
def test_a_wrong_field_is_one_error_that_names_it(
    server: Address, field: str, value: object
) -> None:
    body = {"messages": MESSAGES, "tools": [TOOL], "max_tokens": 2} | {field: value}
    status, told = server.json("POST", "/v1/chat/completions", body)
    assert status == (404 if field == "model" else 400)
    assert field in told["error"]["message"] + str(told["error"]["param"])


def test_a_model_without_a_place_for_tools_says_so(server: Address, talker: ServedText) -> None:
    template = talker.tokenizer.chat_template
    assert template is not None
    source, template.source = template.source, "{% for m in messages %}{{ m.content }}{% endfor %}"
    try:
        status, told = server.json(
            "POST", "/v1/chat/completions", {"messages": MESSAGES, "tools": [TOOL]}
        )
    finally:
        template.source = source
    assert status == 400
    assert "knows none" in told["error"]["message"]
