"""OnnxFile: a model file, what goes in and out, and its tensors; no weight is read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from arenite.device.buffer import Buffer
from arenite.device.disk import DiskAllocator
from arenite.errors import InvalidFile, printable
from arenite.frontends.onnx.tensor_files import TensorFiles
from arenite.frontends.onnx.wire import Scanned, digest_of, parts_between, scan

if TYPE_CHECKING:
    from onnx import ModelProto, TensorProto

    from arenite.frontends.onnx.description import Description
    from arenite.frontends.onnx.strings import Strings
    from arenite.frontends.onnx.tensors import Tensors
    from arenite.frontends.onnx.types import ValueType
    from arenite.frontends.onnx.values import Value


class OnnxFile:
    """A model. It is parsed when someone asks for what is in it; `digest` is of all that may decide
    what it becomes but for the data of large tensors."""

    def __init__(self, path: str, file: Buffer, folder: str | None) -> None:
        self.path = path
        self.files = TensorFiles(path, file, folder)

    @cached_property
    def scanned(self) -> Scanned:
        """Its structure, and the places of large tensors."""
        return scan(self.path, self.files.file(""))

    @cached_property
    def digest(self) -> str:
        return self.scanned.digest

    def recognised(self, digest: str, ends: Sequence[tuple[int, int]]) -> bool:
        """Whether the file is one that was scanned before, with this digest and large tensors from
        and to these bytes, whatever their data is; it is not scanned then."""
        is_same = digest_of(parts_between(self.path, self.files.file(""), ends)) == digest
        if is_same:
            self.digest = digest
        return is_same

    @cached_property
    def strings(self) -> Strings:
        """Those of the file, and of calls in progress."""
        from arenite.frontends.onnx.strings import Strings

        return Strings()

    @cached_property
    def _parsed(self) -> tuple[ModelProto, Tensors]:
        from arenite.frontends.onnx.parsing import parsed

        return parsed(self.path, self.files, self.scanned, self.strings)

    @property
    def model(self) -> ModelProto:
        """As protobuf, without the data of large tensors; InvalidFile, or NotSupported, where it is
        none, or of another version of ONNX."""
        return self._parsed[0]

    @cached_property
    def inputs(self) -> dict[str, ValueType]:
        """What a call must bring, by name."""
        from arenite.frontends.onnx.parsing import inputs_of

        return inputs_of(self.path, self.model)

    @property
    def outputs(self) -> list[str]:
        """Names of what comes out."""
        return [one.name for one in self.model.graph.output]

    @cached_property
    def description(self) -> Description:
        """What is told of the model."""
        from arenite.frontends.onnx.parsing import described

        return described(self.path, self.model)

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
        return self._parsed[1].value(proto)

    def __repr__(self) -> str:
        return f"<OnnxFile {printable(self.path)}>"
