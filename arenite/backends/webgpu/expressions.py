"""Expressions of the loop IR as WGSL.

In: expressions with int32 indices. Out: text, with lines before it where a part is used twice or is
loaded under a mask. Integers below 32 bits live in i32 and u32, wrapped after each operation;
floats below 32 bits are their bits in a u32 until they are cast.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Mapping

import numpy as np

from arenite.codegen import loop_ir as ir
from arenite.dtype import DType, Kind
from arenite.errors import NotCompiled

_SMALL_FLOATS = {"float16": "f16", "bfloat16": "bf16"}
_COMPARISONS = {"eq": "==", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_PLAIN = {"add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^"}
#: Of float32, and near enough: within a few units in the last place of what they are.
_BUILTIN = frozenset("exp exp2 log log2 sqrt floor ceil round trunc abs".split())
_CALLED = {"sign": "sign_f32", "isnan": "is_nan", "isinf": "is_inf", "sigmoid": "sigmoid_f32"}


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
    if dtype.kind is Kind.FLOAT and dtype.name not in _SMALL_FLOATS:
        raise NotCompiled(f"{dtype} is not done on WebGPU yet; float16 and bfloat16 are")
    return "u32"


class Expressions:
    """Writes the expressions of one kernel; `lines` is where what comes before them goes."""

    def __init__(self, kernel: ir.GroupKernel, identifier: Callable[[str], str]) -> None:
        self.identifier = identifier
        self.shared = {array.name for array in kernel.shared}
        self.functions: set[str] = set()
        self.lines: list[str] = []
        self._uses: Mapping[int, int] = {}
        self._named: dict[int, str] = {}
        self._n_names = 0

    def begin(self, *roots: ir.Expr) -> None:
        """A statement with these expressions follows: parts they share are written once."""
        self._named = {}
        uses = Counter(id(part) for expr in ir.walk(*roots) for part in ir.children(expr))
        uses.update(id(root) for root in roots)
        self._uses = uses

    def call(self, function: str, *arguments: str) -> str:
        self.functions.add(function)
        return f"{function}({', '.join(arguments)})"

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
                return self.binary(op, a.dtype, self.text(a), self.text(b))
            case ir.Select(cond, a, b):
                return f"select({self.text(b)}, {self.text(a)}, {self.text(cond)})"
            case ir.Cast(x, dtype):
                return self.cast(self.text(x), x.dtype, dtype)
            case ir.Bitcast(x, dtype):
                return self._bitcast(self.text(x), x.dtype, dtype)
        raise NotCompiled(f"WebGPU has no {type(expr).__name__} yet")

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
        if kind == "f32":
            return self._float_function(op, text)
        if op == "neg":
            return self.wrapped(f"({self.zero(x.dtype)} - {text})", x.dtype)
        if op == "not":
            return f"(!{text})" if kind == "bool" else self.wrapped(f"(~{text})", x.dtype)
        if op == "abs":
            return text if kind == "u32" else self.wrapped(f"abs({text})", x.dtype)
        if op == "sign":
            return f"min({text}, 1u)" if kind == "u32" else f"sign({text})"
        raise NotCompiled(f"{op} of {x.dtype} is not done on WebGPU yet")

    def _float_function(self, op: str, text: str) -> str:
        if op == "neg":
            return f"(-{text})"
        if op == "reciprocal":
            return f"(1.0f / {text})"
        if op == "rsqrt":
            return f"(1.0f / sqrt({text}))"
        if op in _CALLED:
            return self.call(_CALLED[op], text)
        if op in _BUILTIN:
            return f"{op}({text})"
        raise NotCompiled(f"{op} of float32 is not done on WebGPU yet")

    def binary(self, op: str, dtype: DType, a: str, b: str) -> str:
        """An operation on values that are written already."""
        kind = type_of(dtype)
        if op in _COMPARISONS or op == "ne":
            return self._comparison(op, kind, a, b)
        if op in ("max", "min"):
            if kind == "f32":
                return self.call(f"{op}_f32", a, b)
            return (
                f"({a} {'|' if op == 'max' else '&'} {b})" if kind == "bool" else f"{op}({a}, {b})"
            )
        if kind == "bool":
            return f"({a} != {b})" if op == "xor" else f"({a} {_PLAIN[op]} {b})"
        if kind == "f32":
            return self._float_binary(op, a, b)
        if op in _PLAIN:
            return self.wrapped(f"({a} {_PLAIN[op]} {b})", dtype)
        if op in ("shift_left", "shift_right"):
            return self._shift(op, dtype, kind, a, b)
        if op in ("div", "fmod") and b.removesuffix("i").removesuffix("u").isdecimal():
            sign = "/" if op == "div" else "%"
            if int(b[:-1]) > 0:
                return f"({a} {sign} {b})"
        if kind == "u32":
            op = {"floordiv": "div", "mod": "fmod"}.get(op, op)
        return self.wrapped(self.call(f"{op}_{kind}", a, b), dtype)

    def _comparison(self, op: str, kind: str, a: str, b: str) -> str:
        if op == "ne":
            return f"(!({a} == {b}))"
        if kind == "bool" and op != "eq":
            a, b = f"u32({a})", f"u32({b})"
        return f"({a} {_COMPARISONS[op]} {b})"

    def _float_binary(self, op: str, a: str, b: str) -> str:
        if op in _PLAIN or op == "div":
            return f"({a} {_PLAIN.get(op, '/')} {b})"
        if op == "times_sigmoid":
            return f"({a} * {self.call('sigmoid_f32', b)})"
        raise NotCompiled(f"{op} of float32 is not done on WebGPU yet")

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

    def cast(self, text: str, source: DType, target: DType) -> str:
        if source == target:
            return text
        old, new = type_of(source), type_of(target)
        if source.kind is Kind.FLOAT and source.bits < 32:
            text = self.call(f"from_{_SMALL_FLOATS[source.name]}", text)
            return self.cast(text, ir.FLOAT32, target)
        if target.kind is Kind.FLOAT and target.bits < 32:
            text = text if old == "f32" else self.cast(text, source, ir.FLOAT32)
            return self.call(f"to_{_SMALL_FLOATS[target.name]}", text)
        if new == "bool":
            return f"(!({text} == {self.zero(source)}))"
        if old == "bool" or new == "f32":
            return f"{new}({text})"
        if old == "f32":
            return self._to_integer(text, target)
        converted = text if old == new else f"bitcast<{new}>({text})"
        return self.wrapped(converted, target)

    def _to_integer(self, text: str, target: DType) -> str:
        if target.kind is Kind.UNSIGNED:
            greatest = 2**target.bits - 1
            return self.call("to_u32", text, f"{float(2**target.bits)!r}f", f"{greatest}u")
        high = 2 ** (target.bits - 1)
        ends = (f"f32({-float(high)!r})", f"{float(high)!r}f", f"i32({-high})", f"{high - 1}i")
        return self.call("to_i32", text, *ends)

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
