"""The description of a language model from the config.json of a Hugging Face folder.

In: a folder. Out: `Description`. What a config leaves out is what transformers takes for it; what
changes the computation and is not known here is refused by name.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any

from arenite.errors import FileMissing, InvalidFile, NotSupported
from arenite.frontends.folder_files import read_inside
from arenite.frontends.json_text import parsed_object
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

MAX_CONFIG_NBYTES = 4 * 2**20
MAX_CONFIG_VALUES = 2**16
#: `model_type` of a config, and the architecture it is.
KINDS = {
    "bert": "bert",
    "llama": "llama",
    "mistral": "llama",
    "mixtral": "llama",
    "qwen2": "qwen2",
    "qwen2_moe": "qwen2moe",
    "qwen3": "qwen3",
    "qwen3_moe": "qwen3moe",
}
SCALINGS = {"default": "none", "linear": "linear", "yarn": "yarn", "llama3": "llama3"}
#: The base of angles where a config has none.
BASES = {"mixtral": 1e6}
#: Where sentence-transformers says how the rows of a text become one, and what it calls that.
POOLING_FILE = os.path.join("1_Pooling", "config.json")
POOLINGS = {"mean_tokens": "mean", "cls_token": "first", "lasttoken": "last"}


class Config:
    """Checked access to a JSON object in a file. `within`: the key that it is the value of."""

    def __init__(self, path: str, data: Mapping[str, Any], within: str = "") -> None:
        self.path = path
        self.data = data
        self.within = within

    @classmethod
    def read(cls, folder: str, name: str) -> Config | None:
        """A file of a folder; None where there is none."""
        raw = read_inside(folder, name, MAX_CONFIG_NBYTES)
        path = os.path.join(folder, name)
        if raw is None:
            return None
        return cls(path, parsed_object(raw, path, MAX_CONFIG_VALUES, MAX_CONFIG_VALUES))

    def get(self, name: str) -> Any:
        """A value, None where there is none."""
        return self.data.get(name)

    def size(self, name: str, most: int, default: int | None = None) -> int:
        value = self.get(name)
        if value is None and default is not None:
            return default
        if type(value) is not int or not 1 <= value <= most:
            raise self.wrong(name, f"a size within 1..{most}")
        return value

    def number(self, name: str, default: float, least: float = LEAST_NUMBER) -> float:
        """A number above `least`."""
        value = self.get(name)
        if value is None:
            return default
        if type(value) not in (int, float) or not least < value < MAX_NUMBER:
            raise self.wrong(name, f"a number above {least:g} and below {MAX_NUMBER:g}")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        value = self.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def part(self, name: str) -> Config | None:
        """An object in this one; None where it is missing or empty."""
        value = self.get(name)
        if not value and not isinstance(value, bool):
            return None
        if not isinstance(value, dict):
            raise self.wrong(name, "a JSON object")
        return Config(self.path, value, name)

    def only(self, name: str, *known: object) -> None:
        """Refuse a value that is not one of these."""
        value = self.get(name)
        if value is not None and value not in known:
            raise NotSupported(
                f"{self.path}: {self._full(name)} is {quoted(str(value))}; known: "
                f"{', '.join(map(str, known))}"
            )

    def wrong(self, name: str, wanted: str) -> InvalidFile:
        value = self.get(name)
        shown = "missing" if value is None else quoted(str(value)[:1000])
        return InvalidFile(f"{self.path}: {self._full(name)} is {shown}; it must be {wanted}")

    def _full(self, name: str) -> str:
        return repr(f"{self.within}.{name}" if self.within else name)


def described(folder: str) -> Description:
    """Sizes are checked to be positive and to fit each other."""
    config = Config.read(folder, "config.json")
    if config is None:
        raise FileMissing(
            f"{os.path.join(folder, 'config.json')} is missing; a folder of a model has "
            "config.json beside its safetensors"
        )
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in KINDS:
        known = ", ".join(KINDS)
        shown = quoted(str(kind)[:1000])
        raise NotSupported(f"{config.path}: models of type {shown} are not known; {known} are")
    is_bert = kind == "bert"
    config.only("hidden_act", "gelu" if is_bert else "silu")
    if is_bert:
        config.only("position_embedding_type", "absolute")
        config.only("is_decoder", False)
    heads = config.size("num_attention_heads", MAX_WIDTH)
    width = config.size("hidden_size", MAX_WIDTH)
    kv_heads = heads if is_bert else config.size("num_key_value_heads", MAX_WIDTH, heads)
    if heads % kv_heads:
        raise InvalidFile(f"{config.path}: {heads} heads cannot share {kv_heads} of keys")
    if (is_bert or config.get("head_dim") is None) and kind != "qwen3" and width % heads:
        raise InvalidFile(f"{config.path}: rows of {width} cannot be cut into {heads} heads")
    default = 128 if kind == "qwen3" else width // heads
    head_size = default if is_bert else config.size("head_dim", MAX_WIDTH, default)
    n_layers = config.size("num_hidden_layers", MAX_LAYERS)
    window, whole = _window(config, kind, n_layers)
    return Description(
        architecture=KINDS[kind],
        name=os.path.basename(os.path.abspath(folder)),
        n_layers=n_layers,
        width=width,
        n_heads=heads,
        n_kv_heads=kv_heads,
        head_size=head_size,
        n_tokens=config.size("vocab_size", MAX_CONTEXT),
        context=config.size("max_position_embeddings", MAX_CONTEXT),
        eps=config.number("layer_norm_eps", 1e-12)
        if is_bert
        else config.number("rms_norm_eps", 1e-6),
        rope=None if is_bert else _rope(config, head_size, BASES.get(kind, 1e4)),
        window=window,
        whole_layers=whole,
        experts=_experts(config, kind),
        pooling=_pooling(folder) if is_bert else "none",
        is_causal=not is_bert,
        is_tied=config.flag("tie_word_embeddings", False)
        if config.get("tie_word_embeddings") is not None
        else None,
    )


def _rope(config: Config, head_size: int, base: float) -> Rope:
    if head_size % 2:
        raise InvalidFile(f"{config.path}: heads of {head_size}, an odd size, cannot be turned")
    nothing = Config(config.path, {}, "rope_scaling")
    given = config.part("rope_scaling") or config.part("rope_parameters") or nothing
    kind = given.get("rope_type") or given.get("type") or "default"
    if not isinstance(kind, str) or kind not in SCALINGS:
        known = ", ".join(SCALINGS)
        raise NotSupported(
            f"{config.path}: positions are scaled by {quoted(str(kind)[:1000])}; {known} are known"
        )
    scaling = SCALINGS[kind]
    for part in (config, given):
        part.only("partial_rotary_factor", 1, 1.0)
    given.only("truncate", True)
    context = config.size("max_position_embeddings", MAX_CONTEXT)
    original = given.size("original_max_position_embeddings", MAX_CONTEXT, context)
    if scaling != "none" and given.get("factor") is None and scaling != "yarn":
        raise given.wrong("factor", "a number")
    factor = given.number("factor", context / original if scaling == "yarn" else 1.0, LEAST_FACTOR)
    if scaling == "llama3":
        fast = given.number("high_freq_factor", 4.0, LEAST_FACTOR)
        slow = given.number("low_freq_factor", 1.0, LEAST_FACTOR)
        if fast <= slow:
            raise given.wrong("high_freq_factor", f"above 'low_freq_factor', {slow}")
    else:
        fast = given.number("beta_fast", 32.0, LEAST_FACTOR)
        slow = given.number("beta_slow", 1.0, LEAST_FACTOR)
    return Rope(
        size=head_size,
        base=given.number("rope_theta", config.number("rope_theta", base, 1.0), 1.0),
        pairs=False,
        scaling=scaling,
        factor=factor,
        original_context=original,
        attention_factor=_attention_factor(given, factor) if scaling == "yarn" else 1.0,
        beta_fast=fast,
        beta_slow=slow,
    )


def _attention_factor(given: Config, factor: float) -> float:
    """What `Rope.magnitude` multiplies its own factor by, so that the config's comes out."""

    def magnitude(scale: float) -> float:
        return 1 + 0.1 * scale * math.log(factor) if factor > 1 else 1.0

    scale, over = given.number("mscale", 0.0), given.number("mscale_all_dim", 0.0)
    inferred = magnitude(scale) / magnitude(over) if scale and over else magnitude(1.0)
    return given.number("attention_factor", inferred) / magnitude(1.0)


def _window(config: Config, kind: str, n_layers: int) -> tuple[int | None, frozenset[int]]:
    """How far back attention sees, and the layers that see everything."""
    everything: frozenset[int] = frozenset()
    if kind in ("mistral", "mixtral"):
        default = 4096 if kind == "mistral" else None
        if config.data.get("sliding_window", default) is None:
            return None, everything
        return config.size("sliding_window", MAX_CONTEXT, 4096), everything
    if not kind.startswith("qwen") or not config.flag("use_sliding_window", False):
        return None, everything
    window = config.size("sliding_window", MAX_CONTEXT, 4096)
    if kind == "qwen3_moe":
        return window, everything
    types = config.get("layer_types")
    if types is None and kind == "qwen2_moe":
        raise NotSupported(f"{config.path}: 'layer_types' is missing: which layers have a window?")
    if types is None:
        first = config.get("max_window_layers")
        first = 28 if first is None else first
        if type(first) is not int or first < 0:
            raise config.wrong("max_window_layers", "a number of layers")
        return window, frozenset(range(min(first, n_layers)))
    known = ("full_attention", "sliding_attention")
    if not isinstance(types, list) or len(types) != n_layers or any(t not in known for t in types):
        raise config.wrong("layer_types", f"a list of {' or '.join(known)}, one for each layer")
    return window, frozenset(k for k, name in enumerate(types) if name == "full_attention")


def _experts(config: Config, kind: str) -> Experts | None:
    if kind not in ("mixtral", "qwen2_moe", "qwen3_moe"):
        return None
    # Newer files have the second name for some of these.
    name = "num_experts" if config.get("num_experts") is not None else "num_local_experts"
    count = config.size(name, MAX_EXPERTS)
    used = config.size("num_experts_per_tok", MAX_EXPERTS)
    if used > count:
        raise InvalidFile(f"{config.path}: a token uses {used} experts and there are {count}")
    is_normalised = kind == "mixtral" or config.flag("norm_topk_prob", False)
    return Experts(count, used, is_normalised, shared=kind == "qwen2_moe")


def _pooling(folder: str) -> str:
    """The mean, where no file says another way."""
    config = Config.read(folder, POOLING_FILE)
    if config is None:
        return "mean"
    prefix = "pooling_mode_"
    ways = [name.removeprefix(prefix) for name in config.data if name.startswith(prefix)]
    chosen = [way for way in ways if config.flag(f"{prefix}{way}", False)]
    if len(chosen) != 1 or chosen[0] not in POOLINGS:
        raise NotSupported(
            f"{config.path}: rows are pooled by {quoted(' and '.join(chosen) or 'nothing')}; one "
            f"of {', '.join(POOLINGS)} is known"
        )
    return POOLINGS[chosen[0]]
