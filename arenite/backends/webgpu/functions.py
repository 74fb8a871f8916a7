"""WGSL functions for what the language leaves open: NaN, division by zero, shifts by the width.

In: names of functions. Out: their text, in a fixed order.
"""

from __future__ import annotations

from collections.abc import Collection

_TEXTS = {
    # Bits that no compiler folds: infinities and NaN can't be written as constants.
    "float_of": """var<private> no_bits: u32 = 0u;
fn float_of(bits: u32) -> f32 { return bitcast<f32>(bits | no_bits); }""",
    "held": "fn held(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) | parameters.zero); }",
    "is_nan": "fn is_nan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }",
    "div_i32": """fn div_i32(a: i32, b: i32) -> i32 {
  if (b == 0i) { return 0i; }
  if (b == -1i) { return 0i - a; }
  return a / b;
}""",
    "div_u32": "fn div_u32(a: u32, b: u32) -> u32 { return select(a / max(b, 1u), 0u, b == 0u); }",
    "shift_left_u32": """fn shift_left_u32(a: u32, by: u32) -> u32 {
  return select(a << (by & 31u), 0u, by > 31u);
}""",
    "shift_right_u32": """fn shift_right_u32(a: u32, by: u32) -> u32 {
  return select(a >> (by & 31u), 0u, by > 31u);
}""",
    "shift_right_i32": "fn shift_right_i32(a: i32, by: u32) -> i32 { return a >> min(by, 31u); }",
}


def texts_of(names: Collection[str]) -> list[str]:
    """The functions, each once."""
    return [text for name, text in _TEXTS.items() if name in names]
