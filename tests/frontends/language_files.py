"""The smallest language models that can be written, to be damaged: GGUF byte by byte, and folders.

Weights are zeros: what is tested is what a file says, not what it computes.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from tests.frontends.gguf_files import Layout, Tensor, array, text

U32, I32, F32, FLAG, TEXT, ARRAY, U64, I64, F64 = 4, 5, 6, 7, 8, 9, 10, 11, 12
CODES = {U32: "I", I32: "i", F32: "f", FLAG: "B", U64: "Q", I64: "q", F64: "d"}
#: A kind of value and the value; of an array the kind of its elements and the elements.
Value = tuple[int, Any]

WIDTH, HEADS, KV_HEADS, HEAD_SIZE, FFN, N_TOKENS, CONTEXT, LAYERS = 32, 2, 1, 16, 64, 48, 64, 2
#: Numbers of types in GGUF, the elements of a block and its bytes.
GGML_F32, GGML_I32, GGML_Q4_0, GGML_Q8_0, GGML_Q4_K = 0, 26, 2, 8, 12
SIZES = {
    GGML_F32: (1, 4),
    GGML_I32: (1, 4),
    GGML_Q4_0: (32, 18),
    GGML_Q8_0: (32, 34),
    GGML_Q4_K: (256, 144),
}


def encoded(value: Value) -> tuple[int, bytes]:
    """The kind and the bytes of a value."""
    kind, content = value
    if kind == TEXT:
        return kind, text(content)
    if kind != ARRAY:
        return kind, struct.pack("<" + CODES[kind], content)
    inner, elements = content
    return kind, array(inner, len(elements), b"".join(encoded((inner, e))[1] for e in elements))


def llama_keys() -> dict[str, Value]:
    return {
        "general.architecture": (TEXT, "llama"),
        "llama.vocab_size": (U32, N_TOKENS),
        "llama.context_length": (U32, CONTEXT),
        "llama.embedding_length": (U32, WIDTH),
        "llama.block_count": (U32, LAYERS),
        "llama.feed_forward_length": (U32, FFN),
        "llama.attention.head_count": (U32, HEADS),
        "llama.attention.head_count_kv": (U32, KV_HEADS),
        "llama.attention.key_length": (U32, HEAD_SIZE),
        "llama.attention.value_length": (U32, HEAD_SIZE),
        "llama.attention.layer_norm_rms_epsilon": (F32, 1e-5),
        "llama.rope.dimension_count": (U32, HEAD_SIZE),
        "llama.rope.freq_base": (F32, 1e4),
        "llama.rope.scaling.type": (TEXT, "yarn"),
        "llama.rope.scaling.factor": (F32, 2.0),
        "llama.rope.scaling.original_context_length": (U32, 32),
        "llama.attention.sliding_window": (U32, 16),
    }


def llama_tensors() -> dict[str, Tensor]:
    """Sizes as in the file: the last axis first."""
    heads, kv = HEADS * HEAD_SIZE, KV_HEADS * HEAD_SIZE
    sizes: dict[str, tuple[int, ...]] = {
        "token_embd": (WIDTH, N_TOKENS),
        "output_norm": (WIDTH,),
        "output": (WIDTH, N_TOKENS),
    }
    for k in range(LAYERS):
        parts = {"attn_norm": (WIDTH,), "attn_q": (WIDTH, heads), "attn_k": (WIDTH, kv)}
        parts |= {"attn_v": (WIDTH, kv), "attn_output": (heads, WIDTH), "ffn_norm": (WIDTH,)}
        parts |= {"ffn_gate": (WIDTH, FFN), "ffn_up": (WIDTH, FFN), "ffn_down": (FFN, WIDTH)}
        sizes |= {f"blk.{k}.{name}": shape for name, shape in parts.items()}
    return {f"{name}.weight": Tensor(f"{name}.weight", shape) for name, shape in sizes.items()}


@dataclass
class GgufModel:
    """A GGUF file to be; None for a key or a tensor takes it away."""

    keys: dict[str, Value | None] = field(default_factory=dict)
    tensors: dict[str, Tensor | None] = field(default_factory=dict)

    def write(self, path: Path) -> Path:
        keys = {**llama_keys(), **self.keys}
        tensors = [t for t in {**llama_tensors(), **self.tensors}.values() if t is not None]
        end = 0
        for tensor in tensors:
            length, nbytes = SIZES[tensor.kind]
            tensor.offset = end
            end += -(-int(np.prod(tensor.sizes)) // length) * nbytes
            end += -end % 32
        layout = Layout(
            [(name, *encoded(value)) for name, value in keys.items() if value is not None],
            tensors,
            bytes(end),
        )
        return layout.write(path)


def folder_config(kind: str = "llama") -> dict[str, Any]:
    config: dict[str, Any] = {
        "model_type": kind,
        "hidden_size": WIDTH,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_SIZE,
        "vocab_size": N_TOKENS,
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "rope_theta": 1e4,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 2.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        },
        "sliding_window": 16,
        "use_sliding_window": False,
    }
    if kind.endswith("moe"):
        config |= {"num_experts": 4, "num_experts_per_tok": 2, "norm_topk_prob": True}
    return config


def folder_tensors(kind: str = "llama") -> dict[str, NDArray[Any]]:
    heads, kv = HEADS * HEAD_SIZE, KV_HEADS * HEAD_SIZE
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (N_TOKENS, WIDTH),
        "model.norm.weight": (WIDTH,),
        "lm_head.weight": (N_TOKENS, WIDTH),
    }
    for k in range(LAYERS):
        at = f"model.layers.{k}"
        shapes |= {f"{at}.{n}_layernorm.weight": (WIDTH,) for n in ("input", "post_attention")}
        rows = {"q": (heads, WIDTH), "k": (kv, WIDTH), "v": (kv, WIDTH), "o": (WIDTH, heads)}
        shapes |= {f"{at}.self_attn.{n}_proj.weight": shape for n, shape in rows.items()}
        network = {"gate": (FFN, WIDTH), "up": (FFN, WIDTH), "down": (WIDTH, FFN)}
        if kind.endswith("moe"):
            shapes[f"{at}.mlp.gate.weight"] = (4, WIDTH)
            places = [f"{at}.mlp.experts.{expert}" for expert in range(4)]
        else:
            places = [f"{at}.mlp"]
        shapes |= {f"{p}.{n}_proj.weight": shape for p in places for n, shape in network.items()}
    return {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}


def write_folder(
    path: Path,
    kind: str = "llama",
    config: dict[str, Any] | str | None = None,
    tensors: dict[str, NDArray[Any] | None] | None = None,
) -> Path:
    """A folder with some of its config (or all of it, as text) and some of its tensors changed."""
    path.mkdir(parents=True, exist_ok=True)
    whole = config if isinstance(config, str) else json.dumps(folder_config(kind) | (config or {}))
    (path / "config.json").write_text(whole)
    changed = {**folder_tensors(kind), **(tensors or {})}
    kept = {name: tensor for name, tensor in changed.items() if tensor is not None}
    save_file(kept, path / "model.safetensors")
    return path
