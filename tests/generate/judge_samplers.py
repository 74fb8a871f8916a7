"""What llama.cpp's samplers leave of logits, and with which probabilities: written once.

    python -m tests.generate.judge_samplers

Needs llama-cpp-python. Writes `samplers_reference.json` beside itself: for each case the logits,
the options as `Sampling` names them, the tokens before, and the chances that llama.cpp gives. Its
chain is the one of its own programs: bias, penalties, top_k, top_p, min_p, temperature.
"""

from __future__ import annotations

import ctypes
import json
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np

REFERENCE = Path(__file__).with_name("samplers_reference.json")
N_TOKENS = 150
N_RECENT = 100
DEFAULTS: dict[str, Any] = {
    "temperature": 0.8,
    "top_k": 40,
    "top_p": 0.95,
    "min_p": 0.05,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "penalty_window": 64,
    "logit_bias": {},
}
OPEN: dict[str, Any] = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "temperature": 1.0}
CASES: list[dict[str, Any]] = [
    {},
    OPEN,
    OPEN | {"temperature": 1.7},
    OPEN | {"top_k": 7},
    OPEN | {"top_p": 0.5},
    OPEN | {"top_p": 0.999},
    OPEN | {"min_p": 0.2},
    OPEN | {"top_k": 30, "top_p": 0.6, "temperature": 0.3},
    OPEN | {"top_p": 0.9, "min_p": 0.1, "temperature": 2.0},
    OPEN | {"repetition_penalty": 1.3},
    OPEN | {"repetition_penalty": 0.8, "penalty_window": 10},
    OPEN | {"presence_penalty": 0.7, "frequency_penalty": 0.4, "penalty_window": 90},
    {"repetition_penalty": 1.1, "presence_penalty": -0.5, "top_k": 12},
    {"logit_bias": {3: 4.5, 70: -2.0}},
    {"logit_bias": {10: 2.0}, "repetition_penalty": 1.5, "frequency_penalty": 0.1},
]


def chances(logits: list[float], recent: list[int], options: dict[str, Any]) -> dict[int, float]:
    """The tokens that llama.cpp's chain leaves, with their probabilities."""
    chain = llama_cpp.llama_sampler_chain_init(llama_cpp.llama_sampler_chain_default_params())
    bias = options["logit_bias"]
    pairs = (llama_cpp.llama_logit_bias * len(bias))(*bias.items())
    penalties = llama_cpp.llama_sampler_init_penalties(
        len(logits),
        options["penalty_window"],
        options["repetition_penalty"],
        options["frequency_penalty"],
        options["presence_penalty"],
    )
    for sampler in (
        llama_cpp.llama_sampler_init_logit_bias(len(logits), len(bias), pairs),
        penalties,
        llama_cpp.llama_sampler_init_top_k(options["top_k"]),
        llama_cpp.llama_sampler_init_top_p(options["top_p"], 1),
        llama_cpp.llama_sampler_init_min_p(options["min_p"], 1),
        llama_cpp.llama_sampler_init_temp(options["temperature"]),
        llama_cpp.llama_sampler_init_dist(1),
    ):
        llama_cpp.llama_sampler_chain_add(chain, sampler)
    for token in recent:
        llama_cpp.llama_sampler_accept(penalties, token)
    rows = (llama_cpp.llama_token_data * len(logits))()
    for token, logit in enumerate(logits):
        rows[token].id, rows[token].logit, rows[token].p = token, logit, 0.0
    held = llama_cpp.llama_token_data_array(rows, len(logits), -1, False)
    llama_cpp.llama_sampler_apply(chain, ctypes.byref(held))
    found = {held.data[k].id: held.data[k].p for k in range(held.size)}
    llama_cpp.llama_sampler_free(chain)
    return found


def main() -> None:
    random = np.random.default_rng(20)
    cases = []
    for changes in CASES:
        options = DEFAULTS | changes
        logits = random.normal(0, 2.5, N_TOKENS).round(3).tolist()
        recent = random.integers(0, N_TOKENS // 3, N_RECENT).tolist()
        found = chances(logits, recent, options)
        cases.append(
            {
                "options": options | {"logit_bias": list(options["logit_bias"].items())},
                "logits": logits,
                "recent": recent,
                "chances": sorted((token, round(p, 7)) for token, p in found.items()),
            }
        )
    facts = {"llama_cpp_python": llama_cpp.__version__, "cases": cases}
    REFERENCE.write_text(json.dumps(facts, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
