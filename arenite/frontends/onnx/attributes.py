"""Attributes of a node in Python: numbers, text, lists, tensors as values, graphs as they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from arenite.errors import InvalidFile
from arenite.frontends.stored import quoted

if TYPE_CHECKING:
    from onnx import AttributeProto, NodeProto

    from arenite.frontends.onnx.translate import Source

# AttributeProto.AttributeType
FLOAT, INT, STRING, TENSOR, GRAPH, FLOATS, INTS, STRINGS, TENSORS, GRAPHS, SPARSE = range(1, 12)
TYPE = 13


def attributes(proto: NodeProto, outer: Mapping[str, Any], source: Source) -> dict[str, Any]:
    """By name. `outer` has those of the function that the node stands in the body of."""
    found: dict[str, Any] = {}
    for one in proto.attribute:
        if one.name in found:
            raise InvalidFile(f"{source.path}: attribute {quoted(one.name)} of a node comes twice")
        if one.ref_attr_name:
            if one.ref_attr_name in outer:
                found[one.name] = outer[one.ref_attr_name]
        else:
            found[one.name] = attribute(one, source)
    if getattr(proto, "overload", ""):
        found["overload"] = proto.overload
    return found


def attribute(one: AttributeProto, source: Source) -> Any:
    """The value of an attribute."""
    kind = one.type or _guessed(one)
    if kind == FLOAT:
        return one.f
    if kind == INT:
        return one.i
    if kind == STRING:
        return _text(one.s)
    if kind == TENSOR:
        return source.tensor(one.t)
    if kind == GRAPH:
        return one.g
    if kind == FLOATS:
        return list(one.floats)
    if kind == INTS:
        return list(one.ints)
    if kind == STRINGS:
        return [_text(text) for text in one.strings]
    if kind == TENSORS:
        return [source.tensor(tensor) for tensor in one.tensors]
    if kind == GRAPHS:
        return list(one.graphs)
    if kind == SPARSE:
        return one.sparse_tensor
    if kind == TYPE:
        return one.tp
    raise InvalidFile(f"{source.path}: attribute {quoted(one.name)} is of an unknown kind, {kind}")


def _text(given: bytes) -> str:
    return given.decode("utf-8", "replace")


def _guessed(one: AttributeProto) -> int:
    """Files from before attributes had types: the field that is set."""
    for field, kind in (("f", FLOAT), ("i", INT), ("s", STRING), ("t", TENSOR), ("g", GRAPH)):
        if one.HasField(field):
            return kind
    lists = (one.floats, FLOATS), (one.ints, INTS), (one.strings, STRINGS)
    return next((kind for values, kind in lists if values), 0)
