"""Functions of C for what its operators don't mean exactly, or do not have.

In: names such as `floordiv_i64`, `max_f32` or `i32_of_f32`, as expressions use them. Out: their
definitions, each behind those it calls: what C must bring along itself, functions of its library,
and for all else what `codegen.maths` has for every device.
"""

from __future__ import annotations

import math
import re

from arenite.backends.c.c_types import suffix, value_type, word_of
from arenite.codegen import loop_ir as ir
from arenite.codegen.maths import definitions
from arenite.dtype import BY_NAME, DType, Kind
from arenite.errors import NotCompiled

#: What is returned of x and y: {T} is the type, {V} the unsigned type of the width and {v} what
#: names of its functions end in, {U} an unsigned type in which arithmetic wraps.
_INTEGER: dict[str, str] = {
    "neg": "({T})(0u - ({U})x)",
    "not": "({T})~({U})x",
    "add": "({T})(({U})x + ({U})y)",
    "sub": "({T})(({U})x - ({U})y)",
    "mul": "({T})(({U})x * ({U})y)",
    "shift_left": "({U})y < {bits} ? ({T})(({U})x << y) : 0",
}
_FLOAT: dict[str, str] = {"isnan": "x != x"}
_TEMPLATES: dict[Kind, dict[str, str]] = {
    Kind.SIGNED: _INTEGER
    | {
        "shift_right": "x < 0 ? ({T})~shift_right_{v}(({V})~x, ({V})y) : "
        "({T})shift_right_{v}(({V})x, ({V})y)",
        "div": "y == 0 ? 0 : y == -1 ? neg_{s}(x) : ({T})(x / y)",
    },
    Kind.UNSIGNED: _INTEGER
    | {"shift_right": "y < {bits} ? ({T})(x >> y) : 0", "div": "y == 0 ? 0 : ({T})(x / y)"},
    Kind.FLOAT: _FLOAT,
}
#: Functions of the C library: the name for float64; for float32 with an f behind it.
LIBRARY = {
    op: op
    for op in (
        "exp exp2 expm1 log log2 log1p sqrt sin cos tan asin acos atan sinh cosh tanh asinh "
        "acosh atanh erf floor ceil trunc pow atan2 fmod copysign"
    ).split()
} | {"round": "rint", "abs": "fabs"}

_DTYPES = {suffix(d): d for d in BY_NAME.values() if d.bits % 8 == 0 and not d.is_block}


class Helpers:
    """The functions a program uses, in the order of their definitions; `freestanding` ones call no
    library."""

    def __init__(self, freestanding: bool = False) -> None:
        self.freestanding = freestanding
        self._definitions = definitions(has_fma=False)
        self._texts: dict[str, str] = {}

    def use(self, name: str) -> str:
        """The name, whose definition is from now on part of the text."""
        if name not in self._texts:
            text = self._definition(name)
            for inner in dict.fromkeys(re.findall(r"\b[a-z0-9_]+(?=\()", text)):
                if inner != name and _is_helper(inner):
                    self.use(inner)
            self._texts[name] = text
        return name

    def _definition(self, name: str) -> str:
        from arenite.backends.c.kernel import function_source

        target, is_conversion, source = name.partition("_of_")
        if "bits" in (target, source):
            return _same_bits(name, target, source)
        if is_conversion:
            made: ir.Function | None = self._definitions.cast(_DTYPES[source], _DTYPES[target])
        else:
            op, _, of = name.rpartition("_")
            own = self._own(op, _DTYPES[of])
            if own is not None:
                return own
            made = self._definitions.op(op, _DTYPES[of])
        if made is None:
            raise NotCompiled(f"{name} can't be written in C: it is no function of the loop IR")
        return function_source(made, name, self)

    def _own(self, op: str, dtype: DType) -> str | None:
        """What C has an operator or a function of the library for."""
        s, is_float, is_single = suffix(dtype), dtype.kind is Kind.FLOAT, dtype.bits == 32
        if op == "multiply_add":
            return _MULTIPLY_ADD.format(
                T=value_type(dtype), s=s, f="f" * is_single, F="F" * is_single
            )
        template = _TEMPLATES[dtype.kind].get(op)
        if is_float and op in LIBRARY:
            if not self.freestanding:
                arguments = "x, y" if op in ir.BINARY_OPS else "x"
                template = f"{LIBRARY[op]}{'f' * is_single}({arguments})"
            elif op == "sqrt":
                return ROOTS[dtype.bits]
            elif op == "abs":
                template = "{s}_of_bits(bits_of_{s}(x) & ~{zero})"
        if template is None:
            return None
        unsigned = BY_NAME[f"uint{dtype.bits}"]
        values = {
            "T": value_type(dtype),
            "U": "uint64_t" if dtype.bits == 64 else "uint32_t",
            "V": value_type(unsigned),
            "v": suffix(unsigned),
            "s": s,
            "bits": dtype.bits,
            "zero": word_of(-0.0, dtype) if is_float else "",
        }
        names = "xy" if op in ir.BINARY_OPS else "x"
        parameters = ", ".join(f"{values['T']} {one}" for one in names)
        returned = "bool" if op == "isnan" else values["T"]
        body = f"return {template.format(**values)};"
        return function(str(returned), f"{op}_{s}", parameters, body)

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


#: Where the target has no instruction for it, two roundings.
_MULTIPLY_ADD = """\
static inline {T} multiply_add_{s}({T} a, {T} b, {T} c) {{
#ifdef __FP_FAST_FMA{F}
    return __builtin_fma{f}(a, b, c);
#else
    return a * b + c;
#endif
}}
"""


def _is_helper(name: str) -> bool:
    """Whether a function is one of these, and none of the library."""
    ends = name.split("_of_") if "_of_" in name else name.rsplit("_", 1)
    return len(ends) == 2 and (ends[-1] in _DTYPES or ends[-1] == "bits")


def _same_bits(name: str, target: str, source: str) -> str:
    """`f32_of_bits` reads a word as a float, `bits_of_f32` a float as a word."""
    dtype = _DTYPES[target if source == "bits" else source]
    of, to = value_type(dtype), f"uint{dtype.bits}_t"
    of, to = (to, of) if source == "bits" else (of, to)
    both = f"const union {{ {of} from; {to} to; }} both = {{.from = x}};"
    return function(to, name, f"{of} x", f"{both}\nreturn both.to;")


def function(returned: str, name: str, parameters: str, body: str) -> str:
    """A definition, indented."""
    lines = "\n    ".join(body.split("\n"))
    return f"static inline {returned} {name}({parameters}) {{\n    {lines}\n}}\n"


def _root(bits: int, mantissa: int) -> str:
    """sqrt, bit by bit, rounded to nearest: what is left tells whether the root is inexact."""
    s, one = f"f{bits}", f"((uint{bits}_t)1 << {mantissa})"
    bias = (1 << bits - mantissa - 2) - 1
    infinity, nan = (word_of(value, BY_NAME[f"float{bits}"]) for value in (math.inf, math.nan))
    body = f"""\
if (a == 0 || a != a || a == {s}_of_bits({infinity})) return a;
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
