"""Statements without control flow: Let, Store, accumulators, Require, and an If made of masks.

Each is emitted for one vector of the loop around at a time (`part`), or once in scalar code.
"""

from __future__ import annotations

from collections.abc import Callable

from arenite.backends.cpu.lowering.access import store_vector
from arenite.backends.cpu.lowering.convert import to_memory
from arenite.backends.cpu.lowering.evaluate import Evaluator
from arenite.backends.cpu.lowering.numeric import fma
from arenite.backends.cpu.lowering.reduction import reduction_of
from arenite.backends.cpu.lowering.scope import SCALAR, Binding, Level, accumulators
from arenite.backends.cpu.lowering.vector import Vec
from arenite.codegen import loop_ir as ir
from arenite.dtype import DType, Kind

#: Operations that may wait inside each other for their first use; emitting them is recursive.
MAX_LAZY_DEPTH = 40


class Statements:
    """Emits simple statements with the values of an evaluator; `other` emits those that are not of
    the loop IR."""

    def __init__(self, values: Evaluator, other: Callable[[ir.Stmt], None] | None = None) -> None:
        self.values = values
        self.other = other
        self.builder = values.builder
        self.scope = values.scope

    def run(self, run: list[ir.Stmt]) -> None:
        """All statements for the first vector, then all for the next: few values live at once."""
        parts = 1 if self.values.vector is None else self.values.vector.parts
        for part in range(parts):
            for stmt in run:
                self.scope.next_statement()
                self.simple(stmt, part)

    def simple(self, stmt: ir.Stmt, part: int) -> None:
        match stmt:
            case ir.Let():
                self._let(stmt, part)
            case ir.Store():
                self._store(stmt, part)
            case ir.Accumulator():
                self._accumulator(stmt, part)
            case ir.Accumulate() | ir.AccumulateArg():
                self._accumulate(stmt, part)
            case ir.Require():
                self._require(stmt, part)
            case ir.If():
                self._predicated(stmt, part)
            case ir.For():
                raise AssertionError("a loop is no simple statement")
            case _:
                assert self.other is not None, f"{stmt!r} is not of the loop IR"
                self.other(stmt)

    def _let(self, stmt: ir.Let, part: int) -> None:
        info = self.scope.info(stmt.value)
        is_lazy = not (info.volatile or info.loads)
        binding = self.scope.levels[-1].names.get(stmt.name)
        if binding is None:
            level = info.level if is_lazy else self.scope.depth
            binding = Binding(stmt.value.dtype, level, info.varying, False, stmt.value, is_lazy)
            binding.depth = self._lazy_depth(stmt.value) if is_lazy else 0
            self.scope.bind(stmt.name, binding)
        if not is_lazy:
            binding.values[part if info.varying else SCALAR] = self.values.value(stmt.value, part)
        elif binding.depth == 0:
            self.values.value(stmt.value, part)  # remembered for those who use it

    def _lazy_depth(self, value: ir.Expr) -> int:
        """How deep a lazy Let is; 0 for one that is emitted at once, because it is deep enough."""
        depths: dict[int, int] = {}
        pending = [value]
        while pending:
            expr = pending[-1]
            deepest = self.scope.binding(expr.name).depth if isinstance(expr, ir.Name) else 0
            missing = []
            for part in ir.children(expr):
                depth = depths.get(id(part))
                if depth is None:
                    missing.append(part)
                elif depth > deepest:
                    deepest = depth
            if missing:
                pending += missing
                continue
            pending.pop()
            depths[id(expr)] = 1 + deepest
        deepest = depths[id(value)]
        return deepest if deepest <= MAX_LAZY_DEPTH else 0

    def _store(self, stmt: ir.Store, part: int) -> None:
        b, vector = self.builder, self.values.vector
        dtype = self.values.kernel.array(stmt.array).dtype
        varies = any(self.scope.info(expr).varying for expr in ir.expressions(stmt))
        if vector is None or not (varies or vector.is_predicated):
            self._store_scalar(stmt, dtype)
            return
        mask = None if stmt.mask is None else self.values.lanes(stmt.mask, part)
        active = vector.masks.get(part)
        both = active if mask is None else mask if active is None else mask & active
        value = self.values.lanes(stmt.value, part)
        access = self.values.access(stmt.array, stmt.index, part)
        store_vector(b, access, value, dtype, both)

    def _store_scalar(self, stmt: ir.Store, dtype: DType) -> None:
        b = self.builder
        mask = None if stmt.mask is None else self.values.value(stmt.mask, SCALAR)
        value = to_memory(self.values.value(stmt.value, SCALAR), dtype)
        pointer = self.values.pointer(stmt.array, stmt.index)
        if mask is None:
            b.store(value, pointer, 1)
        else:
            b.when(mask, lambda: b.store(value, pointer, 1))

    def _accumulator(self, stmt: ir.Accumulator, part: int) -> None:
        is_vector = self.values.vector is not None
        binding = self.scope.levels[-1].names.get(stmt.name)
        if binding is None:
            binding = Binding(stmt.init.dtype, self.scope.depth, is_vector, True)
            self.scope.bind(stmt.name, binding)
        binding.values[part if is_vector else SCALAR] = self.values.lanes(stmt.init, part)

    def _accumulate(self, stmt: ir.Accumulate | ir.AccumulateArg, part: int) -> None:
        bindings = [self.scope.binding(name) for name in accumulators(stmt)]
        at = SCALAR if self.values.vector is None else part
        old = [binding.values[at] for binding in bindings]
        new = self._accumulated(stmt, old, tuple(binding.dtype for binding in bindings), part)
        mask = None if self.values.vector is None else self.values.vector.masks.get(part)
        for binding, a, b in zip(bindings, new, old, strict=True):
            binding.values[at] = a if mask is None else mask.select(a, b)

    def _accumulated(
        self,
        stmt: ir.Accumulate | ir.AccumulateArg,
        old: list[Vec],
        dtypes: tuple[DType, ...],
        part: int,
    ) -> list[Vec]:
        if isinstance(stmt, ir.Accumulate):
            value = stmt.value
            is_product = isinstance(value, ir.Binary) and value.op == "mul"
            if stmt.op == "add" and is_product and value.dtype.kind is Kind.FLOAT:
                a, b = ir.children(value)
                return [fma(self.values.lanes(a, part), self.values.lanes(b, part), old[0])]
            if stmt.op == "set":
                return [self.values.lanes(value, part)]
        values = [self.values.lanes(expr, part) for expr in ir.expressions(stmt)]
        return reduction_of(stmt, dtypes).step(old, values)

    def _require(self, stmt: ir.Require, part: int) -> None:
        b = self.builder
        bad = ~self.values.lanes(stmt.cond, part)
        active = None if self.values.vector is None else self.values.vector.masks.get(part)
        error = self.values.value(stmt.error, part)

        def report() -> None:
            where = b.emit_pointer(f"load ptr, ptr {b.offset('%worker', 8)}, align 8")
            b.emit_pointer(
                f"cmpxchg ptr {where}, i64 0, i64 {error.text} monotonic monotonic, align 8"
            )

        b.when(bad if active is None else bad & active, report)

    def _predicated(self, stmt: ir.If, part: int) -> None:
        """Both sides run, each with its lanes masked."""
        vector = self.values.vector
        assert vector is not None
        cond = self.values.lanes(stmt.cond, part)
        around, was_predicated = vector.masks.get(part), vector.is_predicated
        vector.is_predicated = True
        for block, mask in ((stmt.then, cond), (stmt.else_, ~cond)):
            vector.masks[part] = mask if around is None else mask & around
            self.scope.push(Level("predicated"))
            for inner in block:
                self.scope.next_statement()
                self.simple(inner, part)
            self.scope.pop()
        vector.is_predicated = was_predicated
        del vector.masks[part]
        if around is not None:
            vector.masks[part] = around
