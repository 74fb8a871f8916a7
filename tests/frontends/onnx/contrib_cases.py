"""Operators of com.microsoft: models of one node, inputs for them, and what ONNX Runtime makes of
these, in contrib_cases.npz beside this file.

python -m tests.frontends.onnx.contrib_cases      (with onnxruntime) writes that file
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, ValueInfoProto, helper, numpy_helper

Array = NDArray[Any]
STORED = Path(__file__).with_suffix(".npz")
MICROSOFT = "com.microsoft"


@dataclass(frozen=True)
class Case:
    """A node: `constants` are those of its inputs that the file holds; None is left out."""

    op: str
    inputs: list[Array | None]
    attrs: dict[str, Any] = field(default_factory=dict)
    #: "" is an output that is not asked for.
    outputs: tuple[str, ...] = ("y",)
    constants: tuple[int, ...] = ()
    domain: str = MICROSOFT
    tolerance: float = 1e-5


def model_of(case: Case) -> ModelProto:
    names = [f"x{k}" if one is not None else "" for k, one in enumerate(case.inputs)]
    node = helper.make_node(
        case.op, names, list(case.outputs), domain=case.domain, name="it", **case.attrs
    )
    given, stored = [], []
    for k, (name, array) in enumerate(zip(names, case.inputs, strict=True)):
        if array is None:
            continue
        if k in case.constants:
            stored.append(numpy_helper.from_array(array, name))
        else:
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            given.append(helper.make_tensor_value_info(name, kind, array.shape))
    results = [ValueInfoProto(name=name) for name in case.outputs if name]
    graph = helper.make_graph([node], "g", given, results, stored)
    sets = [helper.make_opsetid("", 20), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=sets, ir_version=10)


def fed(case: Case) -> dict[str, Array]:
    """What comes with a call, by name."""
    return {
        f"x{k}": array
        for k, array in enumerate(case.inputs)
        if array is not None and k not in case.constants
    }


class Numbers:
    """Arrays at random; the same each time."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def __call__(self, *shape: int, scale: float = 1.0) -> Array:
        return (self.rng.standard_normal(shape) * scale).astype(np.float32)

    def whole(self, low: int, high: int, *shape: int, dtype: str = "int64") -> Array:
        return self.rng.integers(low, high, shape).astype(dtype)


def int32(*values: int) -> Array:
    return np.array(values, np.int32)


def activations(n: Numbers) -> dict[str, Case]:
    x, bias = n(2, 3, 8, scale=2), n(8)
    return {
        "gelu": Case("Gelu", [x]),
        "bias_gelu": Case("BiasGelu", [x, bias]),
        "fast_gelu": Case("FastGelu", [x]),
        "fast_gelu_bias": Case("FastGelu", [x, bias]),
        "quick_gelu": Case("QuickGelu", [x], {"alpha": 1.5}),
        "quick_gelu_default": Case("QuickGelu", [x]),
    }


def norms(n: Numbers) -> dict[str, Case]:
    x, skip, gamma, beta, bias = n(2, 3, 8), n(2, 3, 8), n(8), n(8), n(8)
    ids, segments = n.whole(0, 11, 2, 4, dtype="int32"), n.whole(0, 2, 2, 4, dtype="int32")
    mask = np.array([[1, 1, 1, 0], [1, 1, 0, 0]], np.int32)
    words, places, parts = n(11, 8), n(6, 8), n(2, 8)
    return {
        "simplified": Case(
            "SimplifiedLayerNormalization", [x, gamma], {"epsilon": 1e-3}, domain=""
        ),
        "simplified_axis": Case(
            "SimplifiedLayerNormalization", [x, n(3, 8)], {"axis": 1}, ("y", "inv"), domain=""
        ),
        "skip": Case("SkipLayerNormalization", [x, skip, gamma, beta, bias], {"epsilon": 1e-5},
                     ("y", "", "", "sum")),
        "skip_stretched": Case("SkipLayerNormalization", [x, skip[0], gamma]),
        "skip_simplified": Case("SkipSimplifiedLayerNormalization", [x, skip, gamma, bias],
                                {"epsilon": 1e-5}, ("y", "", "", "sum")),
        "skip_simplified_2d": Case("SkipSimplifiedLayerNormalization", [x[0], skip[0], gamma]),
        "embed": Case(
            "EmbedLayerNormalization",
            [ids, segments, words, places, parts, gamma, beta, mask],
            {"epsilon": 1e-4},
            ("y", "lengths", "sum"),
        ),
        "embed_places": Case(
            "EmbedLayerNormalization",
            [ids, None, words, places, None, gamma, beta, None, n.whole(0, 6, 2, 4, dtype="int32")],
            {},
            ("y", "lengths"),
        ),
    }  # fmt: skip


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


def products(n: Numbers) -> dict[str, Case]:
    a, b = n(2, 3, 4), n(2, 4, 5)
    x, w, bias = n(1, 3, 7, 6), n(4, 3, 3, 3), n(4)
    around = {"pads": [1, 1, 1, 1]}
    z = n(1, 4, 7, 6)
    return {
        "fused": Case("FusedMatMul", [a, b], {"alpha": 0.5}),
        "fused_turned": Case("FusedMatMul", [n(2, 4, 3), n(2, 5, 4)], {"transA": 1, "transB": 1}),
        "fused_batches": Case("FusedMatMul", [n(3, 2, 4), n(4, 2, 5)],
                              {"transBatchA": 1, "transBatchB": 1}),
        "fused_all": Case("FusedMatMul", [n(4, 2, 6, 3), n(5, 2, 6, 4)],
                          {"transBatchA": 1, "transA": 1, "transBatchB": 1, "transB": 1}),
        "transpose": Case("TransposeMatMul", [a, n(2, 5, 4)], {"transB": 1, "alpha": 2.0}),
        "gemm": Case("FusedGemm", [a[0], n(4, 5), n(5)], {"activation": "Relu", "beta": 0.5}),
        "gemm_leaky": Case("FusedGemm", [a[0], n(4, 5)],
                           {"activation": "LeakyRelu", "activation_alpha": 0.2}),
        "conv": Case("FusedConv", [x, w, bias], {"activation": "Relu", **around}),
        "conv_sum": Case("FusedConv", [x, w, bias, z], {"activation": "Relu", **around}),
        "conv_leaky": Case("FusedConv", [x, w],
                           {"activation": "LeakyRelu", "activation_params": [0.3]}),
        "conv_clip": Case("FusedConv", [x, w],
                          {"activation": "Clip", "activation_params": [-1.0, 1.5]}),
        "conv_hard": Case("FusedConv", [x, w],
                          {"activation": "HardSigmoid", "activation_params": [0.3, 0.4]}),
        "conv_transpose": Case("ConvTransposeWithDynamicPads",
                               [x, n(3, 2, 3, 3), np.array([1, 0, 1, 2]), n(2)],
                               {"strides": [2, 1]}, constants=(1, 2)),
    }  # fmt: skip


def few_bits(n: Numbers) -> dict[str, Case]:
    width, depth, block = 5, 40, 16
    blocks = 3
    x = n(2, 3, depth)
    attrs = {"K": depth, "N": width, "block_size": block}
    scales = n(width * blocks)

    def weights(bits: int) -> Array:
        return n.whole(0, 256, width, blocks, block * bits // 8, dtype="uint8")

    def case(given: list[Any], bits: int, **more: Any) -> Case:
        constants = tuple(range(1, len(given)))
        return Case("MatMulNBits", given, {**attrs, "bits": bits, **more}, constants=constants,
                    tolerance=1e-4)  # fmt: skip

    zeros = n.whole(0, 256, width * 2, dtype="uint8")
    table, rows = n.whole(0, 256, 10, 16, dtype="uint8"), n.whole(0, 10, 2, 3)
    gathered = {"block_size": 16, "quantize_axis": 1, "gather_axis": 0}
    absmax = np.abs(n(-(-width * depth // block)))
    return {
        "four": case([x, weights(4), scales], 4),
        "four_zeros": case([x, weights(4), scales, zeros], 4),
        "four_real_zeros": case([x, weights(4), scales, n(width * blocks)], 4),
        "four_bias": case([x, weights(4), scales, None, None, n(width)], 4),
        "eight": case([x, weights(8), scales], 8),
        "eight_zeros": case([x, weights(8), scales, n.whole(0, 256, 15, dtype="uint8")], 8),
        "gather": Case("GatherBlockQuantized", [table, rows, n(10, 2)], gathered,
                       constants=(0, 2)),
        "gather_zeros": Case(
            "GatherBlockQuantized",
            [table, rows, n(10, 2), n.whole(0, 256, 10, 1, dtype="uint8")],
            gathered, constants=(0, 2, 3),
        ),
        "gather_eight": Case("GatherBlockQuantized", [table, rows, n(10, 1)],
                             {**gathered, "bits": 8}, constants=(0, 2)),
        "nf4": Case("MatMulBnb4", [x, n.whole(0, 256, 100, dtype="uint8"), absmax],
                    {**attrs, "quant_type": 1}, constants=(1, 2), tolerance=1e-4),
        "fp4": Case("MatMulBnb4", [x, n.whole(0, 256, 100, dtype="uint8"), absmax],
                    {**attrs, "quant_type": 0}, constants=(1, 2), tolerance=1e-4),
    }  # fmt: skip


def others(n: Numbers) -> dict[str, Case]:
    x = n(2, 4, 5)
    square = n(3, 4, 4) + 2 * np.eye(4, dtype=np.float32)
    image, grid = n(1, 2, 4, 5), n(1, 3, 3, 2, scale=0.7)
    return {
        "inverse": Case("Inverse", [square], tolerance=1e-4),
        "inverse_swapped": Case("Inverse", [np.eye(4, dtype=np.float32)[[2, 0, 3, 1]]]),
        "trilu": Case("Trilu", [x, np.array(1)], {"upper": 0}),
        "gather_nd": Case("GatherND", [x, np.array([[0, 1], [1, 3]])]),
        "grid": Case("GridSample", [image, grid], {"mode": "bicubic", "align_corners": 1}),
        "unique": Case("Unique", [np.array([2, 1, 1, 3, 4, 3], np.float32)], {},
                       ("y", "idx", "counts")),
        "pad": Case("Pad", [x, np.array([0, 1, 0, 1, 0, 2]), np.array([1.5], np.float32)], {},
                    constants=(1,)),
        "pad_reflect": Case("Pad", [x, np.array([0, 1, 0, 1, 0, 2])], {"mode": "reflect"},
                            constants=(1,)),
        "range": Case("Range", [np.array(2.0, np.float32), np.array(7.0, np.float32)], {},
                      constants=(0, 1)),
        "expand_dims": Case("ExpandDims", [x, np.array(-1, np.int32)], {}, constants=(1,)),
        "unfold": Case("UnfoldTensor", [x], {"dim": 1, "size": 2, "step": 2}),
        "cdist": Case("CDist", [n(3, 6), n(5, 6)], {"metric": "euclidean"}, tolerance=1e-4),
        "cdist_squared": Case("CDist", [n(3, 6), n(5, 6)], {"metric": "sqeuclidean"},
                              tolerance=1e-4),
        "nhwc_max_pool": Case("NhwcMaxPool", [n.whole(-99, 99, 1, 6, 7, 3, dtype="int8")],
                              {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}),
    }  # fmt: skip


FAMILIES: tuple[Callable[[Numbers], dict[str, Case]], ...] = (
    activations, norms, masked, multi_head, rotary, grouped, products, few_bits, others, quantised,
)  # fmt: skip


def stored() -> dict[str, tuple[Case, list[Array]]]:
    """Cases with the inputs and the outputs of the file."""
    with np.load(STORED) as file:
        arrays = dict(file)
    made = {}
    for name, case in cases().items():
        inputs = [None if one is None else arrays[f"{name}.x{k}"]
                  for k, one in enumerate(case.inputs)]  # fmt: skip
        n_outputs = len([one for one in case.outputs if one])
        outputs = [arrays[f"{name}.y{k}"] for k in range(n_outputs)]
        made[name] = (replace(case, inputs=inputs), outputs)
    return made


def cases() -> dict[str, Case]:
    """All, by family and name."""
    return {
        f"{family.__name__}.{name}": case
        for seed, family in enumerate(FAMILIES)
        for name, case in family(Numbers(seed)).items()
    }


def main() -> None:
    runtime = import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    made: dict[str, Array] = {}
    for name, case in cases().items():
        text = model_of(case).SerializeToString()
        session = runtime.InferenceSession(text, options, providers=["CPUExecutionProvider"])
        made |= {f"{name}.y{k}": one for k, one in enumerate(session.run(None, fed(case)))}
        made |= {f"{name}.x{k}": one for k, one in enumerate(case.inputs) if one is not None}
    np.savez_compressed(STORED, allow_pickle=False, **made)
    print(len(made), "arrays", STORED.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
