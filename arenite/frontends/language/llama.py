"""Llama and those built like it: Mistral, SmolLM; Qwen 2 with biases, Qwen 3 with norms of heads.

What a file has of these (biases, norms of queries and keys) is used; experts take the place of the
feed-forward network where the metadata name them.
"""

from __future__ import annotations

from arenite.frontends.language.builder import ModelBuilder
from arenite.frontends.language.experts import mixed
from arenite.ir import Node


def llama(m: ModelBuilder) -> Node:
    """The rows after the last norm."""
    d = m.description
    x = m.embedding("token_embd")
    for layer in m.layers():
        at = f"blk.{layer}"
        h = m.rms_norm(f"{at}.attn_norm", x)
        q, k, v = (
            m.heads(m.linear(f"{at}.attn_{part}", h, count * d.head_size), count)
            for part, count in (("q", d.n_heads), ("k", d.n_kv_heads), ("v", d.n_kv_heads))
        )
        if f"{at}.attn_q_norm.weight" in m.weights:
            q, k = (m.rms_norm(f"{at}.attn_{part}_norm", x) for part, x in (("q", q), ("k", k)))
        seen = m.attend(layer, m.turned(q), m.turned(k), v)
        x = x + m.linear(f"{at}.attn_output", seen, d.width)
        h = m.rms_norm(f"{at}.ffn_norm", x)
        if d.experts is not None and f"{at}.ffn_gate_inp.weight" in m.weights:
            x = x + mixed(m, at, h)
        else:
            x = x + m.gated(at, h)
    return m.rms_norm("output_norm", x)
