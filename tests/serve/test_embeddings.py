"""A model for embeddings behind both APIs: the vectors are those of the model."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator

import numpy as np
import ollama
import openai
import pytest

import arenite
from arenite.serve.served_model import ServedText
from tests.generate.gguf_models import write_tiny
from tests.serve.running import Address, serving

TEXTS = ["a b c", "!?"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[arenite.LanguageModel]:
    path = write_tiny("bert", tmp_path_factory.mktemp("models"))
    with arenite.load(path, kind="language") as loaded:
        yield loaded


@pytest.fixture(scope="module")
def server(model: arenite.LanguageModel) -> Iterator[Address]:
    with serving(ServedText("words", model, max_body=2**20)) as address:
        yield address


@pytest.mark.parametrize("form", ["float", "base64"])
def test_openais_client_reads_the_vectors(
    server: Address, model: arenite.LanguageModel, form: str
) -> None:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        answer = client.embeddings.create(model="words", input=TEXTS, encoding_format=form)  # type: ignore[arg-type]
        with pytest.raises(openai.BadRequestError, match="writes no text"):
            client.completions.create(model="words", prompt="a")
    rows = [np.frombuffer(b64decode(one.embedding), "<f4")
            if isinstance(one.embedding, str) else np.array(one.embedding)
            for one in answer.data]  # fmt: skip
    np.testing.assert_allclose(np.stack(rows), model.embed(TEXTS), rtol=1e-6)
    assert answer.usage.total_tokens == sum(len(model.tokenizer.encode(text)) for text in TEXTS)


def test_ollamas_client_reads_the_vectors(server: Address, model: arenite.LanguageModel) -> None:
    with ollama.Client(server.url) as client:
        answer = client.embed("words", TEXTS)
        assert client.show("words").capabilities == ["embedding"]
        long = client.embed("words", "a " * 500)
        with pytest.raises(ollama.ResponseError, match="context holds"):
            client.embed("words", "a " * 500, truncate=False)
    np.testing.assert_allclose(np.array(answer.embeddings), model.embed(TEXTS), rtol=1e-6)
    cut = model.embed(["a " * 500], truncate=True)
    np.testing.assert_allclose(np.array(long.embeddings), cut, rtol=1e-6)
