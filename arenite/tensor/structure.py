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
    return _apart(value, "", leaves), leaves


# Functions that call themselves stand outside of others: inside they would be cycles, which keep
# leaves, megabytes perhaps, until the collector comes by.


def _apart(part: Any, path: str, leaves: Leaves) -> Any:
    if part is None:
        return None
    if isinstance(part, dict):
        return {key: _apart(inner, f"{path}[{key!r}]", leaves) for key, inner in part.items()}
    if isinstance(part, tuple | list):
        return _like(part, [_apart(one, f"{path}[{k}]", leaves) for k, one in enumerate(part)])
    leaves.append((path, part))
    return LEAF


def put_together(structure: Any, leaves: Sequence[Any]) -> Any:
    """The structure with these leaves in it, in order."""
    return _together(structure, iter(leaves))


def _together(part: Any, left: Iterator[Any]) -> Any:
    if part is LEAF:
        return next(left)
    if isinstance(part, dict):
        return {key: _together(inner, left) for key, inner in part.items()}
    return part if part is None else _like(part, [_together(inner, left) for inner in part])


def need_same(what: str, given: Any, wanted: Any) -> None:
    """InvalidArgument unless two structures are one and the same."""
    if type(given) is type(wanted) and given == wanted:
        return
    raise InvalidArgument(f"{what} is of structure {given!r}, not {wanted!r}, where * is a tensor")


def _like(model: Any, parts: list[Any]) -> Any:
    kind = type(model)
    return kind(*parts) if hasattr(model, "_fields") else kind(parts)
