"""Bounds of sums whose terms share factors and so grow together, as (h - 2) * (w - 2) does.

In: the terms, and the bounds of every factor. Out: bounds of the sum, which hold but need not be
the closest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product as cartesian
from math import prod
from typing import TypeVar

T = TypeVar("T")

# Each factor that is tried at both its ends, or counted from one of them, doubles the work.
_MAX_CORNERS = 4
_MAX_FACTORS = 8


def grow_together(terms: Sequence[tuple[tuple[T, ...], int]]) -> bool:
    """Whether terms of either sign have factors in common, few enough to be looked at."""
    factors = [factor for term, _ in terms for factor in term]
    is_mixed = len({c > 0 for _, c in terms}) == 2
    is_short = max(len(term) for term, _ in terms) <= _MAX_FACTORS
    return len(factors) > len(set(factors)) and is_mixed and is_short


def bounds_together(
    terms: Sequence[tuple[tuple[T, ...], int]], ends: Mapping[T, tuple[int, int]]
) -> tuple[int, int]:
    """Without squares a sum is least and greatest where every factor is. With them, or with many
    factors, each is counted from its least value: of (h - 2) * (h - 2), where h is 2 or more, no
    term is negative then."""
    is_flat = all(len(set(term)) == len(term) for term, _ in terms)
    if is_flat and len(ends) <= _MAX_CORNERS:
        corners = [dict(zip(ends, corner, strict=True)) for corner in cartesian(*ends.values())]
        found = [
            sum(c * prod(at[factor] for factor in term) for term, c in terms) for at in corners
        ]
        return min(found), max(found)
    counted: dict[tuple[T, ...], int] = {}
    for term, c in terms:
        for kept in cartesian((False, True), repeat=len(term)):
            parts = list(zip(term, kept, strict=True))
            own = tuple(factor for factor, is_kept in parts if is_kept)
            lows = prod(ends[factor][0] for factor, is_kept in parts if not is_kept)
            counted[own] = counted.get(own, 0) + c * lows
    low = high = counted.pop((), 0)
    for term, c in counted.items():
        most = c * prod(ends[factor][1] - ends[factor][0] for factor in term)
        low, high = low + min(0, most), high + max(0, most)
    return low, high
