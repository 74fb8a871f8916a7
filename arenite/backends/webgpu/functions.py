"""WGSL functions for what the language leaves open: NaN, division by zero, shifts by the width.

In: names of functions. Out: their text, in a fixed order.

A compiler of WGSL may assume that there are no NaN and no infinities: it takes `x == x` for true,
and a select of the greater of two for an instruction that loses NaN. So NaN is tested in bits, and
bits that it must not know are joined with `parameters.zero`, which it can't.
"""

from __future__ import annotations

import re
from collections.abc import Collection

_COMPARISONS = {"eq": "==", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}

_TEXTS = {
    # Infinities, NaN and denormals can't be written as constants.
    "float_of": "fn float_of(bits: u32) -> f32 { return bitcast<f32>(bits | parameters.zero); }",
    "held": "fn held(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) | parameters.zero); }",
    "magnitude_bits": """fn magnitude_bits(x: f32) -> u32 {
  return (bitcast<u32>(x) | parameters.zero) & 0x7fffffffu;
}""",
    "abs_f32": "fn abs_f32(x: f32) -> f32 { return bitcast<f32>(magnitude_bits(x)); }",
    "neg_f32": """fn neg_f32(x: f32) -> f32 {
  return bitcast<f32>((bitcast<u32>(x) | parameters.zero) ^ 0x80000000u);
}""",
    "is_nan": "fn is_nan(x: f32) -> bool { return magnitude_bits(x) > 0x7f800000u; }",
    "is_infinite": "fn is_infinite(x: f32) -> bool { return magnitude_bits(x) == 0x7f800000u; }",
    # False of NaN, whatever the comparison itself says; `left` and `right` may be NaN.
    **{
        f"{op}_f32{suffix}": f"fn {op}_f32{suffix}(a: f32, b: f32) -> bool "
        f"{{ return (a {sign} b) & {test}; }}"
        for op, sign in _COMPARISONS.items()
        for suffix, test in {
            "": "!(is_nan(a) | is_nan(b))",
            "_left": "!is_nan(a)",
            "_right": "!is_nan(b)",
        }.items()
    },
    # The reciprocal of the greatest numbers is a denormal, which devices may take for 0.
    "div_f32": """fn div_f32(a: f32, b: f32) -> f32 {
  let scale = select(1.0f, 0.00390625f, magnitude_bits(b) > 0x7e000000u);
  return held(a * scale) / held(b * scale);
}""",
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
    """The functions and those that they call, each once."""
    needed = set(names)
    for name, text in reversed(_TEXTS.items()):  # none calls one that stands behind it
        if name in needed:
            needed.update(called for called in re.findall(r"(\w+)\(", text) if called in _TEXTS)
    return [text for name, text in _TEXTS.items() if name in needed]
