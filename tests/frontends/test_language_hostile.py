"""Model files whose descriptions lie: each gives one clear error, in bounded time and memory."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from arenite.errors import AreniteError, InvalidFile, NotSupported
from arenite.frontends.language import LanguageFile
from arenite.generate import Settings
from arenite.ir import Graph
from tests.frontends.gguf_files import Tensor
from tests.frontends.language_files import (
    ARRAY,
    CONTEXT,
    F32,
    F64,
    FFN,
    FLAG,
    GGML_I32,
    GGML_Q4_0,
    GGML_Q4_K,
    GGML_Q8_0,
    HEAD_SIZE,
    I32,
    I64,
    N_TOKENS,
    TEXT,
    U32,
    U64,
    WIDTH,
    GgufModel,
    Value,
    folder_config,
    folder_tensors,
    llama_keys,
    write_folder,
)

NAN, INF = float("nan"), float("inf")
WRONG_SIZES: dict[str, Value] = {
    "0": (U32, 0),
    "-1": (I32, -1),
    "2^31": (U64, 2**31 + 1),
    "2^63": (U64, 2**63),
    "a text": (TEXT, "32"),
    "a float": (F32, 32.0),
    "a flag": (FLAG, 1),
    "no array of sizes": (ARRAY, (F32, [32.0, 32.0])),
    "an array of nothing": (ARRAY, (U32, [])),
    "an array that differs": (ARRAY, (U32, [1, 2])),
    "an array of texts": (ARRAY, (TEXT, ["32"])),
}
SIZE_KEYS = (
    "vocab_size context_length embedding_length block_count attention.head_count "
    "attention.head_count_kv attention.key_length attention.value_length rope.dimension_count "
    "rope.scaling.original_context_length attention.sliding_window"
).split()
NUMBER_KEYS = ("attention.layer_norm_rms_epsilon", "rope.freq_base", "rope.scaling.factor")
WRONG_NUMBERS: dict[str, Value] = {
    "nan": (F32, NAN),
    "inf": (F32, INF),
    "-inf": (F64, -INF),
    "0": (F32, 0.0),
    "-1": (I32, -1),
    "1e300": (F64, 1e300),
    "a text": (TEXT, "1"),
    "a flag": (FLAG, 1),
}


def graph_of(path: Path) -> Graph:
    """Read what a file says and build all of it, but read no weight."""
    graph = Settings(LanguageFile.open(path)).graph
    assert isinstance(graph, Graph)
    return graph


def refused(path: Path, reason: str) -> None:
    """One clear error with the file's name, and memory that does not follow what the file says."""
    tracemalloc.start()
    try:
        with pytest.raises((InvalidFile, NotSupported), match=reason) as caught:
            graph_of(path)
        assert tracemalloc.get_traced_memory()[1] < 16 * 2**20
    finally:
        tracemalloc.stop()
    assert str(path.name) in str(caught.value)
    assert len(str(caught.value)) < 2000


def read_or_refused(path: Path) -> None:
    try:
        graph_of(path)
    except AreniteError as error:
        if path.name not in str(error):
            raise AssertionError(f"{path} is not named") from error


# GGUF.


def test_the_model_is_good_before_it_is_damaged(tmp_path: Path) -> None:
    assert len(graph_of(GgufModel().write(tmp_path / "good.gguf")).states) > 0


#: A window of 0 is none.
WRONG_KEYS = [(name, wrong) for name in SIZE_KEYS for wrong in WRONG_SIZES]
WRONG_KEYS.remove(("attention.sliding_window", "0"))


@pytest.mark.parametrize(("name", "wrong"), WRONG_KEYS)
def test_sizes_that_cannot_be(name: str, wrong: str, tmp_path: Path) -> None:
    model = GgufModel({f"llama.{name}": WRONG_SIZES[wrong]})
    refused(model.write(tmp_path / "wrong.gguf"), name.replace(".", r"\."))


@pytest.mark.parametrize("wrong", WRONG_NUMBERS)
@pytest.mark.parametrize("name", NUMBER_KEYS)
def test_numbers_that_cannot_be(name: str, wrong: str, tmp_path: Path) -> None:
    model = GgufModel({f"llama.{name}": WRONG_NUMBERS[wrong]})
    refused(model.write(tmp_path / "wrong.gguf"), name.replace(".", r"\."))


KEYS: dict[str, tuple[dict[str, Value | None], str]] = {
    "no architecture": ({"general.architecture": None}, "no key 'general.architecture'"),
    "an unknown architecture": (
        {"general.architecture": (TEXT, "gpt2")},
        "architecture 'gpt2' is not known; there are bert, llama",
    ),
    "an architecture of a megabyte": (
        {"general.architecture": (TEXT, "x" * 2**20)},
        r"\(1048576 characters\) is not known",
    ),
    "an architecture that is a number": ({"general.architecture": (U32, 1)}, "should be text"),
    "no layers said": ({"llama.block_count": None}, "no key 'llama.block_count'"),
    "no heads said": ({"llama.attention.head_count": None}, "no key 'llama.attention.head_count'"),
    "heads that cannot be shared": (
        {"llama.attention.head_count": (U32, 3), "llama.attention.head_count_kv": (U32, 2)},
        "3 heads of queries cannot share 2",
    ),
    "heads that differ by layer": (
        {"llama.attention.head_count_kv": (ARRAY, (U32, [1, 2]))},
        "differs from layer to layer",
    ),
    "values of another size than keys": (
        {"llama.attention.value_length": (U32, 8)},
        "different sizes",
    ),
    "an odd number of turned elements": ({"llama.rope.dimension_count": (U32, 7)}, "even number"),
    "more turned elements than there are": (
        {"llama.rope.dimension_count": (U32, HEAD_SIZE + 2)},
        "18 elements of heads of 16",
    ),
    "an unknown scaling": ({"llama.rope.scaling.type": (TEXT, "longrope")}, "'longrope'; none,"),
    "a base of 1": ({"llama.rope.freq_base": (F32, 1.0)}, "above 1"),
    "a text that sees what follows": (
        {"llama.attention.causal": (FLAG, 0)},
        "'llama.attention.causal' is False",
    ),
    "a pooling of kind 9": ({"llama.pooling_type": (U32, 9)}, "pooling of kind 9"),
    "experts of which none is used": (
        {"llama.expert_count": (U32, 4), "llama.expert_used_count": (U32, 0)},
        "'llama.expert_used_count' is 0",
    ),
    "more experts used than there are": (
        {"llama.expert_count": (U32, 4), "llama.expert_used_count": (U32, 5)},
        "uses 5 experts and there are 4",
    ),
    "2^31 experts": (
        {"llama.expert_count": (U64, 2**31), "llama.expert_used_count": (U32, 2)},
        "'llama.expert_count' is 2147483648",
    ),
    "more layers than tensors": (
        {"llama.block_count": (U32, 1000)},
        r"tensor 'blk\.2\.attn_norm\.weight' is missing",
    ),
    "a million layers": ({"llama.block_count": (U32, 10**6)}, "must be within 1..1024"),
    "a width that tensors do not have": (
        {"llama.embedding_length": (U32, 64)},
        r"'token_embd\.weight' has shape \(48, 32\); the metadata ask for \(48, 64\)",
    ),
    "a vocabulary that tensors do not have": (
        {"llama.vocab_size": (U32, N_TOKENS + 1)},
        r"ask for \(49, 32\)",
    ),
    "a vocabulary that is no array": (
        {"tokenizer.ggml.tokens": (U32, 3)},
        "'tokenizer.ggml.tokens' should be an array",
    ),
    "a vocabulary of two": (
        {"tokenizer.ggml.tokens": (ARRAY, (TEXT, ["a", "b"]))},
        r"ask for \(2, 32\)",
    ),
}


@pytest.mark.parametrize("lie", KEYS)
def test_metadata_that_lie(lie: str, tmp_path: Path) -> None:
    keys, reason = KEYS[lie]
    refused(GgufModel(keys).write(tmp_path / "lie.gguf"), reason)


TENSORS: dict[str, tuple[str, Tensor | None, str]] = {
    "a missing table": ("token_embd.weight", None, "'token_embd.weight' is missing"),
    "a missing norm": ("output_norm.weight", None, "'output_norm.weight' is missing"),
    "a missing network": ("blk.1.ffn_gate.weight", None, r"'blk\.1\.ffn_gate\.weight' is missing"),
    "a turned matrix": (
        "blk.1.attn_k.weight",
        Tensor("blk.1.attn_k.weight", (16, 32)),
        r"shape \(32, 16\); the metadata ask for \(16, 32\)",
    ),
    "a flat matrix": (
        "blk.0.ffn_gate.weight",
        Tensor("blk.0.ffn_gate.weight", (WIDTH * FFN,)),
        r"'blk\.0\.ffn_gate\.weight' is missing|shape",
    ),
    "a network of another width": (
        "blk.0.ffn_down.weight",
        Tensor("blk.0.ffn_down.weight", (96, WIDTH)),
        r"shape \(32, 96\); the metadata ask for \(32, 64\)",
    ),
    "a matrix of integers": (
        "blk.0.attn_q.weight",
        Tensor("blk.0.attn_q.weight", (WIDTH, 32), GGML_I32),
        r"'blk\.0\.attn_q\.weight' is of int32; it should hold floating-point",
    ),
    "a table of integers": (
        "token_embd.weight",
        Tensor("token_embd.weight", (WIDTH, N_TOKENS), GGML_I32),
        "is of int32",
    ),
    "a norm in blocks": (
        "blk.1.ffn_norm.weight",
        Tensor("blk.1.ffn_norm.weight", (WIDTH,), GGML_Q8_0),
        "is of q8_0; it should hold floating-point",
    ),
    "a bias in blocks": (
        "blk.1.attn_q.bias",
        Tensor("blk.1.attn_q.bias", (32,), GGML_Q4_0),
        "'blk.1.attn_q.bias' is of q4_0",
    ),
    "a bias of another length": (
        "blk.1.attn_q.bias",
        Tensor("blk.1.attn_q.bias", (7,)),
        r"shape \(7,\); the metadata ask for \(32,\)",
    ),
    "factors of positions of another length": (
        "rope_freqs.weight",
        Tensor("rope_freqs.weight", (7,)),
        r"shape \(7,\); the metadata ask for \(8,\)",
    ),
    "rows that are no whole blocks": (
        "blk.0.attn_q.weight",
        Tensor("blk.0.attn_q.weight", (WIDTH, 32), GGML_Q4_K),
        "block",
    ),
}


@pytest.mark.parametrize("lie", TENSORS)
def test_tensors_that_are_not_what_metadata_say(lie: str, tmp_path: Path) -> None:
    name, tensor, reason = TENSORS[lie]
    refused(GgufModel(tensors={name: tensor}).write(tmp_path / "lie.gguf"), reason)


ANY_VALUE: st.SearchStrategy[Value | None] = st.one_of(
    st.none(),
    st.tuples(st.just(U32), st.integers(0, 300) | st.integers(0, 2**32 - 1)),
    st.tuples(st.just(I64), st.integers(-(2**63), 2**63 - 1)),
    st.tuples(st.just(U64), st.integers(0, 2**64 - 1)),
    st.tuples(st.just(F64), st.floats()),
    st.tuples(st.just(TEXT), st.sampled_from(["llama", "bert", "qwen3moe", "linear", "none", ""])),
    st.tuples(st.just(FLAG), st.integers(0, 1)),
    st.tuples(
        st.just(ARRAY),
        st.tuples(st.just(I32), st.lists(st.integers(-3, 64), max_size=3)),
    ),
)
MORE_KEYS = (
    "llama.expert_count llama.expert_used_count llama.attention.causal llama.pooling_type "
    "llama.rope.scaling.attn_factor llama.rope.scaling.yarn_beta_fast llama.expert_weights_norm "
    "llama.rope.scaling.yarn_beta_slow llama.expert_weights_scale general.name"
).split()


@settings(
    deadline=None,
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    changes=st.dictionaries(
        st.sampled_from([*llama_keys(), *MORE_KEYS]), ANY_VALUE, min_size=1, max_size=3
    )
)
def test_whatever_metadata_say_it_is_read_or_refused(
    changes: dict[str, Value | None], tmp_path: Path
) -> None:
    path = GgufModel(changes).write(tmp_path / "fuzzed.gguf")
    read_or_refused(path)


# Folders.


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


@pytest.mark.parametrize("wrong", [0, -1, NAN, INF, 1e300, 10**40, "1", True, [1.0]])
@pytest.mark.parametrize("name", ["rms_norm_eps", "rope_theta"])
def test_numbers_of_configs_that_cannot_be(name: str, wrong: object, tmp_path: Path) -> None:
    refused(write_folder(tmp_path, config={name: wrong}), f"'{name}' is .*; it must be a number")


ROPE: dict[str, Any] = folder_config()["rope_scaling"]
CONFIGS: dict[str, tuple[str, dict[str, Any] | str, str]] = {
    "no object": ("llama", "[1, 2]", "no JSON object"),
    "no JSON": ("llama", "{", "is not JSON"),
    "a million brackets": ("llama", "[" * 10**6, "is not JSON"),
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
        {"num_hidden_layers": 1024},
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


@settings(
    deadline=None,
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
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


def test_a_context_of_a_file_does_not_size_memory(tmp_path: Path) -> None:
    """2^31 tokens may be said; how long a context is loaded is decided here."""
    model = GgufModel({"llama.context_length": (U64, 2**31)})
    file = LanguageFile.open(model.write(tmp_path / "long.gguf"))
    assert Settings(file).context == 4096
    assert CONTEXT < 4096
