"""The models that `bench.whole_models` runs, and inputs for them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper


@dataclass(frozen=True)
class Case:
    """A file, the family whose bar counts, and numbers for sizes that the file leaves open."""

    file: str
    family: str
    sizes: dict[str, int] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)  # of inputs that are no random numbers


CASES = {
    "bert_base": Case("bert_base.onnx", "transformers"),
    "gpt2_small": Case("gpt2_small.onnx", "transformers"),
    "vit_b16": Case("vit_b16.onnx", "transformers"),
    "minilm_l6": Case("minilm_l6.onnx", "transformers", {"batch": 1, "seq": 128}),
    "resnet50": Case("resnet50.onnx", "convolutions"),
    "mobilenet_v2": Case("mobilenet_v2.onnx", "convolutions"),
    "resnet50_u8": Case("resnet50_int8_qdq_u8s8.onnx", "int8"),
    "resnet50_s8": Case("resnet50_int8_qdq.onnx", "int8"),
    "minilm_int8": Case("minilm_l6_int8_dynamic.onnx", "int8", {"batch": 1, "seq": 128}),
    "silero_vad": Case("silero_vad.onnx", "real", {"input 1": 576}, {"sr": 16000}),
    "silero_vad_16k": Case("silero_vad_openvino_16k.onnx", "real", {"input 1": 576}, {"sr": 16000}),
    "magika": Case("model.onnx", "real"),
    "ppocr_det": Case("ch_PP-OCRv4_det_infer.onnx", "real", {"x 2": 640, "x 3": 640}),
    "ppocr_rec": Case("ch_PP-OCRv4_rec_infer.onnx", "real", {"x 2": 48, "x 3": 320}),
    "ppocr_cls": Case("ch_ppocr_mobile_v2.0_cls_infer.onnx", "real", {"x 2": 48, "x 3": 192}),
    "basic_pitch": Case("nmp.onnx", "real"),
}


def feed(name: str, path: str) -> dict[str, NDArray[Any]]:
    """Inputs: sizes left open by their names, or by input and axis, or 1."""
    case = CASES[name]
    graph = onnx.load(path, load_external_data=False).graph
    stored = {one.name for one in graph.initializer}
    rng = np.random.default_rng(1)
    made: dict[str, NDArray[Any]] = {}
    for one in graph.input:
        if one.name in stored:
            continue
        kind = one.type.tensor_type
        shape = [
            max(size.dim_value, 0)
            or case.sizes.get(size.dim_param, case.sizes.get(f"{one.name} {axis}", 1))
            for axis, size in enumerate(kind.shape.dim)
        ]
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(kind.elem_type))
        if one.name in case.values:
            made[one.name] = np.full(shape, case.values[one.name], dtype)
        elif dtype.kind == "f":
            made[one.name] = rng.standard_normal(shape).astype(dtype)
        elif "mask" in one.name:
            made[one.name] = np.ones(shape, dtype)
        else:
            made[one.name] = rng.integers(0, 100, shape).astype(dtype)
    return made
