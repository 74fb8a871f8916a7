"""Attention and what belongs to it: RotaryEmbedding, LinearAttention."""
