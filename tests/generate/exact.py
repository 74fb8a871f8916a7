"""Models of GGUF files in float64: what the stored weights mean, with nothing rounded on the way.

In: a file, read and dequantised by the gguf package. Out: logits after each token, or the embedding
of a text. Slow and plain, one loop over the layers; it shares no code with Arenite.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import quants
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class ExactModel:
    """The weights of a file in float64, and what they make of tokens."""

    def __init__(self, path: Path) -> None:
        reader = gguf.GGUFReader(path)
        self.keys = {name: field.contents() for name, field in reader.fields.items()}
        self.weights: dict[str, Floats] = {
            tensor.name: quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float64)
            for tensor in reader.tensors
        }
        self.architecture = self.keys["general.architecture"]
        self.n_layers = self.key("block_count")
        self.n_heads = self.key("attention.head_count")
        self.n_kv_heads = self.key("attention.head_count_kv", self.n_heads)
        width = self.key("embedding_length")
        self.head_size = self.key("attention.key_length", width // self.n_heads)

    def key(self, name: str, otherwise: Any = None) -> Any:
        return self.keys.get(f"{self.architecture}.{name}", otherwise)

    def logits(self, tokens: Sequence[int]) -> Floats:
        """(tokens, vocabulary): what follows each token."""
        x = self.weights["token_embd.weight"][list(tokens)]
        epsilon = self.key("attention.layer_norm_rms_epsilon")
        turn = self._turns(len(tokens))
        seen = self._seen(len(tokens))
        for k in range(self.n_layers):
            layer = f"blk.{k}."
            normed = _rms(x, self.weights[layer + "attn_norm.weight"], epsilon)
            x = x + self._attention(layer, normed, turn, seen, epsilon)
            normed = _rms(x, self.weights[layer + "ffn_norm.weight"], epsilon)
            x = x + self._feed_forward(layer, normed)
        x = _rms(x, self.weights["output_norm.weight"], epsilon)
        return x @ self.weights.get("output.weight", self.weights["token_embd.weight"]).T

    def embedding(self, tokens: Sequence[int]) -> Floats:
        """BERT's: the mean over the tokens, of length 1."""
        epsilon = self.key("attention.layer_norm_epsilon")
        x = self.weights["token_embd.weight"][list(tokens)] + self.weights["token_types.weight"][0]
        x = self._layer_norm(
            x + self.weights["position_embd.weight"][: len(tokens)], "token_embd_norm", epsilon
        )
        seen = np.ones((len(tokens), len(tokens)), bool)
        for k in range(self.n_layers):
            layer = f"blk.{k}."
            attended = self._attention(layer, x, None, seen, epsilon)
            x = self._layer_norm(x + attended, layer + "attn_output_norm", epsilon)
            inner = _gelu_tanh(self._affine(layer + "ffn_up", x))
            x = x + self._affine(layer + "ffn_down", inner)
            x = self._layer_norm(x, layer + "layer_output_norm", epsilon)
        mean = x.mean(0)
        made: Floats = mean / np.linalg.norm(mean)
        return made

    def _affine(self, name: str, x: Floats) -> Floats:
        product = x @ self.weights[name + ".weight"].T
        return product + self.weights.get(name + ".bias", np.zeros(()))

    def _layer_norm(self, x: Floats, name: str, epsilon: float) -> Floats:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon)
        made: Floats = scaled * self.weights[name + ".weight"] + self.weights[name + ".bias"]
        return made

    def _attention(
        self, layer: str, x: Floats, turn: Floats | None, seen: NDArray[Any], epsilon: float
    ) -> Floats:
        n = len(x)
        q = self._affine(layer + "attn_q", x).reshape(n, self.n_heads, self.head_size)
        k = self._affine(layer + "attn_k", x).reshape(n, self.n_kv_heads, self.head_size)
        v = self._affine(layer + "attn_v", x).reshape(n, self.n_kv_heads, self.head_size)
        if layer + "attn_q_norm.weight" in self.weights:
            q = _rms(q, self.weights[layer + "attn_q_norm.weight"], epsilon)
            k = _rms(k, self.weights[layer + "attn_k_norm.weight"], epsilon)
        if turn is not None:
            q, k = self._turned(q, turn), self._turned(k, turn)
        group = self.n_heads // self.n_kv_heads
        k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
        scores = q.transpose(1, 0, 2) @ k.transpose(1, 2, 0) / math.sqrt(self.head_size)
        shares = _softmax(np.where(seen, scores, -np.inf))
        mixed = (shares @ v.transpose(1, 0, 2)).transpose(1, 0, 2)  # (places, heads, head size)
        return self._affine(layer + "attn_output", mixed.reshape(n, -1))

    def _seen(self, n: int) -> NDArray[Any]:
        """Which keys (columns) each query (row) looks at."""
        places = np.arange(n)
        behind = places[:, None] - places
        window = self.key("attention.sliding_window", n) or n
        seen: NDArray[Any] = (behind >= 0) & (behind < window)
        return seen

    def _turns(self, n: int) -> Floats:
        """(n, head size / 2): by which complex number each pair is turned at each place."""
        pairs = np.arange(self.head_size // 2)
        base = self.key("rope.freq_base", 10_000.0)
        speeds = base ** (-2.0 * pairs / self.head_size)
        if "rope_freqs.weight" in self.weights:
            speeds = speeds / self.weights["rope_freqs.weight"]
        factor = self.key("rope.scaling.factor", 1.0)
        length = 1.0
        if self.key("rope.scaling.type") == "linear":
            speeds = speeds / factor
        elif self.key("rope.scaling.type") == "yarn":
            # Pairs that turn often in the trained context are kept, slow ones are stretched.
            trained = self.key("rope.scaling.original_context_length")
            low, high = (
                self.head_size * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(base))
                for turns in (32.0, 1.0)
            )
            low, high = max(0, math.floor(low)), min(self.head_size - 1, math.ceil(high))
            stretched = np.clip((pairs - low) / max(0.001, high - low), 0, 1)
            speeds = speeds * (1 - stretched) + speeds / factor * stretched
            length = 1.0 + 0.1 * math.log(factor)
        turns: Floats = length * np.exp(1j * np.arange(n)[:, None] * speeds)
        return turns

    def _turned(self, x: Floats, turn: Floats) -> Floats:
        if self.architecture == "llama":  # pairs of neighbours
            first, second = x[..., 0::2], x[..., 1::2]
        else:  # pairs across the halves
            first, second = np.split(x, 2, -1)
        z = (first + 1j * second) * turn[:, None, :]
        parts = [z.real, z.imag]
        if self.architecture == "llama":
            return np.stack(parts, -1).reshape(x.shape)
        return np.concatenate(parts, -1)

    def _feed_forward(self, layer: str, x: Floats) -> Floats:
        if layer + "ffn_gate_inp.weight" not in self.weights:
            return self._gated(layer, "", x)
        chances = _softmax(x @ self.weights[layer + "ffn_gate_inp.weight"].T)
        best = np.argsort(-chances, axis=-1)[:, : self.key("expert_used_count")]
        shares = np.take_along_axis(chances, best, -1)
        if self.architecture != "qwen2moe":
            shares = shares / shares.sum(-1, keepdims=True)
        names = [f"{layer}ffn_{part}_exps.weight" for part in ("gate", "up", "down")]
        gates, ups, downs = (self.weights[name] for name in names)
        out = np.zeros_like(x)
        for row, (experts, weights) in enumerate(zip(best, shares, strict=True)):
            for expert, share in zip(experts, weights, strict=True):
                inner = _silu(gates[expert] @ x[row]) * (ups[expert] @ x[row])
                out[row] += share * (downs[expert] @ inner)
        if layer + "ffn_gate_inp_shexp.weight" in self.weights:
            gate = x @ self.weights[layer + "ffn_gate_inp_shexp.weight"]
            out += self._gated(layer, "_shexp", x) / (1 + np.exp(-gate))[:, None]
        return out

    def _gated(self, layer: str, suffix: str, x: Floats) -> Floats:
        gate = self._affine(f"{layer}ffn_gate{suffix}", x)
        return self._affine(
            f"{layer}ffn_down{suffix}", _silu(gate) * self._affine(f"{layer}ffn_up{suffix}", x)
        )


def _rms(x: Floats, weight: Floats, epsilon: float) -> Floats:
    made: Floats = x / np.sqrt((x**2).mean(-1, keepdims=True) + epsilon) * weight
    return made


def _silu(x: Floats) -> Floats:
    made: Floats = x / (1 + np.exp(-x))
    return made


def _gelu_tanh(x: Floats) -> Floats:
    """The form that llama.cpp uses for BERT."""
    made: Floats = 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return made


def _softmax(x: Floats) -> Floats:
    shifted = np.exp(x - x.max(-1, keepdims=True))
    shares: Floats = shifted / shifted.sum(-1, keepdims=True)
    return shares
