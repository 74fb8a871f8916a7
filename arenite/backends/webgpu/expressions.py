"""Expressions of the loop IR as WGSL.

In: expressions with int32 indices. Out: text, with lines before it where a part is used twice or is
loaded under a mask. Integers below 32 bits live in i32 and u32, wrapped after each operation;
floats below 32 bits are their bits in a u32 until they are cast. Numbers of 64 bits are i64, u64
and f64, which a device may lack (`shader.py` says which a text needs), and two words in memory.
"""

from __future__ import annotations

import hashlib
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
_LETTERS = {Kind.SIGNED: "i", Kind.UNSIGNED: "u", Kind.FLOAT: "f"}
_SUFFIXES = {"i32": "i", "u32": "u", "i64": "li", "u64": "lu"}
#: A word that is 0, which drivers do not know.
_ZERO = "parameters.zero"
#: Functions of float32 that WGSL has, and as exactly.
_NATIVE = frozenset("sqrt floor ceil round trunc".split())
#: Those that change or test bits, in `functions.py`.
_ON_BITS = {"neg": "neg_{}", "abs": "abs_{}", "isnan": "is_nan_{}", "isinf": "is_infinite_{}"}


def type_of(dtype: DType) -> str:
    """What a value of a dtype is held in."""
    if dtype.kind is Kind.BOOL:
        return "bool"
    if dtype.kind not in _LETTERS or dtype.bits > 64:
        raise NotCompiled(f"{dtype} is not done on WebGPU")
    if dtype.kind is Kind.FLOAT and dtype.bits < 32:
        return "u32"
    return f"{_LETTERS[dtype.kind]}{64 if dtype.bits == 64 else 32}"


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
        left, right = (self.without_zero(self.text(one)) for one in (a, b))
        return f"fma({left}, {right}, {self._held('add', c)})", ATOM

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
            case ir.Binary(op) if value.dtype.kind is Kind.FLOAT:
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
        if not kind or own not in (kind, "sum"):
            return text
        return self.helper(f"held_{type_of(operand.dtype)}", text)

    def constant(self, value: bool | int | float, dtype: DType) -> Bound:
        return self.literal(value, dtype), ATOM

    def literal(self, value: bool | int | float, dtype: DType) -> str:
        kind = type_of(dtype)
        if kind == "bool":
            return "true" if value else "false"
        if kind in _SUFFIXES:
            return _integer(int(value), kind)
        with np.errstate(over="ignore"):
            rounded = np.float32(value) if kind == "f32" else np.float64(value)
        number, least = float(rounded), 2.0**-126 if kind == "f32" else 2.0**-1022
        is_plain = number == 0 or least <= abs(number) < np.inf
        if is_plain and not (number == 0 and np.signbit(number)):
            text = f"{abs(number)!r}{'f' if kind == 'f32' else 'lf'}"
            return f"{kind}(-{text})" if number < 0 else text
        bits = int.from_bytes(rounded.tobytes(), "little")
        return self.helper(f"float_of_{kind}", f"{bits:#x}{'u' if kind == 'f32' else 'lu'}")

    def load(self, load: ir.Load) -> Bound:
        at = self.text(load.index)
        if load.mask is None:
            return self.element(load.array, at, load.dtype), ATOM
        mask = self.text(load.mask)
        instead = self.zero(load.dtype) if load.other is None else self.text(load.other)
        # Without a branch, so that several are under way at once: elsewhere the first element.
        near = self.fresh()
        self.line(f"let {near} = select(0u, u32({at}), {mask});")
        element = self.element(load.array, near, load.dtype)
        return self.part(load, f"select({instead}, {element}, {mask})"), ATOM

    def zero(self, dtype: DType) -> str:
        return self.literal(False if dtype.kind is Kind.BOOL else 0, dtype)

    def element(self, array: str, at: str, dtype: DType) -> str:
        """An element by index; of an argument as part of a word."""
        kind = type_of(dtype)
        if array in self.shared:
            return f"{self.identifier(array)}[u32({at})]"
        place = f"u32({at})"
        if dtype.bits == 64:
            word = self.fresh()
            self.line(f"let {word} = {place} * 2u;")
            both = f"{array}_word({word})", f"{array}_word({word} + 1u)"
            bits = self.helper("pair", *both)
            return bits if kind == "u64" else f"bitcast<{kind}>({bits})"
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
        is_float = x.dtype.kind is Kind.FLOAT
        if is_float and op in _ON_BITS:
            made = self.helper(_ON_BITS[op].format(kind), text)
        elif op == "neg":
            made = self.wrapped(f"({self.zero(x.dtype)} - {text})", x.dtype)
        elif op == "not":
            made = f"(!{text})" if kind == "bool" else self.wrapped(f"(~{text})", x.dtype)
        else:
            is_native = is_float and op in _NATIVE
            made = f"{op if is_native else self.functions.op(op, x.dtype)}({text})"
        return made, ATOM

    def binary(self, op: str, a: ir.Expr, b: ir.Expr) -> Bound:
        texts = self._held(op, a), self._held(op, b)
        if a.dtype.kind is Kind.FLOAT:
            texts = self._unfolded(op, a, b, *texts)
            op = "add" if op == "sub" and texts[1].startswith("neg_") else op
        is_float = a.dtype.kind is Kind.FLOAT
        if is_float and op == "ne":
            return f"(!{self._float_comparison('eq', a, b, *texts)})", ATOM
        if is_float and op in _COMPARISONS:
            return self._float_comparison(op, a, b, *texts), ATOM
        if op == "div" and isinstance(b, ir.Const) and _has_reciprocal(b):
            return f"({texts[0]} / {texts[1]})", ATOM
        return self.combined(op, a.dtype, *texts), ATOM

    def _unfolded(self, op: str, a: ir.Expr, b: ir.Expr, left: str, right: str) -> tuple[str, str]:
        """Operands of floats. Drivers take x - x, x * 0 and 0 / x for 0, and x / x for 1, which
        they are not of NaN and the infinite, x + 0 for x and 0 - x for -x, which they are not of
        zeros: what may be the same is negated in bits instead of subtracted, and a zero is none
        that they know."""
        kind = type_of(a.dtype)
        if op == "sub" and (left == right or (self._rounding(a) and self._rounding(b))):
            return left, self.helper(f"neg_{kind}", self.text(b))
        if op == "div" and left == right:
            return left, self.helper(f"held_{kind}", right)
        if op in _COMPARISONS or op in ("ne", "max", "min"):
            return left, right
        return self.without_zero(left), self.without_zero(right)

    def without_zero(self, text: str) -> str:
        """An operand that is no zero that drivers know."""
        if text not in ("0.0f", "0.0lf"):
            return text
        return self.helper(*(("float_of_f32", "0u") if text == "0.0f" else ("float_of_f64", "0lu")))

    def _float_comparison(self, op: str, a: ir.Expr, b: ir.Expr, left: str, right: str) -> str:
        """A comparison that does not hold of NaN; what can't be NaN is not tested."""
        kind = type_of(a.dtype)
        match _may_be_nan(a), _may_be_nan(b):
            case True, True:
                return self.helper(f"{op}_{kind}", left, right)
            case True, False:
                return self.helper(f"{op}_{kind}_left", left, right)
            case False, True:
                return self.helper(f"{op}_{kind}_right", left, right)
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
            return plain if kind == "bool" else self.wrapped(plain, dtype)
        if op in ("shift_left", "shift_right"):
            return self._shift(op, dtype, kind, a, b)
        if op in ("div", "fmod") and _is_positive(b):
            return f"({a} {'/' if op == 'div' else '%'} {b})"
        if op == "div":
            return self.wrapped(self.helper(f"div_{kind}", a, b), dtype)
        if op in ("max", "min") and kind in _SUFFIXES:
            return f"{op}({a}, {b})"
        return f"{self.functions.op(op, dtype)}({a}, {b})"

    def _comparison(self, op: str, kind: str, a: str, b: str) -> str:
        if op == "ne":
            return f"(!({a} == {b}))"
        if kind == "bool" and op != "eq":
            a, b = f"u32({a})", f"u32({b})"
        return f"({a} {_COMPARISONS[op]} {b})"

    def _shift(self, op: str, dtype: DType, kind: str, a: str, b: str) -> str:
        unsigned = f"u{kind[1:]}"
        by = _same_bits(b, kind, unsigned)
        if op == "shift_left":
            shifted = self.helper(f"shift_left_{unsigned}", _same_bits(a, kind, unsigned), by)
            return self.wrapped(_same_bits(shifted, unsigned, kind), dtype)
        return self.helper(f"shift_right_{kind}", a, by)

    def wrapped(self, text: str, dtype: DType) -> str:
        """An integer brought back to the bits of its dtype."""
        if dtype.bits >= 32:
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
        is_cut = old[0] == "f" and new[0] != "f" and not fits
        if is_small or new == "bool" or old == "bool" or is_cut:
            return f"{self.functions.cast(source, target)}({text})", ATOM
        converted = f"{new}({text})" if "f" in (old[0], new[0]) else _resized(text, old, new)
        return self.wrapped(converted, target), ATOM

    def table(self, values: list[str], at: ir.Expr, dtype: DType) -> Bound:
        items = ", ".join(values)
        name = f"table_{hashlib.sha256(items.encode()).hexdigest()[:12]}"
        whole = f"array<{type_of(dtype)}, {len(values)}>"
        self.functions.texts[name] = f"var<private> {name}: {whole} = {whole}({items});"
        return f"{name}[u32({self.text(at)})]", ATOM

    def bitcast(self, x: ir.Expr, target: DType) -> Bound:
        kind = type_of(target)
        if isinstance(x, ir.Const) and kind.startswith("f"):
            bits = int(x.value) % 2**target.bits
            return self.helper(f"float_of_{kind}", _integer(bits, f"u{target.bits}")), ATOM
        converted = _same_bits(self.text(x), type_of(x.dtype), type_of(target))
        if target.bits < 32 and target.kind is Kind.FLOAT:
            if isinstance(x, ir.Const) and _is_special(x, target):
                converted = f"({converted} | {_ZERO})"  # which drivers know no more
            return f"({converted} & {2**target.bits - 1:#x}u)", ATOM
        return self.wrapped(converted, target), ATOM


def _is_special(bits: ir.Const, target: DType) -> bool:
    """Whether a constant float below 32 bits is a zero, infinite or NaN."""
    code = np.array(int(bits.value) % 2**target.bits, f"u{max(target.bits // 8, 1)}")
    value = float(code.view(target.to_numpy()))
    return value == 0 or not np.isfinite(value)


def _same_bits(text: str, old: str, new: str) -> str:
    return text if old == new else f"bitcast<{new}>({text})"


def _resized(text: str, old: str, new: str) -> str:
    """An integer as another. Sign or zeros are made by a conversion that keeps the sign of the
    type: naga takes the one of the target."""
    if old[1:] != new[1:]:
        between = old[0] + new[1:]
        return _same_bits(f"{between}({text})", between, new)
    return _same_bits(text, old, new)


def _integer(value: int, kind: str) -> str:
    suffix = _SUFFIXES[kind]
    if value >= 0:
        return f"{value}{suffix}"
    if kind == "i32":
        return f"i32({value})"
    least = -(2**63)
    return f"(-{-(value + 1)}{suffix} - 1li)" if value == least else f"i64({value}{suffix})"


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
