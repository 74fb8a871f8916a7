"""Indices of 32 bits, where that is proven to change nothing.

In: a GroupKernel over int64 indices, and the bounds of its sizes. Out: the same over int32; or
NotCompiled with the expression that may not fit. Sums, differences and products may wrap on the
way: modulo 2**32 they are right, and an index that is used to access an array lies inside it, so
below 2**31. What compares, divides, bounds a loop or leaves the integers needs its operands as they
are: their ranges, by interval arithmetic, must fit.

    row * 768 + column     may wrap where a mask keeps it from being used
    row // 12 < n          row and n must fit

An array of int64 is read and written as pairs of words. What is loaded is the number itself, or the
least or greatest of 32 bits where it does not fit: enough to be compared with what lies between
these, and to be an index. What is stored must be proven to fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias

from arenite.codegen import loop_ir as ir
from arenite.codegen.printer import expression_text
from arenite.dtype import Kind
from arenite.errors import NotCompiled

#: Least and greatest, or None where nothing is known.
Range: TypeAlias = tuple[int, int] | None

_LEAST, _GREATEST = -(2**31), 2**31 - 1
#: What must be what it is, not only modulo 2**32; an index of an array lies in that, whatever it
#: is computed from.
_EXACT = {(ir.For, "start"), (ir.For, "stop"), (ir.AccumulateArg, "index"), (ir.Require, "error")}
_WRAPPING = frozenset("add sub mul neg".split())


def narrow_indices(kernel: ir.GroupKernel, sizes: Mapping[str, tuple[int, int]]) -> ir.GroupKernel:
    """The kernel with int32 indices, given the least and the greatest value of each size."""
    return Narrowing(kernel, sizes).run()


class Narrowing:
    """Rewrites statement by statement; `ranges` has what is known of names."""

    def __init__(self, kernel: ir.GroupKernel, sizes: Mapping[str, tuple[int, int]]) -> None:
        self.kernel = kernel
        self.ranges: dict[str, Range] = {name: sizes[name] for name in kernel.sizes}
        self.done: dict[int, tuple[ir.Expr, ir.Expr, Range]] = {}  # by identity, which is kept
        self.saturated: set[str] = set()  # names of what was loaded as int64
        self.n_pairs = 0
        self.is_in_vector = False

    def run(self) -> ir.GroupKernel:
        kernel = self.kernel
        self.refuse_arrays()
        tiles, span = self.exact(kernel.tiles)
        self.ranges[kernel.tile_var] = (0, max(0, span[1] - 1))
        body = self.block(kernel.body)
        arrays = tuple(self.array(one) for one in kernel.arrays)
        return replace(kernel, arrays=arrays, tiles=tiles, body=body, index_dtype=ir.INT32)

    def array(self, array: ir.ArrayArg) -> ir.ArrayArg:
        """As it is accessed: of int64 in words."""
        return replace(array, dtype=ir.INT32) if array.dtype == ir.INT64 else array

    def refuse_arrays(self) -> None:
        for array in self.kernel.arrays:
            if array.dtype.bits == 64 and array.dtype != ir.INT64:
                raise NotCompiled(
                    f"{self.kernel.name}: {array.name} holds {array.dtype}; elements of 64 bits "
                    "are not done on this device: cast to 32 bits before"
                )

    def refuse(self, expr: ir.Expr, why: str) -> NotCompiled:
        return NotCompiled(f"{self.kernel.name}: {expression_text(expr)} {why}")

    def block(self, block: ir.Block) -> ir.Block:
        outside = self.ranges
        self.ranges = dict(outside)
        found: list[ir.Stmt] = []
        for stmt in block:
            if isinstance(stmt, ir.Store) and stmt.value.dtype == ir.INT64:
                found += self.stored(stmt)
            else:
                found.append(self.statement(stmt))
        self.ranges = outside
        return tuple(found)

    def stored(self, stmt: ir.Store) -> ir.Block:
        """An int64 as two words: what fits 32 bits, and its sign."""
        self.done = {}
        value, index = self.exact(stmt.value)[0], self.value(stmt.index)[0]
        mask = None if stmt.mask is None else self.value(stmt.mask)[0]
        self.n_pairs += 1
        names = [f"{part}_of_pair{self.n_pairs}" for part in ("low", "word")]
        low, word = (ir.Name(name, ir.INT32) for name in names)
        sign = ir.Binary("shift_right", low, ir.Const(31, ir.INT32))
        # Both before anything is written.
        lets = (ir.Let(names[0], value), ir.Let(names[1], index * 2))
        if self.is_in_vector:
            first = ir.Store(stmt.array, word, low, mask)
            return (*lets, first, ir.Store(stmt.array, word + 1, sign, mask))
        # Threads store one word each: two stores one behind the other would be two steps.
        half, zero, two = (
            f"half_of_pair{self.n_pairs}",
            ir.Const(0, ir.INT32),
            ir.Const(2, ir.INT32),
        )
        part = ir.Name(half, ir.INT32)
        chosen = ir.Select(ir.Binary("eq", part, zero), low, sign)
        both = ir.Store(stmt.array, word + part, chosen, mask)
        return (*lets, ir.For(half, zero, two, (both,), vector=True))

    def statement(self, stmt: ir.Stmt) -> ir.Stmt:
        self.done = {}  # names may mean something else now
        parts: dict[str, ir.Expr] = {}
        spans: dict[str, Range] = {}
        for name in stmt.operands:
            part = getattr(stmt, name)
            if part is not None:
                narrowed = self.exact if (type(stmt), name) in _EXACT else self.value
                parts[name], spans[name] = narrowed(part)
        match stmt:
            case ir.Foreign(uses=uses):
                # It computes in 32 bits, with what is there.
                exact = (self.exact(x)[0] if x.dtype == ir.INT64 else x for x in uses)
                return replace(stmt, uses=tuple(exact))  # type: ignore[arg-type]
            case ir.Let(name, value):
                self.ranges[name] = spans["value"]
                self.saturated.discard(name)  # of another block
                if self.is_saturated(value):
                    self.saturated.add(name)
            case ir.For(var):
                low, high = spans["start"], spans["stop"]
                assert low is not None
                assert high is not None
                self.ranges[var] = (low[0], max(low[0], high[1] - 1))
                self.saturated.discard(var)
            case ir.Accumulator(name, init):
                if init.dtype == ir.INT64 and init != ir.index(ir.NO_INDEX):
                    raise self.refuse(init, "begins a sum in int64, which may not fit 32 bits")
                self.ranges[name] = (_LEAST, _GREATEST)
                self.saturated.discard(name)
        outside = self.is_in_vector
        self.is_in_vector = outside or (isinstance(stmt, ir.For) and stmt.vector)
        bodies = {name: self.block(getattr(stmt, name)) for name in stmt.bodies}
        self.is_in_vector = outside
        return replace(stmt, **parts, **bodies)  # type: ignore[type-var]

    def exact(self, expr: ir.Expr) -> tuple[ir.Expr, tuple[int, int]]:
        """An int64 expression that must be what it is, not only modulo 2**32."""
        value, span = self.value(expr)
        if span is None or not fits(span):
            known = "is not known" if span is None else f"lies in {span[0]} .. {span[1]}"
            raise self.refuse(expr, f"{known}, and indices of this device have 32 bits")
        return value, span

    def value(self, expr: ir.Expr) -> tuple[ir.Expr, Range]:
        known = self.done.get(id(expr))
        if known is not None and known[0] is expr and not isinstance(expr, ir.Name):
            return known[1], known[2]
        narrow, span = self.rewritten(expr)
        self.done[id(expr)] = (expr, narrow, span)
        return narrow, span

    def rewritten(self, expr: ir.Expr) -> tuple[ir.Expr, Range]:
        if expr.dtype == ir.INT64:
            return self.integer(expr)
        if expr.dtype.bits == 64:
            raise self.refuse(expr, f"is {expr.dtype}, which this device does not compute with")
        match expr:
            case ir.Cast(x, dtype) if x.dtype == ir.INT64:
                return ir.Cast(self.exact(x)[0], dtype), None
            case ir.Binary(op, a, b) if a.dtype == ir.INT64:  # a comparison
                return ir.Binary(op, self.compared(a, b), self.compared(b, a)), None
        parts = ir.children(expr)
        narrow = [self.value(part)[0] for part in parts]
        if all(a is b for a, b in zip(parts, narrow, strict=True)):
            return expr, None
        return ir.with_children(expr, narrow), None

    def is_saturated(self, expr: ir.Expr) -> bool:
        """Whether it was loaded as int64, and may not be the number itself."""
        if isinstance(expr, ir.Name):
            return expr.name in self.saturated
        return isinstance(expr, ir.Load) and expr.dtype == ir.INT64

    def compared(self, expr: ir.Expr, other: ir.Expr) -> ir.Expr:
        """One side of a comparison."""
        if not self.is_saturated(expr):
            return self.exact(expr)[0]
        _, span = self.exact(other)
        if not _LEAST < span[0] <= span[1] < _GREATEST:
            raise self.refuse(other, f"lies in {span[0]} .. {span[1]}, the ends of 32 bits")
        return self.value(expr)[0]

    def loaded(self, load: ir.Load) -> ir.Expr:
        """An int64 from two words: itself, or the end of 32 bits that it lies beyond."""
        if load.other is not None:
            raise self.refuse(load, "is int64 or another value, which this device does not do")
        mask = None if load.mask is None else self.value(load.mask)[0]
        word = self.value(load.index)[0] * 2
        low, high = (ir.Load(load.array, word + k, ir.INT32, mask) for k in range(2))
        zero, sign = ir.Const(0, ir.INT32), ir.Const(31, ir.INT32)
        fits = ir.Binary("eq", ir.Binary("shift_right", low, sign), high)
        ends = ir.Const(_LEAST, ir.INT32), ir.Const(_GREATEST, ir.INT32)
        return ir.Select(fits, low, ir.Select(high < zero, *ends))

    def integer(self, expr: ir.Expr) -> tuple[ir.Expr, Range]:
        match expr:
            case ir.Load():
                return self.loaded(expr), None
            case ir.Const(value):
                if value == ir.NO_INDEX:
                    return ir.Const(_GREATEST, ir.INT32), (_GREATEST, _GREATEST)
                number = int(value)
                wrapped = (number - _LEAST) % 2**32 + _LEAST
                return ir.Const(wrapped, ir.INT32), (number, number)
            case ir.Name(name):
                span = None if name in self.saturated else (_LEAST, _GREATEST)
                return ir.Name(name, ir.INT32), self.ranges.get(name, span)
            case ir.Cast(x):
                return self.widened(expr, x)
            case ir.Unary("neg", x):
                inner, span = self.value(x)
                return ir.Unary("neg", inner), None if span is None else (-span[1], -span[0])
            case ir.Select(cond, a, b):
                first, one = self.value(a)
                second, two = self.value(b)
                spans = (min(one[0], two[0]), max(one[1], two[1])) if one and two else None
                return ir.Select(self.value(cond)[0], first, second), spans
            case ir.Binary(op, a, b) if op in _WRAPPING:
                first, one = self.value(a)
                second, two = self.value(b)
                return ir.Binary(op, first, second), arithmetic(op, one, two)
            case ir.Binary(op, a, b) if op in ("floordiv", "mod", "min", "max"):
                return self.divided(op, a, b)
        raise self.refuse(expr, "is int64 arithmetic that this device does not do")

    def widened(self, expr: ir.Expr, x: ir.Expr) -> tuple[ir.Expr, Range]:
        dtype = x.dtype
        if dtype.kind is Kind.FLOAT or dtype.bits > 32 or dtype.name == "uint32":
            raise self.refuse(expr, "may not fit 32 bits")
        value = self.value(x)[0]
        if dtype.kind is Kind.BOOL:
            return ir.Cast(value, ir.INT32), (0, 1)
        low = -(2 ** (dtype.bits - 1)) if dtype.kind is Kind.SIGNED else 0
        narrow = value if dtype == ir.INT32 else ir.Cast(value, ir.INT32)
        return narrow, (low, low + 2**dtype.bits - 1)

    def divided(self, op: str, a: ir.Expr, b: ir.Expr) -> tuple[ir.Expr, Range]:
        first, one = self.exact(a)
        second, two = self.exact(b)
        if op in ("min", "max"):
            choose = min if op == "min" else max
            return (ir.Binary(op, first, second), (choose(one[0], two[0]), choose(one[1], two[1])))
        if one[0] >= 0 and two[0] >= 1:
            # Towards zero is towards minus infinity here, and what devices have.
            if op == "floordiv":
                return ir.Binary("div", first, second), (one[0] // two[1], one[1] // two[0])
            return ir.Binary("fmod", first, second), (0, min(one[1], two[1] - 1))
        if op == "mod" and one[0] >= 0 and two[0] >= 0:
            return ir.Binary(op, first, second), (0, one[1])  # also where it is divided by zero
        if op == "mod" and two[0] >= 1:
            return ir.Binary(op, first, second), (0, two[1] - 1)
        if op == "floordiv" and two[0] >= 1:
            ends = [x // y for x in one for y in two]
            return ir.Binary(op, first, second), (min(ends), max(ends))
        if op == "floordiv" and one[0] >= 0 and two[0] >= 0:
            return ir.Binary(op, first, second), (0, one[1])
        return ir.Binary(op, first, second), (_LEAST, _GREATEST)


def fits(span: tuple[int, int]) -> bool:
    """Whether all of a range are numbers of 32 bits."""
    return _LEAST <= span[0] <= span[1] <= _GREATEST


def arithmetic(op: str, a: Range, b: Range) -> Range:
    """The range of a sum, difference or product."""
    if a is None or b is None:
        return None
    if op == "add":
        return a[0] + b[0], a[1] + b[1]
    if op == "sub":
        return a[0] - b[1], a[1] - b[0]
    ends = [x * y for x in a for y in b]
    return min(ends), max(ends)
