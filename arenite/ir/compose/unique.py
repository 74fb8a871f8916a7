"""Elements or rows that are there once or more often: their first places, groups and counts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

from arenite.dtype import BOOL, INT64, Kind
from arenite.ir.compose.basic import binary, cast, iota, where
from arenite.ir.compose.counted_sizes import nonzero
from arenite.ir.node import Node
from arenite.ir.ops import full, make
from arenite.ir.ops.control import cut


class Groups(NamedTuple):
    """Groups of equal rows; how many there are is found while running."""

    places: Node  # int64[found]: where the first row of each group stands
    inverse: Node  # int64[n]: the group of each row
    counts: Node  # int64[found]: rows of each group


def groups(keys: Sequence[Node], ordered: bool, joins_nan: bool = True) -> Groups:
    """Groups of the rows that are equal in all keys (vectors of one length), NaN to NaN too unless
    `joins_nan` is false.

    Groups are in the order of their keys, the first key counting most, or in that of their first
    rows."""
    n = keys[0].shape[0]
    order = make("argsort", keys[-1], axis=0, descending=False)
    for key in reversed(keys[:-1]):
        again = make("argsort", _taken(key, order), axis=0, descending=False)
        order = _taken(order, again)
    steps = iota(n)
    before = binary("maximum", steps - 1, 0)
    rows = (_taken(k, order) for k in keys)
    differing = [_differ(row, _taken(row, before), joins_nan) for row in rows]
    is_first = binary("eq", steps, 0) | reduce(lambda a, b: a | b, differing)
    if ordered:
        found = nonzero(is_first)
        places, flags = _taken(order, found), is_first
        group = _counted(is_first)
    else:
        flags = _put(full((n,), False, BOOL), order, is_first)
        places = nonzero(flags)
        # Of each sorted row the first one of its group, and the number of that among first ones.
        start = make("cummax", where(is_first, steps, 0), axis=0)
        group = _taken(_counted(flags), _taken(order, start))
    ones = full((n,), 1, INT64)
    zeros = full((n,), 0, INT64)
    sums = make("scatter_elements", zeros, group, ones, axis=0, reduction="add")
    counts = cut(sums, make("sum", cast(flags, INT64), axes=(0,)))
    return Groups(places, _put(zeros, order, group), counts)


def _taken(x: Node, places: Node) -> Node:
    return make("gather", x, places, axis=0)


def _put(x: Node, places: Node, values: Node) -> Node:
    return make("scatter_elements", x, places, values, axis=0, reduction="none")


def _counted(flags: Node) -> Node:
    """How many are true before each."""
    return make("cumsum", cast(flags, INT64), axis=0) - 1


def _differ(a: Node, b: Node, joins_nan: bool) -> Node:
    differ = make("ne", a, b)
    if a.dtype.kind is not Kind.FLOAT or not joins_nan:
        return differ
    both = make("isnan", a) & make("isnan", b)
    return differ & (both ^ True)
