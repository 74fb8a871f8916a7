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


def _of_floats(kind: str, word: str, suffix: str, sign: int, infinity: int) -> dict[str, str]:
    """Functions on the bits of a float."""
    magnitude = sign - 1
    zero = "parameters.zero" if word == "u32" else f"{word}(parameters.zero)"
    bits = f"(bitcast<{word}>(x) | {zero})"
    return {
        # Infinities, NaN and denormals can't be written as constants.
        f"float_of_{kind}": f"fn float_of_{kind}(bits: {word}) -> {kind} "
        f"{{ return bitcast<{kind}>(bits | {zero}); }}",
        f"held_{kind}": f"fn held_{kind}(x: {kind}) -> {kind} {{ return bitcast<{kind}>{bits}; }}",
        f"magnitude_{kind}": f"fn magnitude_{kind}(x: {kind}) -> {word} "
        f"{{ return {bits} & {magnitude:#x}{suffix}; }}",
        f"abs_{kind}": f"fn abs_{kind}(x: {kind}) -> {kind} "
        f"{{ return bitcast<{kind}>(magnitude_{kind}(x)); }}",
        f"neg_{kind}": f"fn neg_{kind}(x: {kind}) -> {kind} "
        f"{{ return bitcast<{kind}>({bits} ^ {sign:#x}{suffix}); }}",
        f"is_nan_{kind}": f"fn is_nan_{kind}(x: {kind}) -> bool "
        f"{{ return magnitude_{kind}(x) > {infinity:#x}{suffix}; }}",
        f"is_infinite_{kind}": f"fn is_infinite_{kind}(x: {kind}) -> bool "
        f"{{ return magnitude_{kind}(x) == {infinity:#x}{suffix}; }}",
        # False of NaN, whatever the comparison itself says; `left` and `right` may be NaN.
        **{
            f"{op}_{kind}{which}": f"fn {op}_{kind}{which}(a: {kind}, b: {kind}) -> bool "
            f"{{ return (a {relation} b) & {test}; }}"
            for op, relation in _COMPARISONS.items()
            for which, test in {
                "": f"!(is_nan_{kind}(a) | is_nan_{kind}(b))",
                "_left": f"!is_nan_{kind}(a)",
                "_right": f"!is_nan_{kind}(b)",
            }.items()
        },
    }


def _of_integers(bits: int, suffix: str) -> dict[str, str]:
    """Divisions and shifts; a literal of u64 ends in lu."""
    signed, unsigned, by = f"i{bits}", f"u{bits}", "" if bits == 32 else "u32"
    zero, one = f"0{suffix}", f"1{suffix}"
    return {
        f"div_{signed}": f"""fn div_{signed}(a: {signed}, b: {signed}) -> {signed} {{
  if (b == {zero}i) {{ return {zero}i; }}
  if (b == -{one}i) {{ return {zero}i - a; }}
  return a / b;
}}""",
        f"div_{unsigned}": f"""fn div_{unsigned}(a: {unsigned}, b: {unsigned}) -> {unsigned} {{
  return select(a / max(b, {one}u), {zero}u, b == {zero}u);
}}""",
        f"shift_left_{unsigned}": f"""fn shift_left_{unsigned}(a: {unsigned}, by: {unsigned})
    -> {unsigned} {{
  return select(a << {by}(by & {bits - 1}{suffix}u), {zero}u, by > {bits - 1}{suffix}u);
}}""",
        f"shift_right_{unsigned}": f"""fn shift_right_{unsigned}(a: {unsigned}, by: {unsigned})
    -> {unsigned} {{
  return select(a >> {by}(by & {bits - 1}{suffix}u), {zero}u, by > {bits - 1}{suffix}u);
}}""",
        f"shift_right_{signed}": f"""fn shift_right_{signed}(a: {signed}, by: {unsigned})
    -> {signed} {{
  return a >> {by}(min(by, {bits - 1}{suffix}u));
}}""",
    }


_TEXTS = {
    **_of_floats("f32", "u32", "u", 2**31, 0x7F800000),
    **_of_floats("f64", "u64", "lu", 2**63, 0x7FF0000000000000),
    # The reciprocal of the greatest numbers is a denormal, which devices may take for 0.
    "div_f32": """fn div_f32(a: f32, b: f32) -> f32 {
  let scale = select(1.0f, 0.00390625f, magnitude_f32(b) > 0x7e000000u);
  return held_f32(a * scale) / held_f32(b * scale);
}""",
    "div_f64": "fn div_f64(a: f64, b: f64) -> f64 { return a / b; }",
    "pair": "fn pair(low: u32, high: u32) -> u64 { return u64(low) | (u64(high) << 32u); }",
    **_of_integers(32, ""),
    **_of_integers(64, "l"),
}


def texts_of(names: Collection[str]) -> list[str]:
    """The functions and those that they call, each once."""
    needed = set(names)
    for name, text in reversed(_TEXTS.items()):  # none calls one that stands behind it
        if name in needed:
            needed.update(called for called in re.findall(r"(\w+)\(", text) if called in _TEXTS)
    return [text for name, text in _TEXTS.items() if name in needed]
