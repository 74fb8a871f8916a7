"""Structures of tensors: tuples, lists, dicts and dataclasses, one in another, and None.

`flatten` gives the leaves with the path to each, and what puts others together the same way.
Leaves of a dict come in the order of its keys, however it was filled. A field of a dataclass with
`metadata={"static": True}` is no leaf: it is a part of the structure.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn, TypeAlias

from arenite.errors import InvalidArgument

#: (path, leaf): `[0]['h'].w` and whatever stands there.
Leaves: TypeAlias = list[tuple[str, Any]]


class _Leaf:
    """Stands where a leaf was."""

    def __repr__(self) -> str:
        return "*"


LEAF = _Leaf()


class Whole:
    """A base for dataclasses that are leaves."""

    __slots__ = ()


@dataclasses.dataclass(frozen=True)
class _Record:
    """Stands where a dataclass was: its class, its fields, and those that are no leaves."""

    kind: type
    fields: dict[str, Any]
    static: dict[str, Any]

    def __repr__(self) -> str:
        shown = {**self.fields, **self.static}.items()
        return f"{self.kind.__name__}({', '.join(f'{name}={part!r}' for name, part in shown)})"


def flatten(value: Any) -> tuple[Any, Leaves]:
    """(structure, leaves) of anything; all but tuples, lists, dicts, dataclasses and None are
    leaves."""
    leaves: Leaves = []
    return _apart(value, "", leaves), leaves


# Functions that call themselves stand outside of others: inside they would be cycles, which keep
# leaves, megabytes perhaps, until the collector comes by.


def _apart(part: Any, path: str, leaves: Leaves) -> Any:
    if part is None:
        return None
    if isinstance(part, dict):
        parts = {key: _apart(part[key], f"{path}[{key!r}]", leaves) for key in _keys(part)}
        return {key: parts[key] for key in part}
    if isinstance(part, tuple | list):
        names = getattr(part, "_fields", None) or [f"[{k}]" for k in range(len(part))]
        paths = [f"{path}{'.' * hasattr(part, '_fields')}{name}" for name in names]
        inner = [_apart(one, at, leaves) for one, at in zip(part, paths, strict=True)]
        return _like(part, inner)
    if is_record(part):
        fields, static = _fields(part)
        held = {name: _apart(getattr(part, name), f"{path}.{name}", leaves) for name in fields}
        return _Record(type(part), held, {name: getattr(part, name) for name in static})
    leaves.append((path, part))
    return LEAF


def unflatten(structure: Any, leaves: Sequence[Any]) -> Any:
    """The structure with these leaves in it, in order."""
    return _together(structure, iter(leaves))


def _together(part: Any, left: Iterator[Any]) -> Any:
    if part is LEAF:
        return next(left)
    if isinstance(part, dict):
        parts = {key: _together(part[key], left) for key in _keys(part)}
        return {key: parts[key] for key in part}
    if isinstance(part, _Record):
        fields = {name: _together(inner, left) for name, inner in part.fields.items()}
        return part.kind(**fields, **part.static)
    return part if part is None else _like(part, [_together(inner, left) for inner in part])


def need_same(what: str, given: Any, wanted: Any) -> None:
    """InvalidArgument unless two structures are one and the same."""
    if type(given) is type(wanted) and given == wanted:
        return
    raise InvalidArgument(f"{what} is of structure {given!r}, not {wanted!r}, where * is a tensor")


def leaves_like(what: str, value: Any, structure: Any) -> list[Any]:
    """The leaves of a value that is to have a structure, whatever these are; InvalidArgument says
    where it differs. `what` is what the value is called."""
    if structure is LEAF:
        return [value]
    leaves: list[Any] = []
    _collect(value, structure, what, leaves)
    return leaves


def _collect(part: Any, wanted: Any, path: str, leaves: list[Any]) -> None:
    if wanted is LEAF:
        leaves.append(part)
    elif isinstance(wanted, _Record):
        static = {name: getattr(part, name, LEAF) for name in wanted.static}
        if type(part) is not wanted.kind or static != wanted.static:
            _refuse(path, part, wanted)
        for name, inner in wanted.fields.items():
            _collect(getattr(part, name), inner, f"{path}.{name}", leaves)
    elif isinstance(wanted, dict):
        if not isinstance(part, Mapping) or set(part) != set(wanted):
            _refuse(path, part, wanted)
        for key in _keys(wanted):
            _collect(part[key], wanted[key], f"{path}[{key!r}]", leaves)
    elif isinstance(wanted, tuple | list):
        if not isinstance(part, tuple | list) or len(part) != len(wanted):
            _refuse(path, part, wanted)
        for k, (one, inner) in enumerate(zip(part, wanted, strict=True)):
            _collect(one, inner, f"{path}[{k}]", leaves)
    elif part is not None:
        _refuse(path, part, wanted)


def _refuse(path: str, part: Any, wanted: Any) -> NoReturn:
    try:
        given = repr(flatten(part)[0])
    except InvalidArgument:
        given = type(part).__name__
    raise InvalidArgument(f"{path} is of structure {given}, not {wanted!r}, where * is a tensor")


def is_record(value: Any) -> bool:
    """Whether a value is a dataclass that has parts."""
    is_instance = dataclasses.is_dataclass(value) and not isinstance(value, type)
    return is_instance and not isinstance(value, Whole)


def named(first: str, path: str) -> str:
    """A path as a name: `params['layers'][0].w` is params.layers.0.w."""
    text = path.replace("']", "").replace("['", ".").replace("]", "").replace("[", ".")
    return f"{first}{text}" if first else text.lstrip(".")


def _keys(part: dict[Any, Any]) -> list[Any]:
    """In an order that the keys alone decide."""
    return sorted(part, key=lambda key: (type(key).__name__, repr(key)))


def _fields(part: Any) -> tuple[list[str], list[str]]:
    """Names of fields that hold parts, and of those that are structure."""
    fields: list[str] = []
    static: list[str] = []
    for field in dataclasses.fields(part):
        if not field.init:
            raise InvalidArgument(
                f"{type(part).__name__} cannot be a structure of tensors: its field {field.name!r} "
                "is not set by __init__"
            )
        (static if field.metadata.get("static") else fields).append(field.name)
    return fields, static


def _like(model: Any, parts: list[Any]) -> Any:
    kind = type(model)
    return kind(*parts) if hasattr(model, "_fields") else kind(parts)
