"""Sizes found while running: how many elements are true, and where they are."""

from __future__ import annotations

from arenite.ir.compose.basic import INT64, binary, cast, iota, reshape, size_like, where
from arenite.ir.dim import product
from arenite.ir.node import Node
from arenite.ir.ops import full, make
from arenite.ir.ops.control import cut


def nonzero(mask: Node) -> Node:
    """The row-major positions of the true elements of a mask: int64[found]."""
    n = product(mask.shape)
    flat = reshape(mask, (n,))
    ones = cast(flat, INT64)
    # Each true element goes to as many places as there are true ones before it, the others behind
    # the end.
    before = binary("sub", make("cumsum", ones, axis=0), 1)
    places = where(flat, before, size_like(n, before))
    room = full((n + 1,), 0, INT64)
    scattered = make("scatter_elements", room, places, iota(n), axis=0, reduction="none")
    return cut(scattered, make("sum", ones, axes=(0,)))


def positions_on_axes(mask: Node) -> list[Node]:
    """numpy.nonzero: for each axis where along it the true elements are."""
    flat = nonzero(mask)
    if mask.ndim == 1:
        return [flat]
    found = []
    for axis, size in enumerate(mask.shape):
        below = product(mask.shape[axis + 1 :])
        at = flat
        if below != 1:
            at = binary("floordiv", at, size_like(below, at))
        if axis:
            at = binary("mod", at, size_like(size, at))
        found.append(at)
    return found
