"""Arithmetic on values that a single instruction does on some targets and not on others.

Fused multiply-add, polynomials, maximum and minimum that hand NaN on, rounding to whole numbers:
written out where the target lacks them, so that nothing becomes a library call.
"""

from __future__ import annotations

from collections.abc import Sequence

from arenite.backends.cpu.lowering.vector import Vec


def fma(a: Vec, b: Vec | float, c: Vec | float) -> Vec:
    """a * b + c; of floats rounded once where the target has it, twice where it would be a library
    call."""
    build = a.builder
    if a.type.kind == "i" or not build.target.has_fma:
        return a * b + c
    t = a.type
    b = b if isinstance(b, Vec) else build.constant(b, t)
    c = c if isinstance(c, Vec) else build.constant(c, t)
    return build.intrinsic("fma", a, b, c)


def polynomial(x: Vec, coefficients: Sequence[Vec | float]) -> Vec:
    """The constant term first; one fused multiply-add a term.

    Long ones are cut into interleaved ones in a power of x: a few operations more, but a chain of a
    half or a quarter of the length. Up to nine terms several vectors in flight hide the chain.
    """
    ways = 1 if len(coefficients) < 10 else 2 if len(coefficients) < 16 else 4
    powers = [x]
    while 2 ** len(powers) <= ways:
        powers.append(powers[-1] * powers[-1])
    parts = [_horner(powers[-1], coefficients[way::ways]) for way in range(ways)]
    for power in reversed(powers[:-1]):
        half = len(parts) // 2
        parts = [fma(parts[half + at], power, parts[at]) for at in range(half)]
    return parts[0]


def _horner(x: Vec, coefficients: Sequence[Vec | float]) -> Vec:
    last = coefficients[-1]
    total = last if isinstance(last, Vec) else x.builder.constant(last, x.type)
    for coefficient in reversed(coefficients[:-1]):
        total = fma(total, x, coefficient)
    return total


def maximum(a: Vec, b: Vec) -> Vec:
    """The greater; NaN if one of them is."""
    if not a.builder.target.is_x86:
        return a.builder.intrinsic("maximum", a, b)
    # The instruction gives b unless a > b, so NaN in b is handed on and NaN in a is not.
    a, b = _constant_first(a, b)
    return a.is_nan().select(float("nan"), a.gt(b).select(a, b))


def minimum(a: Vec, b: Vec) -> Vec:
    """The lesser; NaN if one of them is."""
    if not a.builder.target.is_x86:
        return a.builder.intrinsic("minimum", a, b)
    a, b = _constant_first(a, b)
    return a.is_nan().select(float("nan"), a.lt(b).select(a, b))


def _constant_first(a: Vec, b: Vec) -> tuple[Vec, Vec]:
    """The two, a constant before what is none: whether that is NaN is known."""
    return (b, a) if b.is_constant else (a, b)


def round_even(x: Vec) -> Vec:
    """To the nearest integer, halves to even."""
    if x.builder.has_rounding:
        return x.builder.intrinsic("roundeven", x)
    # Adding 2^(mantissa bits) leaves no fraction; above that there is none to begin with.
    big = 2.0**23 if x.type.bits == 32 else 2.0**52
    magnitude = x.abs()
    rounded = ((magnitude + big) - big).with_sign_of(x)
    return magnitude.lt(big).select(rounded, x)


def floor(x: Vec) -> Vec:
    if x.builder.has_rounding:
        return x.builder.intrinsic("floor", x)
    nearest = round_even(x)
    return nearest.gt(x).select(nearest - 1.0, nearest).with_sign_of(x)


def ceil(x: Vec) -> Vec:
    return x.builder.intrinsic("ceil", x) if x.builder.has_rounding else -floor(-x)


def trunc(x: Vec) -> Vec:
    if x.builder.has_rounding:
        return x.builder.intrinsic("trunc", x)
    return floor(x.abs()).with_sign_of(x)
