"""Expressions of the loop IR as WGSL.

In: expressions with int32 indices. Out: text, with lines before it where a part is used twice or is
loaded under a mask. Integers below 32 bits live in i32 and u32, wrapped after each operation;
floats below 32 bits are their bits in a u32 until they are cast.
"""

from __future__ import annotations

import hashlib
import struct
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from arenite.codegen import loop_ir as ir
from arenite.dtype import DType, Kind
from arenite.errors import NotCompiled

if TYPE_CHECKING:
    from arenite.backends.webgpu.maths import Functions

_COMPARISONS = {"eq": "==", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_PLAIN = {"add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^"}
_ROUNDED = {"add": "sum", "sub": "sum", "mul": "product", "div": "product"}
#: Functions of float32 that WGSL has, and as exactly.
_NATIVE = frozenset("sqrt floor ceil round trunc abs".split())


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


class Expressions:
    """Writes expressions; `lines` is where what comes before them goes."""

    def __init__(
        self, shared: Collection[str], identifier: Callable[[str], str], functions: Functions
    ) -> None:
        self.identifier = identifier
        self.shared = shared
        self.functions = functions
        self.lines: list[str] = []
        self._uses: Mapping[int, int] = {}
        self._named: dict[int, str] = {}
        self._rounded: dict[str, str] = {}
        self._n_names = 0

    def statement(self, roots: Sequence[ir.Expr], indent: str) -> list[str]:
        """The texts of a statement's expressions; parts that they share are written once, before
        them."""
        first = len(self.lines)
        self._named = {}
        uses = Counter(id(part) for expr in ir.walk(*roots) for part in ir.children(expr))
        uses.update(id(root) for root in roots)
        self._uses = uses
        texts = [self.text(root) for root in roots]
        self.lines[first:] = [indent + line for line in self.lines[first:]]
        return texts

    def call(self, helper: str, *arguments: str) -> str:
        self.functions.helpers.add(helper)
        return f"{helper}({', '.join(arguments)})"

    def fresh(self) -> str:
        self._n_names += 1
        return f"e{self._n_names}"

    def text(self, expr: ir.Expr) -> str:
        if isinstance(expr, ir.Const | ir.Name):
            return self._written(expr)
        known = self._named.get(id(expr))
        if known is not None:
            return known
        text = self._written(expr)
        if self._uses.get(id(expr), 0) > 1:
            name = self.fresh()
            self.lines.append(f"let {name} = {text};")
            text = self._named[id(expr)] = name
        return text

    def _written(self, expr: ir.Expr) -> str:
        match expr:
            case ir.Const(value, dtype):
                return self.constant(value, dtype)
            case ir.Name(name):
                return self.identifier(name)
            case ir.Load():
                return self._load(expr)
            case ir.Unary(op, x):
                return self._unary(op, x)
            case ir.Binary(op, a, b):
                return self.binary(op, a.dtype, self._held(op, a), self._held(op, b))
            case ir.Fma(a, b, c):
                return f"fma({self.text(a)}, {self.text(b)}, {self._held('add', c)})"
            case ir.Select(cond, a, b):
                return f"select({self.text(b)}, {self.text(a)}, {self.text(cond)})"
            case ir.Cast(x, dtype, fits):
                return self._cast(self.text(x), x.dtype, dtype, fits)
            case ir.Table():
                return self._table(expr)
            case ir.Bitcast(x, dtype):
                return self._bitcast(self.text(x), x.dtype, dtype)
        raise NotCompiled(f"WebGPU has no {type(expr).__name__} yet")

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
        """An operand. Drivers take (x + y) - x for y, which it is not once it is rounded: what is
        rounded twice is held between, by a word of the parameters that they do not know."""
        text = self.text(operand)
        kind = self._rounding(operand)
        return self.call("held", text) if kind and kind == _ROUNDED.get(op) else text

    def constant(self, value: bool | int | float, dtype: DType) -> str:
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
        return self.call("float_of", f"{bits:#x}u")

    def _load(self, load: ir.Load) -> str:
        at = self.text(load.index)
        if load.mask is None:
            return self.element(load.array, at, load.dtype)
        mask = self.text(load.mask)
        other = load.other
        instead = self.zero(load.dtype) if other is None else self.text(other)
        name = self.fresh()
        element = self.element(load.array, at, load.dtype)
        self.lines.append(f"var {name} = {instead};")
        self.lines.append(f"if ({mask}) {{ {name} = {element}; }}")
        return name

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

    def _unary(self, op: str, x: ir.Expr) -> str:
        text, kind = self.text(x), type_of(x.dtype)
        if op == "neg":
            zero = self.zero(x.dtype)
            return f"(-{text})" if kind == "f32" else self.wrapped(f"({zero} - {text})", x.dtype)
        if op == "not":
            return f"(!{text})" if kind == "bool" else self.wrapped(f"(~{text})", x.dtype)
        if op == "isnan":
            return self.call("is_nan", text)
        if kind == "f32" and op in _NATIVE:
            return f"{op}({text})"
        return f"{self.functions.op(op, x.dtype)}({text})"

    def binary(self, op: str, dtype: DType, a: str, b: str) -> str:
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
        is_divided = op in ("div", "fmod")
        if is_divided and ((kind == "f32" and op == "div") or _is_positive(b)):
            return f"({a} {'/' if op == 'div' else '%'} {b})"
        if op == "div":
            return self.wrapped(self.call(f"div_{kind}", a, b), dtype)
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
            shifted = self.call("shift_left_u32", bits, by)
            return self.wrapped(shifted if kind == "u32" else f"bitcast<i32>({shifted})", dtype)
        return self.call(f"shift_right_{kind}", a, by)

    def wrapped(self, text: str, dtype: DType) -> str:
        """An integer brought back to the bits of its dtype."""
        if dtype.bits == 32:
            return text
        if dtype.kind is Kind.SIGNED:
            return f"extractBits({text}, 0u, {dtype.bits}u)"
        return f"({text} & {2**dtype.bits - 1:#x}u)"

    def _cast(self, text: str, source: DType, target: DType, fits: bool) -> str:
        if source == target:
            return text
        old, new = type_of(source), type_of(target)
        is_small = any(one.kind is Kind.FLOAT and one.bits < 32 for one in (source, target))
        if is_small or new == "bool" or old == "bool" or (old == "f32" and not fits):
            return f"{self.functions.cast(source, target)}({text})"
        if "f32" in (old, new):
            converted = f"{new}({text})"
        else:
            converted = text if old == new else f"bitcast<{new}>({text})"
        return converted if new == "f32" else self.wrapped(converted, target)

    def _table(self, table: ir.Table) -> str:
        kind = type_of(table.dtype)
        values = ", ".join(self.constant(value, table.dtype) for value in table.values)
        name = f"table_{hashlib.sha256(values.encode()).hexdigest()[:12]}"
        whole = f"array<{kind}, {len(table.values)}>"
        self.functions.texts[name] = f"var<private> {name}: {whole} = {whole}({values});"
        return f"{name}[u32({self.text(table.index)})]"

    def _bitcast(self, text: str, source: DType, target: DType) -> str:
        old, new = type_of(source), type_of(target)
        if source.bits == 32:
            return text if old == new else f"bitcast<{new}>({text})"
        converted = text if old == new else f"bitcast<{new}>({text})"
        return (
            self.wrapped(converted, target)
            if target.kind is not Kind.FLOAT
            else (f"({converted} & {2**target.bits - 1:#x}u)")
        )


def _is_positive(text: str) -> bool:
    """Whether it is a constant integer above 0."""
    return text[:-1].isdecimal() and text[-1] in "iu" and int(text[:-1]) > 0
