"""A model in bytes: weights signed, one scale a channel; activations signed or not, calibrated on
random images. The form is QDQ, which ONNX Runtime and OpenVINO both take as integers."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_static,
)


class _Images(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self) -> None:
        rng = np.random.default_rng(1)
        images = [{"x": rng.random((1, 3, 224, 224), np.float32)} for _ in range(4)]
        self.images: Iterator[Any] = iter(images)

    def get_next(self) -> Any:
        return next(self.images, None)


def quantized(model: onnx.ModelProto, unsigned: bool) -> onnx.ModelProto:
    with tempfile.TemporaryDirectory() as folder:
        before, after = Path(folder, "before.onnx"), Path(folder, "after.onnx")
        onnx.save(model, before)
        quantize_static(
            before,
            after,
            _Images(),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QUInt8 if unsigned else QuantType.QInt8,
            weight_type=QuantType.QInt8,
        )
        return onnx.load(after)
