"""Rounding to whole numbers, signs, the greater of two: where a device has no instruction."""

from __future__ import annotations

from arenite.codegen import loop_ir as ir
from arenite.codegen.loop_ir import Expr
from arenite.codegen.maths.formula import (
    INFINITY,
    NAN,
    absolute,
    as_float,
    bits,
    constant,
    equal,
    floor,
    is_nan,
    nearest,
    select,
    with_sign_of,
)


def round_even(x: Expr) -> Expr:
    """Adding 2^(mantissa bits) leaves no fraction; above that there is none to begin with."""
    big = 2.0**23 if x.dtype.bits == 32 else 2.0**52
    magnitude = absolute(x)
    rounded = with_sign_of((magnitude + big) - big, x)
    return select(magnitude < big, rounded, x)


def round_down(x: Expr) -> Expr:
    whole = nearest(x)
    return with_sign_of(select(whole > x, whole - 1.0, whole), x)


def round_up(x: Expr) -> Expr:
    return -floor(-x)


def truncate(x: Expr) -> Expr:
    return with_sign_of(floor(absolute(x)), x)


def sign(x: Expr) -> Expr:
    below = select(x < 0.0, constant(-1.0, x), select(equal(x, 0.0), 0.0, x))
    return select(x > 0.0, 1.0, below)


def copysign(x: Expr, y: Expr) -> Expr:
    top = -1 << x.dtype.bits - 1
    return as_float((bits(x) & ~top) | (bits(y) & top))


def is_infinite(x: Expr) -> Expr:
    return equal(absolute(x), INFINITY)


def maximum(a: Expr, b: Expr) -> Expr:
    """The greater; NaN if one of them is, since `a > b` does not hold if b is."""
    return select(is_nan(a), NAN, select(a > b, a, b))


def minimum(a: Expr, b: Expr) -> Expr:
    return select(is_nan(a), NAN, select(a < b, a, b))


def reciprocal(x: Expr) -> Expr:
    return 1.0 / x


def reciprocal_root(x: Expr) -> Expr:
    return 1.0 / ir.Unary("sqrt", x)
