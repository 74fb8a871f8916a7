"""sin, cos and tan of float32 and float64, of any size.

    x = n pi/2 + r, |r| <= pi/4       sin(x) = +-sin(r) or +-cos(r), by n mod 4

pi/2 is split into parts whose products with n are exact, so r keeps full accuracy next to multiples
of pi/2. What lies beyond that reach is rare, and reduced with as many digits of 2/pi as it needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from arenite.codegen import loop_ir as ir
from arenite.codegen.loop_ir import Expr
from arenite.codegen.maths import formula as fx
from arenite.codegen.maths.large_angles import reduce_large

TWO_OVER_PI = 0.6366197723675814

#: pi/2 in parts: full floats for a fused multiply-add, short ones where products must be exact.
_PARTS_SINGLE_FMA = (1.5707963705062866, -4.371139000186241e-08, -1.7151245100008823e-15)
_PARTS_SINGLE = (
    1.5703125, 0.0004837512969970703, 7.549533620476723e-08, 2.5632829192545614e-12,
    6.123234262925839e-17,
)  # fmt: skip
_PARTS_DOUBLE = (
    1.57079632673412561417, 6.07710050630396597660e-11, 2.02226624871116645580e-21,
    8.47842766036889956997e-32,
)  # fmt: skip

#: The greatest |x| that the parts serve.
_REACH_SINGLE_FMA = 1.0e5
_REACH_SINGLE = 8.0e3
_REACH_DOUBLE = 1.0e6

_SIN_SINGLE = (-0.16666655242443085, 0.008332189172506332, -0.0001951828453456983)
_SIN_DOUBLE = (
    -0.1666666666666663, 0.00833333333332184, -0.00019841269829358528, 2.755731353851426e-06,
    -2.5050734389276326e-08, 1.5895433292555462e-10,
)  # fmt: skip
_COS_SINGLE = (0.04166664555668831, -0.0013887309469282627, 2.4432327336398885e-05)
_COS_DOUBLE = (
    0.041666666666666595, -0.0013888888888873338, 2.480158728899748e-05,
    -2.7557314215299145e-07, 2.0875705115003845e-09, -1.1358732776899329e-11,
)  # fmt: skip
_TAN_SINGLE = (
    0.33333349227905273, 0.13332675397396088, 0.05405891314148903, 0.02128620818257332,
    0.0108274444937706, 9.824127482715994e-05, 0.0043727015145123005,
)  # fmt: skip
_TAN_DOUBLE = (
    0.33333333333333376, 0.13333333333326075, 0.053968253972541166, 0.021869488408644167,
    0.008863237777475129, 0.003592102352083885, 0.0014560353092052294, 0.0005889148543720879,
    0.00024357427696942535, 8.40062287350005e-05, 6.64144614390008e-05, -2.461945838513788e-05,
    4.7793647662555823e-05, -2.3858436855489352e-05, 9.706872905285594e-06,
)  # fmt: skip


class _Angle(NamedTuple):
    """r + low + quadrant pi/2."""

    quadrant: Expr
    r: Expr
    low: Expr | None  # what r lacks, of float64


def sin(x: Expr, *, fused: bool = False) -> Expr:
    near, far, is_far = _reduced(x, fused)
    return fx.select(fx.equal(x, 0.0), x, ir.Rare(is_far, _wave(far), _wave(near)))


def cos(x: Expr, *, fused: bool = False) -> Expr:
    near, far, is_far = _reduced(x, fused)
    return ir.Rare(is_far, _wave(_turned(far)), _wave(_turned(near)))


def tan(x: Expr, *, fused: bool = False) -> Expr:
    near, far, is_far = _reduced(x, fused)
    return fx.select(fx.equal(x, 0.0), x, ir.Rare(is_far, _tangent(far), _tangent(near)))


def _turned(angle: _Angle) -> _Angle:
    return angle._replace(quadrant=angle.quadrant + 1)


def _tangent(angle: _Angle) -> Expr:
    quadrant, r, low = angle
    z = r * r
    p = fx.polynomial(z, _TAN_SINGLE if r.dtype.bits == 32 else _TAN_DOUBLE)
    correction = low if low is None else fx.fma(z, low, low)
    t = r + _plus(p * (r * z), correction)
    is_odd = fx.unequal(quadrant & 1, 0)
    return fx.select(is_odd, -1.0 / t, t)


def _wave(angle: _Angle) -> Expr:
    """The sine."""
    quadrant, r, low = angle
    is_single = r.dtype.bits == 32
    z = r * r
    sine_tail = fx.polynomial(z, _SIN_SINGLE if is_single else _SIN_DOUBLE) * (r * z)
    sine = r + _plus(sine_tail, low)
    tail = fx.polynomial(z, _COS_SINGLE if is_single else _COS_DOUBLE) * (z * z)
    half = z * 0.5
    near = 1.0 - half
    # What 1 - z/2 rounded away, and the shift by the lower part of the angle.
    cosine_tail = fx.fma(z, -0.5, 1.0 - near) if is_single else (1.0 - near) - half
    cosine_tail = cosine_tail + tail
    if low is not None:
        cosine_tail = fx.fma(-r, low, cosine_tail)
    value = fx.select(fx.unequal(quadrant & 1, 0), near + cosine_tail, sine)
    sign = (quadrant & 2) << (r.dtype.bits - 2)
    return fx.as_float(fx.bits(value) ^ sign)


def _plus(x: Expr, low: Expr | None) -> Expr:
    return x if low is None else x + low


def _reduced(x: Expr, fused: bool) -> tuple[_Angle, _Angle, Expr]:
    """Of angles up to the reach, of those beyond, and which are."""
    n = fx.nearest(x * TWO_OVER_PI)
    low: Expr | None = None
    if x.dtype.bits == 32:
        r = _subtracted(x, n, _PARTS_SINGLE_FMA if fused else _PARTS_SINGLE)
        reach = _REACH_SINGLE_FMA if fused else _REACH_SINGLE
    else:
        r, low = _subtracted_twofold(x, n)
        reach = _REACH_DOUBLE
    quadrant, far = reduce_large(x)
    return _Angle(fx.as_integer(n), r, low), _Angle(quadrant, far, None), ~(fx.absolute(x) <= reach)


def _subtracted(x: Expr, n: Expr, parts: Sequence[float]) -> Expr:
    for part in parts:
        x = fx.fma(n, -part, x)
    return x


def _subtracted_twofold(x: Expr, n: Expr) -> tuple[Expr, Expr]:
    """x - n pi/2 as a sum of two float64; the products with the first three parts are exact."""
    first, second, third, fourth = _PARTS_DOUBLE
    rough = fx.fma(n, -first, x)
    moved = n * second
    close = rough - moved
    lost = (rough - close) - moved
    moved = n * third
    closer = close - moved
    back = close - closer
    lost = lost + ((close - (closer + back)) + (back - moved))
    rest = fx.fma(n, -fourth, lost)
    r = closer + rest
    return r, (closer - r) + rest
