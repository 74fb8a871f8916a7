"""Models whose experts are MXFP4, as those of gpt-oss are, against exact arithmetic."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from arenite.loading import load
from tests.generate.exact import ExactModel
from tests.generate.gguf_models import TINY, Shape, write_model
from tests.generate.test_language_truth import CHANCE, TOKENS, feed_in_pieces, rms

#: Embeddings and head, then for each of two layers four matrices of attention and three of experts.
MIXED = ("Q8_0",) * 2 + (("Q8_0",) * 4 + ("MXFP4",) * 3) * 2


def error(shape: Shape, path: Path) -> float:
    """How far logits are from exact ones, for tokens fed one by one and many at once."""
    write_model(path, shape)
    exact = ExactModel(path).logits(TOKENS[:40])
    with load(path, context=64) as model:
        assert model.plan.peak_nbytes > 0
        session = model.session()
        one = feed_in_pieces(session, TOKENS[:8], 1)
        many = feed_in_pieces(session, TOKENS[8:40], 32)
    return rms(np.stack([one, many]) - exact[[7, 39]])


@pytest.mark.parametrize("weights", [MIXED, ("MXFP4",)], ids=["experts", "all"])
def test_experts_of_mxfp4_are_as_near_to_exact_as_those_of_q8_0(
    weights: tuple[str, ...], tmp_path: Path
) -> None:
    shape = TINY["qwen3moe-q8_0"]
    found = error(replace(shape, weights=weights), tmp_path / "mxfp4.gguf")
    # Both round what is multiplied to 8 bits in runs of 32, and weights not at all.
    assert 0 < found < CHANCE * error(shape, tmp_path / "q8_0.gguf")
