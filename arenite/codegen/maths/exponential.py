"""exp, exp2, expm1 and sigmoid of float32 and float64.

    x = n ln2 + r, |r| <= ln2 / 2        exp(x) = 2^n (1 + r + r^2 Q(r))

Q is a minimax polynomial. ln2 is split in two so that n times its upper part is exact also without
fused multiply-add. The last multiplication by 2^n rounds once, into denormals and to infinity.

    sigmoid(x) = 2^-k / (2^-k + 2^-k exp(-x))

The power keeps exp(-x) finite as far down as the result is not 0.
"""

from __future__ import annotations

from typing import NamedTuple

from arenite.codegen import loop_ir as ir
from arenite.codegen.loop_ir import Expr
from arenite.codegen.maths import formula as fx

LOG2_E = 1.4426950408889634


class _Constants(NamedTuple):
    ln2_high: float
    ln2_low: float
    bias: int
    lowest: float  # below it exp is 0
    highest: float  # above it exp is infinite, with room for a factor of 2
    minus_one: float  # below it expm1 is -1
    infinite: float  # above it expm1 is infinite
    exp: tuple[float, ...]
    expm1: tuple[float, ...]
    exp2: tuple[float, ...]


_SINGLE = _Constants(
    ln2_high=0.693359375,
    ln2_low=-2.12194440e-4,
    bias=127,
    lowest=-104.0,
    highest=90.0,
    minus_one=-18.0,
    infinite=89.0,
    exp=(
        0.4999999403953552, 0.16666516661643982, 0.041668105870485306, 0.00836913101375103,
        0.0013836437137797475,
    ),
    expm1=(
        0.5, 0.16666539013385773, 0.04166661202907562, 0.008367099799215794,
        0.0013917619362473488,
    ),
    exp2=(
        0.6931471824645996, 0.24022594094276428, 0.055503662675619125, 0.00962543860077858,
        0.0013387897051870823, 0.00013335637049749494,
    ),
)  # fmt: skip
_DOUBLE = _Constants(
    ln2_high=6.93147180369123816490e-01,
    ln2_low=1.90821492927058770002e-10,
    bias=1023,
    lowest=-746.0,
    highest=711.0,
    minus_one=-38.0,
    infinite=710.0,
    exp=(
        0.5000000000000011, 0.1666666666666643, 0.04166666666652566, 0.008333333333479668,
        0.001388888894492458, 0.00019841269546523843, 2.480149165597721e-05,
        2.755754375413334e-06, 2.763079550057086e-07, 2.5015709075280504e-08,
    ),
    expm1=(
        0.5000000000000006, 0.16666666666666685, 0.04166666666657295, 0.008333333333314465,
        0.0013888888932614945, 0.00019841269903342083, 2.4801504146320548e-05,
        2.7557227647909324e-06, 2.7626451207495053e-07, 2.5114577542117724e-08,
    ),
    exp2=(
        0.6931471805599453, 0.24022650695910172, 0.05550410866482457, 0.009618129107577146,
        0.001333355814557223, 0.00015403530478657717, 1.5252734729380569e-05,
        1.3215424634731536e-06, 1.0177661721301039e-07, 7.075581167676415e-09,
        4.5181134143269733e-10,
    ),
)  # fmt: skip


def _constants(x: Expr) -> _Constants:
    return _SINGLE if x.dtype.bits == 32 else _DOUBLE


def exp(x: Expr) -> Expr:
    return exp_times_power(x, 0)


def exp_times_power(x: Expr, power: int) -> Expr:
    """exp(x) * 2^power for a small power, without overflow in between."""
    c = _constants(x)
    n, r = _reduced(fx.clamp(x, c.lowest, c.highest - power), c)
    p = fx.fma(fx.polynomial(r, c.exp), r * r, r) + 1.0
    return scale(p, n + float(power) if power else n)


def sigmoid(x: Expr) -> Expr:
    power = -24 if x.dtype.bits == 32 else -56
    unit = fx.constant(2.0**power, x)
    return unit / (_exp_in_units(-x, power) + unit)


def times_sigmoid(a: Expr, x: Expr) -> Expr:
    """a * sigmoid(x), also where sigmoid(x) is too small to be exact and the product is not."""
    # A small power: what it takes from `a` may be lost, if that is almost a denormal itself.
    power = -8
    unit = 2.0**power
    return (a * unit) / (_exp_in_units(-x, power) + unit)


def _exp_in_units(x: Expr, power: int) -> Expr:
    """exp(x) * 2^power, a little less exact, where 1 or more units are added to it: of float32 the
    power is in the coefficients and costs nothing."""
    if x.dtype.bits == 64:
        return exp_times_power(x, power)
    c = _constants(x)
    n, r = _reduced(fx.clamp(x, c.lowest, c.highest - power), c)
    return scale(fx.polynomial(r, [2.0**power * term for term in (1.0, 1.0, *c.exp)]), n)


def exp_sum(high: Expr, low: Expr) -> Expr:
    """exp(high + low) with |low| far below |high|."""
    c = _constants(high)
    n, r = _reduced(fx.clamp(high, c.lowest, c.highest), c)
    r = r + low
    return scale(fx.fma(fx.polynomial(r, c.exp), r * r, r) + 1.0, n)


def exp2(x: Expr) -> Expr:
    c = _constants(x)
    x = fx.clamp(x, -1.5 * c.bias, c.bias + 1.0)
    n = fx.nearest(x)
    r = x - n
    return scale(fx.fma(fx.polynomial(r, c.exp2), r, 1.0), n)


def expm1(x: Expr) -> Expr:
    c = _constants(x)
    n, r = _reduced(fx.clamp(x, c.minus_one, c.infinite), c)
    near = fx.fma(fx.polynomial(r, c.expm1), r * r, r)
    # 2^n near + (2^n - 1), halved, since 2^n may overflow where the result does not.
    half = power_of_two(n - 1.0)
    return fx.with_sign_of(fx.fma(half, near, half - 0.5) * 2.0, x)


def exp_in_range(x: Expr) -> Expr:
    """exp(x) of |x| so small that the result is a normal number."""
    c = _constants(x)
    n, r = _reduced(x, c)
    return (fx.fma(fx.polynomial(r, c.exp), r * r, r) + 1.0) * power_of_two(n)


def _reduced(x: Expr, c: _Constants) -> tuple[Expr, Expr]:
    n = fx.nearest(x * LOG2_E)
    return n, fx.fma(n, -c.ln2_low, fx.fma(n, -c.ln2_high, x))


def power_of_two(n: Expr) -> Expr:
    """2^n for a whole n in the range of normal numbers."""
    return _power_bits(fx.as_integer(n))


def _power_bits(n: Expr) -> Expr:
    mantissa, bias = (23, 127) if n.dtype.bits == 32 else (52, 1023)
    return fx.as_float((n + bias) << mantissa)


def scale(p: Expr, n: Expr) -> Expr:
    """p * 2^n for p near 1 and a whole n, rounded once."""
    return ir.Binary("ldexp", p, n)


def ldexp(p: Expr, n: Expr) -> Expr:
    """In two steps, so that neither power leaves the normal numbers."""
    whole = fx.as_integer(n)
    half = whole >> 1
    return p * _power_bits(half) * _power_bits(whole - half)
