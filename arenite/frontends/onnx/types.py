"""Types of an ONNX file: elements, and what inputs and outputs are."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from arenite.dtype import SCALARS, DType
from arenite.errors import InvalidFile, NotSupported
from arenite.records import NamedTuple

if TYPE_CHECKING:
    from onnx import TypeProto

#: TensorProto.DataType to the names of dtypes; strings are places in a table.
NAMES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    8: "int64",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
    14: "complex64",
    15: "complex128",
    16: "bfloat16",
    17: "float8_e4m3fn",
    18: "float8_e4m3fnuz",
    19: "float8_e5m2",
    20: "float8_e5m2fnuz",
    21: "uint4",
    22: "int4",
    23: "float4_e2m1fn",
    24: "float8_e8m0fnu",
    25: "uint2",
    26: "int2",
    27: "float6_e2m3fn",
    28: "float6_e3m2fn",
}
STRING = 8

#: And back; int64 is itself.
NUMBERS = {name: number for number, name in NAMES.items() if number != STRING}


def dtype_of(number: int, where: str) -> DType:
    """The dtype for a TensorProto.DataType."""
    name = NAMES.get(number)
    if name is None:
        raise InvalidFile(f"{where}: there is no element type {number}")
    return SCALARS[name]


class TensorType(NamedTuple):
    """`shape` has numbers, names of sizes, and None for sizes nobody named; None: any rank."""

    dtype: DType
    shape: tuple[int | str | None, ...] | None
    is_string: bool = False

    def __str__(self) -> str:
        kind = "string" if self.is_string else self.dtype.name
        if self.shape is None:
            return f"{kind}[...]"
        return f"{kind}[{', '.join('?' if one is None else str(one) for one in self.shape)}]"


class _Of:
    """A type that is made of another."""

    __slots__ = ("element",)

    def __init__(self, element: ValueType) -> None:
        self.element = element

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.element == self.element

    def __hash__(self) -> int:
        return hash((type(self), self.element))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.element!r})"


class SequenceType(_Of):
    """Any number of values of one type."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"sequence of {self.element}"


class OptionalType(_Of):
    """A value, or none."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"optional {self.element}"


class MapType(NamedTuple):
    """Numbers by label."""

    key: str  # the name of a dtype, or "string"
    element: TensorType

    def __str__(self) -> str:
        return f"map from {self.key} to {self.element}"


ValueType: TypeAlias = TensorType | SequenceType | OptionalType | MapType


def type_to_json(kind: ValueType) -> list[Any]:
    """As `type_from_json` reads it."""
    if isinstance(kind, TensorType):
        return ["tensor", kind.dtype.name, kind.shape, kind.is_string]
    if isinstance(kind, MapType):
        return ["map", kind.key, type_to_json(kind.element)]
    return [
        "sequence" if isinstance(kind, SequenceType) else "optional",
        type_to_json(kind.element),
    ]


def type_from_json(data: list[Any]) -> ValueType:
    """ValueError, TypeError or LookupError where it is none."""
    kind, *rest = data
    if kind == "tensor":
        dtype, shape, is_string = rest
        sizes = None if shape is None else tuple(map(_checked_size, shape))
        return TensorType(SCALARS[dtype], sizes, bool(is_string))
    if kind == "map":
        key, inner = rest
        element = type_from_json(inner)
        if not isinstance(element, TensorType):
            raise ValueError(f"a map to {element}")
        return MapType(str(key), element)
    [inner] = rest
    made: ValueType = _MADE_OF[kind](type_from_json(inner))
    return made


_MADE_OF: dict[str, Callable[[ValueType], ValueType]] = {
    "sequence": SequenceType,
    "optional": OptionalType,
}


def _checked_size(size: object) -> int | str | None:
    if size is not None and type(size) not in (int, str):
        raise ValueError(f"{size!r} is no size")
    return size  # type: ignore[return-value]


def type_of(proto: TypeProto, where: str, depth: int = 0) -> ValueType:
    """What a TypeProto says."""
    kind = proto.WhichOneof("value")
    if kind == "tensor_type":
        tensor = proto.tensor_type
        shape: tuple[int | str | None, ...] | None = None
        if tensor.HasField("shape"):
            shape = tuple(_size(one, where) for one in tensor.shape.dim)
        return TensorType(dtype_of(tensor.elem_type, where), shape, tensor.elem_type == STRING)
    if depth > 8:
        raise InvalidFile(f"{where}: its type is nested more than 8 deep")
    if kind == "sequence_type":
        return SequenceType(type_of(proto.sequence_type.elem_type, where, depth + 1))
    if kind == "optional_type":
        return OptionalType(type_of(proto.optional_type.elem_type, where, depth + 1))
    if kind == "map_type":
        element = type_of(proto.map_type.value_type, where, depth + 1)
        if isinstance(element, TensorType):
            key = proto.map_type.key_type
            return MapType("string" if key == STRING else dtype_of(key, where).name, element)
    if kind is None:
        raise InvalidFile(f"{where} has no type")
    raise NotSupported(f"{where} is of {kind.replace('_', ' ')}, which is not read")


def _size(dim: object, where: str) -> int | str | None:
    kind = dim.WhichOneof("value")  # type: ignore[attr-defined]
    if kind == "dim_value":
        value: int = dim.dim_value  # type: ignore[attr-defined]
        if value < 0:
            return None  # some exporters write -1 for "any"
        return value
    name: str | bytes = dim.dim_param if kind == "dim_param" else ""  # type: ignore[attr-defined]
    if isinstance(name, bytes):
        raise InvalidFile(f"{where}: the name of a size is no text")
    return name or None
