"""Sizes found while running: how many elements are true, and where they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from arenite.dtype import INT64, DType
from arenite.ir.compose.basic import (
    along,
    binary,
    broadcast_to,
    cast,
    iota,
    reshape,
    size_like,
    where,
)
from arenite.ir.dim import Atom, Dim, Floordiv, Positive, Var, product
from arenite.ir.node import Node, Number
from arenite.ir.ops import full, make
from arenite.ir.ops import size as size_node
from arenite.ir.ops.control import cut
from arenite.ir.ops.unbounded import arange


def nonzero(mask: Node) -> Node:
    """The row-major positions of the true elements of a mask: int64[found]."""
    n = product(mask.shape)
    flat = reshape(mask, (n,))
    ones = cast(flat, INT64)
    # Each true element goes to as many places as there are true ones before it, the others to the
    # last place, which is free where there are others.
    before = make("cumsum", ones, axis=0) - 1
    places = where(flat, before, size_like(n, before) - 1)
    room = full((n,), 0, INT64)
    scattered = make("scatter_elements", room, places, iota(n), axis=0, reduction="none")
    return cut(scattered, make("sum", ones, axes=(0,)))


def counted(start: Node, stop: Node, step: int) -> Node:
    """start, start + step, ... before stop, of integers that are found while running: int64."""
    if step == 1 and start is full((), 0, INT64):
        return arange(stop)
    distance = stop - start if step > 0 else start - stop
    count = (distance + (abs(step) - 1)) // abs(step)
    return arange(count) * step + start


def filled(shape: Sequence[Dim | Node], value: Number, dtype: DType) -> Node:
    """One value in a shape whose sizes may be integers that are found while running."""
    # Each such size is that of a range which the result is made of, so that it is found before.
    ranges = {k: arange(size) for k, size in enumerate(shape) if isinstance(size, Node)}
    sizes = tuple(
        ranges[k].shape[0] if isinstance(size, Node) else size for k, size in enumerate(shape)
    )
    zeros = full((), 0, INT64)
    for k, made in ranges.items():
        zeros = zeros + along(made, k, len(shape)) * 0
    wanted = full(sizes, value, dtype)
    return where(binary("eq", broadcast_to(zeros, sizes), 0), wanted, wanted)


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
            at = at // size_like(below, at)
        if axis:
            at = at % size_like(size, at)
        found.append(at)
    return found


def number_of(dim: Dim, values: Mapping[str, Node]) -> Node:
    """A size as a number, over numbers for its variables."""
    if isinstance(dim, int):
        return full((), dim, INT64)
    total: Node | None = None
    for monomial, coefficient in dim.terms:
        term = full((), coefficient, INT64)
        for atom in monomial:
            term = term * _atom(atom, values)
        total = term if total is None else total + term
    assert total is not None
    return total


def _atom(atom: Atom, values: Mapping[str, Node]) -> Node:
    if isinstance(atom, Var):
        return values[atom.name] if atom.name in values else size_node(atom, INT64)
    if isinstance(atom, Positive):
        return binary("maximum", number_of(atom.inner, values), 0)
    assert isinstance(atom, Floordiv)
    return number_of(atom.numerator, values) // number_of(atom.divisor, values)
