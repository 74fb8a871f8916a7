"""SmolLM2-135M-Instruct in Q4_1, as llama.cpp has it and as exact arithmetic has it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from arenite.generate.model import LanguageModel
from arenite.loading import load
from tests.generate.reference import FIXED_IDS, PASSAGE, PROMPTS, Reference

REFERENCE = Reference.read()
FACTS: dict[str, Any] = REFERENCE.facts["smollm2"]
#: How much further than llama.cpp we may be from exact logits, over all prompts.
CHANCE = 1.25
#: Two best tokens this near to each other may change places: llama.cpp itself is up to 0.9 off.
NEAR = 0.5
#: Of perplexity, against llama.cpp's, which is 0.003 off exact arithmetic's.
PERPLEXITY_SHARE = 0.005


@pytest.fixture(scope="module")
def model(smollm2: Path) -> Iterator[LanguageModel]:
    with load(smollm2, context=1024) as model:
        yield model


def answers(model: LanguageModel, tokens: Sequence[int], n: int) -> Iterator[int]:
    """Greedy: what comes after some tokens."""
    session = model.session()
    logits = session.feed(tokens)
    for _ in range(n):
        best = int(logits.argmax())
        yield best
        logits = session.feed([best])


def error(name: str, logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Against exact arithmetic, of the logits that were kept, given the ones of a vocabulary or of
    those ids; what all have in common changes no probability and is taken away."""
    ids = np.concatenate([REFERENCE.arrays[f"smollm2/{name}/top"], FIXED_IDS])
    kept = logits if len(logits) == len(ids) else logits[ids]
    off = kept - REFERENCE.arrays[f"smollm2/{name}/exact"]
    centred: NDArray[np.float32] = off - off.mean()
    return centred


def exact_margin(name: str) -> float:
    """How far the best exact logit is above the next."""
    second, best = np.sort(REFERENCE.arrays[f"smollm2/{name}/exact"])[-2:]
    return float(best - second)


def test_the_file_is_the_one_that_was_judged(smollm2: Path) -> None:
    assert hashlib.sha256(smollm2.read_bytes()).hexdigest() == FACTS["digest"]


def test_texts_are_the_tokens_of_llama_cpp(model: LanguageModel) -> None:
    tokenizer = model.tokenizer
    for name, text in json.loads(PROMPTS.read_text()).items():
        tokens = tokenizer.encode(text, special=name == "chat", ends=False)
        assert tokens == FACTS["prompts"][name]["tokens"], name
    assert tokenizer.encode(PASSAGE.read_text(), ends=False) == FACTS["passage"]


def test_logits_are_as_near_to_exact_as_those_of_llama_cpp(model: LanguageModel) -> None:
    ours, theirs = [], []
    for name, prompt in FACTS["prompts"].items():
        logits = model.session().feed(prompt["tokens"])
        if int(logits.argmax()) != prompt["exact_best"]:
            assert exact_margin(name) < NEAR, name
        ours.append(error(name, logits))
        theirs.append(error(name, REFERENCE.arrays[f"smollm2/{name}/llama"]))
    assert np.std(ours) < CHANCE * np.std(theirs)
    assert np.abs(ours).max() < CHANCE * np.abs(theirs).max()


def test_answers_are_those_of_llama_cpp_up_to_a_near_tie(model: LanguageModel) -> None:
    agreed = 0
    for name, prompt in FACTS["prompts"].items():
        wanted, margins = prompt["answer"], prompt["margins"]
        for k, token in enumerate(answers(model, prompt["tokens"], len(wanted))):
            if token != wanted[k]:
                assert margins[k] < NEAR, f"{name}: token {k} of the answer"
                break
            agreed += 1
    assert agreed > 300  # the answers say something


def perplexity(model: LanguageModel) -> float:
    """Of the passage, token by token, each after all before it."""
    session, tokens = model.session(), FACTS["passage"]
    total = 0.0
    for token, following in pairwise(tokens):
        logits = session.feed([token]).astype(np.float64)
        best = logits.max()
        total += best + np.log(np.exp(logits - best).sum()) - logits[following]
    return float(np.exp(total / (len(tokens) - 1)))


def test_perplexity_is_that_of_llama_cpp(model: LanguageModel) -> None:
    wanted = pytest.approx(FACTS["perplexity"], rel=PERPLEXITY_SHARE)
    assert perplexity(model) == wanted


def test_keys_and_values_of_8_bits_do_not_show_in_perplexity(smollm2: Path) -> None:
    wanted = pytest.approx(FACTS["perplexity"], rel=PERPLEXITY_SHARE)
    with load(smollm2, context=1024, kv="int8") as model:
        assert perplexity(model) == wanted
