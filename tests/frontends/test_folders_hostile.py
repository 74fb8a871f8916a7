"""Folders whose configs and weights lie: each gives one clear error, in bounded time and memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.frontends.language_files import (
    FFN,
    WIDTH,
    folder_config,
    folder_tensors,
    write_folder,
)
from tests.frontends.refusals import graph_of, many_files, read_or_refused, refused

NAN, INF = float("nan"), float("inf")


def test_folders_are_good_before_they_are_damaged(tmp_path: Path) -> None:
    for kind in ("llama", "qwen3_moe"):
        assert len(graph_of(write_folder(tmp_path / kind, kind)).states) > 0


FOLDER_SIZES = (
    "hidden_size num_hidden_layers num_attention_heads num_key_value_heads head_dim vocab_size "
    "max_position_embeddings"
).split()


@pytest.mark.parametrize("wrong", [0, -1, 2**31 + 1, 2**63, 2.5, NAN, "32", True, [32], {}])
@pytest.mark.parametrize("name", FOLDER_SIZES)
def test_sizes_of_configs_that_cannot_be(name: str, wrong: object, tmp_path: Path) -> None:
    refused(write_folder(tmp_path, config={name: wrong}), f"'{name}' is .*; it must be a size")


@pytest.mark.parametrize("wrong", [0, -1, NAN, INF, 1e300, 1e-66, 10**40, "1", True, [1.0]])
@pytest.mark.parametrize("name", ["rms_norm_eps", "rope_theta"])
def test_numbers_of_configs_that_cannot_be(name: str, wrong: object, tmp_path: Path) -> None:
    refused(write_folder(tmp_path, config={name: wrong}), f"'{name}' is .*; it must be a number")


ROPE: dict[str, Any] = folder_config()["rope_scaling"]
CONFIGS: dict[str, tuple[str, dict[str, Any] | str, str]] = {
    "no object": ("llama", "[1, 2]", "no JSON object"),
    "no JSON": ("llama", "{", "is not JSON"),
    "a million brackets": ("llama", "[" * 10**6, "1000000 values and 0 keys; at most 65536"),
    "five megabytes": ("llama", " " * (5 * 2**20), "longer than 4194304 bytes"),
    "a number of 10,000 digits": ("llama", '{"hidden_size": 1' + "0" * 10_000 + "}", "is not JSON"),
    "no type": ("llama", "{}", "models of type 'None' are not known"),
    "an unknown type": ("llama", {"model_type": "gpt_neox"}, "'gpt_neox' are not known; bert,"),
    "a type that is a list": ("llama", {"model_type": ["llama"]}, "are not known"),
    "another activation": ("llama", {"hidden_act": "relu"}, "'hidden_act' is 'relu'; known: silu"),
    "an activation that is a list": ("llama", {"hidden_act": ["silu"]}, "'hidden_act' is"),
    "heads that cannot be shared": (
        "llama",
        {"num_attention_heads": 3, "num_key_value_heads": 2},
        "3 heads cannot share 2",
    ),
    "heads that do not divide rows": (
        "llama",
        {"num_attention_heads": 3, "num_key_value_heads": 3, "head_dim": None},
        "rows of 32 cannot be cut into 3 heads",
    ),
    "odd heads": ("llama", {"head_dim": 7}, "heads of 7, an odd size"),
    "half-turned heads": (
        "llama",
        {"partial_rotary_factor": 0.5},
        "'partial_rotary_factor' is '0.5'",
    ),
    "an unknown scaling": (
        "llama",
        {"rope_scaling": {"rope_type": "longrope"}},
        "scaled by 'longrope'; default, linear, yarn, llama3 are known",
    ),
    "a scaling that is a list": ("llama", {"rope_scaling": {"rope_type": [1]}}, "scaled by '"),
    "a scaling that is text": ("llama", {"rope_scaling": "yarn"}, "'rope_scaling' is 'yarn'"),
    "a scaling without a factor": (
        "llama",
        {"rope_scaling": {"rope_type": "linear"}},
        "'rope_scaling.factor' is missing",
    ),
    "a factor of nan": ("llama", {"rope_scaling": {**ROPE, "factor": NAN}}, "factor' is 'nan'"),
    "borders that meet": (
        "llama",
        {"rope_scaling": {**ROPE, "high_freq_factor": 1.0}},
        "'rope_scaling.high_freq_factor' is '1.0'; it must be above 'low_freq_factor', 1.0",
    ),
    "a factor that is zero in 32 bits": (
        "llama",
        {"rope_scaling": {**ROPE, "factor": 1e-66}},
        "'rope_scaling.factor' is '1e-66'; it must be a number above 1e-06",
    ),
    "borders that are next to nothing": (
        "llama",
        {"rope_scaling": {**ROPE, "high_freq_factor": 1e-320, "low_freq_factor": 5e-324}},
        "'rope_scaling.high_freq_factor' is",
    ),
    "turns that are next to none": (
        "llama",
        {"rope_scaling": {**ROPE, "rope_type": "yarn", "beta_fast": 5e-324}},
        "'rope_scaling.beta_fast' is",
    ),
    "an original context of 2^63": (
        "llama",
        {"rope_scaling": {**ROPE, "original_max_position_embeddings": 2**63}},
        "original_max_position_embeddings' is",
    ),
    "a flag that is text": ("llama", {"tie_word_embeddings": "no"}, "it must be true or false"),
    "a window of nothing": ("mistral", {"sliding_window": 0}, "'sliding_window' is '0'"),
    "layers of an unknown type": (
        "qwen2",
        {"use_sliding_window": True, "layer_types": ["full_attention", "linear_attention"]},
        "'layer_types' is",
    ),
    "types of too few layers": (
        "qwen2",
        {"use_sliding_window": True, "layer_types": ["full_attention"]},
        "one for each layer",
    ),
    "types that are objects": (
        "qwen2",
        {"use_sliding_window": True, "layer_types": [{}, {}]},
        "'layer_types' is",
    ),
    "windows from layer -1 on": (
        "qwen3",
        {"use_sliding_window": True, "max_window_layers": -1},
        "'max_window_layers' is '-1'",
    ),
    "no experts used": ("qwen3_moe", {"num_experts_per_tok": 0}, "'num_experts_per_tok' is '0'"),
    "more experts used than there are": ("qwen3_moe", {"num_experts_per_tok": 5}, "uses 5 experts"),
    "more experts than tensors": (
        "qwen3_moe",
        {"num_experts": 4096},
        r"shape \(4, 32\); the metadata ask for \(4096, 32\)",
    ),
    "more layers than tensors": (
        "llama",
        {"num_hidden_layers": 512},
        r"'blk\.2\.attn_norm\.weight' is missing",
    ),
    "a BERT that writes": ("bert", {"is_decoder": True, "hidden_act": "gelu"}, "'is_decoder'"),
    "a BERT of other positions": (
        "bert",
        {"position_embedding_type": "relative_key", "hidden_act": "gelu"},
        "'relative_key'; known: absolute",
    ),
}


@pytest.mark.parametrize("lie", CONFIGS)
def test_configs_that_lie(lie: str, tmp_path: Path) -> None:
    kind, config, reason = CONFIGS[lie]
    refused(write_folder(tmp_path, kind, config), reason)


Q = "model.layers.1.self_attn.q_proj.weight"
WEIGHTS: dict[str, tuple[str, dict[str, NDArray[Any] | None], str]] = {
    "integers": ("llama", {Q: np.zeros((32, WIDTH), np.int32)}, "is of int32"),
    "flags": ("llama", {Q: np.zeros((32, WIDTH), np.bool_)}, "is of bool"),
    "another shape": (
        "llama",
        {Q: np.zeros((WIDTH, 16), np.float32)},
        r"q_proj\.weight' has shape \(32, 16\); the metadata ask for \(32, 32\)",
    ),
    "one axis too many": ("llama", {Q: np.zeros((1, 32, WIDTH), np.float32)}, "has shape"),
    "a network of no width": (
        "llama",
        {
            "model.layers.0.mlp.gate_proj.weight": np.zeros((0, WIDTH), np.float32),
            "model.layers.0.mlp.up_proj.weight": np.zeros((0, WIDTH), np.float32),
            "model.layers.0.mlp.down_proj.weight": np.zeros((WIDTH, 0), np.float32),
        },
        r"shape \(0, 32\)",
    ),
    "no head of its own": ("llama", {"lm_head.weight": None}, "'output.weight' is missing"),
    "the same part twice": (
        "bert",
        {
            "bert.embeddings.word_embeddings.weight": np.zeros((2, 2), np.float32),
            "embeddings.word_embeddings.weight": np.zeros((2, 2), np.float32),
        },
        "are the same part of the model",
    ),
    "experts of different dtypes": (
        "qwen3_moe",
        {"model.layers.0.mlp.experts.1.up_proj.weight": np.zeros((FFN, WIDTH), np.float16)},
        "different dtypes",
    ),
    "an expert that is missing": (
        "qwen3_moe",
        {"model.layers.1.mlp.experts.3.down_proj.weight": None},
        r"'blk\.1\.ffn_down_exps\.3\.weight' is missing",
    ),
}


@pytest.mark.parametrize("lie", WEIGHTS)
def test_weights_that_are_not_what_configs_say(lie: str, tmp_path: Path) -> None:
    kind, tensors, reason = WEIGHTS[lie]
    config = {"hidden_act": "gelu"} if kind == "bert" else {}
    refused(write_folder(tmp_path, kind, config, tensors), reason)


@pytest.mark.parametrize("dtype", [np.float16, np.float64, ml_dtypes.bfloat16])
def test_weights_of_other_float_types_are_read(dtype: type, tmp_path: Path) -> None:
    tensors: dict[str, NDArray[Any] | None] = {
        name: tensor.astype(dtype) for name, tensor in folder_tensors().items()
    }
    assert graph_of(write_folder(tmp_path, tensors=tensors)).states


def test_ways_to_pool_that_are_not_known(tmp_path: Path) -> None:
    path = write_folder(tmp_path, "bert", {"hidden_act": "gelu"})
    (path / "1_Pooling").mkdir()
    for content, reason in (
        ({"pooling_mode_max_tokens": True}, "pooled by 'max_tokens'"),
        ({"pooling_mode_mean_tokens": False}, "pooled by 'nothing'"),
        ({"pooling_mode_mean_tokens": 1}, "it must be true or false"),
        ([], "no JSON object"),
    ):
        (path / "1_Pooling" / "config.json").write_text(json.dumps(content))
        refused(path, reason)


ANY_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 100)
    | st.integers()
    | st.floats()
    | st.sampled_from(["llama", "yarn", "linear", "llama3", "default", ""]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from([*ROPE, "rope_theta", "type"]), inner, max_size=3)
    ),
    max_leaves=4,
)
MORE_NAMES = (
    "rope_parameters layer_types max_window_layers num_experts num_local_experts "
    "num_experts_per_tok norm_topk_prob partial_rotary_factor"
).split()


@many_files
@given(
    kind=st.sampled_from(["llama", "mistral", "qwen2", "qwen3_moe"]),
    config=st.dictionaries(
        st.sampled_from([*folder_config(), *MORE_NAMES]), ANY_JSON, min_size=1, max_size=3
    ),
    scaling=st.dictionaries(st.sampled_from([*ROPE, "rope_theta", "truncate"]), ANY_JSON),
)
def test_whatever_a_config_says_it_is_read_or_refused(
    kind: str, config: dict[str, Any], scaling: dict[str, Any], tmp_path: Path
) -> None:
    path = write_folder(tmp_path, kind, {"rope_scaling": ROPE | scaling, **config})
    read_or_refused(path)
