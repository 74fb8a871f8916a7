"""Exact remainders of floats: fmod, mod and floor division as NumPy defines them.

    r = |a|, m = |b|:   while r >= m:  r -= m * (r / m rounded)      each step exact

The quotient of two floats rounded to a float leaves a remainder that is a float, so a fused
multiply-add subtracts without error, and each turn removes as many bits as a mantissa holds.
One turn is the rule; loops end when all lanes are done.
"""

from __future__ import annotations

from arenite.backends.cpu.lowering.numeric import floor, fma, trunc
from arenite.backends.cpu.lowering.vector import Vec


def truncated_mod(a: Vec, b: Vec) -> Vec:
    """C's fmod: the sign of a, NaN for infinite a or zero b, a itself for infinite b."""
    rest = _remainder(a.abs(), b.abs())
    bad = a.abs().eq(float("inf")) | b.eq(0.0) | a.is_nan() | b.is_nan()
    return bad.select(float("nan"), rest.with_sign_of(a))


def floor_mod(a: Vec, b: Vec) -> Vec:
    """NumPy's mod: the sign of b."""
    rest = truncated_mod(a, b)
    differs = rest.lt(0.0) ^ b.lt(0.0)
    moved = differs.select(rest + b, rest)
    zero = a.builder.constant(0.0, a.type).with_sign_of(b)
    return rest.eq(0.0).select(zero, moved)


def floor_divide(a: Vec, b: Vec) -> Vec:
    """NumPy's floor_divide: the whole quotient that goes with `floor_mod`."""
    rest = truncated_mod(a, b)
    quotient = (a - rest) / b
    differs = rest.ne(0.0) & (rest.lt(0.0) ^ b.lt(0.0))
    quotient = differs.select(quotient - 1.0, quotient)
    below = floor(quotient)
    whole = (quotient - below).gt(0.5).select(below + 1.0, below)
    zero = a.builder.constant(0.0, a.type).with_sign_of(a / b)
    whole = quotient.eq(0.0).select(zero, whole)
    return b.eq(0.0).select(a / b, whole)


def _remainder(r: Vec, m: Vec) -> Vec:
    """r mod m of magnitudes; anything where m is 0 or r is not finite."""
    infinity = float("inf")
    unusable = m.eq(0.0) | m.eq(infinity) | r.eq(infinity) | r.is_nan() | m.is_nan()
    rest = unusable.select(0.0, r)
    modulus = unusable.select(1.0, m)
    # First by great multiples of a small modulus, so that no quotient overflows.
    tiny, factor = (2.0**-62, 2.0**95) if r.type.bits == 32 else (2.0**-480, 2.0**750)
    great = modulus * factor
    rest = _turns(rest, modulus.lt(tiny).select(great * factor, infinity))
    rest = _turns(rest, modulus.lt(2.0).select(great, infinity))
    rest = _turns(rest, modulus)
    return m.eq(infinity).select(r, rest)


def _turns(r: Vec, m: Vec) -> Vec:
    """Subtracts multiples of m until r < m."""
    b = r.builder
    whole_from = 2.0**24 if r.type.bits == 32 else 2.0**53
    front, head, after = b.block, b.new_block("turn"), b.new_block("rest")
    start_any = b.any(r.ge(m))
    front.end = f"br i1 {start_any.text}, label %{head.name}, label %{after.name}"
    b.block = head
    current = Vec(b, b.new_name(), r.type)
    ratio = current / m
    is_whole = ratio.ge(whole_from)
    quotient = is_whole.select(ratio, trunc(ratio))
    left = _subtracted(current, quotient, m)
    # A quotient that was rounded up is one unit in its last place too great.
    lesser = is_whole.select((quotient.bits() - 1).as_float(), quotient - 1.0)
    left = left.lt(0.0).select(_subtracted(current, lesser, m), left)
    following = current.ge(m).select(left, current)
    again = b.any(following.ge(m))
    latch = b.block
    latch.end = f"br i1 {again.text}, label %{head.name}, label %{after.name}"
    b.set_phi(head, current.text, [(r, front), (following, latch)])
    b.block = after
    return b.phi(after, [(r, front), (following, latch)])


def _subtracted(r: Vec, quotient: Vec, m: Vec) -> Vec:
    """r - quotient * m, which is a float, exactly."""
    if r.builder.target.has_fma:
        return fma(-quotient, m, r)
    if r.type.bits == 32:
        wide = r.type.of("f", 64)
        product = quotient.convert("fpext", wide) * m.convert("fpext", wide)
        return (r.convert("fpext", wide) - product).convert("fptrunc", r.type)
    high, low = exact_product(quotient, m)
    return (r - high) - low


def exact_product(a: Vec, b: Vec) -> tuple[Vec, Vec]:
    """a * b as a sum of two floats, without overflow in between for all but the greatest."""
    high = a * b
    if a.builder.target.has_fma:
        return high, fma(a, b, -high)
    # Dekker: halves of the mantissas, whose products are exact.
    cut = 27 if a.type.bits == 64 else 12
    a_high = ((a.bits() + (1 << cut - 1)) & -(1 << cut)).as_float()
    b_high = ((b.bits() + (1 << cut - 1)) & -(1 << cut)).as_float()
    a_low, b_low = a - a_high, b - b_high
    low = ((a_high * b_high - high) + a_high * b_low + a_low * b_high) + a_low * b_low
    return high, low
