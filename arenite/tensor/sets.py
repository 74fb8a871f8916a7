"""Elements that are there once or more often, and places in sorted vectors."""

from __future__ import annotations

from typing import Any, NamedTuple

from arenite.dtype import BOOL, INT64, Kind
from arenite.errors import InvalidArgument, ShapeMismatch
from arenite.ir import Node, full, make
from arenite.ir.compose import basic, unique
from arenite.ir.compose.basic import binary, cast, where
from arenite.ir.compose.complex_numbers import is_complex, parts
from arenite.ir.compose.indexing import counted_from_front
from arenite.tensor.base import described, node_of
from arenite.tensor.creation import asarray, wrap
from arenite.tensor.linear import promoted_nodes
from arenite.tensor.promote import INTEGERS
from arenite.tensor.tensor import Tensor, settle


class UniqueAll(NamedTuple):
    """What `unique_all` finds."""

    values: Tensor  # each element once, in order
    indices: Tensor  # where the first of them stands among all elements
    inverse_indices: Tensor  # the place of each element of x in `values`
    counts: Tensor  # how often each is there


class UniqueCounts(NamedTuple):
    """What `unique_counts` finds."""

    values: Tensor  # each element once, in order
    counts: Tensor  # how often each is there


class UniqueInverse(NamedTuple):
    """What `unique_inverse` finds."""

    values: Tensor  # each element once, in order
    inverse_indices: Tensor  # the place of each element of x in `values`


def unique_all(x: Any) -> UniqueAll:
    """Each element once, in order; where it stands first, to which each element belongs, and how
    often it is there. Every NaN is another one. How many there are is found while running: at
    once, but in a function that is being compiled when it runs.

    values, indices, inverse, counts = unique_all(x)
    """
    tensor = asarray(x)
    node = basic.reshape(tensor.node, (tensor.size,))
    keys = [*parts(node)] if is_complex(node) else [_sortable(node)]
    found = unique.groups(keys, ordered=True, joins_nan=False)
    values = make("gather", node, found.places, axis=0)
    inverse = basic.reshape(found.inverse, tensor.shape)
    result = UniqueAll(wrap(values), wrap(found.places), wrap(inverse), wrap(found.counts))
    settle(*result)
    return result


def _sortable(node: Node) -> Node:
    return cast(node, INT64) if node.dtype == BOOL else node


def unique_counts(x: Any) -> UniqueCounts:
    """Each element once, in order, and how often it is there. Every NaN is another one."""
    found = unique_all(x)
    return UniqueCounts(found.values, found.counts)


def unique_inverse(x: Any) -> UniqueInverse:
    """Each element once, in order, and to which each element belongs. Every NaN is another one."""
    found = unique_all(x)
    return UniqueInverse(found.values, found.inverse_indices)


def unique_values(x: Any) -> Tensor:
    """Each element once, in order. Every NaN is another one."""
    return unique_all(x).values


def searchsorted(x1: Any, x2: Any, side: str = "left", sorter: Any = None) -> Tensor:
    """Where elements of x2 would go into the vector x1 so that it stays sorted: before those that
    are equal, or behind them with side "right". `sorter` are the indices that sort x1.

    searchsorted([1, 3, 5], [3, 4])      # [1, 2]
    """
    if side not in ("left", "right"):
        raise InvalidArgument(f"searchsorted: side is 'left' or 'right', not {side!r}")
    vector, wanted = promoted_nodes(x1, x2)
    if vector.ndim != 1 or not isinstance(vector.shape[0], int):
        raise ShapeMismatch(f"searchsorted: a vector of known size, not {described(vector)}")
    if sorter is not None:
        order = node_of(sorter)
        if order.dtype.kind not in INTEGERS:
            raise InvalidArgument(f"searchsorted: sorter are indices, not {described(order)}")
        front = counted_from_front(cast(order, INT64), vector.shape[0])
        vector = make("gather", vector, front, axis=0)
    return wrap(_places(vector, wanted, side == "right"))


def _places(vector: Node, wanted: Node, behind: bool) -> Node:
    """By halving: as many steps as the size has bits."""
    size = vector.shape[0]
    assert isinstance(size, int)
    low = full(wanted.shape, 0, INT64)
    if size == 0:
        return low
    high = full(wanted.shape, size, INT64)
    for _ in range(size.bit_length()):
        middle = (low + high) // 2
        here = make("gather", vector, binary("minimum", middle, size - 1), axis=0)
        is_open = low < high
        goes_up = is_open & _is_before(here, wanted, behind)
        low = where(goes_up, middle + 1, low)
        high = where(is_open & ~goes_up, middle, high)
    return low


def _is_before(a: Node, b: Node, or_equal: bool) -> Node:
    """a < b, or a <= b; NaN is greater than every number, and equal to itself."""
    found = make("le" if or_equal else "lt", a, b)
    if a.dtype.kind is not Kind.FLOAT:
        return found
    no_number = make("isnan", b)
    return found | (no_number if or_equal else no_number & ~make("isnan", a))


def isin(x1: Any, x2: Any, assume_unique: bool = False, invert: bool = False) -> Tensor:
    """Whether each element of x1 is among those of x2; with `invert`, whether it is not. NaN is
    among none. `assume_unique` makes no difference.

    isin([1, 2, 3], [3, 1])      # [True, False, True]
    """
    wanted, among = (Tensor.of_node(node) for node in promoted_nodes(x1, x2))
    if among.size == 0:
        return wrap(full(wanted.shape, invert, BOOL))
    if is_complex(among.node) or not isinstance(among.size, int):
        found = (wanted.expand_dims(-1) == among.ravel()).any(-1)
    else:
        vector = make("sort", basic.reshape(among.node, (among.size,)), axis=0, descending=False)
        places = binary("minimum", _places(vector, wanted.node, False), among.size - 1)
        found = wrap(make("gather", vector, places, axis=0)) == wanted
    return ~found if invert else found
