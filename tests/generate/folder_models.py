"""Tiny language models as Hugging Face folders: the same bytes on every run.

In: the name of one of `TINY`. Out: a folder with config.json and random weights in safetensors,
whole or in shards, that transformers loads too. `judge_folder` stores what it makes of each.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

N_TOKENS = 128
DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
#: What all configs have; those of one model add to it.
DECODER: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": N_TOKENS,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}
BERT: dict[str, Any] = {
    "model_type": "bert",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": N_TOKENS,
    "max_position_embeddings": 128,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "hidden_act": "gelu",
}
EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
LLAMA3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN = {"factor": 4.0, "original_max_position_embeddings": 64}
#: Texts that a tiny BERT is judged on, with its tokenizer.
TEXTS = ("sand", "The sands of time, sanded", "stone and sand\nand Größe", "")


@dataclass(frozen=True)
class Folder:
    """A model: what its config says, and how its weights are kept."""

    config: dict[str, Any]
    dtype: str = "float32"
    n_shards: int = 1
    prefix: str = ""
    seed: int = 1
    pooling: dict[str, bool] = field(default_factory=dict)  # what 1_Pooling says


def _model(kind: str, **config: Any) -> dict[str, Any]:
    return {**DECODER, "model_type": kind, **config}


TINY: dict[str, Folder] = {
    "llama": Folder(_model("llama", rope_parameters={"rope_theta": 500.0, "rope_type": "default"})),
    "llama-tied": Folder(_model("llama", tie_word_embeddings=True, rope_theta=500_000.0)),
    "llama-shards": Folder(_model("llama", head_dim=32), n_shards=3),
    "llama-biases": Folder(_model("llama", attention_bias=True, mlp_bias=True)),
    "llama-linear": Folder(_model("llama", rope_scaling={"type": "linear", "factor": 4.0})),
    "llama-3": Folder(_model("llama", rope_scaling={"rope_type": "llama3", **LLAMA3})),
    "llama-3-new": Folder(
        _model("llama", rope_parameters={"rope_type": "llama3", "rope_theta": 5000.0, **LLAMA3})
    ),
    "llama-yarn": Folder(
        _model("llama", rope_scaling={"rope_type": "yarn", **YARN}, rope_theta=1000.0, head_dim=32)
    ),
    "llama-yarn-factor": Folder(
        _model(
            "llama",
            head_dim=32,
            rope_parameters={
                "rope_type": "yarn",
                "rope_theta": 1000.0,
                "attention_factor": 1.3,
                "beta_fast": 16.0,
                "beta_slow": 2.0,
                **YARN,
            },
        )
    ),
    "llama-yarn-mscale": Folder(
        _model(
            "llama",
            head_dim=32,
            rope_scaling={"type": "yarn", "mscale": 1.5, "mscale_all_dim": 0.5, **YARN},
        )
    ),
    "llama-f16": Folder(_model("llama"), dtype="float16"),
    "llama-bf16": Folder(_model("llama"), dtype="bfloat16"),
    "mistral": Folder(_model("mistral", sliding_window=12)),
    "mistral-whole": Folder(_model("mistral", sliding_window=None, rope_theta=1_000_000.0)),
    "mixtral": Folder(_model("mixtral", num_local_experts=6, num_experts_per_tok=2)),
    "qwen2": Folder(_model("qwen2", sliding_window=8, use_sliding_window=False)),
    "qwen2-window": Folder(
        _model("qwen2", sliding_window=8, use_sliding_window=True, max_window_layers=1)
    ),
    "qwen3": Folder(_model("qwen3", head_dim=32, tie_word_embeddings=True)),
    "qwen2_moe": Folder(
        _model("qwen2_moe", **EXPERTS, shared_expert_intermediate_size=80, norm_topk_prob=False)
    ),
    "qwen2_moe-some": Folder(
        _model(
            "qwen2_moe",
            **EXPERTS,
            shared_expert_intermediate_size=80,
            norm_topk_prob=True,
            mlp_only_layers=[1],
        )
    ),
    "qwen3_moe": Folder(_model("qwen3_moe", **EXPERTS, head_dim=32, norm_topk_prob=True)),
    "qwen3_moe-plain": Folder(_model("qwen3_moe", **EXPERTS, head_dim=16)),
    "bert": Folder(BERT),
    "bert-first": Folder(BERT, prefix="bert.", pooling={"pooling_mode_cls_token": True}),
}


def write_tiny(name: str, folder: Path) -> Path:
    """The folder of one of `TINY`, in a folder."""
    path = folder / name
    write_folder(path, TINY[name])
    return path


def write_folder(path: Path, model: Folder) -> None:
    """config.json, weights, and for a BERT its tokenizer and how rows are pooled."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(model.config))
    tensors = weights(model)
    names = sorted(tensors)
    places = {name: k * model.n_shards // len(names) for k, name in enumerate(names)}
    for shard in range(model.n_shards):
        part = {name: tensors[name] for name in names if places[name] == shard}
        save_file(part, path / _shard_name(shard, model.n_shards), {"format": "pt"})
    if model.n_shards > 1:
        weight_map = {name: _shard_name(places[name], model.n_shards) for name in names}
        index = {"metadata": {}, "weight_map": weight_map}
        (path / "model.safetensors.index.json").write_text(json.dumps(index))
    if model.config["model_type"] == "bert":
        _write_tokenizer(path)
    if model.pooling:
        (path / "1_Pooling").mkdir(exist_ok=True)
        (path / "1_Pooling" / "config.json").write_text(json.dumps(model.pooling))


def _shard_name(shard: int, count: int) -> str:
    return f"model-{shard + 1:05}-of-{count:05}.safetensors" if count > 1 else "model.safetensors"


def weights(model: Folder) -> dict[str, NDArray[Any]]:
    """Random weights by the names that transformers gives them."""
    rng = np.random.default_rng(model.seed)
    tensors: dict[str, NDArray[Any]] = {}

    def matrix(name: str, rows: int, columns: int, gain: float = 1.0) -> None:
        numbers = gain / np.sqrt(columns) * rng.standard_normal((rows, columns))
        tensors[f"{model.prefix}{name}.weight"] = numbers.astype(DTYPES[model.dtype])

    def vector(name: str, size: int, middle: float) -> None:
        numbers = middle + 0.2 * rng.standard_normal(size)
        tensors[model.prefix + name] = numbers.astype(DTYPES[model.dtype])

    make = _encoder if model.config["model_type"] == "bert" else _decoder
    make(model.config, matrix, vector)
    return tensors


def _decoder(config: dict[str, Any], matrix: Any, vector: Any) -> None:
    kind, width = config["model_type"], config["hidden_size"]
    size = config.get("head_dim", width // config["num_attention_heads"])
    rows, kv_rows = (config[f"num_{part}_heads"] * size for part in ("attention", "key_value"))
    matrix("model.embed_tokens", N_TOKENS, width, 4.0)
    vector("model.norm.weight", width, 1.0)
    if not config["tie_word_embeddings"]:
        matrix("lm_head", N_TOKENS, width, 4.0)
    for k in range(config["num_hidden_layers"]):
        layer = f"model.layers.{k}"
        for norm in ("input_layernorm", "post_attention_layernorm"):
            vector(f"{layer}.{norm}.weight", width, 1.0)
        parts = {"q_proj": (rows, width), "k_proj": (kv_rows, width), "v_proj": (kv_rows, width)}
        for part, shape in {**parts, "o_proj": (width, rows)}.items():
            matrix(f"{layer}.self_attn.{part}", *shape, 1.5)
            if config.get("attention_bias") or (kind in ("qwen2", "qwen2_moe") and part in parts):
                vector(f"{layer}.self_attn.{part}.bias", shape[0], 0.0)
        for part in "qk" if kind.startswith("qwen3") else "":
            vector(f"{layer}.self_attn.{part}_norm.weight", size, 1.0)
        if kind == "mixtral":
            _mixtral_experts(config, f"{layer}.block_sparse_moe", matrix)
        elif "num_experts" in config and k not in config.get("mlp_only_layers", ()):
            _experts(config, f"{layer}.mlp", matrix)
        else:
            _network(config, f"{layer}.mlp", config["intermediate_size"], matrix)
            if config.get("mlp_bias"):
                for part in ("gate", "up"):
                    vector(f"{layer}.mlp.{part}_proj.bias", config["intermediate_size"], 0.0)
                vector(f"{layer}.mlp.down_proj.bias", width, 0.0)


def _experts(config: dict[str, Any], prefix: str, matrix: Any) -> None:
    width = config["hidden_size"]
    matrix(f"{prefix}.gate", config["num_experts"], width, 4.0)
    for expert in range(config["num_experts"]):
        _network(config, f"{prefix}.experts.{expert}", config["moe_intermediate_size"], matrix)
    if "shared_expert_intermediate_size" in config:
        hidden = config["shared_expert_intermediate_size"]
        _network(config, f"{prefix}.shared_expert", hidden, matrix)
        matrix(f"{prefix}.shared_expert_gate", 1, width)


def _mixtral_experts(config: dict[str, Any], prefix: str, matrix: Any) -> None:
    width, hidden = config["hidden_size"], config["intermediate_size"]
    matrix(f"{prefix}.gate", config["num_local_experts"], width, 4.0)
    for expert in range(config["num_local_experts"]):
        for part, shape in (
            ("w1", (hidden, width)),
            ("w2", (width, hidden)),
            ("w3", (hidden, width)),
        ):
            matrix(f"{prefix}.experts.{expert}.{part}", *shape)


def _network(config: dict[str, Any], prefix: str, hidden: int, matrix: Any) -> None:
    width = config["hidden_size"]
    for part, shape in (("gate", (hidden, width)), ("up", (hidden, width))):
        matrix(f"{prefix}.{part}_proj", *shape)
    matrix(f"{prefix}.down_proj", width, hidden)


def _encoder(config: dict[str, Any], matrix: Any, vector: Any) -> None:
    width, hidden = config["hidden_size"], config["intermediate_size"]
    matrix("embeddings.word_embeddings", N_TOKENS, width, 4.0)
    matrix("embeddings.position_embeddings", config["max_position_embeddings"], width)
    matrix("embeddings.token_type_embeddings", config["type_vocab_size"], width)
    norms = ["embeddings.LayerNorm"]
    for k in range(config["num_hidden_layers"]):
        layer = f"encoder.layer.{k}"
        parts = {f"attention.self.{part}": (width, width) for part in ("query", "key", "value")}
        parts |= {"attention.output.dense": (width, width)}
        parts |= {"intermediate.dense": (hidden, width), "output.dense": (width, hidden)}
        for part, shape in parts.items():
            matrix(f"{layer}.{part}", *shape, 1.5)
            vector(f"{layer}.{part}.bias", shape[0], 0.0)
        norms += [f"{layer}.attention.output.LayerNorm", f"{layer}.output.LayerNorm"]
    for norm in norms:
        vector(f"{norm}.weight", width, 1.0)
        vector(f"{norm}.bias", width, 0.0)


def _write_tokenizer(path: Path) -> None:
    """Words and parts of words, by the library that others read them with."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *".,!?"]
    tokens += [f"##{letter}" for letter in letters]
    tokens += ["the", "of", "and", "sand", "stone", "time", "##s", "##ed", "##ing"]
    tokens = list(dict.fromkeys(tokens))
    tokens += [f"[unused{k}]" for k in range(N_TOKENS - len(tokens))]
    vocabulary = {token: k for k, token in enumerate(tokens)}
    made = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    made.decoder = decoders.WordPiece()
    made.add_special_tokens(tokens[:5])
    made.save(str(path / "tokenizer.json"))
    named = {f"{name.lower()}_token": f"[{name}]" for name in ("PAD", "UNK", "CLS", "SEP", "MASK")}
    (path / "tokenizer_config.json").write_text(json.dumps(named))
