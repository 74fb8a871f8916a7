"""Ollama's API, judged by its own client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import ollama
import pytest

from arenite.generate.template import ChatTemplate
from arenite.serve import Engine
from arenite.serve.served_model import ServedText
from arenite.serve.tool_styles import STYLES
from tests.backends.webgpu.runner import webgpu
from tests.generate.gguf_models import write_tiny
from tests.serve.running import Address, serving
from tests.serve.test_openai import TOOL, taught

MESSAGES: list[Any] = [{"role": "user", "content": "in the air"}]
OPTIONS: dict[str, Any] = {"num_predict": 12, "seed": 3}


@pytest.fixture
def client(server: Address) -> Iterator[ollama.Client]:
    with ollama.Client(server.url) as made:
        yield made


def test_the_model_is_told_of(client: ollama.Client) -> None:
    [model] = client.list().models
    assert model.model == "tiny"
    assert model.details is not None
    assert model.details.format == "gguf"
    assert client.show("tiny").capabilities == ["completion", "tools"]
    assert [one.model for one in client.ps().models] == ["tiny"]


@pytest.mark.parametrize("device", ["cpu", "webgpu"])
def test_running_models_say_what_memory_they_take_and_how_much_of_a_gpu(
    tmp_path: Path, device: str
) -> None:
    if device != "cpu":
        webgpu()
    with Engine(write_tiny("llama-f16", tmp_path), slots=1, context=64, device=device) as engine:
        planned = engine.plan
        with serving(ServedText("tiny", engine)) as address, ollama.Client(address.url) as client:
            [running] = client.ps().models
    assert running.size == planned.total_nbytes
    on_device = planned.nbytes_by_device[device]
    assert running.size_vram == (on_device if device == "webgpu" else 0)
    assert on_device > planned.total_nbytes // 2


def test_chat_is_the_engines_text_whole_and_as_it_comes(
    client: ollama.Client, talker: ServedText
) -> None:
    stream = talker.engine.submit(talker.engine.chat_tokens(MESSAGES), max_tokens=12, seed=3)
    expected = stream.text()
    whole = client.chat("tiny", messages=MESSAGES, options=OPTIONS)
    assert whole.message.content == expected
    assert (whole.done, whole.done_reason, whole.eval_count) == (True, "length", 12)
    parts = list(client.chat("tiny", messages=MESSAGES, options=OPTIONS, stream=True))
    assert "".join(part.message.content or "" for part in parts) == expected
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]


def test_generate_is_raw_or_in_the_words_of_the_template(
    client: ollama.Client, talker: ServedText
) -> None:
    engine = talker.engine
    raw = client.generate("tiny", "he an", raw=True, options=OPTIONS).response
    assert raw == engine.submit("he an", max_tokens=12, seed=3).text()
    told = [{"role": "system", "content": "short"}, {"role": "user", "content": "he an"}]
    worded = client.generate("tiny", "he an", system="short", options=OPTIONS).response
    assert worded == engine.submit(engine.chat_tokens(told), max_tokens=12, seed=3).text()


def test_json_is_held_to_a_schema(client: ollama.Client) -> None:
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"],
              "additionalProperties": False}  # fmt: skip
    options = {"num_predict": 60, "seed": 3}
    answer = client.chat("tiny", messages=MESSAGES, format=schema, options=options)
    assert isinstance(json.loads(answer.message.content or "")["ok"], bool)


def test_tools_are_offered(client: ollama.Client) -> None:
    # Whether a model of random weights calls one is chance; it must get through.
    answer = client.chat("tiny", messages=MESSAGES, tools=[TOOL], options=OPTIONS)
    assert answer.done


@pytest.mark.parametrize("streams", [False, True])
def test_a_tool_is_called(client: ollama.Client, talker: ServedText, streams: bool) -> None:
    [style] = [one for one in STYLES if one.marks == ("<|python_tag|>",)]
    arguments = {"place": "here", "days": 3}
    schema = {"const": {"name": "weather", "parameters": arguments}}
    options: dict[str, Any] = {"tools": [TOOL], "format": schema, "options": {"num_predict": 200}}
    with taught(talker, style):  # by its schema the answer is a call
        if streams:
            parts = [*client.chat("tiny", messages=MESSAGES, stream=True, **options)]
        else:
            parts = [client.chat("tiny", messages=MESSAGES, **options)]
    [call] = [call for part in parts for call in part.message.tool_calls or []]
    assert (call.function.name, call.function.arguments) == ("weather", arguments)
    assert "".join(part.message.content or "" for part in parts) == ""
    assert parts[-1].done


@pytest.mark.parametrize("field", ["think", "template", "suffix", "context"])
def test_what_is_not_done_is_refused(server: Address, field: str) -> None:
    body = {"prompt": "a", field: [1] if field == "context" else "high"}
    status, told = server.json("POST", "/api/generate", body)
    assert (status, field in told["error"]) == (400, True)


def test_options_are_named_as_they_were_given(client: ollama.Client) -> None:
    with pytest.raises(ollama.ResponseError, match=r"^options.repeat_penalty is -1"):
        client.generate("tiny", "a", options={"repeat_penalty": -1})


def test_a_seed_of_minus_one_is_none(client: ollama.Client) -> None:
    options = {"seed": -1, "num_predict": 12, "temperature": 5.0}
    assert len({client.generate("tiny", "a", options=options).response for _ in range(4)}) > 1


def test_calls_and_results_have_the_ids_that_templates_ask_for(
    client: ollama.Client, talker: ServedText
) -> None:
    """As those of Mistral do; this API knows none."""
    source = (
        "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.id }} {% endfor %}"
        "{% if m.role == 'tool' %}{{ m.name }} {{ m.tool_call_id }} {% endif %}{% endfor %}"
    )
    calls: list[Any] = [{"function": {"name": name, "arguments": {}}} for name in ("a", "b")]
    results = [{"role": "tool", "tool_name": name, "content": ""} for name in ("a", "b")]
    messages: list[Any] = [{"role": "assistant", "tool_calls": calls}, *results]
    written = "call00001 call00002 a call00001 b call00002 "
    before = talker.tokenizer
    changed = replace(before, chat_template=ChatTemplate(source, "tiny"))
    talker.tokenizer = talker.engine.tokenizer = changed
    try:
        answer = client.chat("tiny", messages=messages, options=OPTIONS)
    finally:
        talker.tokenizer = talker.engine.tokenizer = before
    assert answer.prompt_eval_count == len(before.encode(written))


@pytest.mark.parametrize("streams", [False, True])
def test_likelihoods_are_told(client: ollama.Client, talker: ServedText, streams: bool) -> None:
    tokens = talker.tokenizer.encode("in the air")
    made = talker.engine.submit(tokens, max_tokens=3, seed=1, logprobs=2)
    expected = [chunk.logprob for chunk in made]
    given: dict[str, Any] = {"raw": True, "logprobs": True, "top_logprobs": 2}
    given["options"] = {"num_predict": 3, "seed": 1}
    if streams:
        parts = [*client.generate("tiny", "in the air", stream=True, **given)]
    else:
        parts = [client.generate("tiny", "in the air", **given)]
    found = [one for part in parts for one in part.logprobs or []]
    assert [one.logprob for one in found] == expected
    assert all(len(one.top_logprobs or []) == 2 for one in found)
    assert all(one.token is not None for one in found)


def test_another_model_is_refused(client: ollama.Client) -> None:
    with pytest.raises(ollama.ResponseError, match="'other' is not served") as told:
        client.chat("other", messages=MESSAGES)
    assert told.value.status_code == 404
    with pytest.raises(ollama.ResponseError, match="embeddings need a model"):
        client.embed("tiny", "text")
    assert client.chat("tiny:latest", messages=MESSAGES, options=OPTIONS).done


def test_a_wrong_option_is_one_error(client: ollama.Client) -> None:
    with pytest.raises(ollama.ResponseError, match="temperature is -1"):
        client.chat("tiny", messages=MESSAGES, options={"temperature": -1})
    with pytest.raises(ollama.ResponseError, match="suffix"):
        client.generate("tiny", "a", suffix="b")
