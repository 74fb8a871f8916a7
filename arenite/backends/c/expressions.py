"""Expressions of the loop IR in C, each with its exact meaning.

Indices (sums and products of loop variables and sizes) are written with C's operators: they stay
within their arrays and never overflow. What comes from data wraps, and so goes through functions
where C's operators would not.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

from arenite.backends.c.c_types import Names, is_small_float, literal, suffix, value_type, word_of
from arenite.backends.c.helpers import Helpers
from arenite.codegen import loop_ir as ir
from arenite.codegen import source
from arenite.codegen.source import ATOM, COMPARED, INFIX, PREFIX, TERNARY, Bound, parenthesised
from arenite.dtype import FLOAT64, DType, Kind

_LOGICAL = {"and": ("&&", 5), "or": ("||", 4), "max": ("||", 4), "min": ("&&", 5)}
_ARITHMETIC = frozenset("add sub mul div".split())
_BITS = 7


class Expressions(source.Expressions):
    """Knows what names are; `function` is the one that is written, if one is."""

    def __init__(self, helpers: Helpers, function: str = "", taken: Names | None = None) -> None:
        super().__init__()
        self.helpers, self.function = helpers, function
        self.taken = taken or Names()
        self.names: dict[str, str] = {}  # what a name is called in C, where that is something else
        self.indices: set[str] = set()  # names that are made of loop variables and sizes
        self.positive: dict[str, int] = {}  # the least that indices may be which are never negative
        self.numbers: dict[str, int] = {}  # names that are constants
        self._n_parts = 0

    def bind(self, name: str, value: ir.Expr) -> None:
        """Learn what a name stands for; a loop variable for what it starts with, or more."""
        self.indices.discard(name)
        self.positive.pop(name, None)
        if self.is_index(value):
            self.indices.add(name)
            least = self.least(value)
            if least is not None:
                self.positive[name] = least

    def bind_size(self, name: str) -> None:
        self.indices.add(name)
        self.positive[name] = 0

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

    def least(self, expr: ir.Expr) -> int | None:
        """The least that an index may be; None where it may be negative."""
        match expr:
            case ir.Const(value):
                return int(value) if value >= 0 else None
            case ir.Name(name):
                return self.positive.get(name)
            case ir.Binary(op, a, b) if op in _INDEX_OPS and op != "sub":
                known = [x for x in (self.least(a), self.least(b)) if x is not None]
                if op == "max":
                    return max(known, default=None)
                if len(known) == 2:
                    return _FOLDED[op](*known) if op in ("add", "mul", "min") else 0
        return None

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

    # Text, and how tightly its outermost operator binds.

    def is_short(self, expr: ir.Expr) -> bool:
        return super().is_short(expr) or self.number_of(expr) is not None

    def part(self, expr: ir.Expr, text: str) -> str:
        self._n_parts += 1  # names in all of a kernel: what is not used is found by them
        name = self.taken.take(f"part_{self._n_parts}")
        self.line(f"const {value_type(expr.dtype)} {name} = {text};")
        return name

    def expression(self, expr: ir.Expr) -> Bound:
        number = self.number_of(expr)
        return super().expression(expr) if number is None else self.constant(number, ir.INT64)

    def name(self, name: str) -> str:
        return self.names.get(name, name)

    def _helper(self, op: str, dtype: DType, *parts: ir.Expr) -> Bound:
        return self.called(self.helpers.use(f"{op}_{suffix(dtype)}"), *parts)

    def constant(self, value: bool | int | float, dtype: DType) -> Bound:
        if is_small_float(dtype):
            return self.cast(ir.Const(value, FLOAT64), dtype)
        if dtype.kind is Kind.FLOAT and not math.isfinite(value):
            word = word_of(abs(value), dtype)
            text = f"{self.helpers.use(f'{suffix(dtype)}_of_bits')}({word})"
            return (f"-{text}", PREFIX) if value < 0 else (text, ATOM)
        text = literal(value, dtype)
        return text, PREFIX if text.startswith("-") else ATOM

    def load(self, load: ir.Load) -> Bound:
        is_bool = load.dtype.kind is Kind.BOOL
        text, level = f"{load.array}[{self.text(load.index)}]", ATOM
        if is_bool:
            text, level = f"{text} != 0", COMPARED
        if load.mask is None:
            return text, level
        other = "false" if is_bool else "0"
        if load.other is not None:
            other = self.inside(load.other, TERNARY + 1)
        return f"{self.inside(load.mask, TERNARY + 1)} ? {text} : {other}", TERNARY

    def unary(self, op: str, x: ir.Expr) -> Bound:
        is_plain = x.dtype.kind is Kind.BOOL or (op == "neg" and x.dtype.kind is Kind.FLOAT)
        return super().unary(op, x) if is_plain else self._helper(op, x.dtype, x)

    def binary(self, op: str, a: ir.Expr, b: ir.Expr) -> Bound:
        dtype = a.dtype
        if dtype.kind is Kind.BOOL and op == "xor":
            op = "ne"
        if op in ir.COMPARISONS:
            return self._comparison(op, a, b)
        if dtype.kind is Kind.BOOL:
            return self._logical(op, a, b)
        if op in ir.BITWISE_OPS:
            text = f"{self.inside(a, 14)} {INFIX[op][0]} {self.inside(b, 14)}"
            small = f"({value_type(dtype)})({text})", PREFIX
            return (text, _BITS) if dtype.bits >= 32 else small
        if op in _INDEX_OPS and self.is_index(a) and self.is_index(b):
            return self._index(op, a, b)
        # Unsigned words wrap.
        is_word = dtype.kind is Kind.UNSIGNED and dtype.bits >= 32 and op != "div"
        if op in _ARITHMETIC and (is_word or dtype.kind is Kind.FLOAT):
            return self.infix(*INFIX[op], a, b)
        return self._helper(op, dtype, a, b)

    def _logical(self, op: str, a: ir.Expr, b: ir.Expr) -> Bound:
        """Without what is known to hold, or not to."""
        sign, level = _LOGICAL[op]
        deciding = "false" if sign == "&&" else "true"
        texts = [self.inside(one, 8) for one in (a, b)]
        if deciding in texts or (sign == "&&" and self._is_empty(a, b)):
            return deciding, ATOM
        for one, text in ((a, texts[1]), (b, texts[0])):
            if text in ("true", "false"):
                return self.bound(one)
        return f"{texts[0]} {sign} {texts[1]}", level

    def _is_empty(self, a: ir.Expr, b: ir.Expr) -> bool:
        """Whether these ask for an index of an axis without elements."""
        match a, b:
            case ir.Binary("ge", x, low), ir.Binary("lt", y, high):
                first, stop = self.number_of(low), self.number_of(high)
                return x == y and first is not None and stop is not None and stop <= first
        return False

    def _index(self, op: str, a: ir.Expr, b: ir.Expr) -> Bound:
        left, right = self.number_of(a), self.number_of(b)
        if right == (1 if op in ("mul", "floordiv") else 0) and op in _NEUTRAL:
            return self.bound(a)
        if left == (1 if op == "mul" else 0) and op in ("add", "mul"):
            return self.bound(b)
        if op in ("floordiv", "mod") and self.least(a) is not None and self.least(b):
            return self.infix("/" if op == "floordiv" else "%", 13, a, b)
        return self.infix(*INFIX[op], a, b) if op in INFIX else self._helper(op, ir.INT64, a, b)

    def _comparison(self, op: str, a: ir.Expr, b: ir.Expr) -> Bound:
        if a.dtype.kind is Kind.BOOL and op not in ("eq", "ne"):
            if op in ("gt", "ge"):
                op, a, b = {"gt": "lt", "ge": "le"}[op], b, a
            sign, level = ("&&", 5) if op == "lt" else ("||", 4)
            return f"!{self.inside(a, PREFIX + 1)} {sign} {self.inside(b, 8)}", level
        if a.dtype.kind is Kind.UNSIGNED:
            # What holds of every unsigned number is not asked of it: compilers warn.
            if op in ("lt", "ge") and b == ir.Const(0, b.dtype):
                return ("false" if op == "lt" else "true"), ATOM
            if op in ("gt", "le") and a == ir.Const(0, a.dtype):
                return ("false" if op == "gt" else "true"), ATOM
        is_never_negative = self.is_index(a) and self.least(a) is not None
        if b == ir.index(0) and op in ("ge", "lt") and is_never_negative:
            return ("true" if op == "ge" else "false"), ATOM
        left, right = self.inside(a, 11), self.inside(b, 11)
        if left == right and a.dtype.kind is not Kind.FLOAT:
            return ("true" if op in ("eq", "le", "ge") else "false"), ATOM
        return f"{left} {INFIX[op][0]} {right}", COMPARED

    def table(self, values: list[str], at: ir.Expr, dtype: DType) -> Bound:
        items = ", ".join(values)
        kind = f"const {value_type(dtype)}"
        return f"(({kind}[{len(values)}]){{{items}}})[{self.text(at)}]", ATOM

    def fma(self, a: ir.Expr, b: ir.Expr, c: ir.Expr) -> Bound:
        return self._helper("multiply_add", a.dtype, a, b, c)

    rare = source.Expressions.select

    # Conversions.

    def cast(self, x: ir.Expr, dtype: DType, fits: bool = False) -> Bound:
        source, name = x.dtype, f"{suffix(dtype)}_of_{suffix(x.dtype)}"
        if source == dtype:
            return self.bound(x)
        is_small = is_small_float(source) or is_small_float(dtype)
        if dtype.kind is Kind.BOOL and not is_small:
            return f"{self.inside(x, 11)} != 0", COMPARED
        # C leaves open what becomes of a number that does not fit.
        is_open = source.kind is Kind.FLOAT and dtype.kind is not Kind.FLOAT
        if (is_open or is_small) and name != self.function:
            return self.called(self.helpers.use(name), x)
        return f"({value_type(dtype)}){self.inside(x, PREFIX)}", PREFIX

    def bitcast(self, x: ir.Expr, dtype: DType) -> Bound:
        text, level = self.bound(x)
        if x.dtype.kind is Kind.FLOAT and x.dtype.bits >= 32:
            text, level = f"{self.helpers.use(f'bits_of_{suffix(x.dtype)}')}({text})", ATOM
        if dtype.kind is Kind.FLOAT and dtype.bits >= 32:
            return f"{self.helpers.use(f'{suffix(dtype)}_of_bits')}({text})", ATOM
        return f"({value_type(dtype)}){parenthesised(text, level, PREFIX)}", PREFIX


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
