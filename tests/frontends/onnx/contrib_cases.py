"""Operators of com.microsoft: models of one node, inputs for them, and what ONNX Runtime makes of
these, in contrib_cases.npz beside this file.

python -m tests.frontends.onnx.contrib_cases      (with onnxruntime) writes that file
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from tests.frontends.onnx import contrib_attention_cases as attention
from tests.frontends.onnx.contrib_node import Array, Case, Numbers, fed, model_of

STORED = Path(__file__).with_suffix(".npz")


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
    activations, norms, attention.masked, attention.multi_head,
    attention.rotary, attention.grouped, products, few_bits, others, attention.quantised,
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
