"""Records of a program as JSON, and back: field by field, as the record's class annotates them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, TypeVar

from arenite import dtype as dtypes
from arenite.dtype import DType
from arenite.ir.dim import Dim, Expr
from arenite.ir.node import Origin
from arenite.program.dim_json import dim_from_json, dim_to_json
from arenite.program.steps import StepKind

T = TypeVar("T")


def to_json(value: Any) -> Any:
    """A record, a field of one, or several, as plain data."""
    if isinstance(value, Expr):
        return dim_to_json(value)
    if isinstance(value, tuple):
        return [to_json(one) for one in value]
    if isinstance(value, Mapping):
        return {name: to_json(one) for name, one in value.items()}
    if isinstance(value, DType):
        return value.name
    return value.value if isinstance(value, Enum) else value


def record_from_json(kind: type[T], data: list[Any]) -> T:
    """A record with all its fields, in order."""
    return kind(*(_field(*one) for one in zip(kind.__annotations__.values(), data, strict=True)))


def fields_from_json(kind: type[Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """Some fields of a record, by name."""
    return {name: _field(kind.__annotations__[name], one) for name, one in data.items()}


def _field(annotation: Any, data: Any) -> Any:
    text: str = getattr(annotation, "__forward_arg__", annotation)  # as a NamedTuple keeps it
    if data is None and text.endswith(" | None"):
        return None
    read: Callable[[Any], Any] = _READERS.get(text.removesuffix(" | None"), _integers)
    return read(data)


def _integers(data: list[Any]) -> tuple[Any, ...]:
    """Integers in a row, or rows of them."""
    return tuple(_integers(one) if isinstance(one, list) else int(one) for one in data)


def _dims(data: list[Any]) -> tuple[Dim, ...]:
    return tuple(map(dim_from_json, data))


def _three(data: list[Any]) -> tuple[Dim, Dim, Dim]:
    x, y, z = map(dim_from_json, data)
    return x, y, z


_READERS: dict[str, Callable[[Any], Any]] = {
    "str": str,
    "int": int,
    "bool": bool,
    "ValueId": int,
    "DType": lambda name: dtypes.of(str(name)),
    "StepKind": StepKind,
    "Dim": dim_from_json,
    "tuple[Dim, ...]": _dims,
    "tuple[Dim, Dim, Dim]": _three,
    "Mapping[str, Dim]": lambda data: {str(name): dim_from_json(d) for name, d in data.items()},
    "tuple[Origin, ...]": lambda data: tuple(record_from_json(Origin, one) for one in data),
}
