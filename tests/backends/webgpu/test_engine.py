"""Many texts at once on the device: each is what the CPU's engine makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arenite.dtype import BY_NAME
from arenite.ir import graph_input, make, reference
from arenite.ir.graph import Graph
from arenite.serve import Chunk, Engine
from tests.backends.webgpu.runner import run, webgpu
from tests.generate.gguf_models import TINY, write_model

#: Of logarithms of probabilities, as those of sessions (`test_language.py`).
BOUND = 0.01
PAGE = 32


def prompt_of(count: int, seed: int) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(3, 320, count)]


def texts_of(path: Path, device: str) -> tuple[list[list[Chunk]], int]:
    """Three texts at once, then one that begins as the first does; tokens that were not read
    again."""
    options: dict[str, Any] = {"temperature": 0, "max_tokens": 4, "logprobs": 0}
    with Engine(path, slots=3, context=64, block=24, device=device) as engine:
        prompts = [prompt_of(count, seed=count) for count in (40, 21, 5)]
        streams = [engine.submit(prompt, **options) for prompt in prompts]
        found = [[*stream] for stream in streams]
        found.append([*engine.submit([*prompts[0], 7, 8], **options)])
        return found, engine.stats().reused_tokens


@pytest.mark.parametrize("name", ["llama-f16", "llama-q8_0"])
def test_texts_that_are_made_together_are_those_of_the_cpu(name: str, tmp_path: Path) -> None:
    webgpu()
    write_model(tmp_path / "model.gguf", TINY[name])
    (wanted, n_reused), (found, n_reused_too) = (
        texts_of(tmp_path / "model.gguf", device) for device in ("cpu", "webgpu")
    )
    assert n_reused == n_reused_too == PAGE
    for text, other in zip(wanted, found, strict=True):
        for one, two in zip(text, other, strict=True):
            assert one.logprob is not None
            assert two.logprob is not None
            assert abs(one.logprob - two.logprob) <= BOUND
            if one.token != two.token:
                break  # both are as likely: what follows is another text


@pytest.mark.parametrize("name", ["llama-f16", "llama-q8_0"])
def test_a_seeded_text_is_the_same_alone_and_among_others(name: str, tmp_path: Path) -> None:
    """Its tokens, and the bits of their likelihoods: whoever is beside it, in whichever blocks its
    prompt is read."""
    webgpu()
    write_model(tmp_path / "model.gguf", TINY[name])
    options: dict[str, Any] = {"temperature": 1, "seed": 5, "max_tokens": 6, "logprobs": 0}
    with Engine(tmp_path / "model.gguf", slots=6, context=64, block=24, device="webgpu") as engine:
        prompt = prompt_of(29, seed=9)
        alone = [*engine.submit(prompt, **options)]
        others = [
            engine.submit(prompt_of(count, seed=count), **{**options, "seed": count})
            for count in (40, 21, 5, 33, 1)
        ]
        among = [*engine.submit(prompt, **options)]
        for other in others:
            list(other)
        again = [*engine.submit(prompt, **options)]  # of which pages are kept
    assert len(alone) == 6
    assert [(one.token, one.logprob) for one in alone] == [
        (one.token, one.logprob) for one in among
    ]
    assert [(one.token, one.logprob) for one in alone] == [
        (one.token, one.logprob) for one in again
    ]


@pytest.mark.parametrize("places", [[5, 1, 9], [2, 3, 4], [0, 11, 10]])
def test_rows_go_each_to_a_place_of_its_own(places: list[int]) -> None:
    webgpu()
    data = graph_input("data", 0, (12, 4), BY_NAME["float32"])
    rows = graph_input("rows", 1, (3, 4), BY_NAME["float32"])
    at = graph_input("at", 2, (3,), BY_NAME["int32"])
    node = make("update_slice", data, make("exp", rows), at, axis=0)
    rng = np.random.default_rng(0)
    arrays = [
        rng.normal(size=(12, 4)).astype(np.float32),
        rng.normal(size=(3, 4)).astype(np.float32),
        np.array(places, np.int32),
    ]
    [wanted] = reference.evaluate(Graph.of([node]), list(arrays))
    np.testing.assert_allclose(run([node], *arrays)[0], wanted, rtol=1e-6)
