"""Records of a program as JSON, and back: field by field, as the record's class annotates them. A
size is a number, or the text of an expression over variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from functools import lru_cache
from typing import Any, TypeVar

from arenite import dtype as dtypes
from arenite import saved_json
from arenite.dtype import DType
from arenite.ir.dim import Atom, Dim, Expr, Floordiv, Found, Positive, Sum, Var, bounds
from arenite.ir.node import Origin
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


def dim_to_json(dim: Dim) -> int | str:
    """A number, or a text: of the many sizes of a program few are different, and each text is read
    once."""
    return dim if isinstance(dim, int) else _text_of(dim)


@lru_cache(maxsize=4096)
def _text_of(dim: Expr) -> str:
    return saved_json.dumps(_dim_to_tree(dim))


def dim_from_json(data: Any) -> Dim:
    return data if type(data) is int else _dim_of(str(data))


@lru_cache(maxsize=4096)
def _dim_of(text: str) -> Dim:
    return _dim_from_tree(saved_json.loads(text))


def _dim_to_tree(dim: Dim) -> Any:
    if isinstance(dim, int):
        return dim
    if isinstance(dim, Var):
        kind = "found" if isinstance(dim, Found) else "var"
        return {kind: [dim.name, dim.low, dim.high]}
    if isinstance(dim, Floordiv):
        return {"div": [_dim_to_tree(dim.numerator), _dim_to_tree(dim.divisor)]}
    if isinstance(dim, Positive):
        return {"positive": _dim_to_tree(dim.inner)}
    return {"sum": [[number, [_dim_to_tree(a) for a in atoms]] for atoms, number in dim.terms]}


def _dim_from_tree(data: Any) -> Dim:
    """As it was written: what was in canonical form still is, and is not worked out again."""
    if type(data) is int:
        return data
    [(kind, content)] = data.items()
    if kind in ("var", "found"):
        name, low, high = content
        return (Found if kind == "found" else Var)(name, low, high)
    if kind == "div":
        divisor = _dim_from_tree(content[1])
        if bounds(divisor)[0] < 1:
            raise ValueError(f"a size is divided by {divisor}")
        return Floordiv(_expr_from_tree(content[0]), divisor)
    if kind == "positive":
        return Positive(_expr_from_tree(content))
    return Sum(tuple((tuple(map(_atom_from_tree, atoms)), int(c)) for c, atoms in content))


def _expr_from_tree(data: Any) -> Expr:
    dim = _dim_from_tree(data)
    if isinstance(dim, int):
        raise ValueError(f"{dim} where an expression is needed")
    return dim


def _atom_from_tree(data: Any) -> Atom:
    dim = _dim_from_tree(data)
    if not isinstance(dim, Atom):
        raise ValueError(f"{dim} where a factor is needed")
    return dim


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
