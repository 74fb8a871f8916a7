"""Structures of tensors: tuples, lists and dicts, one in another, with None where there is nothing.

`taken_apart` gives the leaves with the path to each, and what puts others together the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from arenite.errors import InvalidArgument

#: (path, leaf): `[0]['h']` and whatever stands there.
Leaves: TypeAlias = list[tuple[str, Any]]


class _Leaf:
    """Stands where a leaf was."""

    def __repr__(self) -> str:
        return "*"


LEAF = _Leaf()


def taken_apart(value: Any) -> tuple[Any, Leaves]:
    """(structure, leaves) of anything; what is no tuple, list, dict or None is a leaf."""
    leaves: Leaves = []

    def walk(part: Any, path: str) -> Any:
        if part is None:
            return None
        if isinstance(part, dict):
            return {key: walk(inner, f"{path}[{key!r}]") for key, inner in part.items()}
        if isinstance(part, tuple | list):
            return _like(part, [walk(inner, f"{path}[{k}]") for k, inner in enumerate(part)])
        leaves.append((path, part))
        return LEAF

    return walk(value, ""), leaves


def put_together(structure: Any, leaves: Sequence[Any]) -> Any:
    """The structure with these leaves in it, in order."""
    left: Iterator[Any] = iter(leaves)

    def walk(part: Any) -> Any:
        if part is LEAF:
            return next(left)
        if isinstance(part, dict):
            return {key: walk(inner) for key, inner in part.items()}
        return part if part is None else _like(part, [walk(inner) for inner in part])

    return walk(structure)


def need_same(what: str, given: Any, wanted: Any) -> None:
    """InvalidArgument unless two structures are one and the same."""
    if type(given) is type(wanted) and given == wanted:
        return
    raise InvalidArgument(f"{what} is of structure {given!r}, not {wanted!r}, where * is a tensor")


def _like(model: Any, parts: list[Any]) -> Any:
    kind = type(model)
    return kind(*parts) if hasattr(model, "_fields") else kind(parts)
