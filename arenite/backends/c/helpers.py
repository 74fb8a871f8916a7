"""Functions of C for the ops that C's operators don't mean exactly: wrapping, rounding down,
saturating, NaN.

In: names such as `floordiv_i64` or `max_f32`, as expressions use them. Out: their definitions, each
behind those it calls. A definition is a template: {T} the type, {U} an unsigned type in which
arithmetic wraps, {f} the suffix of the C library's functions.
"""

from __future__ import annotations

import re

from arenite.backends.c.c_types import suffix, value_type
from arenite.backends.c.conversions import conversion
from arenite.dtype import BY_NAME, DType, Kind
from arenite.errors import NotCompiled

_UNARY, _BINARY = "{T} a", "{T} a, {T} b"

#: Parameters, and what is returned; of signed integers first, where it differs.
_SIGNED: dict[str, tuple[str, str]] = {
    "neg": (_UNARY, "return ({T})(0u - ({U})a);"),
    "abs": (_UNARY, "return a < 0 ? neg_{s}(a) : a;"),
    "sign": (_UNARY, "return ({T})((a > 0) - (a < 0));"),
    "shift_right": (
        _BINARY,
        "const bool inside = b >= 0 && b < {bits};\n"
        "return a < 0 ? ({T})(inside ? ~(~a >> b) : -1) : ({T})(inside ? a >> b : 0);",
    ),
    "div": (_BINARY, "return b == 0 ? 0 : b == -1 ? neg_{s}(a) : ({T})(a / b);"),
    "fmod": (_BINARY, "return b == 0 || b == -1 ? 0 : ({T})(a % b);"),
    "floordiv": (
        _BINARY,
        "const {T} rest = fmod_{s}(a, b);\n"
        "return ({T})(div_{s}(a, b) - (rest != 0 && (rest < 0) != (b < 0)));",
    ),
    "mod": (
        _BINARY,
        "const {T} rest = fmod_{s}(a, b);\n"
        "return ({T})(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);",
    ),
    "pow": (
        _BINARY,
        "if (b < 0) return ({T})(a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0);\n"
        "{U} power = 1, base = ({U})a;\n"
        "for ({T} left = b; left > 0; left = ({T})(left >> 1)) {{\n"
        "    if (left & 1) power *= base;\n"
        "    base *= base;\n"
        "}}\n"
        "return ({T})power;",
    ),
}
_UNSIGNED: dict[str, tuple[str, str]] = {
    "neg": (_UNARY, "return ({T})(0u - ({U})a);"),
    "sign": (_UNARY, "return a != 0;"),
    "shift_right": (_BINARY, "return b < {bits} ? ({T})(a >> b) : 0;"),
    "div": (_BINARY, "return b == 0 ? 0 : ({T})(a / b);"),
    "fmod": (_BINARY, "return b == 0 ? 0 : ({T})(a % b);"),
    "pow": (
        _BINARY,
        "{U} power = 1, base = a;\n"
        "for ({T} left = b; left > 0; left = ({T})(left >> 1)) {{\n"
        "    if (left & 1) power *= base;\n"
        "    base *= base;\n"
        "}}\n"
        "return ({T})power;",
    ),
}
_INTEGER: dict[str, tuple[str, str]] = {
    "not": (_UNARY, "return ({T})~({U})a;"),
    "add": (_BINARY, "return ({T})(({U})a + ({U})b);"),
    "sub": (_BINARY, "return ({T})(({U})a - ({U})b);"),
    "mul": (_BINARY, "return ({T})(({U})a * ({U})b);"),
    "shift_left": (_BINARY, "return ({U})b < {bits} ? ({T})(({U})a << b) : 0;"),
    "max": (_BINARY, "return a > b ? a : b;"),
    "min": (_BINARY, "return a < b ? a : b;"),
}
_FLOAT: dict[str, tuple[str, str]] = {
    "max": (_BINARY, "return a > b || a != a ? a : b;"),
    "min": (_BINARY, "return a < b || a != a ? a : b;"),
    "sign": (_UNARY, "return a > 0 ? 1 : a < 0 ? -1 : a == 0 ? 0 : a;"),
    "sigmoid": (
        _UNARY,
        "const {T} power = exp_{s}(a < 0 ? a : -a);\nreturn (a < 0 ? power : 1) / (1 + power);",
    ),
    "times_sigmoid": (_BINARY, "return a * sigmoid_{s}(b);"),
    "mod": (
        _BINARY,
        "const {T} rest = fmod_{s}(a, b);\n"
        "if (rest == 0) return copysign_{s}(0, b);\n"
        "return (rest < 0) != (b < 0) ? rest + b : rest;",
    ),
    "floordiv": (
        _BINARY,
        "if (b == 0) return a / b;\n"
        "const {T} rest = fmod_{s}(a, b);\n"
        "const {T} quotient = (a - rest) / b - (rest != 0 && (rest < 0) != (b < 0));\n"
        "if (quotient == 0) return copysign_{s}(0, a / b);\n"
        "const {T} below = floor_{s}(quotient);\n"
        "return quotient - below > ({T})0.5 ? below + 1 : below;",
    ),
    # Where the target has no instruction for it, two roundings.
    "multiply_add": (
        "{T} a, {T} b, {T} c",
        "#ifdef __FP_FAST_FMA{F}\nreturn __builtin_fma{f}(a, b, c);\n"
        "#else\nreturn a * b + c;\n#endif",
    ),
}
#: Functions of the C library: the name for float64; for float32 with an f behind it.
LIBRARY = {
    **{
        op: op
        for op in (
            "exp exp2 expm1 log log2 log1p sqrt sin cos tan asin acos atan sinh cosh tanh asinh "
            "acosh atanh erf floor ceil trunc pow atan2 fmod copysign"
        ).split()
    },
    "round": "rint",
    "abs": "fabs",
}
_TWO_OPERANDS = frozenset("pow atan2 fmod copysign".split())
_FLOAT |= {
    op: (_BINARY, f"return {name}{{f}}(a, b);")
    if op in _TWO_OPERANDS
    else (_UNARY, f"return {name}{{f}}(a);")
    for op, name in LIBRARY.items()
}
LIBRARY["erf1p"] = "erfc"
_FLOAT["erf1p"] = (_UNARY, "return erfc{f}(-a);")
_FLOAT["isnan"] = (_UNARY, "return a != a;")
_FLOAT["isinf"] = (_UNARY, "return abs_{s}(a) == {s}_of_bits({infinity});")
_PREDICATES = frozenset({"isnan", "isinf"})
_INFINITY = {32: "0x7f800000u", 64: "UINT64_C(0x7ff0000000000000)"}

_TABLES: dict[Kind, dict[str, tuple[str, str]]] = {
    Kind.SIGNED: _INTEGER | _SIGNED,
    Kind.UNSIGNED: _INTEGER | _UNSIGNED,
    Kind.FLOAT: _FLOAT,
}

_DTYPES = {suffix(d): d for d in BY_NAME.values() if d.bits % 8 == 0 and not d.is_block}


class Helpers:
    """The functions a program uses, in the order of their definitions; `freestanding` ones call no
    library."""

    def __init__(self, freestanding: bool = False) -> None:
        self.freestanding = freestanding
        self._texts: dict[str, str] = {}

    def use(self, name: str) -> str:
        """The name, whose definition is from now on part of the text."""
        if name not in self._texts:
            text = self._definition(name)
            for inner in dict.fromkeys(re.findall(r"\b[a-z0-9_]+(?=\()", text)):
                if inner != name and is_helper(inner):
                    self.use(inner)
            self._texts[name] = text
        return name

    def _definition(self, name: str) -> str:
        found = conversion(name) or _small_float(name, self)
        if found is not None:
            return found
        op, dtype = _parsed(name)
        template = _TABLES[dtype.kind].get(op)
        if template is None or (self.freestanding and dtype.kind is Kind.FLOAT and op in LIBRARY):
            return _written_out(op, dtype, self)
        return _definition(op, dtype, *template)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._texts)

    def text_for(self, *sources: str) -> str:
        """The definitions of all that these call, also by way of others."""
        called: set[str] = set()
        pending = [*sources]
        while pending:
            words = set(re.findall(r"\w+", pending.pop()))
            found = [name for name in self._texts if name in words and name not in called]
            called.update(found)
            pending += [self._texts[name] for name in found]
        return "\n".join(text for name, text in self._texts.items() if name in called)


def is_helper(name: str) -> bool:
    """Whether a function is one of these, and none of the library."""
    ends = name.split("_of_") if "_of_" in name else name.rsplit("_", 1)
    return len(ends) == 2 and (ends[-1] in _DTYPES or ends[-1] == "bits")


def _parsed(name: str) -> tuple[str, DType]:
    op, _, of = name.rpartition("_")
    return op, _DTYPES[of]


def _small_float(name: str, helpers: Helpers) -> str | None:
    """A conversion of a float that is storage only, as `codegen.maths` has it."""
    target, middle, source = name.partition("_of_")
    if not middle:
        return None
    from arenite.backends.c.kernel import function_source
    from arenite.codegen.maths import definitions

    made = definitions(has_fma=False).cast(_DTYPES[source], _DTYPES[target])
    return function_source(made, name, helpers)


def _written_out(op: str, dtype: DType, helpers: Helpers) -> str:
    """A function of `codegen.maths`, which calls no library."""
    from arenite.backends.c.kernel import function_source
    from arenite.codegen.maths import definitions

    name = f"{op}_{suffix(dtype)}"
    if op == "sqrt":
        return ROOTS[dtype.bits]
    if op == "abs":
        word = "uint32_t" if dtype.bits == 32 else "uint64_t"
        body = f"return {suffix(dtype)}_of_bits(bits_of_{suffix(dtype)}(a) & (({word})-1 >> 1));"
        return function(value_type(dtype), name, f"{value_type(dtype)} a", body)
    found = definitions(has_fma=False).op(op, dtype)
    if found is None:
        raise NotCompiled(f"{op} of {dtype} can't be written in C without a library")
    return function_source(found, name, helpers)


def _definition(op: str, dtype: DType, parameters: str, body: str) -> str:
    name = f"{op}_{suffix(dtype)}"
    values = {
        "T": value_type(dtype),
        "U": "uint64_t" if dtype.bits == 64 else "uint32_t",
        "s": suffix(dtype),
        "bits": dtype.bits,
        "f": "f" if dtype.bits == 32 else "",
        "F": "F" if dtype.bits == 32 else "",
        "infinity": _INFINITY.get(dtype.bits, ""),
    }
    returned = "bool" if op in _PREDICATES else value_type(dtype)
    return function(returned, name, parameters.format(**values), body.format(**values))


def function(returned: str, name: str, parameters: str, body: str) -> str:
    """A definition, indented, but for lines of the preprocessor."""
    lines = [line if line.startswith("#") else f"    {line}" for line in body.split("\n")]
    return "\n".join([f"static inline {returned} {name}({parameters}) {{", *lines, "}", ""])


def _root(bits: int, mantissa: int) -> str:
    """sqrt, bit by bit, rounded to nearest: what is left tells whether the root is inexact."""
    s, one = f"f{bits}", f"((uint{bits}_t)1 << {mantissa})"
    bias = (1 << bits - mantissa - 2) - 1
    nan = "0x7fc00000u" if bits == 32 else "UINT64_C(0x7ff8000000000000)"
    body = f"""\
if (a == 0 || a != a || a == {s}_of_bits({_INFINITY[bits]})) return a;
if (a < 0) return {s}_of_bits({nan});
uint{bits}_t left = bits_of_{s}(a);
int exponent = (int)(left >> {mantissa});
left &= {one} - 1;
if (exponent != 0) left |= {one};
else for (exponent = 1; left < {one}; exponent--) left <<= 1;
exponent -= {bias};
if (exponent & 1) left <<= 1;
left <<= 1;
uint{bits}_t root = 0, sum = 0;
for (uint{bits}_t bit = {one} << 1; bit != 0; bit >>= 1) {{
    if (sum + bit <= left) {{
        left -= sum + bit;
        sum += bit << 1;
        root += bit;
    }}
    left <<= 1;
}}
if (left != 0) root += root & 1;
const int half = (exponent - (exponent & 1)) / 2 + {bias - 1};
return {s}_of_bits((root >> 1) + ((uint{bits}_t)half << {mantissa}));"""
    kind = "float" if bits == 32 else "double"
    return function(kind, f"sqrt_{s}", f"{kind} a", body)


ROOTS = {32: _root(32, 23), 64: _root(64, 52)}
