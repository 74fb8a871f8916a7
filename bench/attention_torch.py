"""PyTorch's side of `bench.attention`."""

from __future__ import annotations

from collections.abc import Callable

import torch

from bench.attention_cases import inputs, work_of


def prepare(case: str, threads: int) -> Callable[[], None]:
    torch.set_num_threads(threads)
    q, k, v, *mask = (torch.from_numpy(array) for array in inputs(case))
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    given = work_of(case)
    attention = torch.nn.functional.scaled_dot_product_attention

    def work() -> None:
        with torch.no_grad():
            attention(
                q,
                k,
                v,
                attn_mask=mask[0] if mask else None,
                is_causal=given.kind == "causal",
                enable_gqa=given.heads != given.groups,
            )

    return work
