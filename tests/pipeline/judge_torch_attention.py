"""Writes `torch_attention.npz`: what PyTorch makes of queries, keys and values.

    python -m tests.pipeline.judge_torch_attention

Made with PyTorch 2.13.0 on the CPU, in float64 from float32 inputs. Inputs are made from seeds, by
`attention_inputs.py`, so that results alone are kept, a part of each.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.pipeline.attention_inputs import CASES, inputs, part


def main() -> None:
    kept: dict[str, Any] = {}
    for name, case in CASES.items():
        q, k, v, *mask = (torch.from_numpy(array) for array in inputs(case))
        if mask and mask[0].dtype != torch.bool:
            mask[0] = mask[0].double()
        if case.window:
            behind = torch.arange(case.queries)[:, None] - torch.arange(case.keys)
            mask = [(behind >= 0) & (behind < case.window)]
        result = torch.nn.functional.scaled_dot_product_attention(
            q.double(),
            k.double(),
            v.double(),
            attn_mask=mask[0] if mask else None,
            is_causal=case.causal and not case.window,
            enable_gqa=case.heads != case.groups,
        )
        kept[name] = part(result.numpy())
    path = Path(__file__).with_name("torch_attention.npz")
    np.savez_compressed(path, **kept)
    print(f"{path}: {path.stat().st_size} bytes, torch {torch.__version__}")


if __name__ == "__main__":
    main()
