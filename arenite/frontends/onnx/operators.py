"""All operators there are: handlers, and functions by which the standard defines operators."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from arenite.errors import InvalidFile, NotSupported
from arenite.frontends.onnx.attributes import attribute
from arenite.frontends.onnx.registry import handler_of
from arenite.frontends.onnx.shapes import ALWAYS_FOLDED
from arenite.frontends.onnx.values import Items, Maybe, Value
from arenite.frontends.stored_tensor import quoted

if TYPE_CHECKING:
    from onnx import AttributeProto, FunctionProto, SparseTensorProto

    from arenite.frontends.onnx.call import Call
    from arenite.frontends.onnx.translate import Source

#: Each adds its operators to the registry.
MODULES = (
    "elementwise",
    "casts",
    "creation",
    "reductions",
    "movement",
    "indexing",
    "quantised",
    "quantised_contrib",
    "linear",
    "convolution",
    "pooling",
    "normalization",
    "recurrent",
    "attention",
    "image",
    "losses",
    "signal",
    "control",
    "sequences",
    "strings",
    "random",
    "classical",
    "class_scores",
    "linear_models",
    "support_vectors",
    "tree_ensembles",
    "contrib",
    "contrib_attention",
    "contrib_cache",
    "contrib_products",
)


def load() -> None:
    """Have all handlers in the registry."""
    for name in MODULES:
        import_module(f"arenite.frontends.onnx.ops.{name}")


def is_known(domain: str, op: str, version: int) -> bool:
    """Whether there is a handler, or a function by the standard."""
    if handler_of(domain, op, version) is not None or (not domain and op in ALWAYS_FOLDED):
        return True
    schema = _schema(domain, op, version)
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def since_version(op: str, version: int) -> int | None:
    """Since when an operator of the default domain means what it does in a version."""
    schema = _schema("", op, version)
    return None if schema is None else int(schema.since_version)


def _schema(domain: str, op: str, version: int) -> Any:
    import onnx.defs

    if not onnx.defs.has(op, domain):
        return None
    try:
        return onnx.defs.get_schema(op, version, domain)
    except onnx.defs.SchemaError:
        return None


def defining_function(call: Call) -> FunctionProto:
    """The function by which the standard defines an operator."""
    import onnx
    from onnx import FunctionProto, NodeProto, TypeProto, helper

    from arenite.frontends.onnx.types import NUMBERS, STRING

    schema = _schema(call.domain, call.op, call.version)
    if schema is None:
        call.refuse(f"there is no such operator in version {call.version} of its set")
    made = FunctionProto()
    if schema.has_function:
        made.CopyFrom(schema.function_body)
        return made

    def type_of(value: object) -> TypeProto:
        if isinstance(value, Maybe):
            value = value.value
        if isinstance(value, Items):
            element = type_of(value.values[0]) if value.values else TypeProto()
            return helper.make_sequence_type_proto(element)
        if not isinstance(value, Value):
            return TypeProto()
        number = STRING if value.is_string else NUMBERS[value.dtype.name]
        shape = [one if isinstance(one, int) else str(one) for one in value.shape]
        return helper.make_tensor_type_proto(number, shape)

    node = NodeProto(op_type=call.op, domain=call.domain, name=call.name)
    node.input.extend(f"in{k}" if value is not None else "" for k, value in enumerate(call.inputs))
    node.output.extend(call.outputs)
    for name, given in call.attrs.items():
        node.attribute.append(_attribute_again(name, given))
    types = [type_of(value).SerializeToString() for value in call.inputs]
    text = schema.get_context_dependent_function(node.SerializeToString(), types)
    made.ParseFromString(text)
    if not made.node:
        call.refuse("the standard's function for it could not be made of these inputs")
    if not made.opset_import:
        made.opset_import.append(onnx.OperatorSetIdProto(domain="", version=call.version))
    return made


def _attribute_again(name: str, given: Any) -> AttributeProto:
    from onnx import helper, numpy_helper

    if isinstance(given, Value):
        assert given.known is not None
        given = numpy_helper.from_array(given.known)
    return helper.make_attribute(name, given)


def default_attributes(defaults: Mapping[str, AttributeProto], source: Source) -> dict[str, Any]:
    """Attributes that a function has where a call does not give them."""
    return {name: attribute(one, source) for name, one in defaults.items()}


#: Elements of a sparse tensor, which is held whole.
MAX_SPARSE = 1 << 28


def sparse(source: Source, proto: SparseTensorProto) -> Value:
    """A sparse tensor, whole: values in their places, zeros elsewhere."""
    shape = tuple(proto.dims)
    count = 1
    for one in shape:
        count *= one
    if any(one < 0 for one in shape) or count > MAX_SPARSE:
        raise InvalidFile(
            f"{source.path}: sparse tensor {quoted(proto.values.name)} of shape {shape} would have "
            f"{count} elements; at most {MAX_SPARSE} are made"
        )
    stored = source.tensor(proto.values)
    values, places = stored.known, source.tensor(proto.indices).known
    if values is None or places is None:
        raise NotSupported(
            f"{source.path}: sparse tensor {quoted(proto.values.name)} has too many values to be "
            "made whole while the model is read"
        )
    if places.ndim == 2:
        if places.shape[1] != len(shape) or (places < 0).any() or (places >= shape).any():
            raise InvalidFile(
                f"{source.path}: sparse tensor {quoted(proto.values.name)} has indices outside of "
                f"its shape {shape}"
            )
        places = np.ravel_multi_index(tuple(places.T), shape) if len(places) else places[:, 0]
    if places.size != values.size or (places < 0).any() or (places >= count).any():
        raise InvalidFile(
            f"{source.path}: sparse tensor {quoted(proto.values.name)} has indices outside of its "
            f"shape {shape}, or not one for each value"
        )
    if (places[1:] <= places[:-1]).any():
        raise InvalidFile(
            f"{source.path}: indices of sparse tensor {quoted(proto.values.name)} are to grow from "
            "one to the next, each once"
        )
    whole = np.zeros(count, values.dtype)
    whole[places] = values.reshape(-1)
    return Value.of_known(whole.reshape(shape), stored.dtype)
