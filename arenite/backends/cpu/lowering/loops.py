"""Control flow: serial loops, vector loops with their phases and partial results, branches.

A loop is a guard, a preheader and one or more phases over one counter:

    front -> [start < stop] -> preheader -> turns of several vectors -> the rest -> finish -> exit
         \\------------------------------------------------------------------------->/

What an iteration hands to the next (accumulators) are phi nodes in the head of each phase.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd

from arenite.backends.cpu.lowering.convert import register_type
from arenite.backends.cpu.lowering.evaluate import Evaluator, VectorMode
from arenite.backends.cpu.lowering.partials import (
    Partials,
    Phase,
    open_reductions,
    partials_across,
    phases_of,
)
from arenite.backends.cpu.lowering.scope import (
    SCALAR,
    Binding,
    Level,
    Preheader,
    accumulators_changed,
    arrays_stored,
)
from arenite.backends.cpu.lowering.statements import Statements
from arenite.backends.cpu.lowering.tile import tile_loop
from arenite.backends.cpu.lowering.vector import I64, BasicBlock, Builder, Vec, VType
from arenite.codegen import loop_ir as ir
from arenite.dtype import DType


class Lowering(Evaluator):
    """Writes one function from the loop IR of a kernel: expressions, statements, loops, branches.

    The function begins with the addresses and sizes of its window. `other` emits statements that
    are not of the loop IR.
    """

    def __init__(
        self,
        builder: Builder,
        kernel: ir.LoopKernel,
        other: Callable[[ir.Stmt], None] | None = None,
    ) -> None:
        super().__init__(builder, kernel)
        self.statements = Statements(self, other)
        for k, array in enumerate(kernel.arrays):
            where = builder.offset("%window", 8 * k)
            self.pointers[array.name] = builder.emit_pointer(f"load ptr, ptr {where}, align 8")
        for k, size in enumerate(kernel.sizes, len(kernel.arrays)):
            where = builder.offset("%window", 8 * k)
            dtype = ir.size_dtype(kernel, size)
            t = register_type(dtype, 1)
            self.bind(size, builder.load(t, where, 8), dtype=dtype)

    def bind(self, name: str, value: Vec, varying: bool = False, dtype: DType = ir.INT64) -> None:
        """Give a number a name in the innermost level; one that varies counts up from lane to
        lane."""
        binding = Binding(dtype, self.scope.depth, varying, values={SCALAR: value})
        self.scope.bind(name, binding)

    def block(self, block: ir.Block) -> None:
        run: list[ir.Stmt] = []
        for stmt in block:
            if self._is_simple(stmt):
                run.append(stmt)
                continue
            self.statements.run(run)
            run = []
            self.scope.next_statement()
            if isinstance(stmt, ir.For):
                self.for_loop(stmt)
            elif isinstance(stmt, ir.If):
                if self.vector is not None and self._varies(stmt.cond):
                    self.predicated_block(stmt, self.vector)
                else:
                    self.branch(stmt)
        self.statements.run(run)
        self.scope.next_statement()

    def _is_simple(self, stmt: ir.Stmt) -> bool:
        """Whether it can be emitted for one vector after the other."""
        if isinstance(stmt, ir.For):
            return False
        if isinstance(stmt, ir.If):
            return self.vector is not None and self._varies(stmt.cond) and _is_flat(stmt)
        return True

    def _varies(self, expr: ir.Expr) -> bool:
        """Whether it may vary; a Let that is not emitted yet is taken to."""
        names = [at.name for at in ir.walk(expr) if isinstance(at, ir.Name)]
        bindings = [self.scope.find(name) for name in names]
        return any(binding is None or binding.varying for binding in bindings)

    def for_loop(self, loop: ir.For) -> None:
        start, stop = self.value(loop.start, SCALAR), self.value(loop.stop, SCALAR)
        if loop.vector and self.vector is None:
            inner = loop.body[0] if len(loop.body) == 1 else None
            if isinstance(inner, ir.For) and inner.vector:
                tile_loop(self, loop, inner, start, stop)
            else:
                self.vector_loop(loop, start, stop)
            return
        partials = [] if self.vector is not None else partials_across(self.scope, loop)
        self.serial_loop(loop.var, start, stop, loop.body, max(1, loop.unroll))
        for partial in partials:
            partial.combine()

    def serial_loop(self, var: str, start: Vec, stop: Vec, body: ir.Block, unroll: int) -> None:
        phases = [Phase(1, unroll), Phase(1, 1)] if unroll > 1 else [Phase(1, 1)]

        def turn(phase: Phase, at: Vec) -> None:
            for copy in range(phase.parts):
                if copy:
                    self.scope.renew()
                value = at + copy if copy else at
                self.bind(var, value)
                self.block(body)

        self.counted_loop(start, stop, phases, body, turn)

    def vector_loop(self, loop: ir.For, start: Vec, stop: Vec) -> None:
        phases = phases_of(loop, self.builder)
        partials = open_reductions(self.scope, loop.body, phases)
        divisor = gcd(_factor(loop.start), *(phase.step for phase in phases if phase.lanes > 1))

        def turn(phase: Phase, at: Vec) -> None:
            if phase.lanes == 1:
                self.bind(loop.var, at)
                self.block(loop.body)
                return
            masks = {}
            if phase.is_masked:
                rest = self.builder.constant(phase.rest, I64) if phase.rest else stop - at
                masks = {0: self.mask_of_rest(rest, phase.lanes)}
            self.vector = VectorMode(loop.var, phase.lanes, phase.parts, masks, divisor=divisor)
            self.bind(loop.var, at, varying=True)
            self.block(loop.body)
            self.vector = None

        self.counted_loop(start, stop, phases, loop.body, turn, partials)

    def mask_of_rest(self, rest: Vec, lanes: int) -> Vec:
        """The first `rest` lanes."""
        b = self.builder
        bits = max(8, b.target.vector_bits // lanes)
        t = VType("i", min(bits, 64), lanes)
        if rest.is_constant and rest.text != "1":
            limit = b.constant(int(rest.text), t.scalar)
        else:
            count = b.intrinsic("umin", rest, b.constant(lanes, I64))
            # LLVM 22 writes behind the end of an array for a narrowing store under a mask that it
            # knows to have one lane. So it must not know: the count takes a way through memory.
            slot = b.stack(I64, "rest")
            b.emit_void(f"store volatile i64 {count.text}, ptr {slot}")
            limit = b.emit(f"load volatile i64, ptr {slot}", I64).convert("trunc", t.scalar)
        return b.iota(t).compare("lt", b.broadcast(limit, lanes), signed=False)

    def steps(
        self,
        start: Vec | int,
        stop: Vec | int,
        step: int,
        turn: Callable[[Vec], None],
        body: ir.Block = (),
    ) -> None:
        """Turns from `start` on to before `stop`, so far apart; `body` is what they emit of the
        loop IR."""
        first, last = (
            self.builder.constant(at, I64) if isinstance(at, int) else at for at in (start, stop)
        )
        self.counted_loop(first, last, [Phase(1, step)], body, lambda _, at: turn(at))

    def counted_loop(
        self,
        start: Vec,
        stop: Vec,
        phases: Sequence[Phase],
        body: ir.Block,
        turn: Callable[[Phase, Vec], None],
        partials: Sequence[Partials] = (),
    ) -> None:
        b, scope = self.builder, self.scope
        guard = start.lt(stop)
        changed = accumulators_changed(body)
        carried = [binding for name in sorted(changed) if (binding := self.scope.find(name))]
        before = [dict(binding.values) for binding in carried]
        for partial in partials:
            for binding, value in zip(partial.bindings, partial.before, strict=True):
                before[_position(carried, binding)] = {SCALAR: value}
        front = scope.levels[-1]
        front.cursor = b.block
        first = b.new_block("preheader")
        preheader = Preheader(first, first)
        b.block = b.new_block("enter")
        first_block = b.block
        at = start
        for phase in phases:
            always = len(phases) == 1
            is_last = phase is phases[-1]
            level = Level("loop", arrays_stored(body), changed, preheader)
            at = self._phase(phase, at, stop, level, carried, turn, always, is_last)
        for partial in partials:
            partial.combine()
        exit_block = b.new_block("exit")
        last = b.block
        last.end = f"br label %{exit_block.name}"
        preheader.block.end = f"br label %{first_block.name}"
        assert front.cursor is not None
        front.cursor.end = f"br i1 {guard.text}, label %{first.name}, label %{exit_block.name}"
        b.block = exit_block
        for binding, old in zip(carried, before, strict=True):
            for key, value in binding.values.items():
                sources = [(old[key], front.cursor), (value, last)]
                binding.values[key] = b.phi(exit_block, sources)
        front.cursor = None
        scope.next_statement()

    def _phase(
        self,
        phase: Phase,
        start: Vec,
        stop: Vec,
        level: Level,
        carried: Sequence[Binding],
        turn: Callable[[Phase, Vec], None],
        always: bool,
        is_last: bool,
    ) -> Vec:
        """One phase, entered if there is enough left for a turn; returns the counter after it."""
        b = self.builder

        def enough(at: Vec) -> Vec:
            return at.lt(stop) if is_last else (at + phase.step).le(stop)

        front = b.block
        head = b.new_block("loop")
        old = [dict(binding.values) for binding in carried]
        may_enter = None if always else enough(start)
        at = Vec(b, b.new_name(), I64)
        for binding, values in zip(carried, old, strict=True):
            binding.values = {key: Vec(b, b.new_name(), v.type) for key, v in values.items()}
        heads = [dict(binding.values) for binding in carried]
        b.block = head
        self.scope.push(level)
        turn(phase, at)
        self.scope.pop()
        after_turn = at + phase.step
        again = enough(after_turn)
        latch = b.block
        after = b.new_block("after")
        latch.end = f"br i1 {again.text}, label %{head.name}, label %{after.name}"
        b.set_phi(head, at.text, [(start, front), (after_turn, latch)])
        for binding, phis, values in zip(carried, heads, old, strict=True):
            for key, phi in phis.items():
                sources = [(values[key], front), (binding.values[key], latch)]
                b.set_phi(head, phi.text, sources)
        b.block = after
        if may_enter is None:
            front.end = f"br label %{head.name}"
            return after_turn
        front.end = f"br i1 {may_enter.text}, label %{head.name}, label %{after.name}"
        for binding, values in zip(carried, old, strict=True):
            for key, value in binding.values.items():
                binding.values[key] = b.phi(after, [(values[key], front), (value, latch)])
        return b.phi(after, [(start, front), (after_turn, latch)])

    def predicated_block(self, stmt: ir.If, vector: VectorMode) -> None:
        """Lanes differ in the condition and there are loops inside: both sides run, masked."""
        around, was_predicated = vector.masks, vector.is_predicated
        conditions = [self.lanes(stmt.cond, part) for part in range(vector.parts)]
        vector.is_predicated = True
        for block, is_else in ((stmt.then, False), (stmt.else_, True)):
            masks = [~cond if is_else else cond for cond in conditions]
            vector.masks = {
                part: mask & around[part] if part in around else mask
                for part, mask in enumerate(masks)
            }
            self.scope.push(Level("predicated"))
            self.block(block)
            self.scope.pop()
        vector.masks, vector.is_predicated = around, was_predicated

    def branch(self, stmt: ir.If) -> None:
        """A condition that is the same in all lanes: a jump."""
        b, scope = self.builder, self.scope
        cond = self.value(stmt.cond, SCALAR)
        names = sorted(accumulators_changed((*stmt.then, *stmt.else_)))
        carried = [binding for name in names if (binding := self.scope.find(name))]
        before = [dict(binding.values) for binding in carried]
        front = scope.levels[-1]
        front.cursor = b.block
        ends: list[tuple[BasicBlock, list[dict[int, Vec]]]] = []
        starts: list[BasicBlock] = []
        for block in (stmt.then, stmt.else_):
            b.block = b.new_block("branch")
            starts.append(b.block)
            for binding, values in zip(carried, before, strict=True):
                binding.values = dict(values)
            scope.push(Level("branch"))
            self.block(block)
            scope.pop()
            ends.append((b.block, [dict(binding.values) for binding in carried]))
        joined = b.new_block("joined")
        for block_end, _ in ends:
            block_end.end = f"br label %{joined.name}"
        then, other = starts
        front.cursor.end = f"br i1 {cond.text}, label %{then.name}, label %{other.name}"
        front.cursor = None
        b.block = joined
        for at, binding in enumerate(carried):
            for key in binding.values:
                sources = [(values[at][key], end) for end, values in ends]
                binding.values[key] = b.phi(joined, sources)
        scope.next_statement()


def _factor(expr: ir.Expr) -> int:
    """A number that divides it; 0 for 0."""
    match expr:
        case ir.Const(value):
            return int(value)
        case ir.Binary("mul", a, b):
            return _factor(a) * _factor(b)
    return 1


def _position(bindings: Sequence[Binding], wanted: Binding) -> int:
    return next(at for at, binding in enumerate(bindings) if binding is wanted)


def _is_flat(stmt: ir.If) -> bool:
    inner = (*stmt.then, *stmt.else_)
    return all(
        _is_flat(stmt) if isinstance(stmt, ir.If) else not isinstance(stmt, ir.For)
        for stmt in inner
    )
