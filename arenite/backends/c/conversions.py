"""Conversions of C values that C itself leaves open: floats to integers, small floats, bits.

Names say both ends: `i32_of_f32` saturates and makes NaN 0; `f32_of_f16` is exact; `f16_of_f64`
rounds once, to nearest even; `f32_of_bits` reads a word as a float.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SmallFloat:
    """Sign, exponent and mantissa of a float below float32, and its codes that are no numbers."""

    bits: int
    mantissa: int
    bias: int
    largest: int  # code of the largest finite magnitude
    overflow: int  # code that greater magnitudes become
    nan: int
    is_signless_zero: bool = False  # the code of -0 is NaN


SMALL_FLOATS = {
    "bf16": SmallFloat(16, 7, 127, 0x7F7F, 0x7F80, 0x7FC0),
    "f16": SmallFloat(16, 10, 15, 0x7BFF, 0x7C00, 0x7E00),
    "f8_e5m2": SmallFloat(8, 2, 15, 0x7B, 0x7C, 0x7E),
    "f8_e4m3": SmallFloat(8, 3, 7, 0x77, 0x78, 0x7C),
    "f8_e3m4": SmallFloat(8, 4, 3, 0x6F, 0x70, 0x78),
    "f8_e4m3fn": SmallFloat(8, 3, 7, 0x7E, 0x7F, 0x7F),
    "f8_e4m3fnuz": SmallFloat(8, 3, 8, 0x7F, 0x80, 0x80, True),
    "f8_e4m3b11fnuz": SmallFloat(8, 3, 11, 0x7F, 0x80, 0x80, True),
    "f8_e5m2fnuz": SmallFloat(8, 2, 16, 0x7F, 0x80, 0x80, True),
}
_WORDS = {"f32": ("float", "uint32_t"), "f64": ("double", "uint64_t")}


def conversion(name: str) -> str | None:
    """The definition of a conversion by its name, if it is one."""
    target, _, source = name.partition("_of_")
    if source == "bits" and target in _WORDS:
        value, word = _WORDS[target]
        return _bits(name, value, word)
    if target == "bits" and source in _WORDS:
        value, word = _WORDS[source]
        return _bits(name, word, value)
    if source in _WORDS and target[:1] in "iu" and target[1:].isdigit():
        return _saturating(name, target, _WORDS[source][0])
    special = _SPECIAL.get(name)
    if special is not None:
        return special(name)
    if target == "f32" and source in SMALL_FLOATS:
        return _wide(name, SMALL_FLOATS[source])
    if source == "f32" and target in SMALL_FLOATS:
        return _narrow(name, SMALL_FLOATS[target])
    if source == "f64" and (target in SMALL_FLOATS or target == "f8_e8m0fnu"):
        return _narrow_double(name, target)
    return None


def _function(returned: str, name: str, parameter: str, *lines: str) -> str:
    body = "\n".join(f"    {line}" for line in lines)
    return f"static inline {returned} {name}({parameter}) {{\n{body}\n}}\n"


def _bits(name: str, to: str, source: str) -> str:
    both = f"const union {{ {source} from; {to} to; }} both = {{.from = a}};"
    return _function(to, name, f"{source} a", both, "return both.to;")


def _saturating(name: str, target: str, source: str) -> str:
    bits, is_signed = int(target[1:]), target[0] == "i"
    to = f"{'' if is_signed else 'u'}int{bits}_t"
    top = f"{2.0 ** (bits - is_signed)}{'f' if source == 'float' else ''}"
    least, most = f"INT{bits}_MIN" if is_signed else "0", f"{'' if is_signed else 'U'}INT{bits}_MAX"
    low = f"a < -{top}" if is_signed else "a <= 0"
    return _function(
        to,
        name,
        f"{source} a",
        f"return a != a ? 0 : a >= {top} ? {most} : {low} ? {least} : ({to})a;",
    )


def _wide(name: str, small: SmallFloat) -> str:
    """As float32 bits the magnitude is too small by a power of two, denormals included."""
    word = f"uint{small.bits}_t"
    sign = 1 << small.bits - 1
    lines = [f"const uint32_t magnitude = a & 0x{sign - 1:x}u;"]
    lines.append(f"const uint32_t sign = (uint32_t)(a & 0x{sign:x}u) << {32 - small.bits};")
    if small.is_signless_zero:
        lines.append(f"if (a == 0x{small.nan:x}u) return f32_of_bits(0x7fc00000u);")
    elif small.overflow == small.nan:
        lines.append(f"if (magnitude == 0x{small.nan:x}u) return f32_of_bits(sign | 0x7fc00000u);")
    else:
        lines += [
            f"if (magnitude > 0x{small.overflow:x}u) return f32_of_bits(sign | 0x7fc00000u);",
            f"if (magnitude == 0x{small.overflow:x}u) return f32_of_bits(sign | 0x7f800000u);",
        ]
    scale = f"{2.0 ** (127 - small.bias)!r}f"
    lines += [
        f"const float scaled = f32_of_bits(magnitude << {23 - small.mantissa}) * {scale};",
        "return f32_of_bits(bits_of_f32(scaled) | sign);",
    ]
    return _function("float", name, f"{word} a", *lines)


def _narrow(name: str, small: SmallFloat) -> str:
    """Below the least normal number codes are multiples of one step: adding a float whose last
    place is that step rounds to it."""
    word, shift, least = f"uint{small.bits}_t", 23 - small.mantissa, 1 - small.bias
    half = (1 << shift - 1) - 1
    rebias = (127 - small.bias) << small.mantissa
    lines = [
        "const uint32_t bits = bits_of_f32(a), magnitude = bits & 0x7fffffffu;",
        f"uint32_t sign = (bits & 0x80000000u) >> {32 - small.bits}, code;",
        "if (magnitude > 0x7f800000u) {",
        f"    code = 0x{small.nan:x}u;",
    ]
    if small.bias < 127:
        magic = f"{2.0 ** (least + shift)!r}f"
        lines += [
            f"}} else if (magnitude < 0x{(127 + least) << 23:x}u) {{",
            f"    code = bits_of_f32(f32_of_bits(magnitude) + {magic}) - bits_of_f32({magic});",
        ]
    lines += [
        "} else {",
        f"    code = magnitude + 0x{half:x}u + (magnitude >> {shift} & 1);",
        f"    code = (code >> {shift}) - {rebias}u;",
        f"    if (code > 0x{small.largest:x}u) code = 0x{small.overflow:x}u;",
        "}",
    ]
    if small.is_signless_zero:
        lines.append(f"if (code == 0 || code == 0x{small.nan:x}u) sign = 0;")
    lines.append(f"return ({word})(code | sign);")
    return _function(word, name, "float a", *lines)


def _narrow_double(name: str, target: str) -> str:
    """Through a float32 rounded to odd, so that rounding it again rounds once in effect."""
    word = "uint16_t" if target in ("f16", "bf16") else "uint8_t"
    return _function(
        word,
        name,
        "double a",
        "const float near = (float)a;",
        "const double magnitude = a < 0 ? -a : a, back = near < 0 ? -(double)near : near;",
        f"if (a != a || back == magnitude) return {target}_of_f32(near);",
        "return " + f"{target}_of_f32(f32_of_bits((bits_of_f32(near) - (back > magnitude)) | 1u));",
    )


def _powers_wide(name: str) -> str:
    return _function(
        "float",
        name,
        "uint8_t a",
        "if (a == 255) return f32_of_bits(0x7fc00000u);",
        "return f32_of_bits(a == 0 ? 0x00400000u : (uint32_t)a << 23);",
    )


def _powers_narrow(name: str) -> str:
    """The exponent, halfway rounded up; NaN for 0, below and beyond."""
    return _function(
        "uint8_t",
        name,
        "float a",
        "const uint32_t bits = bits_of_f32(a), exponent = bits >> 23;",
        "const uint32_t code = exponent + ((bits & 0x7fffffu) + (exponent != 0) > 0x400000u);",
        "return (uint8_t)(a != a || bits == 0 || bits >> 31 || code > 254 ? 255 : code);",
    )


def _upper_half(name: str) -> str:
    return _function("float", name, "uint16_t a", "return f32_of_bits((uint32_t)a << 16);")


_SPECIAL: dict[str, Callable[[str], str]] = {
    "f32_of_bf16": _upper_half,
    "f32_of_f8_e8m0fnu": _powers_wide,
    "f8_e8m0fnu_of_f32": _powers_narrow,
}
