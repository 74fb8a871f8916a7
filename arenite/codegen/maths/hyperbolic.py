"""sinh, cosh, tanh and the inverses asinh, acosh, atanh.

sinh(x) = x + x^3 P(x^2) below 1, above it h - 1/(4h) with h = exp(|x|)/2, which overflows late
asinh(x) = log1p(|x| + x^2 / (1 + sqrt(x^2 + 1)))       acosh(1 + t) = log1p(t + sqrt(2t + t^2))
atanh(x) = log1p(2|x| / (1 - |x|)) / 2
"""

from __future__ import annotations

from math import nan

from arenite.codegen import loop_ir as ir
from arenite.codegen.loop_ir import Expr
from arenite.codegen.maths import formula as fx
from arenite.codegen.maths.exponential import exp_in_range, exp_times_power

_SINH_SINGLE = (
    0.1666666716337204, 0.00833331048488617, 0.00019842895562760532, 2.7822131869470468e-06,
)  # fmt: skip
_SINH_DOUBLE = (
    0.16666666666666669, 0.008333333333332912, 0.00019841269841593408, 2.7557319106758417e-06,
    2.5052130998279954e-08, 1.6056659217493484e-10, 7.776598096365422e-13,
)  # fmt: skip
_TANH_SINGLE = (
    -0.3333328068256378, 0.13331405818462372, -0.05373651534318924, 0.02062816731631756,
    -0.0056922961957752705,
)  # fmt: skip
_TANH_DOUBLE = (
    -0.33333333333333315, 0.13333333333329955, -0.0539682539661448, 0.021869488470545276,
    -0.008863234336030893, 0.003592114193369064, -0.0014557270114043232, 0.0005894557324159308,
    -0.00023702140757207875, 9.157359117281908e-05, -3.020095404117898e-05,
    6.047921319134022e-06,
)  # fmt: skip

LN2 = 0.6931471805599453


def sinh(x: Expr) -> Expr:
    magnitude = fx.absolute(x)
    z = x * x
    small = fx.fma(fx.polynomial(z, _SINH_SINGLE if x.dtype.bits == 32 else _SINH_DOUBLE), x * z, x)
    half = exp_times_power(magnitude, -1)
    great = fx.with_sign_of(half - 0.25 / half, x)
    return fx.select(magnitude < 1.0, small, great)


def cosh(x: Expr) -> Expr:
    half = exp_times_power(fx.absolute(x), -1)
    return half + 0.25 / half


def tanh(x: Expr) -> Expr:
    is_single = x.dtype.bits == 32
    magnitude = fx.absolute(x)
    z = x * x
    small = fx.fma(fx.polynomial(z, _TANH_SINGLE if is_single else _TANH_DOUBLE), x * z, x)
    twice = fx.clamp(magnitude * 2.0, 0.0, 18.2 if is_single else 40.0)
    great = 1.0 - 2.0 / (exp_in_range(twice) + 1.0)
    return fx.with_sign_of(fx.select(magnitude < 0.625, small, great), x)


def asinh(x: Expr) -> Expr:
    magnitude = fx.absolute(x)
    z = magnitude * magnitude
    small = _log1p(magnitude + z / (1.0 + fx.square_root(z + 1.0)))
    # Where x^2 would lose everything but its leading part, it is log(2x).
    great = ir.Unary("log", magnitude) + LN2
    return fx.with_sign_of(fx.select(magnitude < _great(x), small, great), x)


def acosh(x: Expr) -> Expr:
    t = x - 1.0
    small = _log1p(t + fx.square_root(t * (x + 1.0)))
    result = fx.select(x < _great(x), small, ir.Unary("log", x) + LN2)
    return fx.select(x < 1.0, nan, result)


def atanh(x: Expr) -> Expr:
    magnitude = fx.absolute(x)
    return fx.with_sign_of(_log1p((magnitude + magnitude) / (1.0 - magnitude)) * 0.5, x)


def _log1p(x: Expr) -> Expr:
    return ir.Unary("log1p", x)


def _great(x: Expr) -> float:
    return 2.0**14 if x.dtype.bits == 32 else 2.0**30
