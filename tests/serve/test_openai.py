"""OpenAI's API, judged by its own client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import openai
import pytest

from arenite.generate.specials import Specials
from arenite.generate.template import ChatTemplate
from arenite.serve.served_model import ServedText
from arenite.serve.tool_styles import (
    CALL,
    CALL_END,
    CALLS,
    CALLS_END,
    SEPARATOR,
    STYLES,
    ToolStyle,
)
from tests.serve.running import TEMPLATE, Address

MESSAGES: list[Any] = [{"role": "user", "content": "in the air"}]
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather at a place.",
        "parameters": {
            "type": "object",
            "properties": {
                "place": {"type": "string", "enum": ["here", "there"]},
                "days": {"type": "integer", "minimum": 0, "maximum": 9},
            },
            "required": ["place"],
            "additionalProperties": False,
        },
    },
}
OTHER: dict[str, Any] = {"type": "function", "function": {"name": "other"}}


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


def called(client: openai.OpenAI, *, streams: bool, **options: Any) -> tuple[str, dict[str, Any]]:
    """The one call of an answer that has nothing else: its name and its arguments."""
    options = {"model": "tiny", "messages": MESSAGES, "seed": 2} | options
    create: Any = client.chat.completions.create
    if streams:
        events = list(create(stream=True, **options))
        calls = [c for e in events for c in e.choices[0].delta.tool_calls or []]
        text = "".join(e.choices[0].delta.content or "" for e in events)
        reason = events[-1].choices[0].finish_reason
    else:
        [choice] = create(**options).choices
        calls, text = choice.message.tool_calls or [], choice.message.content or ""
        reason = choice.finish_reason
    [call] = calls
    assert (text.strip(), reason) == ("", "tool_calls")
    return call.function.name, json.loads(call.function.arguments)


@contextmanager
def taught(talker: ServedText, style: ToolStyle, controls: tuple[str, ...] = ()) -> Iterator[None]:
    """The model with a template that calls tools in a style; some of its tokens, made up ones, are
    control tokens with these texts."""
    before = talker.engine.tokenizer
    template = ChatTemplate(TEMPLATE.replace("<tool_call>", " ".join(style.marks)), "tiny")
    ids = {text: before.n_tokens - 1 - k for k, text in enumerate(controls)}
    ids |= {text: token for text, token in before.specials.tokens if token < 3}
    specials = Specials.of(ids, ids.values())
    talker.tokenizer = replace(before, chat_template=template, specials=specials)
    talker.engine.tokenizer = talker.tokenizer
    try:
        yield
    finally:
        talker.engine.tokenizer = talker.tokenizer = before


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("style", STYLES, ids=lambda style: " ".join(style.marks))
def test_a_tool_is_called(
    client: openai.OpenAI, talker: ServedText, style: ToolStyle, streams: bool
) -> None:
    with taught(talker, style):
        name, arguments = called(client, streams=streams, tools=[TOOL], tool_choice="required")
    assert name == "weather"
    assert arguments["place"] in ("here", "there")
    assert set(arguments) <= {"place", "days"}
    assert isinstance(arguments.get("days", 1), int)


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize(
    ("marks", "more"),
    [
        (("[TOOL_CALLS]",), ()),
        (("[TOOL_CALLS]", "[ARGS]"), ()),
        ((CALLS,), (CALLS_END, CALL, CALL_END, SEPARATOR)),
    ],
)
def test_a_call_may_stand_among_control_tokens(
    client: openai.OpenAI,
    talker: ServedText,
    marks: tuple[str, ...],
    more: tuple[str, ...],
    streams: bool,
) -> None:
    """They are no part of the text, and tell where a call is."""
    [style] = [one for one in STYLES if one.marks == marks]
    with taught(talker, style, marks + more):
        options: dict[str, Any] = {"tools": [TOOL], "tool_choice": "required", "max_tokens": 100}
        assert called(client, streams=streams, **options)[0] == "weather"


def test_a_function_is_chosen_by_its_name(client: openai.OpenAI) -> None:
    for name in ("weather", "other"):
        named = {"type": "function", "function": {"name": name}}
        allowed = {"mode": "required", "tools": [named]}
        for choice in (named, {"type": "allowed_tools", "allowed_tools": allowed}):
            found, _ = called(client, streams=False, tools=[TOOL, OTHER], tool_choice=choice)
            assert found == name


def test_tools_that_are_not_allowed_are_not_offered(client: openai.OpenAI) -> None:
    create: Any = client.chat.completions.create
    options: dict[str, Any] = {"model": "tiny", "messages": MESSAGES, "max_tokens": 8, "seed": 1}
    allowed = {"mode": "auto", "tools": [OTHER]}
    choice = {"type": "allowed_tools", "allowed_tools": allowed}
    some = create(**options, tools=[TOOL, OTHER], tool_choice=choice)
    only = create(**options, tools=[OTHER])
    assert some.choices == only.choices
    assert some.usage == only.usage


def test_no_tool_is_called_where_none_may_be(client: openai.OpenAI) -> None:
    options: dict[str, Any] = {"model": "tiny", "messages": MESSAGES, "max_tokens": 8, "seed": 1}
    create: Any = client.chat.completions.create
    plain, none = create(**options), create(**options, tools=[TOOL], tool_choice="none")
    assert none.choices == plain.choices
    assert none.usage == plain.usage  # the model knows of none


def test_a_call_and_its_result_go_back_into_the_conversation(
    client: openai.OpenAI, talker: ServedText
) -> None:
    """Arguments, a text here, are an object for most templates."""
    source = (
        "{{ tools }}{% for m in messages %}{% for c in m.tool_calls or [] %}"
        "{{ c.function.arguments.place }}{% endfor %}{{ m.content }}{% endfor %}<tool_call>"
    )
    function = {"name": "weather", "arguments": '{"place": "here"}'}
    call = {"id": "abcdefghi", "type": "function", "function": function}
    messages: list[Any] = [
        *MESSAGES,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "abcdefghi", "content": "fine"},
    ]
    assert talker.tokenizer.chat_template is not None
    before, talker.tokenizer.chat_template.source = talker.tokenizer.chat_template.source, source
    vars(talker.tokenizer.chat_template).pop("_tree", None)
    try:
        told = client.chat.completions.create(model="tiny", messages=messages, max_tokens=2)
        assert told.usage is not None
        assert told.usage.prompt_tokens == len(
            talker.tokenizer.encode("Nonein the airherefine<tool_call>")
        )
        function["arguments"] = "{"
        with pytest.raises(openai.BadRequestError, match="arguments is"):
            client.chat.completions.create(model="tiny", messages=messages, max_tokens=2)
    finally:
        talker.tokenizer.chat_template.source = before
        vars(talker.tokenizer.chat_template).pop("_tree", None)


def test_completions_go_on_from_texts_and_tokens(client: openai.OpenAI, talker: ServedText) -> None:
    text = "the in an"
    tokens = talker.tokenizer.encode(text)
    options: dict[str, Any] = {"model": "tiny", "max_tokens": 5, "seed": 4}
    one = client.completions.create(prompt=text, **options).choices[0]
    same = client.completions.create(prompt=tokens, **options).choices[0]
    assert one.text == same.text
    two = client.completions.create(prompt=[text, "he"], echo=True, **options).choices
    assert two[0].text == talker.tokenizer.decode(tokens) + one.text
    with pytest.raises(openai.BadRequestError, match="logprobs is given"):
        client.completions.create(prompt=text, echo=True, logprobs=2, **options)


def test_likelihoods_of_a_completion_stand_where_their_tokens_do(
    client: openai.OpenAI, talker: ServedText
) -> None:
    """Whole and as they come, also of tokens that are parts of characters."""
    bias = {str(t): 8 for t in range(talker.tokenizer.n_tokens) if _is_part(talker, t)}
    options: dict[str, Any] = {"model": "tiny", "max_tokens": 12, "seed": 4, "logprobs": 2}
    options |= {"logit_bias": bias}
    whole = client.completions.create(prompt="a", **options).choices[0].logprobs
    parts = [
        part.choices[0] for part in client.completions.create(prompt="a", stream=True, **options)
    ]
    assert whole is not None
    assert whole.tokens is not None
    assert any(name.startswith("bytes:") for name in whole.tokens)
    assert all(len(top) >= 2 for top in whole.top_logprobs or [])
    told = [part.logprobs for part in parts if part.logprobs is not None]
    for name in ("tokens", "token_logprobs", "text_offset"):
        assert [one for part in told for one in getattr(part, name)] == getattr(whole, name)
    content = b""
    for name, offset in zip(whole.tokens, whole.text_offset or [], strict=True):
        written = content.decode(errors="replace")
        # A character that is not complete has not been counted.
        assert len(written) - written.endswith("\ufffd") <= offset <= len(written)
        content += _bytes_of(name)


def _is_part(talker: ServedText, token: int) -> bool:
    """Whether a token is part of a character."""
    content = talker.tokenizer.token_bytes(token)
    return "\ufffd" in content.decode(errors="replace")


def _bytes_of(name: str) -> bytes:
    if not name.startswith("bytes:"):
        return name.encode()
    return bytes(int(part, 16) for part in name.removeprefix("bytes:").split("\\x")[1:])


def test_more_texts_than_there_is_room_for_are_never_asked_to_come_back(
    client: openai.OpenAI,
) -> None:
    with pytest.raises(openai.BadRequestError, match="9 texts are asked for; at most 8"):
        client.chat.completions.create(model="tiny", messages=MESSAGES, n=9)


def test_a_seed_may_be_below_zero(client: openai.OpenAI) -> None:
    options: dict[str, Any] = {"model": "tiny", "prompt": "a", "max_tokens": 5}
    texts = [client.completions.create(seed=seed, **options).choices[0].text
             for seed in (-5, 2**64 - 5)]  # fmt: skip
    assert texts[0] == texts[1]


def test_a_refusal_is_a_text_too(client: openai.OpenAI) -> None:
    def n_tokens(content: Any) -> int:
        messages: list[Any] = [{"role": "assistant", "content": content}]
        made = client.chat.completions.create(model="tiny", messages=messages, max_tokens=1)
        assert made.usage is not None
        return made.usage.prompt_tokens

    assert n_tokens([{"type": "refusal", "refusal": "in the air"}]) == n_tokens("in the air")


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
        ("tools", [{"type": "function", "function": {"name": "a b"}}]),
        ("tool_choice", "sometimes"),
        ("tool_choice", {"type": "function", "function": {"name": "nothing"}}),
        ("stream", "yes"),
        ("functions", [{}]),
        ("model", "other"),
        ("seed", 2**64),
        ("modalities", ["text", "audio"]),
        ("reasoning_effort", "low"),
        ("messages", [{"role": "user", "content": [{"type": "text"}]}]),
    ],
)
def test_a_wrong_field_is_one_error_that_names_it(
    server: Address, field: str, value: object
) -> None:
    body = {"messages": MESSAGES, "tools": [TOOL], "max_tokens": 2} | {field: value}
    status, told = server.json("POST", "/v1/chat/completions", body)
    assert status == (404 if field == "model" else 400)
    assert str(told["error"]["param"]).startswith(field)


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
