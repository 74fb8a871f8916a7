"""What transformers makes of our folders: written once, judged by tests.

    python -m tests.generate.judge_folder

Needs torch and transformers. Writes `folder_reference.npz` beside itself: by the name of a model
its logits after each prefix (of a BERT the embeddings, and under `/texts` those of texts), and
under `/digest` the SHA-256 of its files. Of all-minilm, which is fetched, it has `/texts` alone.
`folder_configs.json` has the configs as transformers writes them, by model.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray

from arenite.fetch import obtain
from tests.generate.folder_models import TEXTS, TINY, write_tiny
from tests.generate.folder_reference import (
    CONFIGS,
    PREFIXES,
    REFERENCE,
    SENTENCES,
    TOKENS,
    digest,
)


def logits(model: torch.nn.Module) -> NDArray[np.float32]:
    """After each prefix."""
    with torch.no_grad():
        rows = [model(torch.tensor([TOKENS[:n]])).logits[0, -1].numpy() for n in PREFIXES]
    return np.stack(rows)


def embedding(model: torch.nn.Module, tokens: list[int], first: bool) -> NDArray[np.float32]:
    """The mean of the last rows, or the first of them, of length 1."""
    with torch.no_grad():
        rows = model(input_ids=torch.tensor([tokens])).last_hidden_state[0]
    row = rows[0] if first else rows.mean(0)
    found: NDArray[np.float32] = (row / row.norm()).numpy()
    return found


def main() -> None:
    arrays: dict[str, Any] = {}
    configs: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, made in TINY.items():
            path = write_tiny(name, Path(folder))
            arrays[f"{name}/digest"] = np.array(digest(path))
            is_bert = made.config["model_type"] == "bert"
            kind = transformers.AutoModel if is_bert else transformers.AutoModelForCausalLM
            # In float32 whatever the weights are kept in.
            model = kind.from_pretrained(
                path, dtype=torch.float32, attn_implementation="eager"
            ).eval()
            configs[name] = json.loads(model.config.to_json_string())
            if not is_bert:
                arrays[name] = logits(model)
            else:
                is_first = bool(made.pooling)
                rows = [embedding(model, TOKENS[:n], is_first) for n in PREFIXES]
                arrays[name] = np.stack(rows)
                tokenizer = transformers.AutoTokenizer.from_pretrained(path)
                ids = [tokenizer(text)["input_ids"] for text in TEXTS]
                rows = [embedding(model, tokens, is_first) for tokens in ids]
                arrays[f"{name}/texts"] = np.stack(rows)
            print(f"{name}: spread {arrays[name].std():.2f}", flush=True)
    path = obtain("all-minilm")
    model = transformers.AutoModel.from_pretrained(path, dtype=torch.float32).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    rows = [embedding(model, tokenizer(text)["input_ids"], False) for text in SENTENCES]
    arrays["all-minilm/texts"] = np.stack(rows)
    np.savez_compressed(REFERENCE, **arrays)
    lines = (f"{json.dumps(name)}: {json.dumps(config)}" for name, config in configs.items())
    CONFIGS.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
