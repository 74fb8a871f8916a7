"""BERT: every token sees every other; one vector of a text comes out."""

from __future__ import annotations

from arenite.frontends.language.builder import ModelBuilder
from arenite.ir import Node
from arenite.ir.compose.neural import gelu


def bert(m: ModelBuilder) -> Node:
    """The rows of the last layer."""
    d = m.description
    x = m.embedding("token_embd") + m.places("position_embd", d.context)
    x = m.layer_norm("token_embd_norm", x + m.row("token_types", 0))
    for layer in m.layers():
        at = f"blk.{layer}"
        q, k, v = (
            m.heads(m.linear(f"{at}.attn_{part}", x, d.n_heads * d.head_size), d.n_heads)
            for part in "qkv"
        )
        seen = m.attend_all(layer, q, k, v)
        x = x + m.linear(f"{at}.attn_output", seen, d.width)
        x = m.layer_norm(f"{at}.attn_output_norm", x)
        up = gelu(m.linear(f"{at}.ffn_up", x, m.hidden_size(f"{at}.ffn_up")))
        x = x + m.linear(f"{at}.ffn_down", up, d.width)
        x = m.layer_norm(f"{at}.layer_output_norm", x)
    return x
