"""Rounding to whole numbers, signs, the greater of two: where a device has no instruction."""

from __future__ import annotations

from math import inf, nan

from arenite.codegen import loop_ir as ir
from arenite.codegen.loop_ir import Expr
from arenite.codegen.maths import formula as fx


def round_even(x: Expr) -> Expr:
    """Adding 2^(mantissa bits) leaves no fraction; above that there is none to begin with."""
    big = 2.0**23 if x.dtype.bits == 32 else 2.0**52
    magnitude = fx.absolute(x)
    rounded = fx.with_sign_of((magnitude + big) - big, x)
    return fx.select(magnitude < big, rounded, x)


def round_down(x: Expr) -> Expr:
    whole = fx.nearest(x)
    return fx.with_sign_of(fx.select(whole > x, whole - 1.0, whole), x)


def round_up(x: Expr) -> Expr:
    return -fx.floor(-x)


def truncate(x: Expr) -> Expr:
    return fx.with_sign_of(fx.floor(fx.absolute(x)), x)


def sign(x: Expr) -> Expr:
    below = fx.select(x < 0.0, fx.constant(-1.0, x), fx.select(fx.equal(x, 0.0), 0.0, x))
    return fx.select(x > 0.0, 1.0, below)


def copysign(x: Expr, y: Expr) -> Expr:
    top = -1 << x.dtype.bits - 1
    return fx.as_float((fx.bits(x) & ~top) | (fx.bits(y) & top))


def is_infinite(x: Expr) -> Expr:
    return fx.equal(fx.absolute(x), inf)


def maximum(a: Expr, b: Expr) -> Expr:
    """The greater; NaN if one of them is, since `a > b` does not hold if b is."""
    return fx.select(fx.is_nan(a), nan, fx.select(a > b, a, b))


def minimum(a: Expr, b: Expr) -> Expr:
    return fx.select(fx.is_nan(a), nan, fx.select(a < b, a, b))


def reciprocal(x: Expr) -> Expr:
    return 1.0 / x


def reciprocal_root(x: Expr) -> Expr:
    return 1.0 / ir.Unary("sqrt", x)
