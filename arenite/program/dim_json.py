"""Sizes as JSON: a number, or the text of an expression over variables."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from arenite.ir.dim import Dim, Floordiv, Found, Positive, Var, maximum, product


def dim_to_json(dim: Dim) -> int | str:
    """A number, or a text: of the many sizes of a program few are different, and each text is read
    once."""
    return dim if isinstance(dim, int) else json.dumps(_dim_to_tree(dim))


def dim_from_json(data: Any) -> Dim:
    return data if type(data) is int else _dim_of(str(data))


@lru_cache(maxsize=4096)
def _dim_of(text: str) -> Dim:
    return _dim_from_tree(json.loads(text))


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
    if type(data) is int:
        return data
    [(kind, content)] = data.items()
    if kind in ("var", "found"):
        name, low, high = content
        return (Found if kind == "found" else Var)(name, low, high)
    if kind == "div":
        return _dim_from_tree(content[0]) // _dim_from_tree(content[1])
    if kind == "positive":
        return maximum(_dim_from_tree(content), 0)
    total: Dim = 0
    for number, atoms in content:
        total = total + product([int(number), *map(_dim_from_tree, atoms)])
    return total
