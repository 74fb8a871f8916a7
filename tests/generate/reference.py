"""What `judge_llama` found: facts in JSON, logits in NPZ, both beside this file."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

FOLDER = Path(__file__).parent
FACTS = FOLDER / "llama_reference.json"
LOGITS = FOLDER / "llama_reference.npz"
PASSAGE = FOLDER / "data" / "passage.txt"
PROMPTS = FOLDER / "data" / "prompts.json"
#: Tiny models are judged after so many tokens.
PREFIXES = (1, 7, 33, 96)
#: Of a large vocabulary these logits are kept, beside the highest.
FIXED_IDS: NDArray[np.int32] = np.linspace(0, 49_151, 256).astype(np.int32)


@dataclass
class Reference:
    """`arrays` by name: `tiny/NAME` is (prefixes, vocabulary), `/kv32` after it where keys and
    values were float32; `smollm2/PROMPT/llama` and `/exact` are logits of the ids in `/top`, then
    of FIXED_IDS."""

    facts: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)

    @classmethod
    def read(cls) -> Reference:
        facts = json.loads(FACTS.read_text())
        with np.load(LOGITS) as stored:
            return cls(facts, dict(stored))

    def write(self) -> None:
        FACTS.write_text(_json(self.facts))
        arrays: dict[str, Any] = dict(self.arrays)
        np.savez_compressed(LOGITS, **arrays)


def _json(facts: dict[str, Any]) -> str:
    """One line a prompt or model, so that changes are seen."""
    lines = json.dumps(facts, indent=1, ensure_ascii=False).split("\n")
    out: list[str] = []
    for line in lines:
        number = line.strip().rstrip(",")
        if out and (number == "]" or number.lstrip("-").replace(".", "").isdigit()):
            out[-1] += line.strip() if number == "]" else f"{line.strip()} "
        else:
            out.append(line)
    return "\n".join(out) + "\n"
