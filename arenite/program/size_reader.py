"""Sizes that are variables, read off the shapes of arrays.

In: the shapes that arrays are to have. Out: how each variable follows from them, decided once; then
its value for the shapes of a call. A variable follows from a size that is linear in it, such as
`n`, `2 * n + 1` or `m * n` where `m` is known: first from those it is alone in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from arenite.ir.dim import (
    Dim,
    Expr,
    Found,
    Var,
    bounds,
    check_binding,
    evaluate,
    product,
    variables,
)
from arenite.records import NamedTuple


class _Reading(NamedTuple):
    """variable = (size of an axis of an array - rest) / factor"""

    variable: Var
    array: int
    axis: int
    factor: Dim
    rest: Dim


class SizeReader:
    """How the values of variables follow from shapes."""

    def __init__(self, shapes: Sequence[Sequence[Dim]], wanted: Sequence[Var]) -> None:
        self._readings: list[_Reading] = []
        known: set[Var] = set()
        sizes = [
            (array, axis, dim)
            for array, shape in enumerate(shapes)
            for axis, dim in enumerate(shape)
            if isinstance(dim, Expr)
        ]
        sizes.sort(key=lambda one: not isinstance(one[2], Var))  # which says it at once
        while found := next(self._readable(sizes, known), None):
            self._readings.append(found)
            known.add(found.variable)
        #: Names of variables that no size tells.
        self.missing = tuple(var.name for var in wanted if var not in known)

    def _readable(
        self, sizes: Sequence[tuple[int, int, Expr]], known: set[Var]
    ) -> Iterator[_Reading]:
        for array, axis, dim in sizes:
            unknown = [var for var in variables(dim) if var not in known]
            if len(unknown) != 1 or isinstance(unknown[0], Found):
                continue
            [var] = unknown
            factor: Dim = 0
            for monomial, number in dim.terms:
                if monomial.count(var) == 1:
                    factor += number * product(atom for atom in monomial if atom != var)
            rest = dim - factor * var
            if bounds(factor)[0] > 0 and var not in variables(factor) | variables(rest):
                yield _Reading(var, array, axis, factor, rest)

    def sizes(self, shapes: Sequence[Sequence[int]]) -> dict[str, int] | int:
        """The values of the variables by name; or the number of an array that fits none."""
        sizes: dict[str, int] = {}
        for one in self._readings:
            value = shapes[one.array][one.axis]
            if one.factor != 1 or one.rest != 0:
                left = value - evaluate(one.rest, sizes)
                value, over = divmod(left, evaluate(one.factor, sizes))
                if over:
                    return one.array
            sizes[one.variable.name] = check_binding(one.variable, value)
        return sizes
