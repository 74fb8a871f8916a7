"""WGSL functions that give operations the loop IR's meaning: what divides by zero, what NaN does.

In: names of functions. Out: their text, with all that they call. WGSL leaves NaN, shifts by the
width and conversions out of range to the device; here they are decided by bits and comparisons.
"""

from __future__ import annotations

from collections.abc import Iterable

_TEXTS = {
    # Bits that no compiler folds: infinities and NaN can't be written as constants.
    "float_of": """var<private> no_bits: u32 = 0u;
fn float_of(bits: u32) -> f32 { return bitcast<f32>(bits | no_bits); }""",
    "is_nan": """fn is_nan(x: f32) -> bool {
  return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}""",
    "is_inf": """fn is_inf(x: f32) -> bool {
  return (bitcast<u32>(x) & 0x7fffffffu) == 0x7f800000u;
}""",
    "max_f32": """fn max_f32(a: f32, b: f32) -> f32 {
  return select(select(max(a, b), b, is_nan(b)), a, is_nan(a));
}""",
    "min_f32": """fn min_f32(a: f32, b: f32) -> f32 {
  return select(select(min(a, b), b, is_nan(b)), a, is_nan(a));
}""",
    "sign_f32": """fn sign_f32(x: f32) -> f32 {
  return select(select(0.0, select(-1.0, 1.0, x > 0.0), x != 0.0), x, is_nan(x));
}""",
    "sigmoid_f32": """fn sigmoid_f32(x: f32) -> f32 {
  let e = exp(-abs(x));
  return select(select(1.0, e, x < 0.0) / (1.0 + e), x, is_nan(x));
}""",
    "div_i32": """fn div_i32(a: i32, b: i32) -> i32 {
  if (b == 0i) { return 0i; }
  if (b == -1i) { return 0i - a; }
  return a / b;
}""",
    "div_u32": """fn div_u32(a: u32, b: u32) -> u32 {
  if (b == 0u) { return 0u; }
  return a / b;
}""",
    "fmod_i32": """fn fmod_i32(a: i32, b: i32) -> i32 {
  if (b == 0i || b == -1i) { return 0i; }
  return a % b;
}""",
    "fmod_u32": """fn fmod_u32(a: u32, b: u32) -> u32 {
  if (b == 0u) { return 0u; }
  return a % b;
}""",
    "floordiv_i32": """fn floordiv_i32(a: i32, b: i32) -> i32 {
  let rest = fmod_i32(a, b);
  return div_i32(a, b) - select(0i, 1i, rest != 0i && (rest < 0i) != (b < 0i));
}""",
    "mod_i32": """fn mod_i32(a: i32, b: i32) -> i32 {
  let rest = fmod_i32(a, b);
  return rest + select(0i, b, rest != 0i && (rest < 0i) != (b < 0i));
}""",
    "pow_u32": """fn pow_u32(base: u32, exponent: u32) -> u32 {
  var result = 1u;
  var square = base;
  for (var left = exponent; left != 0u; left = left >> 1u) {
    if ((left & 1u) != 0u) { result = result * square; }
    square = square * square;
  }
  return result;
}""",
    "pow_i32": """fn pow_i32(base: i32, exponent: i32) -> i32 {
  if (exponent >= 0i) { return bitcast<i32>(pow_u32(bitcast<u32>(base), u32(exponent))); }
  if (base == 1i) { return 1i; }
  if (base == -1i) { return select(1i, -1i, (exponent & 1i) != 0i); }
  return 0i;
}""",
    "shift_left_u32": """fn shift_left_u32(a: u32, by: u32) -> u32 {
  return select(a << (by & 31u), 0u, by > 31u);
}""",
    "shift_right_u32": """fn shift_right_u32(a: u32, by: u32) -> u32 {
  return select(a >> (by & 31u), 0u, by > 31u);
}""",
    "shift_right_i32": "fn shift_right_i32(a: i32, by: u32) -> i32 { return a >> min(by, 31u); }",
    "to_i32": """fn to_i32(x: f32, low: f32, high: f32, least: i32, greatest: i32) -> i32 {
  if (is_nan(x)) { return 0i; }
  if (x <= low) { return least; }
  if (x >= high) { return greatest; }
  return i32(x);
}""",
    "to_u32": """fn to_u32(x: f32, high: f32, greatest: u32) -> u32 {
  if (is_nan(x) || x <= 0.0) { return 0u; }
  if (x >= high) { return greatest; }
  return u32(x);
}""",
    # float16 by its bits, so that small numbers, NaN and ties are the same on every device.
    "from_f16": """fn from_f16(bits: u32) -> f32 {
  let sign = (bits & 0x8000u) << 16u;
  let exponent = (bits >> 10u) & 31u;
  let fraction = bits & 1023u;
  if (exponent == 0u) {
    return bitcast<f32>(sign | bitcast<u32>(f32(fraction) * 5.9604644775390625e-8f));
  }
  let power = select(exponent + 112u, 255u, exponent == 31u);
  return float_of(sign | (power << 23u) | (fraction << 13u));
}""",
    "to_f16": """fn to_f16(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  let sign = (bits >> 16u) & 0x8000u;
  let size = bits & 0x7fffffffu;
  if (size > 0x7f800000u) { return sign | 0x7e00u; }
  if (size >= 0x477ff000u) { return sign | 0x7c00u; }
  if (size < 0x33000001u) { return sign; }
  if (size < 0x38800000u) {
    let shift = 126u - (size >> 23u);
    let whole = (size & 0x7fffffu) | 0x800000u;
    let kept = whole >> shift;
    let rest = whole & ((1u << shift) - 1u);
    let half = 1u << (shift - 1u);
    return sign | (kept + select(0u, 1u, rest > half || (rest == half && (kept & 1u) != 0u)));
  }
  return sign | ((size - 0x38000000u + 0xfffu + ((size >> 13u) & 1u)) >> 13u);
}""",
    "from_bf16": "fn from_bf16(bits: u32) -> f32 { return float_of(bits << 16u); }",
    "to_bf16": """fn to_bf16(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  if (is_nan(x)) { return (bits >> 16u) | 0x40u; }
  return (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
}""",
}

_CALLS = {
    "max_f32": ("is_nan",),
    "min_f32": ("is_nan",),
    "sign_f32": ("is_nan",),
    "sigmoid_f32": ("is_nan",),
    "floordiv_i32": ("fmod_i32", "div_i32"),
    "mod_i32": ("fmod_i32",),
    "pow_i32": ("pow_u32",),
    "to_i32": ("is_nan",),
    "to_u32": ("is_nan",),
    "from_f16": ("float_of",),
    "from_bf16": ("float_of",),
    "to_bf16": ("is_nan",),
}


def texts_of(names: Iterable[str]) -> list[str]:
    """The functions and those they call, each once, in a fixed order."""
    wanted: set[str] = set()
    pending = list(names)
    while pending:
        name = pending.pop()
        if name not in wanted:
            wanted.add(name)
            pending += _CALLS.get(name, ())
    return [text for name, text in _TEXTS.items() if name in wanted]
