"""How dtypes are spelled in C: values, elements of arrays, and constants.

float16, bfloat16 and the float8 kinds are words of their bits. Elements of arrays are read and
written through types that may alias (`f32`, `u16`): values of a program share the bytes of one
arena, whatever their types.
"""

from __future__ import annotations

import math
import re
import struct

import numpy as np

from arenite.dtype import DType, Kind

_SHORT = {"bfloat16": "bf16", "bool": "bool"}
#: Words of C and names of the headers that an identifier must not be.
_RESERVED = frozenset(
    "auto break case char const continue default do double else enum extern float for goto if "
    "inline int long register restrict return short signed sizeof static struct switch typedef "
    "union unsigned void volatile while bool true false errno NULL INFINITY NAN main error arena "
    "weights self y0 y1 yn j0 j1 jn gamma signgam".split()
)


def suffix(dtype: DType) -> str:
    """The dtype in names of functions: f32, i8, f8_e4m3fn."""
    if dtype.kind is Kind.FLOAT and dtype.bits == 8:
        return dtype.name.replace("float8", "f8")
    letter = {Kind.SIGNED: "i", Kind.UNSIGNED: "u", Kind.FLOAT: "f"}.get(dtype.kind, "")
    return _SHORT.get(dtype.name) or f"{letter}{dtype.bits}"


def is_small_float(dtype: DType) -> bool:
    """Whether values are words of their bits."""
    return dtype.kind is Kind.FLOAT and dtype.bits < 32


def word_of(value: float, dtype: DType) -> str:
    """The bits of a float32 or a float64, as a constant."""
    code, unsigned = (">f", ">I") if dtype.bits == 32 else (">d", ">Q")
    word = f"{struct.unpack(unsigned, struct.pack(code, value))[0]:#x}"
    return f"{word}u" if dtype.bits == 32 else f"UINT64_C({word})"


def value_type(dtype: DType) -> str:
    """The type of a variable."""
    if dtype.kind is Kind.BOOL:
        return "bool"
    if dtype.kind is Kind.FLOAT and dtype.bits >= 32:
        return "float" if dtype.bits == 32 else "double"
    return f"{'int' if dtype.kind is Kind.SIGNED else 'uint'}{dtype.bits}_t"


def element_type(dtype: DType) -> str:
    """The type of an array's elements inside kernels."""
    if dtype.kind is Kind.FLOAT and dtype.bits >= 32:
        return f"f{dtype.bits}"
    return f"{'i' if dtype.kind is Kind.SIGNED else 'u'}{dtype.bits}"


def argument_type(dtype: DType) -> str:
    """The type of an array's elements for a caller: parts of complex numbers, bytes of blocks and
    of elements narrower than a byte."""
    if dtype.kind is Kind.COMPLEX:
        return "float" if dtype.bits == 64 else "double"
    if dtype.kind in (Kind.BLOCK, Kind.BOOL) or dtype.bits < 8:
        return "uint8_t"
    return value_type(dtype)


#: For the head of a program: all element types, of which a kernel names some.
ELEMENT_TYPES = "\n".join(
    [
        "#if defined(__GNUC__)",
        "#define MAY_ALIAS __attribute__((__may_alias__))",
        "#else",
        "#define MAY_ALIAS",
        "#endif",
        *(
            f"typedef {'u' if sign == 'u' else ''}int{bits}_t MAY_ALIAS {sign}{bits};"
            for sign in "iu"
            for bits in (8, 16, 32, 64)
        ),
        "typedef float MAY_ALIAS f32;",
        "typedef double MAY_ALIAS f64;",
    ]
)


def literal(value: bool | int | float, dtype: DType) -> str:
    """A constant; one of a float that is not finite, or of a small float, has no literal."""
    if dtype.kind is Kind.BOOL:
        return "true" if value else "false"
    if dtype.kind is Kind.FLOAT:
        assert math.isfinite(value)
        assert dtype.bits >= 32
        return repr(float(value)) if dtype.bits == 64 else f"{np.float32(value)!s}f"
    number = int(value)
    if dtype.kind is Kind.UNSIGNED:
        return f"UINT64_C({number})" if number > 0x7FFFFFFF and dtype.bits == 64 else f"{number}u"
    if number == -(1 << dtype.bits - 1) and dtype.bits >= 32:
        return f"INT{dtype.bits}_MIN"
    if abs(number) > 0x7FFFFFFF:
        return f"INT64_C({number})"
    return str(number)


def identifier(text: str) -> str:
    """A name of C for any text."""
    name = re.sub(r"[^0-9A-Za-z_]+", lambda part: _spelled(part[0]), text).strip("_") or "value"
    name = f"v{name}" if name[0].isdigit() else name
    return f"{name}_" if name in _RESERVED else name


def _spelled(part: str) -> str:
    return "".join(f"u{ord(letter):04x}" if ord(letter) > 127 else "_" for letter in part)


def commented(text: str) -> str:
    """Text that may stand in a comment."""
    return " ".join(text.split("\n")).replace("*/", "* /").replace("/*", "/ *")


class Names:
    """Identifiers that differ from one another."""

    def __init__(self, *taken: str) -> None:
        self._taken = set(taken)

    def take(self, text: str) -> str:
        name = wanted = identifier(text)
        number = 2
        while name in self._taken:
            name, number = f"{wanted}_{number}", number + 1
        self._taken.add(name)
        return name

    def copy(self) -> Names:
        return Names(*self._taken)
