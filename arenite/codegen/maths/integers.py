"""Division rules, powers and upper halves of products of integers, out of what devices have.

A device has `div` and shifts by the rules of the loop IR. Division by a constant is cheaper: the
functions here look at whether the divisor is one.
"""

from __future__ import annotations

from arenite.codegen import loop_ir as ir
from arenite.codegen.loop_ir import Expr
from arenite.codegen.maths import formula as fx
from arenite.dtype import Kind


def _is_signed(x: Expr) -> bool:
    return x.dtype.kind is Kind.SIGNED


def absolute(x: Expr) -> Expr:
    return fx.select(x < 0, -x, x) if _is_signed(x) else x


def sign(x: Expr) -> Expr:
    positive = ir.Cast(fx.unequal(x, 0), x.dtype)
    return fx.select(x < 0, -1, positive) if _is_signed(x) else positive


def maximum(a: Expr, b: Expr) -> Expr:
    return a | b if a.dtype == ir.BOOL else fx.select(a > b, a, b)


def minimum(a: Expr, b: Expr) -> Expr:
    return a & b if a.dtype == ir.BOOL else fx.select(a < b, a, b)


def truncated_mod(a: Expr, b: Expr) -> Expr:
    """C's remainder: the sign of a; 0 for a divisor of 0."""
    if (power := _power_of_two(b)) is not None and not _is_signed(a):
        return a & (power - 1)
    return _divided(a, b)[1]


def _divided(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """Quotient and remainder, towards zero."""
    quotient = ir.Binary("div", a, b)
    rest = a - quotient * b
    is_never_zero = isinstance(b, ir.Const) and b.value != 0
    return quotient, rest if is_never_zero else fx.select(fx.equal(b, 0), 0, rest)


def floor_mod(a: Expr, b: Expr) -> Expr:
    """The sign of b."""
    if (power := _power_of_two(b)) is not None:
        return a & (power - 1)
    _, rest = _divided(a, b)
    return fx.select(_differs(rest, b), rest + b, rest) if _is_signed(a) else rest


def floor_divide(a: Expr, b: Expr) -> Expr:
    """Towards minus infinity."""
    if (power := _power_of_two(b)) is not None:
        return a >> (power.bit_length() - 1)
    quotient, rest = _divided(a, b)
    return fx.select(_differs(rest, b), quotient - 1, quotient) if _is_signed(a) else quotient


def _differs(rest: Expr, b: Expr) -> Expr:
    """Whether a remainder is not 0 and its sign is not the divisor's."""
    return fx.unequal(rest, 0) & ((rest ^ b) < 0)


def _power_of_two(b: Expr) -> int | None:
    value = int(b.value) if isinstance(b, ir.Const) else 0
    return value if value > 0 and value & (value - 1) == 0 else None


def power(x: Expr, y: Expr) -> Expr:
    """By squaring, wrapping; a negative exponent gives 0 unless the base is 1 or -1."""
    left, base, result = (ir.Name(name, x.dtype) for name in ("left", "base", "result"))
    step = ((left >> 1), base * base, fx.select(fx.unequal(left & 1, 0), result * base, result))
    one = fx.constant(1, x)
    start = (fx.select(y < 0, 0, y) if _is_signed(x) else y, x, one)
    raised = ir.Iterate((left, base, result), start, fx.unequal(left, 0), step, result)
    if not _is_signed(x):
        return raised
    negative_one = fx.select(fx.unequal(y & 1, 0), fx.constant(-1, x), 1)
    inverse = fx.select(fx.equal(x, -1), negative_one, fx.select(fx.equal(x, 1), one, 0))
    return fx.select(y < 0, inverse, raised)


def upper_product(a: Expr, b: Expr) -> Expr:
    """The upper half of a product, by halves of its factors."""
    half = a.dtype.bits // 2
    low = (1 << half) - 1
    a_low, a_high, b_low, b_high = a & low, a >> half, b & low, b >> half
    cross = a_high * b_low + ((a_low * b_low) >> half)
    other = a_low * b_high + (cross & low)
    return a_high * b_high + (cross >> half) + (other >> half)
