"""SmolLM2 on WebGPU follows the one on the CPU, from tokens to logits.

Both quantise activations to 8 bits and sum in another order: see `tests/backends/c/test_smollm2`.
`BOUND` is the greatest difference of a logit, given the same tokens; where greedy texts part, the
CPU's two best logits lie within twice of it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import arenite
from arenite.generate.model import LanguageModel
from tests.backends.webgpu.runner import loaded, webgpu
from tests.backends.webgpu.test_language import fed, written

#: The logits of a token have a standard deviation of about 4.
BOUND = 2.0
MEAN_BOUND = 0.4
N_WRITTEN = 8
#: Of a layer, and of what is around the layers.
MAX_DISPATCHES = 30 * 11 + 8


def test_it_follows_the_cpus(smollm2: Path, request: pytest.FixtureRequest) -> None:
    if webgpu().is_cpu and not request.config.getoption("--full"):
        pytest.skip("a CPU that stands in for a GPU takes minutes for it; --full runs it")
    with arenite.load(smollm2, context=32, block=8, device="webgpu") as model:
        assert isinstance(model, LanguageModel)
        prompt = model.tokenizer.encode("The capital of France is")
        text = written(model, prompt, N_WRITTEN)
        tokens = [*prompt, *text]
        found = fed(model, tokens, len(prompt))
        table = loaded(model.executable).bound_table({"tokens": 1, "keys": len(tokens)})
        assert table.n_dispatches <= MAX_DISPATCHES
        model.executable.verify()
    with arenite.load(smollm2, context=32) as model:
        assert isinstance(model, LanguageModel)
        wanted = fed(model, tokens, len(prompt))
    differences = np.abs(found - wanted)
    assert differences.max() < BOUND
    assert differences.mean() < MEAN_BOUND
    for logits, token in zip(wanted, text, strict=False):
        if int(np.argmax(logits)) != token:
            first, second = np.sort(logits)[-2:][::-1]
            assert first - second < 2 * BOUND
            break
