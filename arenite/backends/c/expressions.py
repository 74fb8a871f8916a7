"""Expressions of the loop IR in C, each with its exact meaning.

Indices (sums and products of loop variables and sizes) are written with C's operators: they stay
within their arrays and never overflow. What comes from data wraps, and so goes through functions
where C's operators would not.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

from arenite.backends.c.c_types import literal, suffix, value_type
from arenite.backends.c.helpers import Helpers
from arenite.codegen import loop_ir as ir
from arenite.dtype import BY_NAME, DType, Kind

_INFIX = {"add": ("+", 12), "sub": ("-", 12), "mul": ("*", 13), "div": ("/", 13)}
_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_BITWISE = {"and": "&", "or": "|", "xor": "^"}
_LOGICAL = {"and": ("&&", 5), "or": ("||", 4), "max": ("||", 4), "min": ("&&", 5)}
_COMPARED, _BITS, _TERNARY, _PREFIX, _ATOM = 10, 7, 3, 14, 16


class Expressions:
    """Writes expressions; knows what the names in them are."""

    def __init__(self, helpers: Helpers) -> None:
        self.helpers = helpers
        self.names: dict[str, str] = {}  # what a name is called in C, where that is something else
        self.indices: set[str] = set()  # names that are made of loop variables and sizes
        self.positive: set[str] = set()  # indices that are never negative
        self.numbers: dict[str, int] = {}  # names that are constants
        self.hoisted: dict[int, str] = {}  # parts of the statement that have a variable

    def text(self, expr: ir.Expr) -> str:
        return self._text(expr)[0]

    def bind(self, name: str, value: ir.Expr) -> None:
        """Learn what a name stands for; a loop variable for what it starts with, or more."""
        self.indices.discard(name)
        self.positive.discard(name)
        if self.is_index(value):
            self.indices.add(name)
            if self.is_positive(value):
                self.positive.add(name)

    def bind_size(self, name: str) -> None:
        self.indices.add(name)
        self.positive.add(name)

    # What is known of indices.

    def is_index(self, expr: ir.Expr) -> bool:
        """Whether a number is made of loop variables, sizes and constants alone."""
        if expr.dtype != ir.INT64:
            return False
        match expr:
            case ir.Const():
                return True
            case ir.Name(name):
                return name in self.indices
            case ir.Binary(op, a, b):
                return op in _INDEX_OPS and self.is_index(a) and self.is_index(b)
        return False

    def is_positive(self, expr: ir.Expr) -> bool:
        """Whether an index is known to be 0 or more."""
        match expr:
            case ir.Const(value):
                return value >= 0
            case ir.Name(name):
                return name in self.positive
            case ir.Binary("max", a, b):
                return self.is_positive(a) or self.is_positive(b)
            case ir.Binary(op, a, b) if op != "sub":
                return op in _INDEX_OPS and self.is_positive(a) and self.is_positive(b)
        return False

    def number_of(self, expr: ir.Expr) -> int | None:
        """The constant that an index is."""
        match expr:
            case ir.Const(value, dtype) if dtype == ir.INT64:
                return int(value)
            case ir.Name(name):
                return self.numbers.get(name)
            case ir.Binary(op, a, b) if op in _FOLDED and expr.dtype == ir.INT64:
                x, y = self.number_of(a), self.number_of(b)
                if op == "mul" and 0 in (x, y):
                    return 0
                if x is None or y is None or (op in ("floordiv", "mod") and y <= 0):
                    return None
                return _FOLDED[op](x, y)
        return None

    def _is_divisor(self, expr: ir.Expr) -> bool:
        match expr:
            case ir.Const(value):
                return value > 0
            case ir.Binary("max", a, b):
                return self._is_divisor(a) or self._is_divisor(b)
            case ir.Binary("mul", a, b):
                return self._is_divisor(a) and self._is_divisor(b)
            case ir.Binary("add", a, b):
                pairs = ((a, b), (b, a))
                return any(self._is_divisor(x) and self.is_positive(y) for x, y in pairs)
        return False

    # Text, and how tightly its outermost operator binds.

    def _text(self, expr: ir.Expr) -> tuple[str, int]:
        known = self.hoisted.get(id(expr))
        if known is not None:
            return known, _ATOM
        number = self.number_of(expr)
        if number is not None:
            return self._constant(number, ir.INT64)
        match expr:
            case ir.Const(value, dtype):
                return self._constant(value, dtype)
            case ir.Name(name):
                return self.names.get(name, name), _ATOM
            case ir.Load():
                return self._load(expr)
            case ir.Unary(op, x):
                return self._unary(op, x)
            case ir.Binary(op, a, b):
                return self._binary(op, a, b)
            case ir.Select(cond, a, b):
                text = f"{self._inside(cond, _TERNARY + 1)} ? {self._inside(a, _TERNARY + 1)}"
                return f"{text} : {self._inside(b, _TERNARY + 1)}", _TERNARY
            case ir.Fma(a, b, c):
                return self._helper("multiply_add", a.dtype, a, b, c)
            case ir.Table(values, at, dtype):
                return self._table(values, at, dtype)
            case ir.Cast(x, dtype):
                return self._cast(x, dtype)
            case ir.Bitcast(x, dtype):
                return self._bitcast(x, dtype)
        raise TypeError(f"{expr!r} is no loop IR expression")

    def _inside(self, expr: ir.Expr, level: int) -> str:
        text, own = self._text(expr)
        return text if own >= level else f"({text})"

    def _call(self, name: str, *parts: ir.Expr) -> tuple[str, int]:
        return f"{name}({', '.join(map(self.text, parts))})", _ATOM

    def _helper(self, op: str, dtype: DType, *parts: ir.Expr) -> tuple[str, int]:
        return self._call(self.helpers.use(f"{op}_{suffix(dtype)}"), *parts)

    def _constant(self, value: bool | int | float, dtype: DType) -> tuple[str, int]:
        if dtype.kind is Kind.FLOAT:
            if dtype.bits < 32:
                return self._cast(ir.Const(value, BY_NAME["float64"]), dtype)
            if not math.isfinite(value):
                word = {32: "0x7f800000u", 64: "UINT64_C(0x7ff0000000000000)"}[dtype.bits]
                if value != value:
                    word = {32: "0x7fc00000u", 64: "UINT64_C(0x7ff8000000000000)"}[dtype.bits]
                text = f"{self.helpers.use(f'{suffix(dtype)}_of_bits')}({word})"
                return (f"-{text}", _PREFIX) if value < 0 else (text, _ATOM)
        text = literal(value, dtype)
        return text, _PREFIX if text.startswith("-") else _ATOM

    def _load(self, load: ir.Load) -> tuple[str, int]:
        text, level = f"{load.array}[{self.text(load.index)}]", _ATOM
        if load.dtype.kind is Kind.BOOL:
            text, level = f"{text} != 0", _COMPARED
        if load.mask is None:
            return text, level
        if load.other is not None:
            other = self._inside(load.other, _TERNARY + 1)
        else:
            other = "false" if load.dtype.kind is Kind.BOOL else "0"
        return f"{self._inside(load.mask, _TERNARY + 1)} ? {text} : {other}", _TERNARY

    def _unary(self, op: str, x: ir.Expr) -> tuple[str, int]:
        dtype = x.dtype
        if dtype.kind is Kind.BOOL:
            return f"!{self._inside(x, _PREFIX + 1)}", _PREFIX
        if dtype.kind is not Kind.FLOAT:
            if op == "abs" and dtype.kind is Kind.UNSIGNED:
                return self._text(x)
            return self._helper(op, dtype, x)
        one = "1.0f" if dtype.bits == 32 else "1.0"
        match op:
            case "neg":
                return f"-{self._inside(x, _PREFIX + 1)}", _PREFIX
            case "reciprocal":
                return f"{one} / {self._inside(x, 14)}", 13
            case "rsqrt":
                return f"{one} / {self._helper('sqrt', dtype, x)[0]}", 13
        return self._helper(op, dtype, x)

    def _binary(self, op: str, a: ir.Expr, b: ir.Expr) -> tuple[str, int]:
        dtype = a.dtype
        if op in _COMPARISONS:
            return self._comparison(op, a, b)
        if dtype.kind is Kind.BOOL:
            if op == "xor":
                return self._infix("!=", 9, a, b)
            return self._logical(op, a, b)
        if dtype.kind is Kind.FLOAT:
            if op in _INFIX:
                return self._infix(*_INFIX[op], a, b)
            return self._helper(op, dtype, a, b)
        if op in _BITWISE:
            text = f"{self._inside(a, 14)} {_BITWISE[op]} {self._inside(b, 14)}"
            return (
                (text, _BITS) if dtype.bits >= 32 else (f"({value_type(dtype)})({text})", _PREFIX)
            )
        if op in _INDEX_OPS and self.is_index(a) and self.is_index(b):
            return self._index(op, a, b)
        if dtype.kind is Kind.UNSIGNED:
            op = {"floordiv": "div", "mod": "fmod"}.get(op, op)
            if dtype.bits >= 32 and op in ("add", "sub", "mul"):
                return self._infix(*_INFIX[op], a, b)
        return self._shift(op, a, b) or self._helper(op, dtype, a, b)

    def _logical(self, op: str, a: ir.Expr, b: ir.Expr) -> tuple[str, int]:
        """Without what is known to hold, or not to."""
        sign, level = _LOGICAL[op]
        deciding = "false" if sign == "&&" else "true"
        texts = [self._inside(one, 8) for one in (a, b)]
        if deciding in texts or (sign == "&&" and self._is_empty(a, b)):
            return deciding, _ATOM
        for one, text in ((a, texts[1]), (b, texts[0])):
            if text in ("true", "false"):
                return self._text(one)
        return f"{texts[0]} {sign} {texts[1]}", level

    def _is_empty(self, a: ir.Expr, b: ir.Expr) -> bool:
        """Whether these ask for an index of an axis without elements."""
        match a, b:
            case ir.Binary("ge", x, low), ir.Binary("lt", y, high):
                first, stop = self.number_of(low), self.number_of(high)
                return x == y and first is not None and stop is not None and stop <= first
        return False

    def _infix(self, sign: str, level: int, a: ir.Expr, b: ir.Expr) -> tuple[str, int]:
        return f"{self._inside(a, level)} {sign} {self._inside(b, level + 1)}", level

    def _shift(self, op: str, a: ir.Expr, b: ir.Expr) -> tuple[str, int] | None:
        """A shift of an unsigned word by a constant within it, which C means the same by."""
        if op not in ir.SHIFTS or a.dtype.kind is not Kind.UNSIGNED or not isinstance(b, ir.Const):
            return None
        if not 0 <= b.value < a.dtype.bits or (a.dtype.bits < 32 and op == "shift_left"):
            return None
        sign = "<<" if op == "shift_left" else ">>"
        text = f"{self._inside(a, 14)} {sign} {b.value}"
        if a.dtype.bits < 32:
            return f"({value_type(a.dtype)})({text})", _PREFIX
        return text, _BITS

    def _index(self, op: str, a: ir.Expr, b: ir.Expr) -> tuple[str, int]:
        left, right = self.number_of(a), self.number_of(b)
        if right == (1 if op in ("mul", "floordiv") else 0) and op in _NEUTRAL:
            return self._text(a)
        if left == (1 if op == "mul" else 0) and op in ("add", "mul"):
            return self._text(b)
        if op in ("floordiv", "mod"):
            if self.is_positive(a) and self._is_divisor(b):
                return self._infix("/" if op == "floordiv" else "%", 13, a, b)
            return self._helper(op, ir.INT64, a, b)
        if op in _INFIX:
            return self._infix(*_INFIX[op], a, b)
        return self._helper(op, ir.INT64, a, b)

    def _comparison(self, op: str, a: ir.Expr, b: ir.Expr) -> tuple[str, int]:
        if a.dtype.kind is Kind.BOOL and op not in ("eq", "ne"):
            if op in ("gt", "ge"):
                op, a, b = {"gt": "lt", "ge": "le"}[op], b, a
            sign, level = ("&&", 5) if op == "lt" else ("||", 4)
            return f"!{self._inside(a, _PREFIX + 1)} {sign} {self._inside(b, 8)}", level
        if a.dtype.kind is Kind.UNSIGNED:
            # What holds of every unsigned number is not asked of it: compilers warn.
            if op in ("lt", "ge") and b == ir.Const(0, b.dtype):
                return ("false" if op == "lt" else "true"), _ATOM
            if op in ("gt", "le") and a == ir.Const(0, a.dtype):
                return ("false" if op == "gt" else "true"), _ATOM
        if b == ir.index(0) and op in ("ge", "lt") and self.is_index(a) and self.is_positive(a):
            return ("true" if op == "ge" else "false"), _ATOM
        left, right = self._inside(a, 11), self._inside(b, 11)
        if left == right and a.dtype.kind is not Kind.FLOAT:
            return ("true" if op in ("eq", "le", "ge") else "false"), _ATOM
        return f"{left} {_COMPARISONS[op]} {right}", _COMPARED

    def _table(self, values: tuple[int | float, ...], at: ir.Expr, dtype: DType) -> tuple[str, int]:
        items = ", ".join(self._constant(value, dtype)[0] for value in values)
        kind = f"const {value_type(dtype)}"
        return f"(({kind}[{len(values)}]){{{items}}})[{self.text(at)}]", _ATOM

    # Conversions.

    def _cast(self, x: ir.Expr, dtype: DType) -> tuple[str, int]:
        source = x.dtype
        if source == dtype:
            return self._text(x)
        if source.kind is Kind.FLOAT and source.bits < 32:
            wide = self.helpers.use(f"f32_of_{suffix(source)}")
            text = f"{wide}({self.text(x)})"
            if dtype == BY_NAME["float32"]:
                return text, _ATOM
            return self._from_float(text, BY_NAME["float32"], dtype)
        if dtype.kind is Kind.BOOL:
            return f"{self._inside(x, 11)} != 0", _COMPARED
        if source.kind is Kind.FLOAT:
            return self._from_float(self._text(x), source, dtype)
        if dtype.kind is Kind.FLOAT and dtype.bits < 32:
            name = self.helpers.use(f"{suffix(dtype)}_of_f32")
            return f"{name}((float){self._inside(x, _PREFIX)})", _ATOM
        return f"({value_type(dtype)}){self._inside(x, _PREFIX)}", _PREFIX

    def _from_float(
        self, text: str | tuple[str, int], source: DType, dtype: DType
    ) -> tuple[str, int]:
        text, level = text if isinstance(text, tuple) else (text, _ATOM)
        if dtype.kind is Kind.BOOL:
            return f"{text if level >= 11 else f'({text})'} != 0", _COMPARED
        if dtype.kind is Kind.FLOAT and dtype.bits >= 32:
            return f"({value_type(dtype)}){text if level >= _PREFIX else f'({text})'}", _PREFIX
        name = self.helpers.use(f"{suffix(dtype)}_of_{suffix(source)}")
        return f"{name}({text})", _ATOM

    def _bitcast(self, x: ir.Expr, dtype: DType) -> tuple[str, int]:
        text, level = self._text(x)
        if x.dtype.kind is Kind.FLOAT and x.dtype.bits >= 32:
            text, level = f"{self.helpers.use(f'bits_of_{suffix(x.dtype)}')}({text})", _ATOM
        if dtype.kind is Kind.FLOAT and dtype.bits >= 32:
            return f"{self.helpers.use(f'{suffix(dtype)}_of_bits')}({text})", _ATOM
        return f"({value_type(dtype)}){text if level >= _PREFIX else f'({text})'}", _PREFIX


_FOLDED: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "min": min,
    "max": max,
}
_INDEX_OPS = frozenset(_FOLDED)
_NEUTRAL = frozenset({"add", "sub", "mul", "floordiv"})
