"""What files say about language models: keys and configs read into one description."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arenite.dtype import BY_NAME
from arenite.errors import FileMissing, InvalidArgument
from arenite.frontends.language import LanguageFile
from arenite.frontends.language.description import Description, Rope
from tests.frontends.language_files import (
    ARRAY,
    CONTEXT,
    F32,
    FLAG,
    HEAD_SIZE,
    I32,
    LAYERS,
    N_TOKENS,
    TEXT,
    U32,
    U64,
    WIDTH,
    GgufModel,
    Value,
    folder_config,
    write_folder,
)

KV = BY_NAME["float16"]


def of_gguf(tmp_path: Path, **keys: Value | None) -> Description:
    """With keys of llama changed, dots written as two underscores."""
    changed = {f"llama.{name.replace('__', '.')}": value for name, value in keys.items()}
    return LanguageFile.open(GgufModel(changed).write(tmp_path / "model.gguf")).description


def of_folder(tmp_path: Path, kind: str = "llama", **config: Any) -> Description:
    return LanguageFile.open(write_folder(tmp_path / "a-model", kind, config)).description


def test_keys_of_gguf_are_read(tmp_path: Path) -> None:
    assert of_gguf(tmp_path) == Description(
        architecture="llama",
        name="llama",
        n_layers=LAYERS,
        width=WIDTH,
        n_heads=2,
        n_kv_heads=1,
        head_size=HEAD_SIZE,
        n_tokens=N_TOKENS,
        context=CONTEXT,
        eps=float(np.float32(1e-5)),
        rope=Rope(HEAD_SIZE, 1e4, pairs=True, scaling="yarn", factor=2.0, original_context=32),
        window=16,
    )


def test_a_config_is_read(tmp_path: Path) -> None:
    rope = Rope(
        HEAD_SIZE,
        1e4,
        pairs=False,
        scaling="llama3",
        factor=2.0,
        original_context=32,
        beta_fast=4.0,
        beta_slow=1.0,
    )
    assert of_folder(tmp_path) == Description(
        architecture="llama",
        name="a-model",
        n_layers=LAYERS,
        width=WIDTH,
        n_heads=2,
        n_kv_heads=1,
        head_size=HEAD_SIZE,
        n_tokens=N_TOKENS,
        context=CONTEXT,
        eps=1e-5,
        rope=rope,
        is_tied=False,
    )


@pytest.mark.parametrize(
    "value", [(I32, 1), (U64, 1), (ARRAY, (I32, [1, 1])), (ARRAY, (U32, [1])), None]
)
def test_sizes_are_integers_of_any_kind_or_the_same_for_each_layer(
    value: Value | None, tmp_path: Path
) -> None:
    found = of_gguf(tmp_path, attention__head_count_kv=value)
    assert found.n_kv_heads == (2 if value is None else 1)


def test_what_gguf_leaves_out_has_a_default(tmp_path: Path) -> None:
    names = (
        "attention.key_length attention.value_length rope.dimension_count rope.freq_base "
        "rope.scaling.type rope.scaling.factor attention.sliding_window "
        "attention.layer_norm_rms_epsilon"
    ).split()
    found = of_gguf(tmp_path, **dict.fromkeys(n.replace(".", "__") for n in names))
    assert found.head_size == WIDTH // 2
    assert found.rope == Rope(WIDTH // 2, 1e4, pairs=True, original_context=32)
    assert (found.window, found.eps) == (None, 1e-5)


def test_a_factor_without_a_type_stretches_all_angles(tmp_path: Path) -> None:
    rope = of_gguf(tmp_path, rope__scaling__type=None).rope
    assert rope is not None
    np.testing.assert_allclose(rope.frequencies(), 1e4 ** (-np.arange(8) / 8) / 2)
    assert rope.magnitude() == 1
    none = of_gguf(tmp_path, rope__scaling__type=(TEXT, "none")).rope
    assert none is not None
    np.testing.assert_allclose(none.frequencies(), 1e4 ** (-np.arange(8) / 8))


@pytest.mark.parametrize(
    "config",
    [
        {"rope_theta": 1e6, "rope_scaling": None},
        {"rope_theta": None, "rope_scaling": {"rope_theta": 1e6}},
        {"rope_theta": 5.0, "rope_scaling": {}, "rope_parameters": {"rope_theta": 1e6}},
        {"rope_theta": 1_000_000, "rope_scaling": {"rope_type": "default"}},
        {"rope_theta": 1_000_000, "rope_scaling": {"type": "default"}},
    ],
    ids=["beside", "inside", "the new way", "a type", "an old type"],
)
def test_the_base_of_angles_is_found_wherever_it_is(config: dict[str, Any], tmp_path: Path) -> None:
    rope = of_folder(tmp_path, **config).rope
    assert rope is not None
    assert (rope.base, rope.scaling, rope.magnitude()) == (1e6, "none", 1.0)


def test_yarn_infers_what_a_config_leaves_out(tmp_path: Path) -> None:
    scaling: dict[str, Any] = {"rope_type": "yarn", "original_max_position_embeddings": 16}
    rope = of_folder(tmp_path, rope_scaling=scaling).rope
    assert rope is not None
    assert rope.factor == CONTEXT / 16
    assert rope.magnitude() == pytest.approx(1 + 0.1 * math.log(4))
    rope = of_folder(tmp_path, rope_scaling=scaling | {"attention_factor": 0.5}).rope
    assert rope is not None
    assert rope.magnitude() == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("kind", "config", "windows"),
    [
        ("llama", {"sliding_window": 8}, [None, None]),
        ("mistral", {"sliding_window": 8}, [8, 8]),
        ("mistral", {"sliding_window": None}, [None, None]),
        ("qwen2", {"sliding_window": 8}, [None, None]),
        ("qwen2", {"use_sliding_window": True, "max_window_layers": 0}, [16, 16]),
        ("qwen2", {"use_sliding_window": True, "max_window_layers": 1}, [None, 16]),
        ("qwen2", {"use_sliding_window": True}, [None, None]),
        (
            "qwen3",
            {"use_sliding_window": True, "layer_types": ["sliding_attention", "full_attention"]},
            [16, None],
        ),
        ("qwen3_moe", {"use_sliding_window": True}, [16, 16]),
    ],
)
def test_windows_are_those_of_each_layer(
    kind: str, config: dict[str, Any], windows: list[int | None], tmp_path: Path
) -> None:
    found = of_folder(tmp_path, kind, **config)
    assert [found.window_of(layer) for layer in range(LAYERS)] == windows


def test_a_config_without_a_window_has_what_transformers_takes(tmp_path: Path) -> None:
    config = {k: v for k, v in folder_config("mistral").items() if k != "sliding_window"}
    path = write_folder(tmp_path, "mistral")
    (path / "config.json").write_text(json.dumps(config))
    assert LanguageFile.open(path).description.window == 4096


def test_experts_are_counted_under_either_name(tmp_path: Path) -> None:
    for names in ({}, {"num_experts": None, "num_local_experts": 4}):
        experts = of_folder(tmp_path, "qwen3_moe", **names).experts
        assert experts is not None
        assert (experts.total, experts.used, experts.normalised, experts.shared) == (
            4,
            2,
            True,
            False,
        )


def test_ties_are_those_of_the_config(tmp_path: Path) -> None:
    """A head of its own is not used where the config ties it to the table of tokens."""

    def weights_of(name: str, is_tied: bool | None) -> set[str]:
        path = write_folder(tmp_path / name, config={"tie_word_embeddings": is_tied})
        graph = LanguageFile.open(path).graph(context=32, block=8, kv=KV)
        return {origin.name for node in graph.nodes for origin in graph.origins.of(node)}

    assert "lm_head.weight" in weights_of("own", False)
    assert "lm_head.weight" in weights_of("unsaid", None)
    assert "lm_head.weight" not in weights_of("tied", True)


def test_opening_says_what_was_found(tmp_path: Path) -> None:
    file = LanguageFile.open(GgufModel().write(tmp_path / "model.gguf"))
    assert repr(file) == (f"<LanguageFile {tmp_path}/model.gguf: llama, 2 layers of 32, 48 tokens>")
    assert file.nbytes == sum(t.nbytes for t in file.tensors.values())
    assert not file.is_embedding
    with pytest.raises(InvalidArgument, match="blocks of 64 tokens do not fit"):
        file.graph(context=32, block=64, kv=KV)
    with pytest.raises(FileMissing, match=r"config\.json is missing"):
        LanguageFile.open(tmp_path)


def test_flags_are_read(tmp_path: Path) -> None:
    counts: dict[str, Value] = {"expert_count": (U32, 4), "expert_used_count": (U32, 2)}
    plain = of_gguf(tmp_path, **counts, expert_weights_norm=(FLAG, 0)).experts
    scaled = of_gguf(tmp_path, **counts, expert_weights_scale=(F32, 2.5)).experts
    assert plain is not None
    assert scaled is not None
    assert (plain.normalised, plain.scale, scaled.scale) == (False, 1.0, 2.5)
