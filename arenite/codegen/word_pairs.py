"""Numbers of 64 bits as pairs of words, for devices that have none.

In: a GroupKernel with int32 indices and data of 64 bits, as `wide_integers` leaves it. Out: the
same with arrays of words, and two values of 32 bits, low and high, for each number; NotCompiled for
what is not done so: quotients, shifts by what is no constant, sums that threads share, and all
arithmetic of float64. Numbers of any kind are moved and chosen between.

    a + b      low = a.low + b.low          high = a.high + b.high + (low < a.low)
    a < b      a.high < b.high, or they are equal and a.low < b.low
"""

from __future__ import annotations

from dataclasses import replace
from struct import pack, unpack
from typing import TypeAlias

from arenite.codegen import loop_ir as ir
from arenite.codegen.printer import expression_text
from arenite.dtype import BY_NAME, DType, Kind
from arenite.errors import NotCompiled

UINT32 = BY_NAME["uint32"]
_ZERO = ir.Const(0, UINT32)

Pair: TypeAlias = tuple[ir.Expr, ir.Expr]  # low, high


def with_word_pairs(kernel: ir.GroupKernel) -> ir.GroupKernel:
    """The kernel without numbers of 64 bits."""
    return _Pairs(kernel).run()


def _is_wide(dtype: DType) -> bool:
    return dtype.bits == 64


class _Pairs:
    def __init__(self, kernel: ir.GroupKernel) -> None:
        self.kernel = kernel
        self.done: dict[int, tuple[ir.Expr, ir.Expr]] = {}  # by identity, which is kept
        self.pairs: dict[int, tuple[ir.Expr, Pair]] = {}
        self.n_stored = 0
        self.is_in_vector = False

    def run(self) -> ir.GroupKernel:
        arrays = tuple(
            replace(one, dtype=UINT32) if _is_wide(one.dtype) else one for one in self.kernel.arrays
        )
        if any(_is_wide(one.dtype) for one in self.kernel.shared):
            raise NotCompiled(f"{self.kernel.name}: numbers of 64 bits in shared memory")
        return replace(self.kernel, arrays=arrays, body=self.block(self.kernel.body))

    def refuse(self, expr: ir.Expr) -> NotCompiled:
        return NotCompiled(
            f"{self.kernel.name}: this device has no numbers of 64 bits, and pairs of words don't "
            f"do {expression_text(expr)}"
        )

    def block(self, block: ir.Block) -> ir.Block:
        return tuple(one for stmt in block for one in self.statement(stmt))

    def statement(self, stmt: ir.Stmt) -> ir.Block:
        self.done, self.pairs = {}, {}  # names may mean something else now
        match stmt:
            case ir.Let(name, value) if _is_wide(value.dtype):
                low, high = self.pair(value)
                return ir.Let(f"{name}_low", low), ir.Let(f"{name}_high", high)
            case ir.Store(value=value) if _is_wide(value.dtype):
                return self.stored(stmt)
            case ir.Accumulator(init=value) | ir.Accumulate(value=value) if _is_wide(value.dtype):
                raise self.refuse(value)
            case ir.AccumulateArg(value=value) if _is_wide(value.dtype):
                raise self.refuse(value)
        parts = {
            name: self.value(getattr(stmt, name))
            for name in stmt.operands
            if getattr(stmt, name) is not None
        }
        outside = self.is_in_vector
        self.is_in_vector = outside or (isinstance(stmt, ir.For) and stmt.vector)
        bodies = {name: self.block(getattr(stmt, name)) for name in stmt.bodies}
        self.is_in_vector = outside
        return (replace(stmt, **parts, **bodies),)  # type: ignore[type-var]

    def stored(self, stmt: ir.Store) -> ir.Block:
        """Both words; all values before anything is written."""
        self.n_stored += 1
        names = [f"{part}_of_store{self.n_stored}" for part in ("low", "high", "word")]
        mask = None if stmt.mask is None else self.value(stmt.mask)
        values = (*self.pair(stmt.value), self.value(stmt.index) * 2)
        lets = tuple(ir.Let(name, value) for name, value in zip(names, values, strict=True))
        low, high = (ir.Name(name, UINT32) for name in names[:2])
        word, zero = ir.Name(names[2], ir.INT32), ir.Const(0, ir.INT32)
        if self.is_in_vector:
            first = ir.Store(stmt.array, word, low, mask)
            return (*lets, first, ir.Store(stmt.array, word + 1, high, mask))
        # Threads store one word each: two stores one behind the other would be two steps.
        half = ir.Name(f"half_of_store{self.n_stored}", ir.INT32)
        chosen = ir.Select(ir.Binary("eq", half, zero), low, high)
        both = ir.Store(stmt.array, word + half, chosen, mask)
        return (*lets, ir.For(half.name, zero, ir.Const(2, ir.INT32), (both,), vector=True))

    # Values of 32 bits and less.

    def value(self, expr: ir.Expr) -> ir.Expr:
        known = self.done.get(id(expr))
        if known is None:
            known = self.done[id(expr)] = (expr, self.rewritten(expr))
        return known[1]

    def rewritten(self, expr: ir.Expr) -> ir.Expr:
        match expr:
            case ir.Binary(op, a, b) if _is_wide(a.dtype) and op in ir.COMPARISONS:
                return self.compared(expr, op, a, b)
            case ir.Cast(x, dtype) if _is_wide(x.dtype):
                if Kind.FLOAT in (x.dtype.kind, dtype.kind):
                    raise self.refuse(expr)
                low, high = self.pair(x)
                if dtype.kind is Kind.BOOL:
                    return ir.Binary("ne", low | high, _ZERO)
                return low if dtype == UINT32 else ir.Cast(low, dtype)
        if any(_is_wide(one.dtype) for one in (expr, *ir.children(expr))):
            raise self.refuse(expr)
        return ir.with_children(expr, [self.value(one) for one in ir.children(expr)])

    def compared(self, expr: ir.Expr, op: str, a: ir.Expr, b: ir.Expr) -> ir.Expr:
        if a.dtype.kind is Kind.FLOAT:
            raise self.refuse(expr)
        if op in ("gt", "ge"):
            return self.compared(expr, {"gt": "lt", "ge": "le"}[op], b, a)
        (low, high), (other_low, other_high) = self.pair(a), self.pair(b)
        is_same = ir.Binary("eq", high, other_high)
        if op in ("eq", "ne"):
            both = is_same & ir.Binary("eq", low, other_low)
            return both if op == "eq" else ~both
        if a.dtype.kind is Kind.SIGNED:
            is_less = ir.Bitcast(high, ir.INT32) < ir.Bitcast(other_high, ir.INT32)
        else:
            is_less = high < other_high
        return is_less | (is_same & ir.Binary(op, low, other_low))

    # Those of 64 bits.

    def pair(self, expr: ir.Expr) -> Pair:
        known = self.pairs.get(id(expr))
        if known is None:
            known = self.pairs[id(expr)] = (expr, self.paired(expr))
        return known[1]

    def paired(self, expr: ir.Expr) -> Pair:
        match expr:
            case ir.Const(value):
                is_float = expr.dtype.kind is Kind.FLOAT
                bits = pack("<d", value) if is_float else pack("<Q", int(value) % 2**64)
                low, high = unpack("<II", bits)
                return ir.Const(low, UINT32), ir.Const(high, UINT32)
            case ir.Name(name):
                return ir.Name(f"{name}_low", UINT32), ir.Name(f"{name}_high", UINT32)
            case ir.Load(array, index, _, mask, other):
                guard = None if mask is None else self.value(mask)
                instead = (None, None) if other is None else self.pair(other)
                word = self.value(index) * 2
                low = ir.Load(array, word, UINT32, guard, instead[0])
                return low, ir.Load(array, word + 1, UINT32, guard, instead[1])
            case ir.Select(cond, a, b):
                chosen, one, two = self.value(cond), self.pair(a), self.pair(b)
                low, high = (ir.Select(chosen, x, y) for x, y in zip(one, two, strict=True))
                return low, high
            case ir.Bitcast(x) if _is_wide(x.dtype):
                return self.pair(x)
        if expr.dtype.kind is Kind.FLOAT:
            raise self.refuse(expr)
        match expr:
            case ir.Cast(x):
                return self.widened(expr, x)
            case ir.Unary("neg", x):
                return _less((_ZERO, _ZERO), self.pair(x))
            case ir.Unary("not", x):
                low, high = self.pair(x)
                return ~low, ~high
            case ir.Binary(op, a, b) if op in ("min", "max"):
                is_first = self.compared(expr, "le" if op == "min" else "ge", a, b)
                pairs = zip(self.pair(a), self.pair(b), strict=True)
                low, high = (ir.Select(is_first, x, y) for x, y in pairs)
                return low, high
            case ir.Binary(op, a, b) if op in ir.BITWISE_OPS:
                pairs = zip(self.pair(a), self.pair(b), strict=True)
                low, high = (ir.Binary(op, x, y) for x, y in pairs)
                return low, high
            case ir.Binary(op, a, ir.Const(by)) if op in ir.SHIFTS and 0 <= by < 64:
                return _shifted(op, self.pair(a), int(by), a.dtype.kind is Kind.SIGNED)
            case ir.Binary(op, a, b) if op in _ARITHMETIC:
                return _ARITHMETIC[op](self.pair(a), self.pair(b))
        raise self.refuse(expr)

    def widened(self, expr: ir.Expr, x: ir.Expr) -> Pair:
        if _is_wide(x.dtype) and x.dtype.kind is not Kind.FLOAT:
            return self.pair(x)
        if x.dtype.kind is Kind.FLOAT:
            raise self.refuse(expr)
        value = self.value(x)
        low = value if x.dtype == UINT32 else ir.Cast(value, UINT32)
        if x.dtype.kind is not Kind.SIGNED:
            return low, _ZERO
        sign = ir.Binary("shift_right", ir.Bitcast(low, ir.INT32), ir.Const(31, ir.INT32))
        return low, ir.Bitcast(sign, UINT32)


def _sum(a: Pair, b: Pair) -> Pair:
    low = a[0] + b[0]
    return low, a[1] + b[1] + ir.Cast(low < a[0], UINT32)


def _less(a: Pair, b: Pair) -> Pair:
    return a[0] - b[0], a[1] - b[1] - ir.Cast(a[0] < b[0], UINT32)


def _product(a: Pair, b: Pair) -> Pair:
    high = ir.Binary("mulhi", a[0], b[0]) + a[0] * b[1] + a[1] * b[0]
    return a[0] * b[0], high


def _shifted(op: str, pair: Pair, by: int, is_signed: bool) -> Pair:
    low, high = pair
    if by == 0:
        return pair
    if op == "shift_left":
        if by >= 32:
            return _ZERO, low << by - 32
        return low << by, (high << by) | (low >> 32 - by)
    signed = ir.Bitcast(high, ir.INT32) if is_signed else high
    above = _as_word(signed >> 31) if is_signed else _ZERO
    if by >= 32:
        return _as_word(signed >> by - 32), above
    return (low >> by) | (high << 32 - by), _as_word(signed >> by)


def _as_word(value: ir.Expr) -> ir.Expr:
    return value if value.dtype == UINT32 else ir.Bitcast(value, UINT32)


_ARITHMETIC = {"add": _sum, "sub": _less, "mul": _product}
