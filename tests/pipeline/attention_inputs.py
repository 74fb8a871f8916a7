"""Queries, keys, values and masks that are the same for PyTorch and for us."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class Case:
    heads: int
    groups: int
    queries: int
    keys: int
    width: int = 64
    causal: bool = False
    mask: str = ""  # "add", "bool" or "padding"
    window: int = 0  # of causal attention; 0: all keys before a query


CASES = {
    "full": Case(12, 12, 128, 128),
    "causal": Case(12, 12, 200, 200, causal=True),
    "long": Case(2, 2, 70, 1500),
    "one": Case(12, 12, 1, 777),
    "groups": Case(8, 2, 33, 90),
    "one of groups": Case(8, 2, 1, 300, 128),
    "mask": Case(4, 4, 60, 75, 40, mask="add"),
    "bool": Case(4, 2, 60, 75, 40, mask="bool"),
    "padding": Case(4, 4, 100, 100, 32, mask="padding"),
    "window": Case(4, 2, 300, 300, 40, causal=True, window=37),
    "wide window": Case(6, 2, 200, 200, causal=True, window=150),
    "few in a window": Case(6, 2, 7, 7, causal=True, window=3),
}


def inputs(case: Case) -> list[Array]:
    """In float32, over [batch, heads, tokens, width]."""
    rng = np.random.default_rng(case.queries * 1000 + case.keys)
    shapes = [(2, case.heads, case.queries, case.width)]
    shapes += [(2, case.groups, case.keys, case.width)] * 2
    found: list[Array] = [rng.standard_normal(shape, dtype=np.float32) for shape in shapes]
    if case.mask == "add":
        found.append(rng.standard_normal((case.queries, case.keys), dtype=np.float32))
    elif case.mask == "bool":
        seen = rng.random((2, 1, case.queries, case.keys)) > 0.3
        seen[..., 0] = True
        found.append(seen)
    elif case.mask == "padding":
        lengths = np.array([[[[case.keys]]], [[[case.keys // 3]]]])
        found.append(np.arange(case.keys) < lengths)
    return found


def part(result: Array) -> Array:
    """Some queries and some of their results, of all heads."""
    return np.ascontiguousarray(result[..., ::7, ::5])
