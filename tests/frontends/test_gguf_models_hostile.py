"""GGUF files whose metadata lie: each gives one clear error, in bounded time and memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from arenite.frontends.language import LanguageFile
from arenite.generate import Settings
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
    llama_keys,
)
from tests.frontends.refusals import graph_of, many_files, read_or_refused, refused

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
NUMBER_KEYS = (
    "attention.layer_norm_rms_epsilon rope.freq_base rope.scaling.factor rope.scaling.attn_factor "
    "rope.scaling.yarn_beta_fast rope.scaling.yarn_beta_slow"
).split()
WRONG_NUMBERS: dict[str, Value] = {
    "nan": (F32, NAN),
    "inf": (F32, INF),
    "-inf": (F64, -INF),
    "0": (F32, 0.0),
    "-1": (I32, -1),
    "1e300": (F64, 1e300),
    "1e-66": (F64, 1.2252117782655964e-66),  # zero in 32 bits
    "5e-324": (F64, 5e-324),
    "a text": (TEXT, "1"),
    "a flag": (FLAG, 1),
}


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
        {"llama.block_count": (U32, 500)},
        r"tensor 'blk\.2\.attn_norm\.weight' is missing",
    ),
    "a million layers": ({"llama.block_count": (U32, 10**6)}, "must be within 1..512"),
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


@many_files
@given(
    changes=st.dictionaries(
        st.sampled_from([*llama_keys(), *MORE_KEYS]), ANY_VALUE, min_size=1, max_size=3
    )
)
@example(changes={"llama.rope.scaling.factor": (F64, 1.2252117782655964e-66)})
@example(changes={"llama.rope.scaling.yarn_beta_fast": (F64, 5e-324)})
@example(
    changes={
        "llama.rope.freq_base": (F64, 1 + 2.0**-52),
        "llama.rope.scaling.original_context_length": (U32, 2**20),
    }
)
def test_whatever_metadata_say_it_is_read_or_refused(
    changes: dict[str, Value | None], tmp_path: Path
) -> None:
    path = GgufModel(changes).write(tmp_path / "fuzzed.gguf")
    read_or_refused(path)


def test_a_context_of_a_file_does_not_size_memory(tmp_path: Path) -> None:
    """2^31 tokens may be said; how long a context is loaded is decided here."""
    model = GgufModel({"llama.context_length": (U64, 2**31)})
    file = LanguageFile.open(model.write(tmp_path / "long.gguf"))
    assert Settings(file).context == 4096
    assert CONTEXT < 4096
