"""Ollama's API, judged by its own client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import ollama
import pytest

from arenite.serve.served import ServedText
from tests.serve.running import Address
from tests.serve.test_openai import TOOL

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
    assert client.show("tiny").capabilities == ["completion"]
    assert [one.model for one in client.ps().models] == ["tiny"]


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
