"""pow of floats.

float32 goes through float64: 2^(y log2|x|) with polynomials of about 2^-36 relative error, then one
rounding. float64 needs the logarithm to some 65 bits, and float32 on a device without float64 to
some 35: it is computed as a sum of two floats,

    log(m) = 2 s + 2/3 s^3 + ..., s = (m - 1) / (m + 1)

with s and its first term in two parts, and multiplied by y without losing the lower part.
"""

from __future__ import annotations

from math import inf, nan
from typing import NamedTuple

from arenite.codegen import loop_ir as ir
from arenite.codegen.loop_ir import Expr
from arenite.codegen.maths import formula as fx
from arenite.codegen.maths.exponential import exp_sum
from arenite.codegen.maths.logarithm import split

_LOG2_SINGLE = (
    1.4426950408865664, -0.7213475203270134, 0.48089834880777177, -0.36067379326558097,
    0.28853879533025933, -0.24044642493047413, 0.2061071292642141, -0.18043698831734764,
    0.16021682462242096, -0.1424958450009843, 0.1302710430725139, -0.13463973719282063,
    0.1325407035421204, -0.06975496811456271,
)  # fmt: skip
_EXP2_SINGLE = (
    0.9999999999613787, 0.6931471807297945, 0.24022651201148845, 0.05550410350370657,
    0.009618026848657866, 0.0013333924020859796, 0.00015469422023357048, 1.5201819863165158e-05,
)  # fmt: skip


class _LogSum(NamedTuple):
    """What it takes to add log(m) up in two floats."""

    ln2_high: float
    ln2_low: float
    two_thirds: float
    two_thirds_low: float
    rest: tuple[float, ...]  # with s^2 the rest of the series of 2 atanh(s) / s^3
    infinite: float  # exp of more is infinite, and of less than its negative 0


#: The rest is minimax on |s| < 0.1716.
_LOG_SUM_DOUBLE = _LogSum(
    ln2_high=6.93147180369123816490e-01,
    ln2_low=1.90821492927058770002e-10,
    two_thirds=0.6666666666666666,
    two_thirds_low=3.700743415417188e-17,
    rest=(
        0.39999999999999974, 0.2857142857144705, 0.22222222217067572, 0.18181818927557408,
        0.15384552986019634, 0.13336466090629143, 0.11671816921211592, 0.12013873432410398,
    ),
    infinite=800.0,
)  # fmt: skip
_LOG_SUM_SINGLE = _LogSum(
    ln2_high=0.693359375,
    ln2_low=-2.12194440e-4,
    two_thirds=0.6666666865348816,
    two_thirds_low=-1.986821492305628e-08,
    rest=_LOG_SUM_DOUBLE.rest[:5],
    infinite=200.0,
)


def power(x: Expr, y: Expr, *, has_float64: bool = True) -> Expr:
    """C's pow: any base to the power 0 is 1, 1 to any power is 1, NaN included."""
    magnitude = fx.absolute(x)
    is_widened = x.dtype.bits == 32 and has_float64
    result = (_through_float64 if is_widened else _in_two_floats)(magnitude, y)
    # 1 to the infinite: the product with a logarithm of 0 is NaN.
    result = fx.select(fx.equal(magnitude, 1.0) & fx.equal(fx.absolute(y), inf), 1.0, result)
    is_whole = fx.equal(fx.floor(y), y)
    half = y * 0.5
    is_odd = is_whole & fx.unequal(fx.floor(half), half)
    result = fx.select((fx.bits(x) < 0) & is_odd, -result, result)
    is_finite = fx.unequal(magnitude, inf) & fx.unequal(fx.absolute(y), inf)
    no_real = (x < 0.0) & ~is_whole & is_finite
    result = fx.select(no_real, nan, result)
    result = fx.select(fx.is_nan(x) | fx.is_nan(y), nan, result)
    return fx.select(fx.equal(x, 1.0) | fx.equal(y, 0.0), 1.0, result)


def _through_float64(x: Expr, y: Expr) -> Expr:
    """Of a magnitude."""
    e, m = split(x)
    f = ir.Cast(m, fx.FLOAT64) - 1.0
    log2 = fx.fma(fx.polynomial(f, _LOG2_SINGLE), f, ir.Cast(e, fx.FLOAT64))
    is_edge = fx.equal(x, 0.0) | fx.equal(x, inf)
    edge = fx.select(fx.equal(x, 0.0), fx.constant(-inf, log2), inf)
    log2 = fx.select(is_edge, edge, log2)
    t = fx.clamp(log2 * ir.Cast(y, fx.FLOAT64), -300.0, 300.0)
    n = fx.nearest(t)
    p = fx.polynomial(t - n, _EXP2_SINGLE)
    scaled = fx.as_float(fx.bits(p) + (fx.as_integer(n) << 52))
    return ir.Cast(fx.select(fx.is_nan(t), t, scaled), x.dtype)


def _in_two_floats(x: Expr, y: Expr) -> Expr:
    """Of a magnitude."""
    c = _LOG_SUM_SINGLE if x.dtype.bits == 32 else _LOG_SUM_DOUBLE
    high, low = _log_sum(x, c)
    product, error = fx.exact_product(y, high)
    rest = fx.fma(y, low, error)
    # Beyond the range of exp the lower part means nothing, and may be NaN.
    rest = fx.select(fx.absolute(product) < c.infinite, rest, 0.0)
    is_edge = fx.equal(x, 0.0) | fx.equal(x, inf)
    edge = fx.select(fx.equal(x, 0.0), fx.constant(-inf, x), inf)
    return exp_sum(fx.select(is_edge, edge * y, product), fx.select(is_edge, 0.0, rest))


def _log_sum(x: Expr, c: _LogSum) -> tuple[Expr, Expr]:
    """log(x) as a sum of two floats, of float64 to about 2^-66 relative."""
    e, m = split(x)
    f = m - 1.0
    g = m + 1.0
    g_low = m - (g - 1.0)
    s = f / g
    # What the quotient and the sum below it lost.
    product, error = fx.exact_product(s, g)
    s_low = ((f - product) - error - s * g_low) / g
    z, z_error = fx.exact_product(s, s)
    z_low = z_error + 2.0 * (s * s_low)
    cube, cube_error = fx.exact_product(s, z)
    cube_low = cube_error + s * z_low + s_low * z
    # 2 s + 2/3 s^3 + s^5 R(s^2); the second term in two parts as well.
    term, term_error = fx.exact_product(cube, fx.constant(c.two_thirds, x))
    term_low = term_error + cube * c.two_thirds_low + cube_low * c.two_thirds
    tail = cube * z * fx.polynomial(z, c.rest)
    twice = s * 2.0
    total = twice + term
    total_low = (twice - total) + term
    low = total_low + (s_low * 2.0 + term_low + tail)
    # e ln2 on top.
    base = e * c.ln2_high
    high = base + total
    is_base_greater = fx.unequal(e, 0.0)
    high_low = fx.select(is_base_greater, (base - high) + total, total - high)
    low = low + high_low + e * c.ln2_low
    result = high + low
    return result, (high - result) + low
