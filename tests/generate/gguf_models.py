"""Tiny language models for tests, written by the gguf package: the same bytes on every run.

In: the name of one of `TINY`. Out: a GGUF file with random weights that llama.cpp loads too, and a
tokenizer of 320 tokens. `judge_llama` stores what llama.cpp makes of each, and the file's digest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType, quants
from numpy.typing import NDArray

N_TOKENS = 320
#: (generator, sizes, type, deviation) to the bytes of a matrix.
Weights = Callable[
    [np.random.Generator, tuple[int, ...], GGMLQuantizationType, float], NDArray[Any]
]


@dataclass(frozen=True)
class Shape:
    """What a model is: sizes, the type of each matrix in turn, and what its architecture adds."""

    architecture: str = "llama"
    width: int = 128
    n_layers: int = 2
    n_heads: int = 4
    n_kv_heads: int = 2
    head_size: int = 32
    ffn: int = 192
    n_tokens: int = N_TOKENS
    context: int = 256
    weights: tuple[str, ...] = ("F32",)
    tied: bool = False
    rope_base: float = 10_000.0
    rope_scaling: str = ""
    rope_factor: float = 1.0
    rope_context: int = 0  # what the model was trained with, before scaling
    rope_freqs: bool = False  # a tensor of factors, as Llama 3 has it
    window: int = 0
    n_experts: int = 0
    n_experts_used: int = 0
    expert_ffn: int = 0
    shared_ffn: int = 0
    seed: int = 1


_WIDE = Shape(width=256, n_heads=4, n_kv_heads=1, head_size=64, ffn=512)
_MOE = Shape(n_experts=8, n_experts_used=2, expert_ffn=96, ffn=192)


def _like(shape: Shape, **changes: Any) -> Shape:
    return Shape(**{**shape.__dict__, **changes})


TINY: dict[str, Shape] = {
    "llama": Shape(),
    "llama-tied": Shape(tied=True, rope_base=500_000.0),
    "llama-linear": Shape(rope_scaling="linear", rope_factor=4.0, rope_context=64),
    "llama-yarn": Shape(
        rope_scaling="yarn", rope_factor=8.0, rope_context=32, rope_base=1000.0, head_size=64
    ),
    "llama-freqs": Shape(rope_freqs=True, rope_base=500_000.0),
    "llama-f16": Shape(weights=("F16",)),
    "llama-bf16": Shape(weights=("BF16",)),
    "llama-q4_0": Shape(weights=("Q4_0",)),
    "llama-q4_1": Shape(weights=("Q4_1",), tied=True),
    "llama-q8_0": Shape(weights=("Q8_0",)),
    "llama-q4_k": _like(_WIDE, weights=("Q4_K", "Q4_K", "Q6_K")),
    "llama-many": _like(
        _WIDE, weights=tuple("Q2_K Q3_K Q5_K Q6_K Q5_0 Q5_1 Q8_0 Q4_K F16 IQ4_XS IQ4_NL".split())
    ),
    "mistral": Shape(window=16),
    "mixtral": _like(_MOE, expert_ffn=_MOE.ffn),
    "qwen2": Shape("qwen2", tied=True, rope_base=1_000_000.0),
    "qwen2-q4_0": Shape("qwen2", weights=("Q4_0",)),
    "qwen2-yarn": Shape("qwen2", rope_scaling="yarn", rope_factor=4.0, rope_context=64),
    "qwen3": Shape("qwen3", head_size=64, tied=True, rope_base=1_000_000.0),
    "qwen2moe": _like(_MOE, architecture="qwen2moe", shared_ffn=160),
    "qwen3moe": _like(_MOE, architecture="qwen3moe", head_size=64),
    "qwen3moe-q8_0": _like(_MOE, architecture="qwen3moe", weights=("Q8_0",), seed=4),
    "bert": Shape("bert", n_kv_heads=4, context=128),
    "bert-f16": Shape("bert", n_kv_heads=4, context=128, weights=("F16",)),
}


def write_tiny(name: str, folder: Path) -> Path:
    """The file of one of `TINY`, in a folder."""
    path = folder / f"{name}.gguf"
    write_model(path, TINY[name])
    return path


def write_model(path: Path, shape: Shape, weights: Weights | None = None) -> None:
    """A model of a shape, its matrices as `weights` makes them: by default by quantisers."""
    writer = gguf.GGUFWriter(path, shape.architecture, use_temp_file=True)
    writer.add_name(path.stem)
    _describe(writer, shape)
    if shape.architecture == "bert":
        _wordpiece(writer, shape.n_tokens)
    else:
        _sentencepiece(writer, shape.n_tokens)
    rng = np.random.default_rng(shape.seed)
    types = cycle(shape.weights)
    make = weights or quantised_weights

    def matrix(tensor: str, sizes: tuple[int, ...], gain: float = 1.0) -> None:
        kind = GGMLQuantizationType[next(types)]
        raw = make(rng, sizes, kind, gain / np.sqrt(sizes[-1]))
        writer.add_tensor(f"{tensor}.weight", raw, raw_dtype=kind)

    def vector(tensor: str, sizes: tuple[int, ...], middle: float = 1.0) -> None:
        raw = middle + 0.2 * rng.standard_normal(sizes).astype(np.float32)
        writer.add_tensor(tensor, raw.astype(np.float32))

    (_encoder if shape.architecture == "bert" else _decoder)(shape, matrix, vector)
    if shape.rope_freqs:
        factors = np.linspace(1.0, 8.0, shape.head_size // 2).astype(np.float32)
        writer.add_tensor("rope_freqs.weight", factors)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def quantised_weights(
    rng: np.random.Generator, sizes: tuple[int, ...], kind: GGMLQuantizationType, deviation: float
) -> NDArray[Any]:
    """Numbers around 0 with a deviation, as stored; random blocks where there is no quantiser."""
    numbers = (deviation * rng.standard_normal(sizes, np.float32)).astype(np.float32)
    if kind is GGMLQuantizationType.F32:
        return numbers
    try:
        stored: NDArray[Any] = quants.quantize(numbers, kind)
    except NotImplementedError:
        return random_blocks(rng, sizes, kind, deviation)
    return stored


#: Where blocks have their float16 scales, in bytes, and what share of the deviation each is. A
#: minimum takes away the mean of what its scale gives.
_SCALES: dict[GGMLQuantizationType, tuple[tuple[int, float], ...]] = {
    GGMLQuantizationType.Q4_0: ((0, 0.217),),
    GGMLQuantizationType.Q8_0: ((0, 0.0135),),
    GGMLQuantizationType.Q2_K: ((80, 0.075), (82, 0.1125)),
    GGMLQuantizationType.Q3_K: ((108, 0.0237),),
    GGMLQuantizationType.Q4_K: ((0, 0.0041), (2, 0.031)),
    GGMLQuantizationType.Q5_K: ((0, 0.002), (2, 0.031)),
    GGMLQuantizationType.Q6_K: ((208, 0.00073),),
    GGMLQuantizationType.IQ4_NL: ((0, 0.0146),),
    GGMLQuantizationType.IQ4_XS: ((0, 0.0008),),
}


def random_blocks(
    rng: np.random.Generator, sizes: tuple[int, ...], kind: GGMLQuantizationType, deviation: float
) -> NDArray[Any]:
    """Blocks of random bytes whose scales give about that deviation: quick for large models."""
    length, nbytes = gguf.GGML_QUANT_SIZES[kind]
    blocks = (*sizes[:-1], sizes[-1] // length)
    raw = np.frombuffer(rng.bytes(int(np.prod(blocks)) * nbytes), np.uint8).copy()
    raw = raw.reshape(*blocks, nbytes)
    vary = rng.uniform(0.5, 1.4, blocks) * deviation
    for place, share in _SCALES[kind]:
        scales = (share * vary).astype("<f2")
        raw[..., place : place + 2] = scales[..., None].view(np.uint8)
    return raw.reshape(*sizes[:-1], -1)


def _describe(writer: gguf.GGUFWriter, shape: Shape) -> None:
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.n_layers)
    writer.add_feed_forward_length(shape.ffn)
    writer.add_head_count(shape.n_heads)
    writer.add_vocab_size(shape.n_tokens)
    if shape.architecture == "bert":
        writer.add_layer_norm_eps(1e-12)
        writer.add_causal_attention(False)
        writer.add_pooling_type(gguf.PoolingType.MEAN)
        return
    writer.add_head_count_kv(shape.n_kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_key_length(shape.head_size)
    writer.add_value_length(shape.head_size)
    writer.add_rope_dimension_count(shape.head_size)
    writer.add_rope_freq_base(shape.rope_base)
    if shape.rope_scaling:
        writer.add_rope_scaling_type(gguf.RopeScalingType(shape.rope_scaling))
        writer.add_rope_scaling_factor(shape.rope_factor)
        writer.add_rope_scaling_orig_ctx_len(shape.rope_context)
    if shape.window:
        writer.add_sliding_window(shape.window)
    if shape.n_experts:
        writer.add_expert_count(shape.n_experts)
        writer.add_expert_used_count(shape.n_experts_used)
        if shape.architecture != "llama":
            writer.add_expert_feed_forward_length(shape.expert_ffn)
        if shape.shared_ffn:
            writer.add_expert_shared_feed_forward_length(shape.shared_ffn)


def _decoder(shape: Shape, matrix: Any, vector: Any) -> None:
    """Llama and its kin: what each adds shows in the names."""
    width, rows = shape.width, shape.n_heads * shape.head_size
    kv_rows = shape.n_kv_heads * shape.head_size
    # Tied embeddings are the head as well: logits far from 0, so that answers differ.
    matrix("token_embd", (shape.n_tokens, width), 4.0)
    vector("output_norm.weight", (width,))
    if not shape.tied:
        matrix("output", (shape.n_tokens, width), 4.0)
    for k in range(shape.n_layers):
        layer = f"blk.{k}"
        vector(f"{layer}.attn_norm.weight", (width,))
        matrix(f"{layer}.attn_q", (rows, width), 1.5)
        matrix(f"{layer}.attn_k", (kv_rows, width), 1.5)
        matrix(f"{layer}.attn_v", (kv_rows, width))
        matrix(f"{layer}.attn_output", (width, rows))
        if shape.architecture in ("qwen2", "qwen2moe"):
            for part, size in (("q", rows), ("k", kv_rows), ("v", kv_rows)):
                vector(f"{layer}.attn_{part}.bias", (size,), 0.0)
        if shape.architecture in ("qwen3", "qwen3moe"):
            for part in ("q", "k"):
                vector(f"{layer}.attn_{part}_norm.weight", (shape.head_size,))
        vector(f"{layer}.ffn_norm.weight", (width,))
        if shape.n_experts:
            _experts(shape, layer, matrix, vector)
        else:
            matrix(f"{layer}.ffn_gate", (shape.ffn, width))
            matrix(f"{layer}.ffn_up", (shape.ffn, width))
            matrix(f"{layer}.ffn_down", (width, shape.ffn))


def _experts(shape: Shape, layer: str, matrix: Any, vector: Any) -> None:
    n, width = shape.n_experts, shape.width
    # The router is a plain matrix of float32 in every file.
    vector(f"{layer}.ffn_gate_inp.weight", (n, width), 0.0)
    matrix(f"{layer}.ffn_gate_exps", (n, shape.expert_ffn, width))
    matrix(f"{layer}.ffn_up_exps", (n, shape.expert_ffn, width))
    matrix(f"{layer}.ffn_down_exps", (n, width, shape.expert_ffn))
    if shape.shared_ffn:
        vector(f"{layer}.ffn_gate_inp_shexp.weight", (width,), 0.0)
        matrix(f"{layer}.ffn_gate_shexp", (shape.shared_ffn, width))
        matrix(f"{layer}.ffn_up_shexp", (shape.shared_ffn, width))
        matrix(f"{layer}.ffn_down_shexp", (width, shape.shared_ffn))


def _encoder(shape: Shape, matrix: Any, vector: Any) -> None:
    """BERT: embeddings of tokens, places and types; norms after each part; biases everywhere."""
    width = shape.width
    matrix("token_embd", (shape.n_tokens, width), 4.0)
    vector("token_types.weight", (2, width), 0.0)
    vector("position_embd.weight", (shape.context, width), 0.0)
    norms = ["token_embd_norm"]
    for k in range(shape.n_layers):
        layer = f"blk.{k}"
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            matrix(f"{layer}.{part}", (width, width), 1.5)
            vector(f"{layer}.{part}.bias", (width,), 0.0)
        matrix(f"{layer}.ffn_up", (shape.ffn, width))
        vector(f"{layer}.ffn_up.bias", (shape.ffn,), 0.0)
        matrix(f"{layer}.ffn_down", (width, shape.ffn))
        vector(f"{layer}.ffn_down.bias", (width,), 0.0)
        norms += [f"{layer}.attn_output_norm", f"{layer}.layer_output_norm"]
    for norm in norms:
        vector(f"{norm}.weight", (width,))
        vector(f"{norm}.bias", (width,), 0.0)


def _sentencepiece(writer: gguf.GGUFWriter, n_tokens: int) -> None:
    """Three special tokens, all bytes, letters and a few pairs; the rest is made up."""
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    pieces = ["\u2581", *letters, *(f"\u2581{letter}" for letter in letters)]
    pieces += ["th", "he", "in", "er", "an", "\u2581the", "\u2581an", "\u2581in"]
    n_bytes = 256
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{code:02X}>" for code in range(n_bytes)), *pieces]
    tokens += [f"\u2581x{k:05d}" for k in range(n_tokens - len(tokens))]
    tokens = tokens[:n_tokens]
    kinds = [2, 3, 3] + [6] * n_bytes + [1] * (n_tokens - 3 - n_bytes)
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * (3 + n_bytes) + [-float(k) for k in range(n_tokens - 259)])
    writer.add_token_types(kinds)
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(True)


def _wordpiece(writer: gguf.GGUFWriter, n_tokens: int) -> None:
    letters = [chr(code) for code in range(33, 127)]
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"\u2581{one}" for one in letters)]
    tokens += [*letters, "\u2581the", "\u2581sand", "\u2581stone", "ing", "er"]
    tokens += [f"\u2581[unused{k}]" for k in range(n_tokens - len(tokens))]
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_types([3] * 5 + [1] * (n_tokens - 5))
    writer.add_token_type_count(2)
    writer.add_pad_token_id(0)
    writer.add_unk_token_id(1)
    writer.add_bos_token_id(2)
    writer.add_eos_token_id(3)
    writer.add_sep_token_id(3)
    writer.add_mask_token_id(4)
    writer.add_key_value("tokenizer.ggml.cls_token_id", 2, gguf.GGUFValueType.UINT32)
