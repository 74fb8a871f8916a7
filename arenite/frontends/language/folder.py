"""A Hugging Face folder: config.json and safetensors, with the names that GGUF gives tensors."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any

from arenite.errors import FileMissing, InvalidFile, NotSupported
from arenite.frontends.language.description import (
    MAX_EXPERTS,
    MAX_LAYERS,
    MAX_WIDTH,
    Description,
    Experts,
    Rope,
)
from arenite.frontends.language.gguf import MAX_CONTEXT
from arenite.frontends.safetensors import SafetensorsFile
from arenite.frontends.stored import StoredTensor, quoted

MAX_CONFIG_NBYTES = 4 * 2**20
#: `model_type` of a config, and the architecture it is.
KINDS = {
    "bert": "bert",
    "llama": "llama",
    "mistral": "llama",
    "qwen2": "qwen2",
    "qwen2_moe": "qwen2moe",
    "qwen3": "qwen3",
    "qwen3_moe": "qwen3moe",
}
#: Parts of names: of a folder, and of GGUF. The first that fits is taken.
DECODER_NAMES = {
    r"model\.embed_tokens": "token_embd",
    r"model\.norm": "output_norm",
    r"lm_head": "output",
    r"model\.layers\.(\d+)\.self_attn\.([qkv])_proj": r"blk.\1.attn_\2",
    r"model\.layers\.(\d+)\.self_attn\.o_proj": r"blk.\1.attn_output",
    r"model\.layers\.(\d+)\.self_attn\.([qk])_norm": r"blk.\1.attn_\2_norm",
    r"model\.layers\.(\d+)\.input_layernorm": r"blk.\1.attn_norm",
    r"model\.layers\.(\d+)\.post_attention_layernorm": r"blk.\1.ffn_norm",
    r"model\.layers\.(\d+)\.mlp\.(gate|up|down)_proj": r"blk.\1.ffn_\2",
    r"model\.layers\.(\d+)\.mlp\.gate": r"blk.\1.ffn_gate_inp",
    r"model\.layers\.(\d+)\.mlp\.experts\.(\d+)\.(gate|up|down)_proj": r"blk.\1.ffn_\3_exps.\2",
    r"model\.layers\.(\d+)\.mlp\.shared_expert\.(gate|up|down)_proj": r"blk.\1.ffn_\2_shexp",
    r"model\.layers\.(\d+)\.mlp\.shared_expert_gate": r"blk.\1.ffn_gate_inp_shexp",
}
_LAYER = r"encoder\.layer\.(\d+)\."
BERT_NAMES = {
    r"embeddings\.word_embeddings": "token_embd",
    r"embeddings\.position_embeddings": "position_embd",
    r"embeddings\.token_type_embeddings": "token_types",
    r"embeddings\.LayerNorm": "token_embd_norm",
    _LAYER + r"attention\.self\.query": r"blk.\1.attn_q",
    _LAYER + r"attention\.self\.key": r"blk.\1.attn_k",
    _LAYER + r"attention\.self\.value": r"blk.\1.attn_v",
    _LAYER + r"attention\.output\.dense": r"blk.\1.attn_output",
    _LAYER + r"attention\.output\.LayerNorm": r"blk.\1.attn_output_norm",
    _LAYER + r"intermediate\.dense": r"blk.\1.ffn_up",
    _LAYER + r"output\.dense": r"blk.\1.ffn_down",
    _LAYER + r"output\.LayerNorm": r"blk.\1.layer_output_norm",
}


def open_folder(path: str) -> tuple[Description, dict[str, StoredTensor]]:
    """What config.json says, and the tensors by their names in GGUF; others are left out."""
    folder = path if os.path.isdir(path) else os.path.dirname(path) or "."
    config = _Config(os.path.join(folder, "config.json"))
    description = _described(config, os.path.basename(os.path.abspath(folder)))
    stored = SafetensorsFile.open(path)
    names = BERT_NAMES if description.architecture == "bert" else DECODER_NAMES
    patterns = [(re.compile(rf"(?:bert\.)?{old}"), new) for old, new in names.items()]
    tensors = {}
    for name, tensor in stored.tensors.items():
        stem, _, end = name.rpartition(".")
        for pattern, new in patterns:
            found = pattern.fullmatch(stem)
            if found is not None and end in ("weight", "bias"):
                tensors[f"{found.expand(new)}.{end}"] = tensor
                break
    return description, tensors


class _Config:
    """Checked access to config.json."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            with open(path, "rb") as file:
                raw = file.read(MAX_CONFIG_NBYTES + 1)
        except FileNotFoundError:
            raise FileMissing(
                f"{path} is missing; a folder of a model has config.json beside its safetensors"
            ) from None
        if len(raw) > MAX_CONFIG_NBYTES:
            raise InvalidFile(f"{path} is longer than {MAX_CONFIG_NBYTES} bytes")
        try:
            data = json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise InvalidFile(f"{path} is not JSON: {error}") from None
        if not isinstance(data, dict):
            raise InvalidFile(f"{path} is no JSON object")
        self.data: dict[str, Any] = data

    def size(self, name: str, most: int, default: int | None = None) -> int:
        value = self.data.get(name)
        if value is None and default is not None:
            return default
        if type(value) is not int or not 1 <= value <= most:
            raise InvalidFile(f"{self.path}: {name!r} is {value!r}; it must be within 1..{most}")
        return value

    def number(self, name: str, default: float, data: Mapping[str, Any] | None = None) -> float:
        value = (self.data if data is None else data).get(name, default)
        if type(value) not in (int, float) or not 0 < value < 1e12:
            raise InvalidFile(f"{self.path}: {name!r} is {value!r}; it must be a positive number")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        return bool(self.data.get(name, default))


def _described(config: _Config, name: str) -> Description:
    kind = config.data.get("model_type")
    if kind not in KINDS:
        known = ", ".join(KINDS)
        shown = quoted(str(kind))
        raise NotSupported(f"{config.path}: models of type {shown} are not known; {known} are")
    architecture = KINDS[kind]
    is_bert = architecture == "bert"
    heads = config.size("num_attention_heads", MAX_WIDTH)
    width = config.size("hidden_size", MAX_WIDTH)
    kv_heads = config.size("num_key_value_heads", MAX_WIDTH, heads)
    if heads % kv_heads:
        raise InvalidFile(f"{config.path}: {heads} heads cannot share {kv_heads} of keys")
    head_size = config.size("head_dim", MAX_WIDTH, max(width // heads, 1))
    return Description(
        architecture=architecture,
        name=name,
        n_layers=config.size("num_hidden_layers", MAX_LAYERS),
        width=width,
        n_heads=heads,
        n_kv_heads=kv_heads,
        head_size=head_size,
        n_tokens=config.size("vocab_size", MAX_CONTEXT),
        context=config.size("max_position_embeddings", MAX_CONTEXT),
        eps=config.number("layer_norm_eps", 1e-12)
        if is_bert
        else config.number("rms_norm_eps", 1e-6),
        rope=None if is_bert else _rope(config, head_size),
        window=_window(config),
        experts=_experts(config, architecture),
        pooling="mean" if is_bert else "none",
        is_causal=not is_bert,
    )


def _rope(config: _Config, head_size: int) -> Rope:
    given = config.data.get("rope_scaling") or config.data.get("rope_parameters") or {}
    if not isinstance(given, dict):
        raise InvalidFile(f"{config.path}: 'rope_scaling' is no JSON object")
    base = config.number("rope_theta", config.number("rope_theta", 10000.0), given)
    kind = given.get("rope_type", given.get("type", "default"))
    scaling = "none" if kind == "default" else kind
    if scaling not in ("none", "linear", "yarn", "llama3"):
        raise NotSupported(f"{config.path}: positions are scaled by {kind!r}, which is not known")
    original = given.get("original_max_position_embeddings", 0)
    if type(original) is not int or not 0 <= original <= MAX_CONTEXT:
        raise InvalidFile(f"{config.path}: 'original_max_position_embeddings' is {original!r}")
    return Rope(
        size=head_size - head_size % 2,
        base=base,
        pairs=False,
        scaling=scaling,
        factor=config.number("factor", 1.0, given),
        original_context=original or config.size("max_position_embeddings", MAX_CONTEXT),
        beta_fast=config.number(
            "high_freq_factor" if scaling == "llama3" else "beta_fast",
            4.0 if scaling == "llama3" else 32.0,
            given,
        ),
        beta_slow=config.number(
            "low_freq_factor" if scaling == "llama3" else "beta_slow", 1.0, given
        ),
    )


def _window(config: _Config) -> int | None:
    if config.data.get("sliding_window") is None or not config.flag("use_sliding_window", True):
        return None
    return config.size("sliding_window", MAX_CONTEXT)


def _experts(config: _Config, architecture: str) -> Experts | None:
    if not architecture.endswith("moe"):
        return None
    count = config.size("num_experts", MAX_EXPERTS)
    used = config.size("num_experts_per_tok", MAX_EXPERTS)
    if used > count:
        raise InvalidFile(f"{config.path}: a token uses {used} experts and there are {count}")
    is_shared = architecture == "qwen2moe"
    return Experts(count, used, config.flag("norm_topk_prob", not is_shared), is_shared)
