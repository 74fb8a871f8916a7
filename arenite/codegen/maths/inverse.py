"""asin, acos, atan, atan2 of float32 and float64.

asin(x) = x + x^3 P(x^2) up to 1/2; above, pi/2 - 2 asin(sqrt((1 - |x|) / 2))
atan(t) = t + t^3 P(t^2) for t in [0, 1]; above 1, pi/2 - atan(1 / t)
atan2(y, x) = atan of the lesser over the greater, moved into its octant
"""

from __future__ import annotations

from math import inf

from arenite.codegen.loop_ir import Expr
from arenite.codegen.maths import formula as fx

_ASIN_SINGLE = (
    0.16666752099990845, 0.07495306432247162, 0.045469772070646286, 0.02418077364563942,
    0.04216641187667847,
)  # fmt: skip
_ASIN_DOUBLE = (
    0.1666666666666676, 0.0749999999997081, 0.04464285717464561, 0.030381942704730075,
    0.022372215104022142, 0.017351609486844805, 0.013980855219765847, 0.01139859748276821,
    0.010782171545670497, 0.0036986320152189683, 0.021727552125694917, -0.02102907247552483,
    0.03264830639356904,
)  # fmt: skip
_ATAN_SINGLE = (
    -0.33333298563957214, 0.1999852955341339, -0.1426401436328888, 0.10950861126184464,
    -0.08399206399917603, 0.05787882208824158, -0.031093472614884377, 0.010866232216358185,
    -0.0017821341753005981,
)  # fmt: skip
_ATAN_DOUBLE = (
    -0.3333333333333307, 0.19999999999951748, -0.14285714282588008, 0.11111111007339412,
    -0.09090907007749979, 0.07692279888327662, -0.06666404418524197, 0.05880529780138421,
    -0.052535266639682575, 0.04722348001465318, -0.042192427567303126, 0.036643146127576,
    -0.029905730151765085, 0.021987061907387997, -0.013902566510526496, 0.007197878417195373,
    -0.002885605905197548, 0.0008315582358332323, -0.00015221083562781202,
    1.3229969285287658e-05,
)  # fmt: skip

#: pi/2 in two parts; the second is what the first lacks in each width.
_HALF_PI = 1.5707963267948966
_HALF_PI_LOW = {32: -4.371139000186241e-08, 64: 6.123233995736766e-17}


def asin(x: Expr) -> Expr:
    magnitude = fx.absolute(x)
    is_small = magnitude <= 0.5
    near = _near(magnitude, is_small)
    # pi/2 - 2 near, the greatest part added last.
    far = _HALF_PI - (near * 2.0 - _low(x))
    return fx.with_sign_of(fx.select(is_small, near, far), x)


def acos(x: Expr) -> Expr:
    magnitude = fx.absolute(x)
    is_small = magnitude <= 0.5
    near = _near(magnitude, is_small)
    middle = _HALF_PI - (fx.with_sign_of(near, x) - _low(x))
    twice = near * 2.0
    left = 2.0 * _HALF_PI - (twice - 2.0 * _low(x))
    return fx.select(is_small, middle, fx.select(x < 0.0, left, twice))


def _near(magnitude: Expr, is_small: Expr) -> Expr:
    """asin of |x|, or of sqrt((1 - |x|) / 2)."""
    z = fx.select(is_small, magnitude * magnitude, 0.5 - magnitude * 0.5)
    s = fx.select(is_small, magnitude, fx.square_root(z))
    p = fx.polynomial(z, _ASIN_SINGLE if z.dtype.bits == 32 else _ASIN_DOUBLE)
    return fx.fma(p, s * z, s)


def _low(x: Expr) -> float:
    return _HALF_PI_LOW[x.dtype.bits]


def _atan_polynomial(t: Expr) -> Expr:
    z = t * t
    p = fx.polynomial(z, _ATAN_SINGLE if t.dtype.bits == 32 else _ATAN_DOUBLE)
    return fx.fma(p, t * z, t)


def atan(x: Expr) -> Expr:
    magnitude = fx.absolute(x)
    is_great = magnitude > 1.0
    near = _atan_polynomial(fx.select(is_great, 1.0 / magnitude, magnitude))
    far = _HALF_PI - (near - _low(x))
    return fx.with_sign_of(fx.select(is_great, far, near), x)


def atan2(y: Expr, x: Expr) -> Expr:
    ay, ax = fx.absolute(y), fx.absolute(x)
    is_steep = ay > ax
    lesser, greater = fx.select(is_steep, ax, ay), fx.select(is_steep, ay, ax)
    # 0/0 is an angle of 0, infinity/infinity one of pi/4.
    ratio = fx.select(fx.equal(greater, 0.0), 0.0, lesser / greater)
    ratio = fx.select(fx.equal(lesser, inf), 1.0, ratio)
    angle = _atan_polynomial(ratio)
    angle = fx.select(is_steep, _HALF_PI - (angle - _low(x)), angle)
    is_left = fx.bits(x) < 0
    angle = fx.select(is_left, 2.0 * _HALF_PI - (angle - 2.0 * _low(x)), angle)
    is_bad = fx.is_nan(x) | fx.is_nan(y)
    return fx.select(is_bad, x + y, fx.with_sign_of(angle, y))
