"""The same text gives the same bits, in whatever blocks it is read: quantised tiny models."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, pairwise

import numpy as np
import pytest

import arenite
from arenite.generate import LanguageModel
from tests.generate.gguf_models import TINY, Shape, write_model

CONTEXT = 96
MODELS = {
    "q8_0": TINY["llama-q8_0"],
    "q4_0": TINY["llama-q4_0"],
    "q4_k": TINY["llama-q4_k"],
    "window": Shape(weights=("Q8_0",), window=16),
}


@pytest.fixture(scope="module", params=[*((name, "float16") for name in MODELS), ("q8_0", "int8")])
def model(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LanguageModel]:
    name, kv = request.param
    path = tmp_path_factory.mktemp("models") / f"{name}.gguf"
    write_model(path, MODELS[name])
    with arenite.load(path, context=CONTEXT, block=CONTEXT, kv=kv) as loaded:
        yield loaded


def tokens_of(model: LanguageModel, count: int) -> list[int]:
    rng = np.random.default_rng(11)
    return [int(one) for one in rng.integers(3, model.file.description.n_tokens, count)]


def after_each(model: LanguageModel, tokens: list[int], ends: list[int]) -> dict[int, bytes]:
    """The logits where a feed ends, by how many tokens were read."""
    model.session().feed([2])  # Nothing of the text is kept from before.
    session = model.session()
    return {end: session.feed(tokens[start:end]).tobytes() for start, end in pairwise([0, *ends])}


def test_every_way_to_cut_a_text(model: LanguageModel) -> None:
    tokens = tokens_of(model, 6)
    size = len(tokens)
    whole = {end: after_each(model, tokens, [end])[end] for end in range(1, size + 1)}
    for n_cuts in range(size):
        for cuts in combinations(range(1, size), n_cuts):
            for end, logits in after_each(model, tokens, [*cuts, size]).items():
                assert logits == whole[end], (cuts, end)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 9, 16, 33, 64])
def test_feeds_of_one_size(model: LanguageModel, count: int) -> None:
    tokens = tokens_of(model, CONTEXT)
    [whole] = after_each(model, tokens, [CONTEXT]).values()
    ends = [*range(count, CONTEXT, count), CONTEXT]
    assert after_each(model, tokens, ends)[CONTEXT] == whole
