"""Angles too great for a split of pi/2: reduction with as many digits of 2/pi as they need.

    x = m 2^e with a whole m        x 2/pi = m (2^e 2/pi)

Digits of 2/pi above 2^(2-e) only add whole turns, so three words from there on give the quadrant
and the fraction, in two words, with digits to spare: words of 32 bits for float32, of 64 for
float64.
"""

from __future__ import annotations

from math import inf, nan

from arenite.codegen import loop_ir as ir
from arenite.codegen.loop_ir import Expr
from arenite.codegen.maths import formula as fx

#: 2/pi in words of 64 bits, most significant first, after a word of zeros.
_WORDS = (
    0x0000000000000000, 0xA2F9836E4E441529, 0xFC2757D1F534DDC0, 0xDB6295993C439041,
    0xFE5163ABDEBBC561, 0xB7246E3A424DD2E0, 0x06492EEA09D1921C, 0xFE1DEB1CB129A73E,
    0xE88235F52EBB4484, 0xE99C7026B45F7E41, 0x3991D639835339F4, 0x9C845F8BBDF9283B,
    0x1FF897FFDE05980F, 0xEF2F118B5A0A6D1F, 0x6D367ECF27CB09B7, 0x4F463F669E5FEA2D,
    0x7527BAC7EBE5F17B, 0x3D0739F78A5292EA, 0x6BFB5FB11F8D5D08, 0x56033046FC7B6BAB,
    0xF0CFBC209AF4361D, 0xA9E391615EE61B08,
)  # fmt: skip

#: The same in words of 32 bits; no float32 needs more of them.
_HALF_WORDS = (0, *(half for word in _WORDS[1:5] for half in (word >> 32, word & 0xFFFFFFFF)))

#: pi/2 with as many digits as a word has.
_HALF_PI = {32: 0xC90FDAA2, 64: 0xC90FDAA22168C235}


def reduce_large(x: Expr) -> tuple[Expr, Expr]:
    """Quadrant and remainder in [-pi/4, pi/4] of angles above 2^10; NaN of what is not finite."""
    width = x.dtype.bits
    words, mantissa, bias = (_HALF_WORDS, 23, 127) if width == 32 else (_WORDS, 52, 1023)
    magnitude = fx.absolute(x)
    word = fx.bits(magnitude, signed=False)
    exponent = word >> mantissa
    m = (word & ((1 << mantissa) - 1)) | (1 << mantissa)
    high, low = _product(m, exponent - (bias + mantissa + 2 - width), words)
    # Both, over 2^(2 width - 2), are x 2/pi mod 4; the nearest whole number is the quadrant.
    quadrant = (high + (1 << width - 3)) >> (width - 2)
    high = high - (quadrant << (width - 2))
    is_below = ir.Bitcast(high, fx.integer(x)) < 0
    digits, zeros = _normalised(*_negated(high, low, is_below))
    # Times pi/2, rounded once, as it becomes a float.
    whole = ir.Binary("mulhi", digits, ir.Const(_HALF_PI[width], word.dtype))
    rest = ir.Cast(whole, x.dtype) * fx.as_float(((bias + 3 - width) - zeros) << mantissa)
    is_negative = fx.bits(x) < 0
    rest = fx.select(is_below ^ is_negative, -rest, rest)
    turns = ir.Bitcast(quadrant, fx.integer(x))
    return fx.select(is_negative, -turns, turns), fx.select(magnitude < inf, rest, nan)


def _product(m: Expr, first: Expr, words: tuple[int, ...]) -> tuple[Expr, Expr]:
    """The upper two of the three lower words of m times the digits from a bit on."""
    width = m.dtype.bits
    at = ir.Binary("min", first >> (width.bit_length() - 1), ir.Const(len(words) - 4, m.dtype))
    shift = first & (width - 1)
    d = [ir.Table(words, at + skip if skip else at, m.dtype) for skip in range(4)]
    a, b, c = ((d[k] << shift) | (d[k + 1] >> (width - shift)) for k in range(3))
    low = m * b + ir.Binary("mulhi", m, c)
    carry = ir.Cast(low < m * b, m.dtype)
    return m * a + ir.Binary("mulhi", m, b) + carry, low


def _negated(high: Expr, low: Expr, cond: Expr) -> tuple[Expr, Expr]:
    """Two words as one number, negated where the condition holds."""
    borrow = ir.Cast(fx.equal(low, 0), low.dtype)
    return fx.select(cond, ~high + borrow, high), fx.select(cond, -low, low)


def _normalised(high: Expr, low: Expr) -> tuple[Expr, Expr]:
    """One word of two from the first digit that is not 0 on, and how many are in front of it."""
    width = high.dtype.bits
    is_empty = fx.equal(high, 0)
    top, rest = fx.select(is_empty, low, high), fx.select(is_empty, 0, low)
    # The exponent of the word as a float. Its second digit is cleared: it can't be rounded up.
    single = width == 32
    rounded = ir.Cast(top & ~(top >> 1), fx.FLOAT32 if single else fx.FLOAT64)
    exponent = fx.bits(rounded, signed=False) >> (23 if single else 52)
    zeros = (width - 1 + (127 if single else 1023)) - exponent
    digits = (top << zeros) | (rest >> (width - zeros))
    return digits, fx.select(is_empty, zeros + width, zeros)
