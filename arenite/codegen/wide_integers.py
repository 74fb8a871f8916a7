"""Values of 64 bits beside indices of 32: for devices that have both, where one is slow.

In: a GroupKernel over int64 indices that may hold int64 data too, and the bounds of its sizes. Out:
the same with int32 indices; NotCompiled where a loop's bound may not fit. The loop IR has one int64
for both. What is proven to fit 32 bits, by interval arithmetic, becomes int32; what is loaded from
memory, or may not fit, stays int64. Where the two meet, the narrow one is widened.

    row * 768 + column        int32, where sizes prove it
    indices[k] + n            int64; as an index it lies inside its array, and is cut to 32 bits

Unlike in `index_width` nothing wraps on the way: an int32 here is always the number itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from arenite.codegen import loop_ir as ir
from arenite.codegen.index_width import Narrowing, Range, arithmetic, fits
from arenite.dtype import DType, Kind

_GREATEST = 2**31 - 1


def with_wide_integers(
    kernel: ir.GroupKernel, sizes: Mapping[str, tuple[int, int]]
) -> ir.GroupKernel:
    """The kernel with int32 indices and int64 data."""
    return _Widening(kernel, sizes).run()


class _Widening(Narrowing):
    def __init__(self, kernel: ir.GroupKernel, sizes: Mapping[str, tuple[int, int]]) -> None:
        super().__init__(kernel, sizes)
        self.dtypes: dict[str, DType] = {}  # of names that are not int32
        inside = ir.statements(kernel.body)
        #: Accumulators of places in an array.
        self.places = {stmt.at for stmt in inside if isinstance(stmt, ir.AccumulateArg)}

    def refuse_arrays(self) -> None:
        """All elements can be loaded here."""

    def array(self, array: ir.ArrayArg) -> ir.ArrayArg:
        return array

    def stored(self, stmt: ir.Store) -> ir.Block:
        return (self.statement(stmt),)

    def statement(self, stmt: ir.Stmt) -> ir.Stmt:
        self.done = {}
        match stmt:
            case ir.Let(name, value):
                found, span = self.value(value)
                self._name(name, found, span)
                return ir.Let(name, found)
            case ir.Accumulator(name, init) if init.dtype == ir.INT64:
                found, _ = self.exact(init) if name in self.places else self.wide(init)
                self._name(name, found, None)
                return ir.Accumulator(name, found)
            case ir.Accumulate(name, op, value):
                return ir.Accumulate(name, op, self._as(name, value))
            case ir.AccumulateArg(best, at, op, value, index):
                return ir.AccumulateArg(best, at, op, self._as(best, value), self.exact(index)[0])
            case ir.Store(array, index, value, mask):
                found = self.wide(value)[0] if value.dtype == ir.INT64 else self.value(value)[0]
                guard = None if mask is None else self.value(mask)[0]
                return ir.Store(array, self.index(index), found, guard)
        return super().statement(stmt)

    def _name(self, name: str, value: ir.Expr, span: Range) -> None:
        self.dtypes[name] = value.dtype
        self.ranges[name] = span

    def _as(self, name: str, value: ir.Expr) -> ir.Expr:
        """What is accumulated, as wide as the accumulator."""
        if value.dtype != ir.INT64:
            return self.value(value)[0]
        return self.wide(value)[0] if self.dtypes.get(name) == ir.INT64 else self.exact(value)[0]

    # Expressions.

    def wide(self, expr: ir.Expr) -> tuple[ir.Expr, Range]:
        """An integer in 64 bits."""
        value, span = self.value(expr)
        if isinstance(value, ir.Const):
            number = ir.NO_INDEX if expr == ir.index(ir.NO_INDEX) else value.value
            return ir.Const(number, ir.INT64), span
        return (ir.Cast(value, ir.INT64) if value.dtype == ir.INT32 else value), span

    def index(self, expr: ir.Expr) -> ir.Expr:
        """What accesses an array lies inside it, so below 2**31."""
        value = self.value(expr)[0]
        return value if value.dtype == ir.INT32 else ir.Cast(value, ir.INT32)

    def exact(self, expr: ir.Expr) -> tuple[ir.Expr, tuple[int, int]]:
        value, span = self.value(expr)
        if span is None or not fits(span):
            known = "is not known" if span is None else f"lies in {span[0]} .. {span[1]}"
            raise self.refuse(expr, f"{known}, and indices of this device have 32 bits")
        return (value if value.dtype == ir.INT32 else ir.Cast(value, ir.INT32)), span

    def rewritten(self, expr: ir.Expr) -> tuple[ir.Expr, Range]:
        if expr.dtype == ir.INT64:
            return self.integer(expr)
        match expr:
            case ir.Name():
                return expr, None
            case ir.Cast(x, dtype) if x.dtype == ir.INT64:
                value, _ = self.value(x)
                return (value if value.dtype == dtype else ir.Cast(value, dtype)), None
            case ir.Binary(op, a, b) if a.dtype == ir.INT64:  # a comparison
                return ir.Binary(op, *self.alike(a, b)), None
            case ir.Bitcast(x, dtype) if x.dtype == ir.INT64:
                return ir.Bitcast(self.wide(x)[0], dtype), None
        return self.with_indices(expr), None

    def with_indices(self, expr: ir.Expr) -> ir.Expr:
        """The same expression over parts of these widths; its index has 32 bits."""
        if isinstance(expr, ir.Load):
            mask = None if expr.mask is None else self.value(expr.mask)[0]
            other = expr.other
            if other is not None:
                other = self.wide(other)[0] if other.dtype == ir.INT64 else self.value(other)[0]
            return replace(expr, index=self.index(expr.index), mask=mask, other=other)
        if isinstance(expr, ir.Table):
            at = expr.index
            return replace(
                expr, index=self.index(at) if at.dtype == ir.INT64 else self.value(at)[0]
            )
        return ir.with_children(expr, [self.value(part)[0] for part in ir.children(expr)])

    def alike(self, a: ir.Expr, b: ir.Expr) -> tuple[ir.Expr, ir.Expr]:
        """Both as int32, or both as int64."""
        (first, _), (second, _) = self.value(a), self.value(b)
        if first.dtype == second.dtype:
            return first, second
        return self.wide(a)[0], self.wide(b)[0]

    def integer(self, expr: ir.Expr) -> tuple[ir.Expr, Range]:
        match expr:
            case ir.Const(value):
                if value == ir.NO_INDEX:
                    return ir.Const(_GREATEST, ir.INT32), (_GREATEST, _GREATEST)
                number = (int(value), int(value))
                return ir.Const(int(value), ir.INT32 if fits(number) else ir.INT64), number
            case ir.Name(name):
                return self._named(expr, name)
            case ir.Load() | ir.Table():
                return self.with_indices(expr), None
            case ir.Cast(x):
                return self.widened(expr, x)
            case ir.Bitcast(x):
                return ir.Bitcast(self.value(x)[0], ir.INT64), None
            case ir.Unary(op, x):
                found, span = self.value(x)
                negative = None if span is None else (-span[1], -span[0])
                if op == "neg" and found.dtype == ir.INT32 and negative and fits(negative):
                    return ir.Unary(op, found), negative
                return ir.Unary(op, self.wide(x)[0]), negative if op == "neg" else None
            case ir.Select(cond, a, b):
                one, two = self.value(a)[1], self.value(b)[1]
                spans = (min(one[0], two[0]), max(one[1], two[1])) if one and two else None
                parts = [self.value(cond)[0], *self.alike(a, b)]
                return ir.with_children(expr, parts), spans
            case ir.Binary(op, a, b):
                return self.combined(op, a, b)
        raise self.refuse(expr, "is int64 arithmetic that this device does not do")

    def _named(self, expr: ir.Expr, name: str) -> tuple[ir.Expr, Range]:
        dtype = self.dtypes.get(name, ir.INT32)
        span = self.ranges.get(name)
        if dtype == ir.INT32 and span is None:
            span = (-_GREATEST - 1, _GREATEST)
        if dtype == ir.INT32 and span is not None and not fits(span):
            raise self.refuse(expr, f"lies in {span[0]} .. {span[1]}, beyond 32 bits")
        return ir.Name(name, dtype), span

    def widened(self, expr: ir.Expr, x: ir.Expr) -> tuple[ir.Expr, Range]:
        if x.dtype.kind is Kind.FLOAT or x.dtype.bits > 32:
            return ir.Cast(self.value(x)[0], ir.INT64), None
        if x.dtype.name == "uint32":
            return ir.Cast(self.value(x)[0], ir.INT64), (0, 2**32 - 1)
        return super().widened(expr, x)

    def combined(self, op: str, a: ir.Expr, b: ir.Expr) -> tuple[ir.Expr, Range]:
        (first, one), (second, two) = self.value(a), self.value(b)
        is_narrow = first.dtype == second.dtype == ir.INT32
        if is_narrow and op in ("floordiv", "mod", "min", "max"):
            return self.divided(op, a, b)
        span = arithmetic(op, one, two) if op in ("add", "sub", "mul") else None
        if is_narrow and span is not None and fits(span):
            return ir.Binary(op, first, second), span
        if span is not None and not -(2**63) <= span[0] <= span[1] < 2**63:
            span = None  # it wraps
        return ir.Binary(op, self.wide(a)[0], self.wide(b)[0]), span
