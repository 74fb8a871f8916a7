"""OnnxFile: a model file, what goes in and out, and its tensors; no weight is read."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from arenite.device import Buffer, DiskAllocator
from arenite.errors import InvalidFile, NotSupported
from arenite.frontends.onnx.checks import all_nodes, check_text, domain_of
from arenite.frontends.onnx.operators import since_version
from arenite.frontends.onnx.tensors import Tensors
from arenite.frontends.onnx.types import OptionalType, SequenceType, TensorType, ValueType, type_of
from arenite.frontends.onnx.values import Value
from arenite.frontends.onnx.wire import scan
from arenite.frontends.stored import quoted

if TYPE_CHECKING:
    from onnx import ModelProto, TensorProto

__all__ = ["OnnxFile", "OptionalType", "SequenceType", "TensorType", "ValueType"]

#: Operator sets before this one are other languages.
OLDEST_VERSION = 7


class OnnxFile:
    """A model: `inputs` by name with their types, `outputs` by name."""

    def __init__(self, path: str, file: Buffer, folder: str | None) -> None:
        self.path = path
        scanned = scan(path, file)
        self.model: ModelProto = _parsed(path, scanned.structure)
        self._tensors = Tensors(path, file, scanned.places, scanned.key, folder)
        self.strings = self._tensors.strings
        check_text(path, self.model)
        _check_versions(path, self.model)
        graph = self.model.graph
        stored = {one.name for one in graph.initializer}
        stored |= {one.values.name for one in graph.sparse_initializer}
        self.inputs: dict[str, ValueType] = {}
        for one in graph.input:
            if one.name in self.inputs:
                raise InvalidFile(f"{path}: two inputs are called {quoted(one.name)}")
            if one.name not in stored:
                self.inputs[one.name] = type_of(one.type, f"{path}: input {quoted(one.name)}")
        self.outputs = [one.name for one in graph.output]
        if not self.outputs:
            raise InvalidFile(f"{path} has no output")
        if len(set(self.outputs)) < len(self.outputs):
            raise InvalidFile(f"{path} has two outputs of one name")

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> OnnxFile:
        """Map a file."""
        given = os.fspath(path)
        return cls(given, DiskAllocator(given).file(), os.path.dirname(given) or ".")

    @classmethod
    def of_bytes(cls, data: bytes, name: str = "the model") -> OnnxFile:
        """A model in memory, which can have no other files."""
        if not data:
            raise InvalidFile(f"{name} is no ONNX file: it has no bytes")
        return cls(name, Buffer.from_array(np.frombuffer(data, np.uint8)), None)

    def tensor(self, proto: TensorProto) -> Value:
        """A tensor of the file."""
        return self._tensors.value(proto)

    def __repr__(self) -> str:
        return f"<OnnxFile {self.path}: {len(self.model.graph.node)} nodes>"


def _parsed(path: str, structure: bytes) -> ModelProto:
    from google.protobuf.message import DecodeError
    from onnx import ModelProto

    try:
        model = ModelProto()
        model.ParseFromString(structure)
    except (DecodeError, RecursionError) as error:
        raise InvalidFile(f"{path} is no ONNX file, or damaged: {error}") from error
    if not model.HasField("graph"):
        raise InvalidFile(f"{path} is no ONNX file: it has no graph")
    return model


def _has_changed(model: ModelProto, version: int) -> bool:
    """Whether an operator means something else since version 7."""
    return any(
        since_version(node.op_type, version) != since_version(node.op_type, OLDEST_VERSION)
        for node in all_nodes(model.graph.node)
        if domain_of(node.domain) == ""
    )


def _check_versions(path: str, model: ModelProto) -> None:
    from onnx.defs import onnx_opset_version

    versions = {one.domain: one.version for one in model.opset_import}
    version = versions.get("", versions.get("ai.onnx"))
    if version is None and model.functions:
        return
    if version is None:
        if any(node.domain in ("", "ai.onnx") for node in model.graph.node):
            raise InvalidFile(f"{path} does not say which version of ONNX's operators it means")
        return
    if version < OLDEST_VERSION and _has_changed(model, version):
        raise NotSupported(
            f"{path} is of version {version} of ONNX's operators; they are read from version "
            f"{OLDEST_VERSION} on. onnx.version_converter may bring it there"
        )
    if version > onnx_opset_version():
        raise NotSupported(
            f"{path} is of version {version} of ONNX's operators, and the onnx package installed "
            f"here knows {onnx_opset_version()}; a newer one may know it"
        )
