"""Models of one ONNX operator each, and inputs for them: what `bench.operators` runs.

A case is written as the node's inputs (arrays that a run is given, or constants of the file) and
its attributes. Sizes are those of real networks: images of 56 by 56, sequences of 128.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

OPSET = 18
Array = NDArray[Any]


@dataclass(frozen=True)
class Case:
    """A node: what it is given in a run, what the file holds, its attributes, how many outputs.
    An input that is left out has an empty name; `order` says which is which."""

    op: str
    given: Mapping[str, Array]
    stored: Mapping[str, Array] = field(default_factory=dict)
    attrs: Mapping[str, Any] = field(default_factory=dict)
    n_outputs: int = 1
    order: tuple[str, ...] = ()
    opset: int = OPSET

    def model(self) -> onnx.ModelProto:
        names = list(self.order) or [*self.given, *self.stored]
        results = [f"y{k}" for k in range(self.n_outputs)]
        node = helper.make_node(self.op, names, results, **self.attrs)
        graph = helper.make_graph(
            [node],
            self.op,
            [
                helper.make_tensor_value_info(
                    name, helper.np_dtype_to_tensor_dtype(one.dtype), one.shape
                )
                for name, one in self.given.items()
            ],
            [helper.make_empty_tensor_value_info(name) for name in results],
            [numpy_helper.from_array(one, name) for name, one in self.stored.items()],
        )
        opsets = [helper.make_opsetid("", self.opset)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
        for output in inferred.graph.output:
            if not output.type.tensor_type.elem_type:  # not inferred: as the first input
                output.type.CopyFrom(inferred.graph.input[0].type)
        return inferred


_RNG = np.random.default_rng(1)


def _f(*shape: int) -> Array:
    return _RNG.standard_normal(shape).astype(np.float32)


def _i(bound: int, *shape: int) -> Array:
    return _RNG.integers(0, bound, shape).astype(np.int64)


def _n(*numbers: float, dtype: type = np.int64) -> Array:
    return np.array(numbers, dtype)


def _boxes(n: int, size: float = 600.0) -> Array:
    corners = _RNG.random((n, 2)) * size
    return np.concatenate([corners, corners + 4 + _RNG.random((n, 2)) * 90], 1).astype(np.float32)


def _unary(op: str, *shape: int, **attrs: Any) -> Case:
    return Case(op, {"x": _f(*shape)}, attrs=attrs)


def _axes(op: str, axes: tuple[int, ...], *shape: int) -> Case:
    """A reduction."""
    return Case(op, {"x": _f(*shape)}, {"axes": _n(*axes)})


def _conv(*weights: int, image: tuple[int, ...], op: str = "Conv", **attrs: Any) -> Case:
    bias = weights[0] if op == "Conv" else weights[1] * attrs.get("group", 1)
    return Case(op, {"x": _f(*image)}, {"w": _f(*weights) * 0.1, "b": _f(bias)}, attrs)


def _resize(scale: float, *shape: int, **attrs: Any) -> Case:
    scales = _n(*(1.0 for _ in shape[:-2]), scale, scale, dtype=np.float32)
    return Case("Resize", {"x": _f(*shape)}, {"scales": scales}, attrs, order=("x", "", "scales"))


def _recurrent(op: str, gates: int, n: int = 1, directions: int = 2) -> Case:
    attrs = {"hidden_size": 96, "direction": "bidirectional" if directions == 2 else "forward"}
    w, r = _f(directions, gates * 96, 120) * 0.1, _f(directions, gates * 96, 96) * 0.1
    return Case(op, {"x": _f(80, n, 120)}, {"w": w, "r": r}, attrs)


_IMAGE = (1, 64, 56, 56)
_HALF = np.float16

CASES: dict[str, Case] = {
    "nms": Case(
        "NonMaxSuppression",
        {"boxes": _boxes(2000)[None], "scores": _RNG.random((1, 1, 2000), np.float32)},
        {"most": _n(200), "iou": _n(0.5, dtype=np.float32), "score": _n(0.3, dtype=np.float32)},
    ),
    "nms_classes": Case(
        "NonMaxSuppression",
        {"boxes": _boxes(1000)[None], "scores": _RNG.random((1, 20, 1000), np.float32)},
        {"most": _n(50), "iou": _n(0.5, dtype=np.float32), "score": _n(0.5, dtype=np.float32)},
    ),
    "gathernd": Case("GatherND", {"x": _f(64, 64, 64), "at": _i(64, 4096, 2)}),
    "gathernd_points": Case("GatherND", {"x": _f(64, 64, 64), "at": _i(64, 4096, 3)}),
    "gather_rows": Case("Gather", {"x": _f(5000, 256), "at": _i(5000, 128)}, attrs={"axis": 0}),
    "gather_middle": Case("Gather", {"x": _f(64, 100, 64), "at": _i(100, 50)}, attrs={"axis": 1}),
    "gather_last": Case("Gather", {"x": _f(256, 1024), "at": _i(1024, 200)}, attrs={"axis": 1}),
    "gather_elements": Case(
        "GatherElements", {"x": _f(64, 1000), "at": _i(1000, 64, 100)}, attrs={"axis": 1}
    ),
    "gather_elements_middle": Case(
        "GatherElements", {"x": _f(16, 300, 64), "at": _i(300, 16, 100, 64)}, attrs={"axis": 1}
    ),
    "scatternd": Case("ScatterND", {"x": _f(256, 64), "at": _i(256, 128, 1), "new": _f(128, 64)}),
    "scatternd_points": Case(
        "ScatterND", {"x": _f(256, 256), "at": _i(256, 2048, 2), "new": _f(2048)}
    ),
    "scatter_elements": Case(
        "ScatterElements",
        {"x": _f(64, 1000), "at": _i(1000, 64, 100), "new": _f(64, 100)},
        attrs={"axis": 1},
    ),
    "scatter_elements_add": Case(
        "ScatterElements",
        {"x": _f(1000, 64), "at": _i(1000, 100, 64), "new": _f(100, 64)},
        attrs={"axis": 0, "reduction": "add"},
    ),
    "resize_nearest": _resize(2.0, *_IMAGE, mode="nearest"),
    "resize_nearest_floor": _resize(
        2.0,
        *_IMAGE,
        mode="nearest",
        nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    ),
    "resize_nearest_down": _resize(0.5, *_IMAGE, mode="nearest"),
    "resize_linear": _resize(2.0, *_IMAGE, mode="linear"),
    "resize_linear_corners": _resize(
        2.0, *_IMAGE, mode="linear", coordinate_transformation_mode="align_corners"
    ),
    "resize_linear_large": _resize(8.0, 1, 21, 64, 64, mode="linear"),
    "resize_linear_down": _resize(0.5, 1, 3, 512, 512, mode="linear"),
    "resize_cubic": _resize(2.0, 1, 3, 128, 128, mode="cubic"),
    "pad_reflect": Case(
        "Pad", {"x": _f(*_IMAGE)}, {"pads": _n(0, 0, 3, 3, 0, 0, 3, 3)}, {"mode": "reflect"}
    ),
    "pad_reflect_audio": Case(
        "Pad", {"x": _f(1, 16000)}, {"pads": _n(0, 200, 0, 200)}, {"mode": "reflect"}
    ),
    "pad_edge": Case(
        "Pad", {"x": _f(*_IMAGE)}, {"pads": _n(0, 0, 3, 3, 0, 0, 3, 3)}, {"mode": "edge"}
    ),
    "pad_wrap": Case(
        "Pad",
        {"x": _f(*_IMAGE)},
        {"pads": _n(0, 0, 3, 3, 0, 0, 3, 3)},
        {"mode": "wrap"},
        opset=19,
    ),
    "pad_zeros": Case("Pad", {"x": _f(*_IMAGE)}, {"pads": _n(0, 0, 3, 3, 0, 0, 3, 3)}),
    "roialign": Case(
        "RoiAlign",
        {"x": _f(1, 64, 50, 50), "rois": _boxes(100), "at": np.zeros(100, np.int64)},
        attrs={"output_height": 7, "output_width": 7, "sampling_ratio": 2, "spatial_scale": 0.06},
    ),
    "deform_conv": Case(
        "DeformConv",
        {"x": _f(1, 32, 40, 40), "w": _f(32, 32, 3, 3) * 0.1, "offset": _f(1, 18, 40, 40)},
        attrs={"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]},
        opset=22,
    ),
    "grid_sample": Case(
        "GridSample",
        {"x": _f(*_IMAGE), "grid": (_RNG.random((1, 56, 56, 2)) * 2 - 1).astype(np.float32)},
        attrs={"mode": "bilinear"},
        opset=16,
    ),
    "maxpool": _unary("MaxPool", *_IMAGE, kernel_shape=[2, 2], strides=[2, 2]),
    "maxpool_3": _unary("MaxPool", *_IMAGE, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
    "maxpool_odd": _unary("MaxPool", *_IMAGE, kernel_shape=[3, 3], strides=[3, 1]),
    "maxpool_1d": _unary("MaxPool", 1, 64, 4000, kernel_shape=[3], strides=[3]),
    "maxpool_3d": _unary("MaxPool", 1, 16, 16, 32, 32, kernel_shape=[2] * 3, strides=[2] * 3),
    "averagepool": _unary(
        "AveragePool", *_IMAGE, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]
    ),
    "global_pool": _unary("GlobalAveragePool", 1, 512, 14, 14),
    "topk": Case("TopK", {"x": _f(16, 8400)}, {"k": _n(100)}, n_outputs=2),
    "topk_rows": Case("TopK", {"x": _f(256, 1000)}, {"k": _n(5)}, n_outputs=2),
    "cumsum": Case("CumSum", {"x": _f(64, 1000)}, {"axis": np.array(1)}),
    "cumsum_middle": Case("CumSum", {"x": _f(16, 100, 64)}, {"axis": np.array(1)}),
    "argmax": _unary("ArgMax", 64, 1000, axis=-1),
    "argmax_channels": _unary("ArgMax", 1, 21, 128, 128, axis=1),
    "transpose_nhwc": _unary("Transpose", *_IMAGE, perm=[0, 2, 3, 1]),
    "transpose_nchw": _unary("Transpose", 1, 56, 56, 64, perm=[0, 3, 1, 2]),
    "transpose_heads": _unary("Transpose", 1, 128, 12, 64, perm=[0, 2, 1, 3]),
    "transpose_5": _unary("Transpose", 1, 8, 8, 56, 56, perm=[0, 2, 1, 4, 3]),
    "transpose_shuffle": _unary("Transpose", 1, 16, 2, 2, 28, 28, perm=[0, 1, 4, 2, 5, 3]),
    "depth_to_space": _unary("DepthToSpace", *_IMAGE, blocksize=2),
    "space_to_depth": _unary("SpaceToDepth", *_IMAGE, blocksize=2),
    "where": Case("Where", {"c": _f(1, 1, 128, 128) > 0, "a": _f(1, 12, 128, 128), "b": _f(1)}),
    "cast_half": Case("Cast", {"x": _f(*_IMAGE)}, attrs={"to": onnx.TensorProto.FLOAT16}),
    "cast_float": Case(
        "Cast", {"x": _f(*_IMAGE).astype(_HALF)}, attrs={"to": onnx.TensorProto.FLOAT}
    ),
    "cast_int64": Case("Cast", {"x": _f(*_IMAGE)}, attrs={"to": onnx.TensorProto.INT64}),
    "cast_bytes": Case(
        "Cast",
        {"x": _i(255, *_IMAGE).astype(np.uint8)},
        attrs={"to": onnx.TensorProto.FLOAT},
    ),
    "concat": Case("Concat", {"a": _f(*_IMAGE), "b": _f(*_IMAGE)}, attrs={"axis": 1}),
    "concat_last": Case("Concat", {"a": _f(3136, 64), "b": _f(3136, 32)}, attrs={"axis": 1}),
    "slice": Case(
        "Slice", {"x": _f(*_IMAGE)}, {"s": _n(0, 1), "e": _n(56, 56), "a": _n(2, 3), "t": _n(2, 2)}
    ),
    "split": Case(
        "Split", {"x": _f(1, 128, 768)}, attrs={"axis": 2, "num_outputs": 3}, n_outputs=3
    ),
    "tile": Case("Tile", {"x": _f(1, 64, 28, 28)}, {"n": _n(1, 1, 2, 2)}),
    "expand": Case("Expand", {"x": _f(64, 1, 128)}, {"to": _n(64, 100, 128)}),
    "layer_norm": Case(
        "LayerNormalization", {"x": _f(128, 768)}, {"s": _f(768), "b": _f(768)}, {"axis": -1}
    ),
    "layer_norm_odd": Case(
        "LayerNormalization", {"x": _f(128, 7, 11)}, {"s": _f(7, 11), "b": _f(7, 11)}, {"axis": 1}
    ),
    "instance_norm": Case("InstanceNormalization", {"x": _f(*_IMAGE)}, {"s": _f(64), "b": _f(64)}),
    "group_norm": Case(
        "GroupNormalization",
        {"x": _f(*_IMAGE)},
        {"s": _f(64), "b": _f(64)},
        {"num_groups": 8},
        opset=21,
    ),
    "batch_norm": Case(
        "BatchNormalization",
        {"x": _f(*_IMAGE)},
        {"s": _f(64), "b": _f(64), "m": _f(64), "v": _RNG.random(64, np.float32) + 0.5},
    ),
    "lp_norm": _unary("LpNormalization", 128, 512, axis=-1, p=2),
    "lrn": _unary("LRN", *_IMAGE, size=5),
    "softmax": _unary("Softmax", 12, 128, 128, axis=-1),
    "softmax_middle": _unary("Softmax", 1, 21, 128, 128, axis=1),
    "reduce_mean_image": _axes("ReduceMean", (2, 3), *_IMAGE),
    "reduce_max_channels": _axes("ReduceMax", (1,), *_IMAGE),
    "reduce_sum_first": _axes("ReduceSum", (0,), 128, 768),
    "conv_3x3": _conv(64, 64, 3, 3, image=_IMAGE, pads=[1, 1, 1, 1]),
    "conv_dilated": _conv(64, 64, 3, 3, image=_IMAGE, pads=[2] * 4, dilations=[2, 2]),
    "conv_dilated_6": _conv(64, 64, 3, 3, image=(1, 64, 32, 32), pads=[6] * 4, dilations=[6, 6]),
    "conv_groups": _conv(64, 8, 3, 3, image=_IMAGE, pads=[1, 1, 1, 1], group=8),
    "conv_depthwise": _conv(64, 1, 3, 3, image=_IMAGE, pads=[1, 1, 1, 1], group=64),
    "conv_depthwise_7": _conv(64, 1, 7, 7, image=_IMAGE, pads=[3] * 4, group=64),
    "conv_depthwise_dilated": _conv(
        64, 1, 3, 3, image=_IMAGE, pads=[2] * 4, group=64, dilations=[2, 2]
    ),
    "conv_1x1": _conv(128, 64, 1, 1, image=_IMAGE),
    "conv_first": _conv(32, 3, 3, 3, image=(1, 3, 224, 224), pads=[1] * 4, strides=[2, 2]),
    "conv_one_channel": _conv(1, 1, 5, 5, image=(1, 1, 224, 224), pads=[2] * 4),
    "conv_1d": _conv(128, 80, 3, image=(1, 80, 1000), pads=[1, 1]),
    "conv_1d_stride": _conv(128, 128, 3, image=(1, 128, 1000), pads=[1, 1], strides=[2]),
    "conv_1d_wide": _conv(258, 1, 256, image=(1, 1, 8000), strides=[64]),
    "conv_3d": _conv(32, 16, 3, 3, 3, image=(1, 16, 16, 28, 28), pads=[1] * 6),
    "conv_transpose": _conv(
        64, 32, 2, 2, image=(1, 64, 28, 28), op="ConvTranspose", strides=[2, 2]
    ),
    "conv_transpose_4": _conv(
        64, 32, 4, 4, image=(1, 64, 28, 28), op="ConvTranspose", strides=[2, 2], pads=[1] * 4
    ),
    "conv_transpose_1d": _conv(
        64, 32, 8, image=(1, 64, 400), op="ConvTranspose", strides=[4], pads=[2, 2]
    ),
    "matmul_batches": Case("MatMul", {"a": _f(12, 128, 64), "b": _f(12, 64, 128)}),
    "gemm": Case("Gemm", {"a": _f(128, 256)}, {"b": _f(512, 256), "c": _f(512)}, {"transB": 1}),
    "einsum": Case(
        "Einsum",
        {"a": _f(1, 128, 12, 64), "b": _f(1, 128, 12, 64)},
        attrs={"equation": "bqhd,bkhd->bhqk"},
    ),
    "lstm": _recurrent("LSTM", 4),
    "gru": _recurrent("GRU", 3),
    "rnn": _recurrent("RNN", 1),
    "hardswish": _unary("HardSwish", *_IMAGE),
    "gelu": Case("Gelu", {"x": _f(128, 3072)}, opset=20),
    "erf": _unary("Erf", 128, 3072),
    "pow": Case("Pow", {"x": np.abs(_f(*_IMAGE)), "e": _n(2.5, dtype=np.float32)}),
    "mod": Case("Mod", {"x": _i(1000, 100, 100), "m": _n(7)}),
    "equal": Case("Equal", {"x": _i(10, 100, 1000), "m": _i(10, 100, 1000)}),
    "one_hot": Case("OneHot", {"x": _i(100, 512)}, {"n": _n(100), "v": _n(0, 1, dtype=np.float32)}),
    "trilu": _unary("Trilu", 12, 128, 128),
    "nonzero": Case("NonZero", {"x": _f(100, 200) > 0.5}),
    "compress": Case("Compress", {"x": _f(1000, 64), "c": _f(1000) > 0}, attrs={"axis": 0}),
    "stft": Case(
        "STFT",
        {"x": _f(1, 16000, 1)},
        {"step": np.array(160), "window": np.hanning(400).astype(np.float32)},
        opset=17,
    ),
    "dynamic_quantize": Case("DynamicQuantizeLinear", {"x": _f(128, 768)}, n_outputs=3),
}
