"""OnnxFile: a model file, what goes in and out, and its tensors."""

from __future__ import annotations

import os

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, numpy_helper

from arenite.frontends.onnx.strings import Strings
from arenite.frontends.onnx.types import (
    STRING,
    OptionalType,
    SequenceType,
    TensorType,
    ValueType,
    dtype_of,
    type_of,
)
from arenite.frontends.onnx.values import Value
from arenite.frontends.stored import quoted

__all__ = ["OnnxFile", "OptionalType", "SequenceType", "TensorType", "ValueType"]


class OnnxFile:
    """A model: `inputs` and `outputs` by name."""

    def __init__(self, path: str, model: ModelProto) -> None:
        self.path = path
        self.model = model
        self.strings = Strings()
        graph = model.graph
        stored = {one.name for one in graph.initializer}
        self.inputs: dict[str, ValueType] = {
            one.name: type_of(one.type, f"{path}: input {quoted(one.name)}")
            for one in graph.input
            if one.name not in stored
        }
        self.outputs = [one.name for one in graph.output]

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> OnnxFile:
        """Read a file."""
        return cls(os.fspath(path), onnx.load(os.fspath(path), load_external_data=False))

    def tensor(self, proto: TensorProto) -> Value:
        """A tensor of the file."""
        dtype = dtype_of(proto.data_type, f"{self.path}: tensor {quoted(proto.name)}")
        if proto.data_type == STRING:
            texts = np.asarray(list(proto.string_data), object).reshape(tuple(proto.dims))
            return Value.of_known(self.strings.keep(texts), dtype, is_string=True)
        return Value.of_known(np.asarray(numpy_helper.to_array(proto)), dtype)
