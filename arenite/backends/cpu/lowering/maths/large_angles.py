"""Angles too great for a split of pi/2: reduction with as many digits of 2/pi as they need.

    x = m 2^e with a whole m < 2^53        x 2/pi = m (2^e 2/pi)

Digits of 2/pi above 2^(2-e) only add whole turns, so 192 bits from there on give the quadrant and
the fraction with more than 60 good bits to spare. It is a function of its own, called for the
lanes of a vector through memory, since it hardly ever runs.
"""

from __future__ import annotations

from arenite.backends.cpu.compiling.llvm import FUNCTION_ATTRIBUTES
from arenite.backends.cpu.lowering.vector import Vec, VType

#: 2/pi in words of 64 bits, most significant first, after a word of zeros.
_WORDS = (
    0x0000000000000000,
    0xA2F9836E4E441529,
    0xFC2757D1F534DDC0,
    0xDB6295993C439041,
    0xFE5163ABDEBBC561,
    0xB7246E3A424DD2E0,
    0x06492EEA09D1921C,
    0xFE1DEB1CB129A73E,
    0xE88235F52EBB4484,
    0xE99C7026B45F7E41,
    0x3991D639835339F4,
    0x9C845F8BBDF9283B,
    0x1FF897FFDE05980F,
    0xEF2F118B5A0A6D1F,
    0x6D367ECF27CB09B7,
    0x4F463F669E5FEA2D,
    0x7527BAC7EBE5F17B,
    0x3D0739F78A5292EA,
    0x6BFB5FB11F8D5D08,
    0x56033046FC7B6BAB,
    0xF0CFBC209AF4361D,
    0xA9E391615EE61B08,
)

_TABLE = (
    f"@two_over_pi = internal unnamed_addr constant [{len(_WORDS)} x i64] "
    f"[{', '.join(f'i64 {word}' for word in _WORDS)}]"
)

#: In place: `angles` become remainders in [-pi/4, pi/4], quadrants are written beside them.
#: Infinities and NaN become NaN; what is within `reach` is left to the caller.
_FUNCTION = f"""
define internal void @reduce_large_angles(ptr %angles, ptr %quadrants, i64 %count, double %reach) \
noinline {FUNCTION_ATTRIBUTES} {{
entry:
  br label %lane
lane:
  %i = phi i64 [ 0, %entry ], [ %next, %on ]
  %at = getelementptr double, ptr %angles, i64 %i
  %x = load double, ptr %at, align 8
  %size = call double @llvm.fabs.f64(double %x)
  %is_near = fcmp ole double %size, %reach
  br i1 %is_near, label %on, label %large
large:
  %is_finite = fcmp olt double %size, 0x7FF0000000000000
  br i1 %is_finite, label %reduce, label %bad
bad:
  store double 0x7FF8000000000000, ptr %at, align 8
  %q_bad = getelementptr i64, ptr %quadrants, i64 %i
  store i64 0, ptr %q_bad, align 8
  br label %on
reduce:
  %bits = bitcast double %size to i64
  %exponent = lshr i64 %bits, 52
  %fraction = and i64 %bits, 4503599627370495
  %m = or i64 %fraction, 4503599627370496
  ; x = m 2^(exponent - 1075); the window starts 2 bits above the binary point of x 2/pi
  %first = sub i64 %exponent, 1013
  %word = lshr i64 %first, 6
  %shift = and i64 %first, 63
  %p0 = getelementptr i64, ptr @two_over_pi, i64 %word
  %p1 = getelementptr i64, ptr %p0, i64 1
  %p2 = getelementptr i64, ptr %p0, i64 2
  %p3 = getelementptr i64, ptr %p0, i64 3
  %a0 = load i64, ptr %p0, align 8
  %a1 = load i64, ptr %p1, align 8
  %a2 = load i64, ptr %p2, align 8
  %a3 = load i64, ptr %p3, align 8
  %w0 = call i64 @llvm.fshl.i64(i64 %a0, i64 %a1, i64 %shift)
  %w1 = call i64 @llvm.fshl.i64(i64 %a1, i64 %a2, i64 %shift)
  %w2 = call i64 @llvm.fshl.i64(i64 %a2, i64 %a3, i64 %shift)
  %m128 = zext i64 %m to i128
  %high = mul i64 %m, %w0
  %high128 = zext i64 %high to i128
  %top = shl i128 %high128, 64
  %w1wide = zext i64 %w1 to i128
  %middle = mul i128 %m128, %w1wide
  %w2wide = zext i64 %w2 to i128
  %lowest = mul i128 %m128, %w2wide
  %carry = lshr i128 %lowest, 64
  %sum0 = add i128 %top, %middle
  %sum = add i128 %sum0, %carry
  ; sum / 2^126 is x 2/pi mod 4; the nearest whole number is the quadrant
  %rounded = add i128 %sum, 42535295865117307932921825928971026432
  %q128 = lshr i128 %rounded, 126
  %whole = shl i128 %q128, 126
  %rest = sub i128 %sum, %whole
  %is_negative = icmp slt i128 %rest, 0
  %negated = sub i128 0, %rest
  %magnitude = select i1 %is_negative, i128 %negated, i128 %rest
  %zeros = call i128 @llvm.ctlz.i128(i128 %magnitude, i1 false)
  %normal = shl i128 %magnitude, %zeros
  %upper128 = lshr i128 %normal, 64
  %upper = trunc i128 %upper128 to i64
  %mantissa = uitofp i64 %upper to double
  ; mantissa 2^(64 - zeros - 126), times pi/2
  %zeros64 = trunc i128 %zeros to i64
  %power = sub i64 961, %zeros64
  %power_bits = shl i64 %power, 52
  %scale = bitcast i64 %power_bits to double
  %angle0 = fmul double %mantissa, 0x3FF921FB54442D18
  %angle1 = fmul double %angle0, %scale
  %x_bits = bitcast double %x to i64
  %x_negative = icmp slt i64 %x_bits, 0
  %flips = xor i1 %is_negative, %x_negative
  %flipped = fneg double %angle1
  %angle = select i1 %flips, double %flipped, double %angle1
  store double %angle, ptr %at, align 8
  %q = trunc i128 %q128 to i64
  %q_negated = sub i64 0, %q
  %quadrant = select i1 %x_negative, i64 %q_negated, i64 %q
  %q_at = getelementptr i64, ptr %quadrants, i64 %i
  store i64 %quadrant, ptr %q_at, align 8
  br label %on
on:
  %next = add i64 %i, 1
  %is_done = icmp eq i64 %next, %count
  br i1 %is_done, label %end, label %lane
end:
  ret void
}}
"""


def reduce_large(x: Vec, reach: float) -> tuple[Vec, Vec]:
    """Quadrant and remainder of the lanes beyond `reach`; the others hold anything."""
    b, lanes = x.builder, x.type.lanes
    b.globals["two_over_pi"] = _TABLE
    b.helpers["reduce_large_angles"] = _FUNCTION
    b.declarations |= {
        "declare double @llvm.fabs.f64(double)",
        "declare i64 @llvm.fshl.i64(i64, i64, i64)",
        "declare i128 @llvm.ctlz.i128(i128, i1)",
    }
    doubles, whole = VType("f", 64, lanes), VType("i", 64, lanes)
    angles, quadrants = b.stack(doubles, "angles"), b.stack(whole, "quadrants")
    wide = x.convert("fpext", doubles)
    b.emit_void(f"store {doubles} {wide.text}, ptr {angles}, align 8")
    limit = b.constant(reach, VType("f", 64, 1)).text
    b.emit_void(
        f"call void @reduce_large_angles(ptr {angles}, ptr {quadrants}, i64 {lanes}, "
        f"double {limit})"
    )
    r = b.emit(f"load {doubles}, ptr {angles}, align 8", doubles)
    quadrant = b.emit(f"load {whole}, ptr {quadrants}, align 8", whole)
    return quadrant.convert("trunc", x.type.as_int), r.convert("fptrunc", x.type)
