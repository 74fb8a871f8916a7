"""Casts between dtypes on values in registers, and how each dtype is held there.

float32 and float64 are held as floats, integers as integers, bool as one bit. float16, bfloat16
and the float8 kinds are held as their bits; they become float32 by moving exponent and mantissa
into place, and come back with one rounding to nearest even, denormals and all. A float64 on its way
to a narrower float passes through a float32 rounded to odd, which rounds only once in effect.
"""

from __future__ import annotations

from dataclasses import dataclass

from arenite.backends.cpu.lowering.vector import Vec, VType
from arenite.dtype import DType, Kind


@dataclass(frozen=True, slots=True)
class SmallFloat:
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


def register_type(dtype: DType, lanes: int) -> VType:
    """How values of the dtype are held in registers."""
    if dtype.kind is Kind.BOOL:
        return VType("i", 1, lanes)
    is_float = dtype.kind is Kind.FLOAT and dtype.bits >= 32
    return VType("f" if is_float else "i", dtype.bits, lanes)


def memory_type(dtype: DType, lanes: int) -> VType:
    """How values of the dtype lie in memory: as in registers, but a bool takes a byte."""
    return register_type(dtype, lanes)._replace(bits=dtype.bits)


def from_memory(x: Vec, dtype: DType) -> Vec:
    return x.ne(0) if dtype.kind is Kind.BOOL else x


def to_memory(x: Vec, dtype: DType) -> Vec:
    return x.convert("zext", x.type.of("i", 8)) if dtype.kind is Kind.BOOL else x


def cast(x: Vec, source: DType, target: DType, *, fits: bool = False) -> Vec:
    """The value as another dtype, by the rules of the loop IR."""
    if fits:
        op = "fptosi" if target.kind is Kind.SIGNED else "fptoui"
        whole = x.convert(op, register_type(target, x.type.lanes))
        return x.builder.emit(f"freeze {whole.type} {whole.text}", whole.type)
    if source == target:
        return x
    lanes = x.type.lanes
    to = register_type(target, lanes)
    if source.kind is Kind.FLOAT and source.bits < 32:
        wide = widen(x, source)
        return wide if to == wide.type else _cast_wide(wide, to, target)
    if source.kind is Kind.BOOL:
        return _cast_bool(x, target)
    if target.kind is Kind.BOOL:
        return x.ne(0)
    if source.kind is Kind.FLOAT:
        return _cast_wide(x, to, target)
    if target.kind is Kind.FLOAT:
        op = "sitofp" if source.kind is Kind.SIGNED else "uitofp"
        if target.bits < 32:
            return narrow(x.convert(op, x.type.of("f", 32)), target)
        return x.convert(op, to)
    if to.bits < x.type.bits:
        return x.convert("trunc", to)
    return x.convert("sext" if source.kind is Kind.SIGNED else "zext", to)


def _cast_bool(x: Vec, target: DType) -> Vec:
    if target.kind is not Kind.FLOAT:
        return x.convert("zext", register_type(target, x.type.lanes))
    bits = max(target.bits, 32)
    t = x.type.of("f", bits)
    value = x.select(x.builder.constant(1.0, t), 0.0)
    return value if target.bits >= 32 else narrow(value, target)


def _cast_wide(x: Vec, to: VType, target: DType) -> Vec:
    """From float32 or float64."""
    if target.kind is Kind.BOOL:
        return x.ne(0.0)
    if target.kind is Kind.FLOAT:
        if target.bits < 32:
            return narrow(x, target)
        return x.convert("fptrunc" if to.bits < x.type.bits else "fpext", to)
    if to.bits < 32:
        return _to_small_integer(x, to, target)
    name = "fptosi" if target.kind is Kind.SIGNED else "fptoui"
    return x.builder.call(f"llvm.{name}.sat.{to.mangled}.{x.type.mangled}", to, x)


def _to_small_integer(x: Vec, to: VType, target: DType) -> Vec:
    """Kept within bounds first: a conversion that saturates by itself goes lane by lane."""
    is_signed = target.kind is Kind.SIGNED
    low = -float(2 ** (to.bits - 1)) if is_signed else 0.0
    high = low + 2**to.bits - 1
    inside = x.gt(low).select(x, low)  # NaN becomes the lower bound
    inside = inside.lt(high).select(inside, high)
    if is_signed:
        inside = x.is_nan().select(0.0, inside)
    return inside.convert("fptosi", x.type.of("i", 32)).convert("trunc", to)


def widen(x: Vec, source: DType) -> Vec:
    """The bits of a small float as a float32, exactly."""
    t = x.type.of("i", 32)
    if source.name == "bfloat16":
        return (x.convert("zext", t) << 16).as_float()
    if source.name == "float16" and x.builder.target.has_f16c:
        half = x.convert("bitcast", x.type.as_float)
        return half.convert("fpext", t.as_float)
    code = x.convert("zext", t)
    if source.name == "float8_e8m0fnu":
        # A power of two: code 0 is 2^-127, a float32 denormal; code 255 is NaN, as is its float32.
        shifted = code.eq(255).select(0x7FC00000, code << 23)
        return code.eq(0).select(0x00400000, shifted).as_float()
    layout = SMALL_FLOATS[source.name]
    magnitude = code & (layout.sign - 1)
    sign = (code & layout.sign) << (32 - layout.bits)
    # As float32 bits the value is too small by a power of two, denormals included.
    scaled = (magnitude << (23 - layout.mantissa)).as_float() * 2.0 ** (127 - layout.bias)
    value = scaled.bits() | sign
    if layout.is_signless_zero:
        return code.eq(layout.nan).select(0x7FC00000, value).as_float()
    if layout.overflow != layout.nan:
        is_infinite = magnitude.eq(layout.overflow)
        value = is_infinite.select(sign | 0x7F800000, value)
        return magnitude.gt(layout.overflow).select(sign | 0x7FC00000, value).as_float()
    return magnitude.eq(layout.nan).select(sign | 0x7FC00000, value).as_float()


def narrow(x: Vec, target: DType) -> Vec:
    """A float32 or float64 as the bits of a small float."""
    if x.type.bits == 64:
        x = _to_float32_odd(x)
    result = x.type.of("i", target.bits)
    if target.name == "bfloat16":
        bits = x.bits()
        even = bits.shr(16, signed=False) & 1
        rounded = (bits + 0x7FFF + even).shr(16, signed=False)
        quiet = bits.shr(16, signed=False) | 0x40
        return x.is_nan().select(quiet, rounded).convert("trunc", result)
    if target.name == "float16" and x.builder.target.has_f16c:
        half = x.convert("fptrunc", x.type.of("f", 16))
        return half.convert("bitcast", result)
    if target.name == "float8_e8m0fnu":
        return _to_power_of_two(x).convert("trunc", result)
    layout = SMALL_FLOATS[target.name]
    bits = x.bits()
    magnitude = bits & 0x7FFFFFFF
    sign = (bits & -0x80000000).shr(32 - layout.bits, signed=False)
    shift = 23 - layout.mantissa
    even = magnitude.shr(shift, signed=False) & 1
    rebias = (127 - layout.bias) << layout.mantissa
    normal = (magnitude + ((1 << shift - 1) - 1) + even).shr(shift, signed=False) - rebias
    # Below the least normal number the codes are multiples of one step; adding a float whose last
    # place is that step rounds to it.
    least = 1 - layout.bias
    magic = x.builder.constant(2.0 ** (least + shift), x.type)
    small = (magnitude.as_float() + magic).bits() - magic.bits()
    is_small = magnitude.lt((127 + least) << 23)
    code = is_small.select(small, normal)
    code = code.gt(layout.largest).select(layout.overflow, code)
    code = magnitude.gt(0x7F800000).select(layout.nan, code)
    if layout.is_signless_zero:
        sign = (code.eq(0) | code.eq(layout.nan)).select(0, sign)
    return (code | sign).convert("trunc", result)


def _to_float32_odd(x: Vec) -> Vec:
    """A float64 as float32: towards zero, and if that was inexact with the last bit set."""
    t = x.type.of("f", 32)
    near = x.convert("fptrunc", t)
    back = near.convert("fpext", x.type)
    is_above = back.abs().gt(x.abs())
    toward_zero = near.bits() - is_above.convert("zext", t.as_int)
    is_inexact = back.ne(x) & ~x.is_nan()
    return (toward_zero | is_inexact.convert("zext", t.as_int)).as_float()


def _to_power_of_two(x: Vec) -> Vec:
    """The code of float8_e8m0fnu: the exponent, halfway rounded up; NaN for 0, below and beyond."""
    bits = x.bits()
    exponent = bits.shr(23, signed=False)
    fraction = bits & 0x7FFFFF
    # Below the least normal float32 lies 2^-127 alone, whose own bit is that of one half.
    is_normal = exponent.ne(0).convert("zext", exponent.type)
    rounds_up = (fraction + is_normal).gt(0x400000)
    code = exponent + rounds_up.convert("zext", exponent.type)
    return (bits.le(0) | code.gt(254) | x.is_nan()).select(255, code)
