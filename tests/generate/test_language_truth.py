"""Tiny models of each architecture and type give what llama.cpp gives: all are compared with exact
arithmetic, and we may not be further from it than llama.cpp is."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from arenite.generate.model import LanguageModel
from arenite.generate.session import Session
from arenite.loading import load
from tests.generate.exact import ExactModel
from tests.generate.gguf_models import TINY, write_tiny
from tests.generate.reference import PREFIXES, Reference

REFERENCE = Reference.read()
TOKENS: list[int] = REFERENCE.facts["tiny"]["tokens"]
DECODERS = [name for name, shape in TINY.items() if shape.architecture != "bert"]
ENCODERS = [name for name in TINY if name not in DECODERS]
FLOAT32 = [name for name in DECODERS if set(TINY[name].weights) == {"F32"}]
#: Logits spread over some 4; these are root mean squares of errors.
FLOAT32_BOUND = 2e-5
FLOAT16_KV_BOUND = 4e-3
INT8_KV_BOUND = 0.1
#: Rounding is chance: we are as good as llama.cpp up to this factor.
CHANCE = 1.25


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tiny")


class ExactLogits(dict[str, NDArray[np.float64]]):
    """After the judged prefixes, by model; computed when they are asked for."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def __missing__(self, name: str) -> NDArray[np.float64]:
        rows = [n - 1 for n in PREFIXES]
        self[name] = ExactModel(written(name, self.folder)).logits(TOKENS)[rows]
        return self[name]


@pytest.fixture(scope="module")
def exact_logits(folder: Path) -> ExactLogits:
    return ExactLogits(folder)


def written(name: str, folder: Path) -> Path:
    path = folder / f"{name}.gguf"
    return path if path.exists() else write_tiny(name, folder)  # a model may have it open


def loaded(name: str, folder: Path, threads: int = 1, kv: str = "float16") -> LanguageModel:
    path = written(name, folder)
    return load(path, kind="language", context=128, threads=threads, kv=kv)


def prefix_logits(model: LanguageModel) -> NDArray[np.float32]:
    """Each prefix fed at once."""
    session, rows = model.session(), []
    for n in PREFIXES:
        session.reset()
        rows.append(session.feed(TOKENS[:n]))
    return np.stack(rows)


def rms(error: NDArray[np.floating]) -> float:
    return float(np.sqrt((error**2).mean()))


@pytest.mark.parametrize("name", TINY)
def test_the_file_that_was_judged_is_the_one_we_write(name: str, tmp_path: Path) -> None:
    digest = hashlib.sha256(write_tiny(name, tmp_path).read_bytes()).hexdigest()
    assert digest == REFERENCE.facts["tiny"]["digests"][name], "run tests.generate.judge_llama tiny"


@pytest.mark.parametrize("name", FLOAT32)
def test_the_judges_agree(name: str, exact_logits: ExactLogits) -> None:
    judged = REFERENCE.arrays[f"tiny/{name}/kv32"]
    assert rms(judged - exact_logits[name]) < FLOAT32_BOUND


@pytest.mark.parametrize("name", DECODERS)
def test_we_are_as_near_to_exact_as_llama_cpp(
    name: str, folder: Path, exact_logits: ExactLogits
) -> None:
    theirs = rms(REFERENCE.arrays[f"tiny/{name}"] - exact_logits[name])
    with loaded(name, folder) as model:
        ours = rms(prefix_logits(model) - exact_logits[name])
    assert ours < max(CHANCE * theirs, FLOAT16_KV_BOUND)


@pytest.mark.parametrize("name", ["llama", "llama-yarn", "mistral", "qwen3"])
def test_with_float32_throughout_we_are_exact(
    name: str, folder: Path, exact_logits: ExactLogits
) -> None:
    with loaded(name, folder, kv="float32") as model:
        assert rms(prefix_logits(model) - exact_logits[name]) < FLOAT32_BOUND


@pytest.mark.parametrize("name", ["llama", "mistral", "qwen3"])
def test_keys_and_values_of_8_bits_stay_near(
    name: str, folder: Path, exact_logits: ExactLogits
) -> None:
    with loaded(name, folder, kv="int8") as model:
        assert rms(prefix_logits(model) - exact_logits[name]) < INT8_KV_BOUND


@pytest.mark.parametrize(
    "name", ["llama", "llama-q4_1", "llama-many", "mistral", "qwen3", "qwen3moe-q8_0"]
)
def test_tokens_fed_in_any_pieces_give_the_same(
    name: str, folder: Path, exact_logits: ExactLogits
) -> None:
    theirs = rms(REFERENCE.arrays[f"tiny/{name}"] - exact_logits[name])
    with loaded(name, folder) as model:
        session = model.session()
        ours = np.stack(
            [
                feed_in_pieces(session, TOKENS[: PREFIXES[0]], 1),
                feed_in_pieces(session, TOKENS[PREFIXES[0] : PREFIXES[1]], 1),
                feed_in_pieces(session, TOKENS[PREFIXES[1] : PREFIXES[2]], 5),
                feed_in_pieces(session, TOKENS[PREFIXES[2] : PREFIXES[3]], 21),
            ]
        )
    assert rms(ours - exact_logits[name]) < max(CHANCE * theirs, FLOAT16_KV_BOUND)


def feed_in_pieces(session: Session, tokens: Sequence[int], n: int) -> NDArray[np.float32]:
    for k in range(0, len(tokens), n):
        logits = session.feed(tokens[k : k + n])
    return logits


@pytest.mark.parametrize("name", ["llama-q4_1", "llama-many", "qwen3moe-q8_0"])
def test_the_number_of_threads_changes_no_bit(name: str, folder: Path) -> None:
    with loaded(name, folder, threads=1) as one, loaded(name, folder, threads=2) as two:
        np.testing.assert_array_equal(prefix_logits(one), prefix_logits(two))


@pytest.mark.parametrize("name", ENCODERS)
def test_embeddings_are_as_near_to_exact_as_llama_cpps(name: str, folder: Path) -> None:
    path = write_tiny(name, folder)
    exact = ExactModel(path)
    wanted = np.stack([exact.embedding(TOKENS[:n]) for n in PREFIXES])
    theirs = rms(REFERENCE.arrays[f"tiny/{name}"] - wanted)
    with load(path, threads=1) as model:
        rows = [model.executable(np.array(TOKENS[:n], np.int64))[0] for n in PREFIXES]
    assert rms(np.concatenate(rows) - wanted) < CHANCE * theirs
