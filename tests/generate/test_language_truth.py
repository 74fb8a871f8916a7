"""Language models give what llama.cpp gives, and are no further than it from exact arithmetic."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from tests.generate.exact import ExactModel
from tests.generate.gguf_models import TINY, write_tiny
from tests.generate.reference import PREFIXES, Reference

REFERENCE = Reference.read()
TOKENS: list[int] = REFERENCE.facts["tiny"]["tokens"]
DECODERS = [name for name, shape in TINY.items() if shape.architecture != "bert"]
ENCODERS = [name for name in TINY if name not in DECODERS]
#: Largest error of a logit where all weights are float32: the logits spread over some 4.
EXACT_BOUND = 2e-4


@pytest.mark.parametrize("name", TINY)
def test_the_file_that_was_judged_is_the_one_we_write(name: str, tmp_path: Path) -> None:
    digest = hashlib.sha256(write_tiny(name, tmp_path).read_bytes()).hexdigest()
    assert digest == REFERENCE.facts["tiny"]["digests"][name], "run tests.generate.judge_llama tiny"


@pytest.mark.parametrize("name", [name for name in DECODERS if set(TINY[name].weights) == {"F32"}])
def test_the_judges_agree(name: str, tmp_path: Path) -> None:
    exact = ExactModel(write_tiny(name, tmp_path)).logits(TOKENS)
    judged = REFERENCE.arrays[f"tiny/{name}/kv32"]
    np.testing.assert_allclose(judged, exact[[n - 1 for n in PREFIXES]], rtol=0, atol=EXACT_BOUND)
