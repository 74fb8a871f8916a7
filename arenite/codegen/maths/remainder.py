"""Exact remainders of floats: fmod, mod and floor division as NumPy defines them.

    r = |a|, m = |b|:   while r >= m:  r -= m * (r / m rounded)      each step exact

The quotient of two floats rounded to a float leaves a remainder that is a float, so a fused
multiply-add subtracts without error, and each turn removes as many bits as a mantissa holds.
One turn is the rule; loops end when all lanes are done. Where division is not rounded to nearest
(`exact_division`), m / m may be less than 1: quotients are corrected by what they leave, and turns
are counted.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf, nan

from arenite.codegen import loop_ir as ir
from arenite.codegen.loop_ir import Expr
from arenite.codegen.maths import formula as fx
from arenite.dtype import INT32

#: More than any two floats take.
_MOST_TURNS = 16


def truncated_mod(a: Expr, b: Expr, *, fused: bool = False, exact_division: bool = True) -> Expr:
    """C's fmod: the sign of a, NaN for infinite a or zero b, a itself for infinite b."""
    turns = partial(_turns if exact_division else _counted_turns, fused=fused)
    rest = _remainder(fx.absolute(a), fx.absolute(b), turns)
    bad = fx.equal(fx.absolute(a), inf) | fx.equal(b, 0.0) | fx.is_nan(a) | fx.is_nan(b)
    return fx.select(bad, nan, fx.with_sign_of(rest, a))


def floor_mod(a: Expr, b: Expr) -> Expr:
    """NumPy's mod: the sign of b."""
    rest = ir.Binary("fmod", a, b)
    differs = (rest < 0.0) ^ (b < 0.0)
    moved = fx.select(differs, rest + b, rest)
    return fx.select(fx.equal(rest, 0.0), fx.with_sign_of(fx.constant(0.0, a), b), moved)


def floor_divide(a: Expr, b: Expr, *, exact_division: bool = True) -> Expr:
    """NumPy's floor_divide: the whole quotient that goes with `floor_mod`."""
    rest = ir.Binary("fmod", a, b)
    quotient = (a - rest) / b if exact_division else _corrected_ratio(a - rest, b)
    differs = fx.unequal(rest, 0.0) & ((rest < 0.0) ^ (b < 0.0))
    quotient = fx.select(differs, quotient - 1.0, quotient)
    below = fx.floor(quotient)
    whole = fx.select(quotient - below > 0.5, below + 1.0, below)
    zero = fx.with_sign_of(fx.constant(0.0, a), a / b)
    whole = fx.select(fx.equal(quotient, 0.0), zero, whole)
    return fx.select(fx.equal(b, 0.0), a / b, whole)


def _remainder(r: Expr, m: Expr, turns: Callable[[Expr, Expr], Expr]) -> Expr:
    """r mod m of magnitudes; anything where m is 0 or r is not finite."""
    unusable = fx.equal(m, 0.0) | fx.equal(m, inf) | fx.equal(r, inf) | fx.is_nan(r) | fx.is_nan(m)
    rest = fx.select(unusable, 0.0, r)
    modulus = fx.select(unusable, 1.0, m)
    # First by great multiples of a small modulus, so that no quotient overflows.
    tiny, factor = (2.0**-62, 2.0**95) if r.dtype.bits == 32 else (2.0**-480, 2.0**750)
    great = modulus * factor
    rest = turns(rest, fx.select(modulus < tiny, great * factor, inf))
    rest = turns(rest, fx.select(modulus < 2.0, great, inf))
    rest = turns(rest, modulus)
    return fx.select(fx.equal(m, inf), r, rest)


def _turns(r: Expr, m: Expr, fused: bool) -> Expr:
    """Subtracts multiples of m until r < m."""
    left = ir.Name("left", r.dtype)
    step = _turn(left, m, left / m, fused)
    return ir.Iterate((left,), (r,), left >= m, (step,), left)


def _counted_turns(r: Expr, m: Expr, fused: bool) -> Expr:
    """The same, where division is not exact."""
    left, turn = ir.Name("left", r.dtype), ir.Name("turn", INT32)
    step = _turn(left, m, _corrected_ratio(left, m), fused)
    goes_on = (left >= m) & (turn < _MOST_TURNS)
    start = (r, ir.Const(0, INT32))
    return ir.Iterate((left, turn), start, goes_on, (step, turn + 1), left)


def _corrected_ratio(a: Expr, b: Expr) -> Expr:
    """a / b to nearest, almost always, of a quotient that is a few units in its last place off."""
    ratio = a / b
    better = ratio + _subtracted(a, ratio, b, fused=False) / b
    return fx.select(fx.absolute(better) < inf, better, ratio)


def _turn(left: Expr, m: Expr, ratio: Expr, fused: bool) -> Expr:
    """What is left without as many m as the ratio says."""
    whole_from = 2.0**24 if left.dtype.bits == 32 else 2.0**53
    is_whole = ratio >= whole_from
    quotient = fx.select(is_whole, ratio, ir.Unary("trunc", ratio))
    less = _subtracted(left, quotient, m, fused)
    # A quotient that was rounded up is one unit in its last place too great.
    lesser = fx.select(is_whole, fx.as_float(fx.bits(quotient) - 1), quotient - 1.0)
    return fx.select(less < 0.0, _subtracted(left, lesser, m, fused), less)


def _subtracted(r: Expr, quotient: Expr, m: Expr, fused: bool) -> Expr:
    """r - quotient * m, which is a float, exactly."""
    if fused:
        return fx.fma(-quotient, m, r)
    high, low = fx.exact_product(quotient, m)
    return (r - high) - low


def product_error(a: Expr, b: Expr, *, fused: bool = False) -> Expr:
    """What a * b rounds away; without overflow in between for all but the greatest."""
    high = a * b
    if fused:
        return fx.fma(a, b, -high)
    # Dekker: halves of the mantissas, whose products are exact.
    cut = 27 if a.dtype.bits == 64 else 12
    a_high, b_high = (fx.as_float((fx.bits(x) + (1 << cut - 1)) & -(1 << cut)) for x in (a, b))
    a_low, b_low = a - a_high, b - b_high
    return ((a_high * b_high - high) + a_high * b_low + a_low * b_high) + a_low * b_low
