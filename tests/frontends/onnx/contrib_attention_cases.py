"""Cases of attention of com.microsoft: masks, caches, places."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.frontends.onnx.contrib_node import Array, Case, Numbers, int32


def masked(n: Numbers) -> dict[str, Case]:
    batch, length, width, heads = 2, 5, 12, 3
    x, weights, bias = n(batch, length, width), n(width, 36, scale=0.3), n(36)
    past = n(2, batch, heads, 3, 4)
    raw = np.array([[1, 1, 1, 0, 0], [1, 0, 1, 1, 1]], np.int32)
    long = np.concatenate([np.ones((2, 3), np.int32), raw], 1)
    added = n(1, heads, length, length)
    one = {"num_heads": heads}
    both = ("y", "present")
    made: dict[str, tuple[list[Array | None], dict[str, Any], tuple[str, ...]]] = {
        "plain": ([x, weights, bias], one, ("y",)),
        "scale": ([x, weights, bias], {**one, "scale": 0.7}, ("y",)),
        "mask_2d": ([x, weights, bias, raw], one, ("y",)),
        "mask_3d": ([x, weights, bias, n.whole(0, 2, 2, 5, 5, dtype="int32")], one, ("y",)),
        "mask_ends": ([x, weights, bias, int32(3, 5)], one, ("y",)),
        "mask_both": ([x, weights, bias, int32(3, 5, 1, 2)], one, ("y",)),
        "mask_value": ([x, weights, bias, raw], {**one, "mask_filter_value": -1.5}, ("y",)),
        "nothing_seen": ([x, weights, bias, int32(0, 2)], one, ("y",)),
        "causal": ([x, weights, bias], {**one, "unidirectional": 1}, ("y",)),
        "causal_mask": ([x, weights, bias, raw], {**one, "unidirectional": 1}, ("y",)),
        "bias": ([x, weights, bias, raw, None, added], one, ("y",)),
        "past": ([x, weights, bias, long, past], {**one, "unidirectional": 1}, both),
        "past_seen": ([x, weights, bias, None, past], one, both),
        "widths": (
            [x, n(width, 30), n(30)], {**one, "qkv_hidden_sizes": [12, 12, 6]}, ("y",)
        ),
    }  # fmt: skip
    # Next to a mask of -10000 scores have few bits left.
    return {
        name: Case(
            "Attention", *rest, constants=(1, 2), tolerance=1e-3 if "nothing" in name else 1e-5
        )
        for name, rest in made.items()
    }


def quantised(n: Numbers) -> dict[str, Case]:
    x = n.whole(0, 256, 2, 5, 12, dtype="uint8")
    weights, bias = n.whole(-128, 128, 12, 36, dtype="int8"), n(36)
    scale, of_weights, columns = np.float32(0.02), np.float32(0.004), np.abs(n(36)) * 0.01
    zero, raw = np.uint8(117), np.array([[1, 1, 1, 0, 0], [1, 0, 1, 1, 1]], np.int32)
    one = {"num_heads": 3}
    zeros = n.whole(-9, 9, 36, dtype="int8")

    def case(given: list[Any], attrs: dict[str, Any], outputs: tuple[str, ...] = ("y",)) -> Case:
        arrays = [None if one is None else np.asarray(one) for one in given]
        return Case("QAttention", arrays, attrs, outputs, constants=(1, 2, 3, 4, 6, 7),
                    tolerance=1e-4)  # fmt: skip

    return {
        "plain": case([x, weights, bias, scale, of_weights, None, zero, np.int8(0)], one),
        "mask": case([x, weights, bias, scale, of_weights, raw, zero, np.int8(3)], one),
        "columns": case([x, weights, bias, scale, columns, None, zero, zeros], one),
        "past": case(
            [x, weights, bias, scale, of_weights, None, zero, np.int8(0), n(2, 2, 3, 4, 4)],
            {**one, "unidirectional": 1},
            ("y", "present"),
        ),
    }


def multi_head(n: Numbers) -> dict[str, Case]:
    q, k, v = n(2, 4, 12), n(2, 6, 12), n(2, 6, 18)
    bias, one = n(12 + 12 + 18), {"num_heads": 3}
    mask = np.array([[1, 1, 1, 1, 0, 0], [1, 1, 0, 1, 1, 1]], np.int32)
    past_k, past_v, new = n(2, 3, 2, 4), n(2, 3, 2, 4), n(2, 4, 12)
    three = ("y", "k", "v")
    return {
        "plain": Case("MultiHeadAttention", [q, k, v], one),
        "bias": Case("MultiHeadAttention", [q, k, v, bias], one),
        "mask": Case("MultiHeadAttention", [q, k, v, bias, mask], one),
        "lengths": Case("MultiHeadAttention", [q, k, v, bias, int32(4, 6)], one),
        "added": Case("MultiHeadAttention", [q, k, v, None, mask, n(1, 3, 4, 6)], one),
        "cross": Case("MultiHeadAttention", [q, n(2, 3, 6, 4), n(2, 3, 6, 4)], one),
        "past": Case("MultiHeadAttention", [q, new, new, None, None, None, past_k, past_v],
                     {**one, "unidirectional": 1, "scale": 0.3}, three),
        "present": Case("MultiHeadAttention", [q, new, new], one, three),
    }  # fmt: skip


def angles(n: Numbers, places: int, half: int) -> tuple[Array, Array]:
    given = n(places, half)
    return np.cos(given), np.sin(given)


def rotary(n: Numbers) -> dict[str, Case]:
    cos, sin = angles(n, 10, 4)
    part = angles(n, 10, 2)
    x, apart, at = n(2, 5, 24), n(2, 3, 5, 8), n.whole(0, 10, 2, 5)
    first = np.array([3])
    return {
        "plain": Case("RotaryEmbedding", [x, at, cos, sin]),
        "offset": Case("RotaryEmbedding", [x, first, cos, sin], {"interleaved": 1}),
        "apart": Case("RotaryEmbedding", [apart, at, cos, sin]),
        "partly": Case("RotaryEmbedding", [x, at, *part],
                       {"num_heads": 3, "rotary_embedding_dim": 4}),
        "partly_apart": Case("RotaryEmbedding", [apart, at, *part],
                             {"num_heads": 3, "rotary_embedding_dim": 4, "interleaved": 1}),
    }  # fmt: skip


def grouped(n: Numbers) -> dict[str, Case]:
    heads, groups, width = 4, 2, 16
    one = {"num_heads": heads, "kv_num_heads": groups}
    three = ("y", "k", "v")
    cos, sin = angles(n, 16, 8)

    def new(batch: int, length: int) -> list[Array]:
        return [n(batch, length, count * width) for count in (heads, groups, groups)]

    def past(batch: int, length: int) -> list[Array]:
        return [n(batch, groups, length, width) for _ in range(2)]

    def case(given: list[Any], attrs: dict[str, Any]) -> Case:
        return Case("GroupQueryAttention", given, {**one, **attrs}, three, constants=(6, 7, 8))

    turned = {"do_rotary": 1}
    prompt = [*new(1, 5), None, None, int32(4), int32(5)]
    ragged = [*new(2, 5), None, None, int32(4, 2), int32(5)]
    step = [*new(2, 1), *past(2, 6), int32(6, 6), int32(7)]
    return {
        "prompt": case(prompt, {}),
        "prompt_ragged": case(ragged, {}),
        "step": case(step, {}),
        "step_ragged": case([*step[:5], int32(6, 3), int32(7)], {}),
        "buffer": case([*new(2, 1), *past(2, 12), int32(6, 6), int32(7)], {}),
        "buffer_prompt": case([*new(1, 5), *past(1, 9), int32(4), int32(5)], {}),
        "further_prompt": case([*new(1, 3), *past(1, 4), int32(6), int32(7)], {}),
        "turned": case([*prompt, cos, sin], turned),
        "turned_step": case([*step, cos, sin], turned),
        "turned_pairs": case([*step, cos, sin], {**turned, "rotary_interleaved": 1}),
        "turned_places": case(
            [*step, cos, sin, np.array([[2], [9]])], turned
        ),
        "window_ragged": case(ragged, {"local_window_size": 2}),
        "not_causal_ragged": case(ragged, {"causal": 0}),
        "further_prompt_turned": case(
            [*new(1, 3), *past(1, 4), int32(6), int32(7), cos, sin], turned
        ),
        "window": case(prompt, {"local_window_size": 2}),
        "window_step": case(step, {"local_window_size": 3}),
        "softcap": case(step, {"softcap": 0.8, "scale": 0.9}),
        "smooth": case(step, {"smooth_softmax": 1}),
        "sink": case([*step, None, None, None, None, n(heads)], {}),
        "bias": case([*prompt, None, None, None, n(1, heads, 5, 5)], {}),
        "not_causal": case(prompt, {"causal": 0}),
        "packed": case([n(1, 5, (heads + 2 * groups) * width), None, None, *prompt[3:]], {}),
    }  # fmt: skip
