"""Casts that devices have no instruction for, as arithmetic.

float16, bfloat16 and the float8 kinds become float32 by moving exponent and mantissa into place,
and come back with one rounding to nearest even, denormals and all. A float64 on its way to a
narrower float passes through a float32 rounded to odd, which rounds only once in effect.
"""

from __future__ import annotations

from typing import NamedTuple

from arenite.codegen import loop_ir as ir
from arenite.codegen.loop_ir import Expr
from arenite.codegen.maths import formula as fx
from arenite.dtype import BY_NAME, INT32, UINT32, DType, Kind


class SmallFloat(NamedTuple):
    """The layout of a float below float32: sign, exponent, mantissa, and what is not a number."""

    bits: int
    mantissa: int
    bias: int
    largest: int  # code of the largest finite magnitude
    overflow: int  # code that greater magnitudes become
    nan: int
    is_signless_zero: bool = False  # the code of -0 is NaN

    @property
    def sign(self) -> int:
        return 1 << self.bits - 1


SMALL_FLOATS = {
    "float16": SmallFloat(16, 10, 15, 0x7BFF, 0x7C00, 0x7E00),
    "float8_e5m2": SmallFloat(8, 2, 15, 0x7B, 0x7C, 0x7E),
    "float8_e4m3": SmallFloat(8, 3, 7, 0x77, 0x78, 0x7C),
    "float8_e3m4": SmallFloat(8, 4, 3, 0x6F, 0x70, 0x78),
    "float8_e4m3fn": SmallFloat(8, 3, 7, 0x7E, 0x7F, 0x7F),
    "float8_e4m3fnuz": SmallFloat(8, 3, 8, 0x7F, 0x80, 0x80, True),
    "float8_e4m3b11fnuz": SmallFloat(8, 3, 11, 0x7F, 0x80, 0x80, True),
    "float8_e5m2fnuz": SmallFloat(8, 2, 16, 0x7F, 0x80, 0x80, True),
}


def cast(x: Expr, target: DType, keeps_denormals: bool = True) -> Expr:
    """A cast as arithmetic and simpler casts.

    Devices have those between integers, from integers to float32 and float64, between the two, and
    from them to integers where the value fits. Some take denormals of float32 for 0.
    """
    source = x.dtype
    if target.kind is Kind.BOOL and not _is_small(source):
        return fx.unequal(x, 0)
    if source.kind is Kind.BOOL and not _is_small(target):
        one = ir.Const(1.0 if target.kind is Kind.FLOAT else 1, target)
        return fx.select(x, one, 0)
    if _is_small(source):
        if target == fx.FLOAT32:
            return _widened(x, keeps_denormals)
        return ir.Cast(ir.Cast(x, fx.FLOAT32), target)
    if _is_small(target):
        if source == fx.FLOAT32:
            return _narrowed(x, target)
        single = ir.Cast(x, fx.FLOAT32) if source.kind is not Kind.FLOAT else _to_float32_odd(x)
        return ir.Cast(single, target)
    if source.kind is Kind.FLOAT and target.kind is not Kind.FLOAT:
        return _to_small_integer(x, target) if target.bits < 32 else _to_integer(x, target)
    return ir.Cast(x, target)


def _is_small(dtype: DType) -> bool:
    return dtype.kind is Kind.FLOAT and dtype.bits < 32


def _to_integer(x: Expr, target: DType) -> Expr:
    """Saturated on both sides; the bound above is no float, the next one is."""
    least, greatest = _range(target)
    inside = ir.Cast(x, target, fits=True)
    top = fx.select(x >= float(greatest + 1), ir.Const(greatest, target), inside)
    both = fx.select(x >= float(least), top, least)
    return fx.select(fx.is_nan(x), 0, both)


def _to_small_integer(x: Expr, target: DType) -> Expr:
    """Kept within bounds first, which are floats."""
    least, greatest = _range(target)
    inside = fx.select(x > float(least), x, float(least))  # NaN becomes the lower bound
    inside = fx.select(inside < float(greatest), inside, float(greatest))
    if target.kind is Kind.SIGNED:
        inside = fx.select(fx.is_nan(x), 0.0, inside)
    return ir.Cast(ir.Cast(inside, INT32, fits=True), target)


def _range(target: DType) -> tuple[int, int]:
    least = -(1 << target.bits - 1) if target.kind is Kind.SIGNED else 0
    return least, least + (1 << target.bits) - 1


def _code(x: Expr) -> Expr:
    """The bits of a small float, as an int32."""
    return ir.Cast(ir.Bitcast(x, BY_NAME[f"uint{x.dtype.bits}"]), INT32)


def _widened(x: Expr, keeps_denormals: bool) -> Expr:
    """A small float as a float32, exactly."""
    code = _code(x)
    if x.dtype.name == "bfloat16":
        return fx.as_float(code << 16)
    if x.dtype.name == "float8_e8m0fnu":
        # A power of two: code 0 is 2^-127, a float32 denormal; code 255 is NaN, as is its float32.
        shifted = fx.select(fx.equal(code, 255), 0x7FC00000, code << 23)
        return fx.as_float(fx.select(fx.equal(code, 0), 0x00400000, shifted))
    layout = SMALL_FLOATS[x.dtype.name]
    magnitude = code & (layout.sign - 1)
    sign = (code & layout.sign) << (32 - layout.bits)
    value = (_scaled if keeps_denormals else _rebiased)(magnitude, layout) | sign
    if layout.is_signless_zero:
        return fx.as_float(fx.select(fx.equal(code, layout.nan), 0x7FC00000, value))
    if layout.overflow == layout.nan:
        return fx.as_float(fx.select(fx.equal(magnitude, layout.nan), sign | 0x7FC00000, value))
    value = fx.select(fx.equal(magnitude, layout.overflow), sign | 0x7F800000, value)
    return fx.as_float(fx.select(magnitude > layout.overflow, sign | 0x7FC00000, value))


def _scaled(magnitude: Expr, layout: SmallFloat) -> Expr:
    """The float32 bits of a magnitude, as bits too small by a power of two, denormals included."""
    return fx.bits(fx.as_float(magnitude << (23 - layout.mantissa)) * 2.0 ** (127 - layout.bias))


def _rebiased(magnitude: Expr, layout: SmallFloat) -> Expr:
    """The same without a denormal of float32: those of the small float get the exponent of the
    least normal number, and lose that number again."""
    moved = (magnitude << (23 - layout.mantissa)) + ((127 - layout.bias) << 23)
    least = 2.0 ** (1 - layout.bias)
    small = fx.as_float(moved + (1 << 23)) - least
    return fx.select(magnitude < 1 << layout.mantissa, fx.bits(small), moved)


def _narrowed(x: Expr, target: DType) -> Expr:
    """A float32 as a small float."""
    code = _rounded(x, target)
    return ir.Bitcast(ir.Cast(code, BY_NAME[f"uint{target.bits}"]), target)


def _rounded(x: Expr, target: DType) -> Expr:
    """The code of a float32 as a small float."""
    word = fx.bits(x, signed=False)
    if target.name == "bfloat16":
        even = (word >> 16) & 1
        rounded = (word + 0x7FFF + even) >> 16
        return fx.select(fx.is_nan(x), (word >> 16) | 0x40, rounded)
    if target.name == "float8_e8m0fnu":
        return _power_code(x)
    layout = SMALL_FLOATS[target.name]
    magnitude = word & 0x7FFFFFFF
    sign = (word & 0x80000000) >> (32 - layout.bits)
    shift = 23 - layout.mantissa
    even = (magnitude >> shift) & 1
    rebias = (127 - layout.bias) << layout.mantissa
    normal = ((magnitude + ((1 << shift - 1) - 1) + even) >> shift) - rebias
    # Below the least normal number the codes are multiples of one step; adding a float whose last
    # place is that step rounds to it.
    least = 1 - layout.bias
    magic = fx.constant(2.0 ** (least + shift), x)
    small = fx.bits(fx.as_float(magnitude) + magic, signed=False) - fx.bits(magic, signed=False)
    code = fx.select(_signed(magnitude) < (127 + least) << 23, small, normal)
    code = fx.select(_signed(code) > layout.largest, layout.overflow, code)
    code = fx.select(_signed(magnitude) > 0x7F800000, layout.nan, code)
    if layout.is_signless_zero:
        sign = fx.select(fx.equal(code, 0) | fx.equal(code, layout.nan), 0, sign)
    return code | sign


def _signed(word: Expr) -> Expr:
    """Vectors of unsigned words are compared by more instructions on some devices."""
    return ir.Bitcast(word, INT32)


def _to_float32_odd(x: Expr) -> Expr:
    """A float64 as float32: towards zero, and if that was inexact with the last bit set."""
    near = ir.Cast(x, fx.FLOAT32)
    back = ir.Cast(near, x.dtype)
    is_above = fx.absolute(back) > fx.absolute(x)
    toward_zero = fx.bits(near) - ir.Cast(is_above, INT32)
    is_inexact = fx.unequal(back, x) & ~fx.is_nan(x)
    return fx.as_float(toward_zero | ir.Cast(is_inexact, INT32))


def _power_code(x: Expr) -> Expr:
    """The code of float8_e8m0fnu: the exponent, halfway rounded up; NaN for 0, below and beyond."""
    word = fx.bits(x, signed=False)
    exponent = word >> 23
    fraction = word & 0x7FFFFF
    # Below the least normal float32 lies 2^-127 alone, whose own bit is that of one half.
    is_normal = ir.Cast(fx.unequal(exponent, 0), UINT32)
    rounds_up = _signed(fraction + is_normal) > 0x400000
    code = exponent + ir.Cast(rounds_up, UINT32)
    return fx.select((fx.bits(x) <= 0) | (_signed(code) > 254) | fx.is_nan(x), 255, code)
