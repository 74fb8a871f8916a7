"""Expressions of the loop IR as WGSL.

In: expressions with int32 indices. Out: text, with lines before it where a part is used twice or is
loaded under a mask. Integers below 32 bits live in i32 and u32, wrapped after each operation;
floats below 32 bits are their bits in a u32 until they are cast.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

import numpy as np

from arenite.codegen import loop_ir as ir
from arenite.codegen import source
from arenite.codegen.source import ATOM, Bound
from arenite.dtype import DType, Kind
from arenite.errors import NotCompiled

if TYPE_CHECKING:
    from arenite.backends.webgpu.lower import Functions

_COMPARISONS = {"eq": "==", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_PLAIN = {"add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^"}
_ROUNDED = {"add": "sum", "sub": "sum", "mul": "product", "div": "product"}
#: Functions of float32 that WGSL has, and as exactly.
_NATIVE = frozenset("sqrt floor ceil round trunc".split())
#: Those that change or test bits, in `functions.py`.
_ON_BITS = {"neg": "neg_f32", "abs": "abs_f32", "isnan": "is_nan", "isinf": "is_infinite"}


def type_of(dtype: DType) -> str:
    """What a value of a dtype is held in."""
    if dtype.kind is Kind.BOOL:
        return "bool"
    if dtype.bits > 32:
        raise NotCompiled(f"{dtype} is not done on WebGPU yet: cast to 32 bits before")
    if dtype.kind is Kind.SIGNED:
        return "i32"
    if dtype.name == "float32":
        return "f32"
    return "u32"


class Expressions(source.Expressions):
    """Operators stand in parentheses: WGSL takes some comparisons for templates."""

    indent = "  "

    def __init__(
        self, shared: Collection[str], identifier: Callable[[str], str], functions: Functions
    ) -> None:
        super().__init__()
        self.identifier = identifier
        self.shared = shared
        self.functions = functions
        self._rounded: dict[str, str] = {}
        self._n_names = 0

    def helper(self, name: str, *arguments: str) -> str:
        """A call of one of the functions in `functions.py`."""
        self.functions.helpers.add(name)
        return f"{name}({', '.join(arguments)})"

    def fresh(self) -> str:
        self._n_names += 1
        return f"e{self._n_names}"

    def part(self, expr: ir.Expr, text: str) -> str:
        name = self.fresh()
        self.line(f"let {name} = {text};")
        return name

    def name(self, name: str) -> str:
        return self.identifier(name)

    def fma(self, a: ir.Expr, b: ir.Expr, c: ir.Expr) -> Bound:
        return f"fma({self.text(a)}, {self.text(b)}, {self._held('add', c)})", ATOM

    def select(self, cond: ir.Expr, a: ir.Expr, b: ir.Expr) -> Bound:
        return self.called("select", b, a, cond)

    rare = select

    def define(self, name: str, value: ir.Expr) -> None:
        """A name stands for a value from now on."""
        self._rounded[name] = self._rounding(value)

    def _rounding(self, value: ir.Expr) -> str:
        """Which kind of rounded float a value is: a sum, a product, or neither."""
        match value:
            case ir.Name(name):
                return self._rounded.get(name, "")
            case ir.Binary(op) if value.dtype == ir.FLOAT32:
                return _ROUNDED.get(op, "")
            case ir.Fma():
                return "sum"
        return ""

    def _held(self, op: str, operand: ir.Expr) -> str:
        """An operand. Drivers take (x + y) - x for y, which it is not once it is rounded, and a
        product in a sum for a fused multiply-add: what is rounded twice is held between, by a word
        of the parameters that they do not know."""
        text = self.text(operand)
        kind, own = self._rounding(operand), _ROUNDED.get(op)
        return self.helper("held", text) if kind and own in (kind, "sum") else text

    def constant(self, value: bool | int | float, dtype: DType) -> Bound:
        return self.literal(value, dtype), ATOM

    def literal(self, value: bool | int | float, dtype: DType) -> str:
        kind = type_of(dtype)
        if kind == "bool":
            return "true" if value else "false"
        if kind == "i32":
            return f"{int(value)}i" if value >= 0 else f"i32({int(value)})"
        if kind == "u32":
            return f"{int(value)}u"
        with np.errstate(over="ignore"):
            number = np.float32(value)
        is_plain = number == 0 or np.finfo(np.float32).tiny <= abs(number) < np.inf
        if is_plain and not (number == 0 and np.signbit(number)):
            return f"f32({float(number)!r})" if number < 0 else f"{float(number)!r}f"
        bits = struct.unpack("<I", struct.pack("<f", number))[0]
        return self.helper("float_of", f"{bits:#x}u")

    def load(self, load: ir.Load) -> Bound:
        at = self.text(load.index)
        if load.mask is None:
            return self.element(load.array, at, load.dtype), ATOM
        mask = self.text(load.mask)
        instead = self.zero(load.dtype) if load.other is None else self.text(load.other)
        name = self.fresh()
        self.line(f"var {name} = {instead};")
        self.line(f"if ({mask}) {{ {name} = {self.element(load.array, at, load.dtype)}; }}")
        return name, ATOM

    def zero(self, dtype: DType) -> str:
        return {"bool": "false", "i32": "0i", "u32": "0u", "f32": "0.0f"}[type_of(dtype)]

    def element(self, array: str, at: str, dtype: DType) -> str:
        """An element by index; of an argument as part of a word."""
        kind = type_of(dtype)
        if array in self.shared:
            return f"{self.identifier(array)}[u32({at})]"
        place = f"u32({at})"
        if dtype.bits == 32:
            word = f"{array}_word({place})"
            return word if kind == "u32" else f"bitcast<{kind}>({word})"
        per_word = 32 // dtype.bits
        word = f"{array}_word({place} / {per_word}u)"
        first = f"({place} % {per_word}u) * {dtype.bits}u"
        if kind == "i32":
            return f"extractBits(bitcast<i32>({word}), {first}, {dtype.bits}u)"
        bits = f"extractBits({word}, {first}, {dtype.bits}u)"
        return f"({bits} != 0u)" if kind == "bool" else bits

    def bits_of(self, value: str, dtype: DType) -> str:
        """What is stored of a value, as a u32 of which the lowest bits count."""
        kind = type_of(dtype)
        if kind == "bool":
            return f"select(0u, 1u, {value})"
        return value if kind == "u32" else f"bitcast<u32>({value})"

    def unary(self, op: str, x: ir.Expr) -> Bound:
        text, kind = self.text(x), type_of(x.dtype)
        if kind == "f32" and op in _ON_BITS:
            made = self.helper(_ON_BITS[op], text)
        elif op == "neg":
            made = self.wrapped(f"({self.zero(x.dtype)} - {text})", x.dtype)
        elif op == "not":
            made = f"(!{text})" if kind == "bool" else self.wrapped(f"(~{text})", x.dtype)
        else:
            is_native = kind == "f32" and op in _NATIVE
            made = f"{op if is_native else self.functions.op(op, x.dtype)}({text})"
        return made, ATOM

    def binary(self, op: str, a: ir.Expr, b: ir.Expr) -> Bound:
        texts = self._held(op, a), self._held(op, b)
        if a.dtype == ir.FLOAT32 and op == "ne":
            return f"(!{self._float_comparison('eq', a, b, *texts)})", ATOM
        if a.dtype == ir.FLOAT32 and op in _COMPARISONS:
            return self._float_comparison(op, a, b, *texts), ATOM
        if op == "div" and isinstance(b, ir.Const) and _has_reciprocal(b):
            return f"({texts[0]} / {texts[1]})", ATOM
        return self.combined(op, a.dtype, *texts), ATOM

    def _float_comparison(self, op: str, a: ir.Expr, b: ir.Expr, left: str, right: str) -> str:
        """A comparison that does not hold of NaN; what can't be NaN is not tested."""
        match _may_be_nan(a), _may_be_nan(b):
            case True, True:
                return self.helper(f"{op}_f32", left, right)
            case True, False:
                return self.helper(f"{op}_f32_left", left, right)
            case False, True:
                return self.helper(f"{op}_f32_right", left, right)
        return f"({left} {_COMPARISONS[op]} {right})"

    def combined(self, op: str, dtype: DType, a: str, b: str) -> str:
        """An operation on values that are written already."""
        kind = type_of(dtype)
        if op in _COMPARISONS or op == "ne":
            return self._comparison(op, kind, a, b)
        if op in _PLAIN:
            if kind == "bool" and op == "xor":
                return f"({a} != {b})"
            plain = f"({a} {_PLAIN[op]} {b})"
            return plain if kind in ("bool", "f32") else self.wrapped(plain, dtype)
        if op in ("shift_left", "shift_right"):
            return self._shift(op, dtype, kind, a, b)
        if op in ("div", "fmod") and _is_positive(b):
            return f"({a} {'/' if op == 'div' else '%'} {b})"
        if op == "div":
            divided = self.helper(f"div_{kind}", a, b)
            return divided if kind == "f32" else self.wrapped(divided, dtype)
        if op in ("max", "min") and kind in ("i32", "u32"):
            return f"{op}({a}, {b})"
        return f"{self.functions.op(op, dtype)}({a}, {b})"

    def _comparison(self, op: str, kind: str, a: str, b: str) -> str:
        if op == "ne":
            return f"(!({a} == {b}))"
        if kind == "bool" and op != "eq":
            a, b = f"u32({a})", f"u32({b})"
        return f"({a} {_COMPARISONS[op]} {b})"

    def _shift(self, op: str, dtype: DType, kind: str, a: str, b: str) -> str:
        by = b if kind == "u32" else f"bitcast<u32>({b})"
        if op == "shift_left":
            bits = a if kind == "u32" else f"bitcast<u32>({a})"
            shifted = self.helper("shift_left_u32", bits, by)
            return self.wrapped(shifted if kind == "u32" else f"bitcast<i32>({shifted})", dtype)
        return self.helper(f"shift_right_{kind}", a, by)

    def wrapped(self, text: str, dtype: DType) -> str:
        """An integer brought back to the bits of its dtype."""
        if dtype.bits == 32:
            return text
        if dtype.kind is Kind.SIGNED:
            return f"extractBits({text}, 0u, {dtype.bits}u)"
        return f"({text} & {2**dtype.bits - 1:#x}u)"

    def cast(self, x: ir.Expr, target: DType, fits: bool) -> Bound:
        text, source = self.text(x), x.dtype
        if source == target:
            return text, ATOM
        old, new = type_of(source), type_of(target)
        is_small = any(one.kind is Kind.FLOAT and one.bits < 32 for one in (source, target))
        if is_small or new == "bool" or old == "bool" or (old == "f32" and not fits):
            return f"{self.functions.cast(source, target)}({text})", ATOM
        converted = f"{new}({text})" if "f32" in (old, new) else _same_bits(text, old, new)
        return (converted if new == "f32" else self.wrapped(converted, target)), ATOM

    def table(self, values: list[str], at: ir.Expr, dtype: DType) -> Bound:
        items = ", ".join(values)
        name = f"table_{hashlib.sha256(items.encode()).hexdigest()[:12]}"
        whole = f"array<{type_of(dtype)}, {len(values)}>"
        self.functions.texts[name] = f"var<private> {name}: {whole} = {whole}({items});"
        return f"{name}[u32({self.text(at)})]", ATOM

    def bitcast(self, x: ir.Expr, target: DType) -> Bound:
        converted = _same_bits(self.text(x), type_of(x.dtype), type_of(target))
        if target.bits < 32 and target.kind is Kind.FLOAT:
            return f"({converted} & {2**target.bits - 1:#x}u)", ATOM
        return self.wrapped(converted, target), ATOM


def _same_bits(text: str, old: str, new: str) -> str:
    return text if old == new else f"bitcast<{new}>({text})"


def _may_be_nan(expr: ir.Expr) -> bool:
    """Whether a float is one that may be no number."""
    if isinstance(expr, ir.Const):
        return expr.value != expr.value
    return not (isinstance(expr, ir.Cast) and expr.x.dtype.kind is not Kind.FLOAT)


def _has_reciprocal(number: ir.Const) -> bool:
    """Whether a float can be divided by on any device: 1 over it is no denormal."""
    return number.dtype == ir.FLOAT32 and 2.0**-126 <= abs(number.value) <= 2.0**125


def _is_positive(text: str) -> bool:
    """Whether it is a constant integer above 0."""
    return text[:-1].isdecimal() and text[-1] in "iu" and int(text[:-1]) > 0
