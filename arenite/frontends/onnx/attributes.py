"""Attributes of a node in Python: numbers, text, lists, tensors as values, graphs as they are."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from arenite.errors import InvalidFile
from arenite.frontends.onnx.values import Value
from arenite.frontends.stored_tensor import quoted

if TYPE_CHECKING:
    from onnx import AttributeProto, NodeProto

    from arenite.frontends.onnx.call import Call
    from arenite.frontends.onnx.translate import Source

# AttributeProto.AttributeType
FLOAT, INT, STRING, TENSOR, GRAPH, FLOATS, INTS, STRINGS, TENSORS, GRAPHS, SPARSE = range(1, 12)
TYPE = 13

#: What values of each kind are in Python, and what they are called.
KINDS = {
    FLOAT: ((float,), "a number"),
    INT: ((int,), "an integer"),
    STRING: ((str,), "text"),
    TENSOR: ((Value,), "a tensor"),
    FLOATS: ((list,), "a list of numbers"),
    INTS: ((list,), "a list of integers"),
    STRINGS: ((list,), "a list of texts"),
    TENSORS: ((list,), "a list of tensors"),
    GRAPHS: ((list,), "a list of graphs"),
}
#: What lists hold.
ELEMENTS = {FLOATS: float, INTS: int, STRINGS: str, TENSORS: Value}
#: And what protobuf has classes for, by their names.
MESSAGES = {GRAPH: "GraphProto", SPARSE: "SparseTensorProto", TYPE: "TypeProto"}


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


def check_attributes(call: Call) -> None:
    """Attributes are of the kinds that the standard gives them; others than these are let be."""
    kinds = _kinds(call.domain, call.op, call.version)
    for name, value in call.attrs.items():
        kind = kinds.get(name)
        if kind in MESSAGES:
            if type(value).__name__ != MESSAGES[kind]:
                call.fail(f"attribute {quoted(name)} is no {MESSAGES[kind]}")
        elif kind in KINDS:
            classes, what = KINDS[kind]
            element = ELEMENTS.get(kind, object)
            if not isinstance(value, classes) or (
                isinstance(value, list) and not all(isinstance(one, element) for one in value)
            ):
                call.fail(f"attribute {quoted(name)} is not {what}")


@cache
def _kinds(domain: str, op: str, version: int) -> dict[str, int]:
    """Kinds of the attributes of an operator by the standard; none of one it does not know."""
    import onnx.defs

    try:
        schema = onnx.defs.get_schema(op, version, domain)
    except onnx.defs.SchemaError:
        return {}
    attributes: Any = schema.attributes  # its kinds have numbers that their types do not tell
    return {name: one.type.value for name, one in attributes.items()}


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
