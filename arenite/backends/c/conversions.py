"""Conversions of C values that C itself leaves open: floats to integers, and bits.

Names say both ends: `i32_of_f32` saturates and makes NaN 0; `f32_of_bits` reads a word as a float.
"""

from __future__ import annotations

_WORDS = {"f32": ("float", "uint32_t"), "f64": ("double", "uint64_t")}


def conversion(name: str) -> str | None:
    """The definition of a conversion by its name, if it is one of these."""
    target, _, source = name.partition("_of_")
    if source == "bits" and target in _WORDS:
        value, word = _WORDS[target]
        return _bits(name, value, word)
    if target == "bits" and source in _WORDS:
        value, word = _WORDS[source]
        return _bits(name, word, value)
    if source in _WORDS and target[:1] in "iu" and target[1:].isdigit():
        return _saturating(name, target, _WORDS[source][0])
    return None


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


def _function(returned: str, name: str, parameter: str, *lines: str) -> str:
    body = "\n".join(f"    {line}" for line in lines)
    return f"static inline {returned} {name}({parameter}) {{\n{body}\n}}\n"
