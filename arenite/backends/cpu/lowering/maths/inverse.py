"""asin, acos, atan, atan2 of float32 and float64.

asin(x) = x + x^3 P(x^2) up to 1/2; above, pi/2 - 2 asin(sqrt((1 - |x|) / 2))
atan(t) = t + t^3 P(t^2) for t in [0, 1]; above 1, pi/2 - atan(1 / t)
atan2(y, x) = atan of the lesser over the greater, moved into its octant
"""

from __future__ import annotations

from arenite.backends.cpu.lowering.numeric import fma, polynomial
from arenite.backends.cpu.lowering.vector import Vec

_ASIN_SINGLE = (
    0.16666752099990845,
    0.07495306432247162,
    0.045469772070646286,
    0.02418077364563942,
    0.04216641187667847,
)
_ASIN_DOUBLE = (
    0.1666666666666676,
    0.0749999999997081,
    0.04464285717464561,
    0.030381942704730075,
    0.022372215104022142,
    0.017351609486844805,
    0.013980855219765847,
    0.01139859748276821,
    0.010782171545670497,
    0.0036986320152189683,
    0.021727552125694917,
    -0.02102907247552483,
    0.03264830639356904,
)
_ATAN_SINGLE = (
    -0.33333298563957214,
    0.1999852955341339,
    -0.1426401436328888,
    0.10950861126184464,
    -0.08399206399917603,
    0.05787882208824158,
    -0.031093472614884377,
    0.010866232216358185,
    -0.0017821341753005981,
)
_ATAN_DOUBLE = (
    -0.3333333333333307,
    0.19999999999951748,
    -0.14285714282588008,
    0.11111111007339412,
    -0.09090907007749979,
    0.07692279888327662,
    -0.06666404418524197,
    0.05880529780138421,
    -0.052535266639682575,
    0.04722348001465318,
    -0.042192427567303126,
    0.036643146127576,
    -0.029905730151765085,
    0.021987061907387997,
    -0.013902566510526496,
    0.007197878417195373,
    -0.002885605905197548,
    0.0008315582358332323,
    -0.00015221083562781202,
    1.3229969285287658e-05,
)

#: pi/2 in two parts; the second is what the first lacks in each width.
_HALF_PI = 1.5707963267948966
_HALF_PI_LOW = {32: -4.371139000186241e-08, 64: 6.123233995736766e-17}


def asin(x: Vec) -> Vec:
    magnitude = x.abs()
    is_small = magnitude.le(0.5)
    z, s = _reduced(magnitude, is_small)
    near = fma(_asin_polynomial(z), s * z, s)
    # pi/2 - 2 near, the greatest part added last.
    far = _HALF_PI - (near * 2.0 - _low(x))
    return is_small.select(near, far).with_sign_of(x)


def acos(x: Vec) -> Vec:
    magnitude = x.abs()
    is_small = magnitude.le(0.5)
    z, s = _reduced(magnitude, is_small)
    near = fma(_asin_polynomial(z), s * z, s)
    signed = near.with_sign_of(x)
    middle = _HALF_PI - (signed - _low(x))
    twice = near * 2.0
    left = 2.0 * _HALF_PI - (twice - 2.0 * _low(x))
    return is_small.select(middle, x.lt(0.0).select(left, twice))


def _reduced(magnitude: Vec, is_small: Vec) -> tuple[Vec, Vec]:
    """The square and the argument of the polynomial: |x|, or sqrt((1 - |x|) / 2)."""
    z = is_small.select(magnitude * magnitude, 0.5 - magnitude * 0.5)
    return z, is_small.select(magnitude, z.sqrt())


def _asin_polynomial(z: Vec) -> Vec:
    return polynomial(z, _ASIN_SINGLE if z.type.bits == 32 else _ASIN_DOUBLE)


def _low(x: Vec) -> float:
    return _HALF_PI_LOW[x.type.bits]


def _atan_polynomial(t: Vec) -> Vec:
    z = t * t
    p = polynomial(z, _ATAN_SINGLE if t.type.bits == 32 else _ATAN_DOUBLE)
    return fma(p, t * z, t)


def atan(x: Vec) -> Vec:
    magnitude = x.abs()
    is_great = magnitude.gt(1.0)
    near = _atan_polynomial(is_great.select(1.0 / magnitude, magnitude))
    far = _HALF_PI - (near - _low(x))
    return is_great.select(far, near).with_sign_of(x)


def atan2(y: Vec, x: Vec) -> Vec:
    infinity = float("inf")
    ay, ax = y.abs(), x.abs()
    is_steep = ay.gt(ax)
    lesser, greater = is_steep.select(ax, ay), is_steep.select(ay, ax)
    ratio = lesser / greater
    # 0/0 is an angle of 0, infinity/infinity one of pi/4.
    ratio = greater.eq(0.0).select(0.0, ratio)
    ratio = lesser.eq(infinity).select(1.0, ratio)
    angle = _atan_polynomial(ratio)
    angle = is_steep.select(_HALF_PI - (angle - _low(x)), angle)
    is_left = x.bits().lt(0)
    angle = is_left.select(2.0 * _HALF_PI - (angle - 2.0 * _low(x)), angle)
    is_bad = x.is_nan() | y.is_nan()
    return is_bad.select(x + y, angle.with_sign_of(y))
