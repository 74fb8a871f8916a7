"""Hugging Face folders give what transformers gives, for every architecture and config spelling."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from arenite.errors import AreniteError, InvalidArgument
from arenite.fetch import obtain
from arenite.frontends.language import LanguageFile
from arenite.generate.model import LanguageModel
from arenite.loading import load
from tests.conftest import USERS_FOLDER
from tests.generate.folder_models import TEXTS, TINY, write_tiny
from tests.generate.folder_reference import (
    CONFIGS,
    PREFIXES,
    REFERENCE,
    SENTENCES,
    TOKENS,
    digest,
)

with np.load(REFERENCE) as stored:
    JUDGED: dict[str, NDArray[np.float32]] = dict(stored)
ENCODERS = [name for name, made in TINY.items() if made.config["model_type"] == "bert"]
DECODERS = [name for name in TINY if name not in ENCODERS]
#: The largest error of logits that spread over some 4, in float32 on both sides.
BOUND = 1e-4
#: With keys and values in float16.
FLOAT16_KV_BOUND = 5e-2
#: The largest error of an embedding of length 1.
EMBEDDING_BOUND = 1e-5


def prefix_logits(model: LanguageModel) -> NDArray[np.float32]:
    """Each prefix fed at once."""
    session, rows = model.session(), []
    for n in PREFIXES:
        session.reset()
        rows.append(session.feed(TOKENS[:n]))
    return np.stack(rows)


@pytest.mark.parametrize("name", TINY)
def test_the_folder_that_was_judged_is_the_one_we_write(name: str, tmp_path: Path) -> None:
    found = digest(write_tiny(name, tmp_path))
    assert found == JUDGED[f"{name}/digest"], "run tests.generate.judge_folder"


@pytest.mark.parametrize("name", DECODERS)
def test_logits_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    with load(write_tiny(name, tmp_path), context=128, threads=1, kv="float32") as model:
        ours = prefix_logits(model)
    np.testing.assert_allclose(ours, JUDGED[name], rtol=0, atol=BOUND)


@pytest.mark.parametrize("name", TINY)
def test_configs_as_transformers_writes_them_say_the_same(name: str, tmp_path: Path) -> None:
    path = write_tiny(name, tmp_path)
    ours = LanguageFile.open(path).description
    (path / "config.json").write_text(json.dumps(json.loads(CONFIGS.read_text())[name]))
    theirs = LanguageFile.open(path).description
    # That of a BERT says that its head is tied; it has none here.
    assert theirs._replace(is_tied=ours.is_tied) == ours
    assert ours.architecture == "bert" or theirs.is_tied == ours.is_tied


def test_variants_of_a_model_are_different_models() -> None:
    """Scalings, windows and experts change logits by far more than the bound, so that one left out
    would be seen."""
    for plain, changed in (
        ("llama-biases", "llama-linear"),
        ("llama-linear", "llama-3"),
        ("llama-yarn", "llama-yarn-factor"),
        ("qwen2", "qwen2-window"),
        ("mistral", "mistral-whole"),
    ):
        assert np.abs(JUDGED[plain] - JUDGED[changed])[-1].max() > 1e3 * BOUND


@pytest.mark.parametrize("name", ["llama-3", "mistral", "qwen2_moe"])
def test_tokens_one_by_one_with_keys_and_values_in_float16(name: str, tmp_path: Path) -> None:
    with load(write_tiny(name, tmp_path), context=128, threads=2) as model:
        session, rows = model.session(), []
        for n, token in enumerate(TOKENS, 1):
            logits = session.feed([token])
            if n in PREFIXES:
                rows.append(logits)
    np.testing.assert_allclose(np.stack(rows), JUDGED[name], rtol=0, atol=FLOAT16_KV_BOUND)


def test_a_file_of_the_folder_opens_it_too(tmp_path: Path) -> None:
    folder = write_tiny("llama-shards", tmp_path)
    with load(folder / "model.safetensors.index.json", context=128, kv="float32") as model:
        ours = prefix_logits(model)
    np.testing.assert_allclose(ours, JUDGED["llama-shards"], rtol=0, atol=BOUND)


@pytest.mark.parametrize("name", ENCODERS)
def test_embeddings_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    with load(write_tiny(name, tmp_path), threads=1) as model:
        rows = [model.executable(np.array(TOKENS[:n], np.int64))[0] for n in PREFIXES]
        of_texts = model.embed(TEXTS)
        alone = model.embed(TEXTS[1])
        no_text: Any
        for no_text in (None, 5, [5], b"bytes", [None]):
            with pytest.raises(InvalidArgument, match="a text is needed"):
                model.embed(no_text)
    np.testing.assert_allclose(np.concatenate(rows), JUDGED[name], rtol=0, atol=EMBEDDING_BOUND)
    np.testing.assert_allclose(of_texts, JUDGED[f"{name}/texts"], rtol=0, atol=EMBEDDING_BOUND)
    np.testing.assert_array_equal(alone, of_texts[1:2])
    np.testing.assert_allclose(np.linalg.norm(of_texts, axis=1), 1.0, rtol=1e-6)


@pytest.fixture(scope="module")
def minilm() -> Path:
    """all-MiniLM-L6-v2, from the user's own models, fetched where it is not there (84 MB)."""
    with pytest.MonkeyPatch.context() as patch:
        if USERS_FOLDER is None:
            patch.delenv("ARENITE_CACHE_DIR")
        else:
            patch.setenv("ARENITE_CACHE_DIR", USERS_FOLDER)
        try:
            return obtain("all-minilm")
        except AreniteError as error:
            pytest.fail(f"this test needs a download of 84 MB, `arenite pull all-minilm`: {error}")


def test_a_real_model_makes_the_embeddings_of_transformers(minilm: Path) -> None:
    with load(minilm) as model:
        rows = model.embed(SENTENCES)
    np.testing.assert_allclose(rows, JUDGED["all-minilm/texts"], rtol=0, atol=EMBEDDING_BOUND)
    near, far = rows[0] @ rows[1], rows[0] @ rows[2]
    assert near > 0.5 > 0.2 > far
