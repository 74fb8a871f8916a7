"""A file's structure as protobuf, and what it says of the model: checked before anything is
translated."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from arenite.errors import InvalidFile, NotSupported
from arenite.frontends.onnx.checks import all_nodes, check_text, domain_of
from arenite.frontends.onnx.description import Description, Port
from arenite.frontends.onnx.operators import since_version
from arenite.frontends.onnx.tensors import Tensors
from arenite.frontends.onnx.types import (
    MapType,
    OptionalType,
    SequenceType,
    ValueType,
    type_of,
)
from arenite.frontends.stored_tensor import quoted

if TYPE_CHECKING:
    from onnx import ModelProto, OperatorSetIdProto, ValueInfoProto

    from arenite.frontends.onnx.strings import Strings
    from arenite.frontends.onnx.tensor_files import TensorFiles
    from arenite.frontends.onnx.wire import Scanned

#: Operator sets before this one are other languages.
OLDEST_VERSION = 7


def parsed(
    path: str, files: TensorFiles, scanned: Scanned, strings: Strings
) -> tuple[ModelProto, Tensors]:
    """The model and its tensors; names are text, and operators of a version that is read."""
    model = _parsed(path, scanned.structure)
    check_text(path, model)
    _check_versions(path, model)
    inputs_of(path, model)
    outputs_of(path, model)
    return model, Tensors(path, files, scanned.places, scanned.key, strings)


def inputs_of(path: str, model: ModelProto) -> dict[str, ValueType]:
    """What a call must bring, by name."""
    graph = model.graph
    stored = {one.name for one in graph.initializer}
    stored |= {one.values.name for one in graph.sparse_initializer}
    names = [one.name for one in graph.input]
    for name in names:
        if names.count(name) > 1:
            raise InvalidFile(f"{path}: two inputs are called {quoted(name)}")
    return {one.name: _input_type(path, one) for one in graph.input if one.name not in stored}


def outputs_of(path: str, model: ModelProto) -> list[str]:
    """Names of what comes out."""
    outputs = [one.name for one in model.graph.output]
    if not outputs:
        raise InvalidFile(f"{path} has no output")
    if len(set(outputs)) < len(outputs):
        raise InvalidFile(f"{path} has two outputs of one name")
    return outputs


def described(path: str, model: ModelProto) -> Description:
    """What is told of a model."""
    graph, required = model.graph, inputs_of(path, model)
    inputs = [Port(one.name, _input_type(path, one), one.name in required) for one in graph.input]
    types = (type_of(one.type, f"{path}: output {quoted(one.name)}") for one in graph.output)
    outputs = tuple(map(Port, outputs_of(path, model), types))
    return Description.of(model, tuple(inputs), outputs)


def _input_type(path: str, one: ValueInfoProto) -> ValueType:
    where = f"{path}: input {quoted(one.name)}"
    kind = type_of(one.type, where)
    inner = kind
    while isinstance(inner, SequenceType | OptionalType):
        inner = inner.element
    if isinstance(inner, MapType):
        raise NotSupported(f"{where} is a {kind}, which is not read")
    return kind


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


def _versions(path: str, imports: Iterable[OperatorSetIdProto]) -> dict[str, int]:
    """Versions of operator sets by domain: one of each, and such as there may be."""
    versions: dict[str, int] = {}
    for one in imports:
        domain = domain_of(one.domain)
        what = f"operators of {quoted(domain or 'ai.onnx')}"
        if versions.setdefault(domain, one.version) != one.version:
            raise InvalidFile(f"{path} has {what} of versions {versions[domain]} and {one.version}")
        if not 0 <= one.version < 2**31:
            raise InvalidFile(f"{path} has {what} of version {one.version}, which can't be")
    return versions


def _check_versions(path: str, model: ModelProto) -> None:
    from onnx.defs import onnx_opset_version

    versions = _versions(path, model.opset_import)
    for function in model.functions:
        _versions(path, function.opset_import)
    version = versions.get("")
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
