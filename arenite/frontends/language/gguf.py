"""The description of a language model from the metadata of a GGUF file."""

from __future__ import annotations

import numpy as np

from arenite.errors import InvalidFile, NotSupported
from arenite.frontends.gguf import Metadata, MetadataArray
from arenite.frontends.language.description import (
    LEAST_FACTOR,
    LEAST_NUMBER,
    MAX_CONTEXT,
    MAX_EXPERTS,
    MAX_LAYERS,
    MAX_NUMBER,
    MAX_WIDTH,
    Description,
    Experts,
    Rope,
)
from arenite.frontends.stored_tensor import quoted

#: Architectures whose files pair neighbouring elements in rotary positions.
PAIRED = ("llama",)
#: Architectures whose files leave out that weights of chosen experts sum to one.
NORMALISED = ("llama", "qwen3moe")
POOLING = {0: "none", 1: "mean", 2: "first", 3: "last"}


def described(metadata: Metadata) -> Description:
    """Sizes are checked to be positive and to fit each other."""
    kind = metadata.text("general.architecture")
    keys = _Keys(metadata, kind)
    is_causal = metadata.flag(f"{kind}.attention.causal", True)
    if is_causal != (kind != "bert"):
        raise NotSupported(
            f"{metadata.path}: key '{kind}.attention.causal' is {is_causal}, which is not known "
            "of this architecture"
        )
    heads = keys.size("attention.head_count", MAX_WIDTH)
    width = keys.size("embedding_length", MAX_WIDTH)
    kv_heads = keys.size("attention.head_count_kv", MAX_WIDTH, heads)
    if heads % kv_heads != 0:
        raise InvalidFile(
            f"{metadata.path}: {heads} heads of queries cannot share {kv_heads} heads of keys"
        )
    if kind == "bert" and (width % heads or kv_heads != heads):
        raise InvalidFile(f"{metadata.path}: rows of {width} cannot be cut into {heads} heads")
    head_size = keys.size("attention.key_length", MAX_WIDTH, max(width // heads, 1))
    if keys.size("attention.value_length", MAX_WIDTH, head_size) != head_size:
        raise NotSupported(f"{metadata.path}: heads of keys and values have different sizes")
    return Description(
        architecture=kind,
        name=metadata.text("general.name", kind),
        n_layers=keys.size("block_count", MAX_LAYERS),
        width=width,
        n_heads=heads,
        n_kv_heads=kv_heads,
        head_size=head_size,
        n_tokens=_n_tokens(metadata, keys),
        context=keys.size("context_length", MAX_CONTEXT),
        eps=_eps(keys),
        rope=None if kind == "bert" else _rope(keys, head_size),
        window=keys.size("attention.sliding_window", MAX_CONTEXT, 0) or None,
        experts=_experts(keys) if keys.size("expert_count", MAX_EXPERTS, 0) else None,
        pooling=_pooling(metadata, kind),
        is_causal=is_causal,
    )


class _Keys:
    """Keys of one architecture."""

    def __init__(self, metadata: Metadata, kind: str) -> None:
        self.metadata = metadata
        self.kind = kind

    def has(self, key: str) -> bool:
        return f"{self.kind}.{key}" in self.metadata

    def size(self, key: str, most: int, default: int | None = None) -> int:
        """A positive size, or the default."""
        full = f"{self.kind}.{key}"
        if full in self.metadata and isinstance(self.metadata[full], MetadataArray):
            values = np.unique(self.metadata.numbers(full))
            if values.dtype.kind not in "iu" or not values.size:
                raise InvalidFile(f"{self.metadata.path}: key {full!r} holds no sizes")
            if len(values) > 1:
                raise NotSupported(
                    f"{self.metadata.path}: key {full!r} differs from layer to layer"
                )
            value = int(values[0])
        else:
            value = self.metadata.integer(full, default)
        if value == default:
            return value
        if not 1 <= value <= most:
            raise InvalidFile(
                f"{self.metadata.path}: key {full!r} is {value}; it must be within 1..{most}"
            )
        return value

    def number(self, key: str, default: float, least: float = LEAST_NUMBER) -> float:
        """A number above `least`."""
        full = f"{self.kind}.{key}"
        value = self.metadata.number(full, default)
        if not least < value < MAX_NUMBER:
            raise InvalidFile(
                f"{self.metadata.path}: key {full!r} is {value}; it must be a number above "
                f"{least:g} and below {MAX_NUMBER:g}"
            )
        return value

    def text(self, key: str, default: str) -> str:
        return self.metadata.text(f"{self.kind}.{key}", default)

    def flag(self, key: str, default: bool) -> bool:
        return self.metadata.flag(f"{self.kind}.{key}", default)


def _n_tokens(metadata: Metadata, keys: _Keys) -> int:
    if "tokenizer.ggml.tokens" in metadata:
        return len(metadata.array("tokenizer.ggml.tokens"))
    return keys.size("vocab_size", MAX_CONTEXT)


def _eps(keys: _Keys) -> float:
    rms, plain = (f"attention.layer_norm_{spelled}" for spelled in ("rms_epsilon", "epsilon"))
    return keys.number(rms if keys.has(rms) else plain, 1e-5)


def _rope(keys: _Keys, head_size: int) -> Rope:
    size = keys.size("rope.dimension_count", MAX_WIDTH, head_size)
    if size > head_size or size % 2:
        raise InvalidFile(
            f"{keys.metadata.path}: {size} elements of heads of {head_size} are to be turned; it "
            "must be an even number of them"
        )
    scaling = keys.text(
        "rope.scaling.type", "linear" if keys.has("rope.scaling.factor") else "none"
    )
    if scaling not in ("none", "linear", "yarn"):
        raise NotSupported(
            f"{keys.metadata.path}: positions are scaled by {quoted(scaling)}; none, linear and "
            "yarn are known"
        )
    return Rope(
        size=size,
        base=keys.number("rope.freq_base", 10000.0, 1.0),
        pairs=keys.kind in PAIRED,
        scaling=scaling,
        factor=keys.number("rope.scaling.factor", 1.0, LEAST_FACTOR),
        original_context=keys.size(
            "rope.scaling.original_context_length",
            MAX_CONTEXT,
            keys.size("context_length", MAX_CONTEXT),
        ),
        attention_factor=keys.number("rope.scaling.attn_factor", 1.0),
        beta_fast=keys.number("rope.scaling.yarn_beta_fast", 32.0, LEAST_FACTOR),
        beta_slow=keys.number("rope.scaling.yarn_beta_slow", 1.0, LEAST_FACTOR),
    )


def _experts(keys: _Keys) -> Experts:
    count = keys.size("expert_count", MAX_EXPERTS)
    used = keys.size("expert_used_count", MAX_EXPERTS)
    if used > count:
        raise InvalidFile(
            f"{keys.metadata.path}: a token uses {used} experts and there are {count}"
        )
    return Experts(
        count,
        used,
        keys.flag("expert_weights_norm", keys.kind in NORMALISED),
        keys.size("expert_shared_feed_forward_length", MAX_WIDTH, 0) > 0 or keys.kind == "qwen2moe",
        keys.number("expert_weights_scale", 1.0),
    )


def _pooling(metadata: Metadata, kind: str) -> str:
    number = metadata.integer(f"{kind}.pooling_type", 0)
    if number not in POOLING:
        raise NotSupported(f"{metadata.path}: pooling of kind {number} is not known")
    return POOLING[number]
