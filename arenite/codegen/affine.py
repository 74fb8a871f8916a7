"""How an index moves with the variable of a vector loop.

An index is split into `coefficient * variable + rest`: a coefficient of 1 is a contiguous access,
0 a broadcast, -1 a reversed one, another constant or a run-time number a strided one. What does
not split that way is gathered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from arenite.codegen import loop_ir as ir

#: A term of the rest: an expression the variable does not occur in, times a constant.
Term = tuple[ir.Expr, int]

#: How often an element may come, side by side, in a vector that is loaded once.
REPEATS = (2, 4, 8)

_MAX_COEFFICIENT = 2**31


@dataclass(frozen=True, slots=True)
class Affine:
    coefficient: int
    strides: tuple[Term, ...]  # run-time numbers, added to the coefficient
    terms: tuple[Term, ...]
    constant: int

    def scaled(self, factor: int) -> Affine:
        return Affine(
            self.coefficient * factor,
            tuple((expr, times * factor) for expr, times in self.strides),
            tuple((expr, times * factor) for expr, times in self.terms),
            self.constant * factor,
        )

    def plus(self, other: Affine) -> Affine:
        return Affine(
            self.coefficient + other.coefficient,
            self.strides + other.strides,
            self.terms + other.terms,
            self.constant + other.constant,
        )


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the names around an index mean."""

    variable: str
    is_varying: Callable[[ir.Expr], bool]
    definition: Callable[[str], ir.Expr | None]  # of a name that is a Let
    times: int = 1  # the variable is looked for divided by this


def split(expr: ir.Expr, around: Surroundings) -> Affine | None:
    """The index as coefficient, strides and rest, or None if it does not move evenly."""
    if isinstance(expr, ir.Const):
        return Affine(0, (), (), int(expr.value))
    if isinstance(expr, ir.Binary) and expr.op in ("add", "sub"):
        return _sum(expr, around)
    if isinstance(expr, ir.Binary) and expr.op == "mul":
        return _product(expr, around)
    if not around.is_varying(expr):
        return Affine(0, (), ((expr, 1),), 0)
    match expr:
        case ir.Name(name):
            if name == around.variable:
                return Affine(1, (), (), 0) if around.times == 1 else None
            definition = around.definition(name)
            return None if definition is None else split(definition, around)
        case ir.Binary("floordiv", ir.Name(name), ir.Const(value)):
            is_variable = name == around.variable and value == around.times
            return Affine(1, (), (), 0) if is_variable else None
        case ir.Unary("neg", x):
            inner = split(x, around)
            return None if inner is None else inner.scaled(-1)
        case ir.Binary("shift_left", a, ir.Const(value)) if 0 <= value < 31:
            inner = split(a, around)
            return None if inner is None else inner.scaled(1 << int(value))
    return None


def _sum(expr: ir.Binary, around: Surroundings) -> Affine | None:
    a = split(expr.a, around)
    b = split(expr.b, around)
    if a is None or b is None:
        return None
    return a.plus(b if expr.op == "add" else b.scaled(-1))


def _product(expr: ir.Binary, around: Surroundings) -> Affine | None:
    for constant, other in ((expr.a, expr.b), (expr.b, expr.a)):
        if isinstance(constant, ir.Const) and abs(constant.value) < _MAX_COEFFICIENT:
            inner = split(other, around)
            return None if inner is None else inner.scaled(int(constant.value))
    if not around.is_varying(expr):
        return Affine(0, (), ((expr, 1),), 0)
    for factor, other in ((expr.a, expr.b), (expr.b, expr.a)):
        inner = split(other, around) if not around.is_varying(factor) else None
        # A run-time stride: only where the variable's part is the variable itself, times a number.
        if inner is not None and not inner.strides and not inner.terms and inner.constant == 0:
            return Affine(0, ((factor, inner.coefficient),), (), 0)
    return None
