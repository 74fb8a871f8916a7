"""SmolLM2 in an engine: prompts that llama.cpp judged, read together, give what sessions give."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from arenite.loading import load
from arenite.serve import Engine
from tests.generate.reference import Reference

PROMPTS = {
    name: prompt["tokens"] for name, prompt in Reference.read().facts["smollm2"]["prompts"].items()
}


def test_prompts_together_give_what_sessions_give(smollm2: Path) -> None:
    """Sessions are held against llama.cpp and exact arithmetic in tests/generate."""
    options = {"temperature": 0, "max_tokens": 8, "logprobs": 0}
    with Engine(smollm2, slots=8, context=1024, block=48) as engine:
        streams = {name: engine.submit(tokens, **options) for name, tokens in PROMPTS.items()}  # type: ignore[arg-type]
        found = {name: [*stream] for name, stream in streams.items()}
    with load(smollm2, context=1024) as model:
        for name, tokens in PROMPTS.items():
            session = model.session()
            logits = session.feed(tokens)
            for chunk in found[name]:
                wide = logits.astype(np.float64)
                best = int(wide.argmax())
                total = float(wide.max() + np.log(np.exp(wide - wide.max()).sum()))
                assert chunk.token == best, name
                assert chunk.logprob == float(wide[best]) - total, name
                logits = session.feed([best])
