"""Control flow: serial loops, vector loops with their phases and partial results, branches.

A loop is a guard, a preheader and one or more phases over one counter:

    front -> [start < stop] -> preheader -> turns of several vectors -> the rest -> finish -> exit
         \\------------------------------------------------------------------------->/

What an iteration hands to the next (accumulators) are phi nodes in the head of each phase.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from arenite.codegen import loop_ir as ir
from arenite.codegen.evaluate import VectorMode
from arenite.codegen.reduction import Reduction, reduction_of
from arenite.codegen.scope import (
    SCALAR,
    Binding,
    Level,
    Preheader,
    accumulators_changed,
    arrays_stored,
)
from arenite.codegen.statements import Statements
from arenite.codegen.vector import I64, BasicBlock, Vec, VType
from arenite.codegen.vectorize import shape_of


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of a loop: how much one turn does, and whether its last turn may be in part."""

    lanes: int
    parts: int
    is_masked: bool = False

    @property
    def step(self) -> int:
        return self.lanes * self.parts


@dataclass(slots=True)
class Partials:
    """A reduction while its accumulators hold partial results, and what they held before."""

    reduction: Reduction
    bindings: list[Binding]
    before: list[Vec]


class Loops(Statements):
    """Statements with loops and branches."""

    def block(self, block: ir.Block) -> None:
        run: list[ir.Stmt] = []
        for stmt in block:
            if self._is_simple(stmt):
                run.append(stmt)
                continue
            self.simple_run(run)
            run = []
            self.scope.next_statement()
            if isinstance(stmt, ir.For):
                self.for_loop(stmt)
            elif isinstance(stmt, ir.If):
                self.branch(stmt)
        self.simple_run(run)
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
        if isinstance(expr, ir.Name):
            try:
                return self.scope.binding(expr.name).varying
            except KeyError:
                return True
        return any(self._varies(child) for child in ir.children(expr))

    def for_loop(self, loop: ir.For) -> None:
        start, stop = self.value(loop.start, SCALAR), self.value(loop.stop, SCALAR)
        if loop.vector and self.vector is None:
            inner = loop.body[0] if len(loop.body) == 1 else None
            if isinstance(inner, ir.For) and inner.vector:
                self.tile_loop(loop, inner, start, stop)
            else:
                self.vector_loop(loop, start, stop)
            return
        partials = [] if self.vector is not None else self._partials_across(loop)
        self.serial_loop(loop.var, start, stop, loop.body, max(1, loop.unroll))
        for partial in partials:
            self._combine(partial)

    def tile_loop(self, outer: ir.For, inner: ir.For, start: Vec, stop: Vec) -> None:
        """Two vector loops, one directly in the other."""
        self.serial_loop(outer.var, start, stop, outer.body, 1)

    def serial_loop(self, var: str, start: Vec, stop: Vec, body: ir.Block, unroll: int) -> None:
        phases = [Phase(1, unroll), Phase(1, 1)] if unroll > 1 else [Phase(1, 1)]

        def turn(phase: Phase, at: Vec) -> None:
            for copy in range(phase.parts):
                if copy:
                    level = self.scope.levels[-1]
                    again = Level("loop", level.stored, level.accumulated, level.preheader)
                    self.scope.pop()
                    self.scope.push(again)
                value = at + copy if copy else at
                self.scope.bind(var, Binding(ir.INT64, self.scope.depth, values={SCALAR: value}))
                self.block(body)

        self.counted_loop(start, stop, phases, body, turn)

    def vector_loop(self, loop: ir.For, start: Vec, stop: Vec) -> None:
        phases = self.phases_of(loop)
        partials = self._open_reductions(loop.body, phases)

        def turn(phase: Phase, at: Vec) -> None:
            depth = self.scope.depth
            if phase.lanes == 1:
                self.scope.bind(loop.var, Binding(ir.INT64, depth, values={SCALAR: at}))
                self.block(loop.body)
                return
            masks = {0: self.mask_of_rest(stop - at, phase.lanes)} if phase.is_masked else {}
            self.vector = VectorMode(loop.var, phase.lanes, phase.parts, masks)
            binding = Binding(ir.INT64, depth, True, values={SCALAR: at})
            self.scope.bind(loop.var, binding)
            self.block(loop.body)
            self.vector = None

        self.counted_loop(start, stop, phases, loop.body, turn, partials)

    def phases_of(self, loop: ir.For) -> list[Phase]:
        shape = shape_of(loop, self.builder.target)
        first = Phase(shape.lanes, shape.parts)
        if self.builder.has_masks:
            return [first, Phase(shape.lanes, 1, True)]
        middle = [Phase(shape.lanes, 1)] if shape.parts > 1 else []
        return [first, *middle, Phase(1, 1)]

    def mask_of_rest(self, rest: Vec, lanes: int) -> Vec:
        """The first `rest` lanes."""
        b = self.builder
        bits = max(8, b.target.vector_bits // lanes)
        t = VType("i", min(bits, 64), lanes)
        limit = b.intrinsic("umin", rest, b.constant(lanes, I64)).convert("trunc", t.scalar)
        return b.iota(t).compare("lt", b.broadcast(limit, lanes), signed=False)

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
        carried = [binding for name in sorted(changed) if (binding := self._bound(name))]
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
            self._combine(partial)
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

    def _bound(self, name: str) -> Binding | None:
        try:
            return self.scope.binding(name)
        except KeyError:
            return None

    def _open_reductions(self, body: ir.Block, phases: Sequence[Phase]) -> list[Partials]:
        """Sets the accumulators a vector loop reduces into to partial results."""
        found = []
        for reduction in self._reductions(body):
            bindings = [self.scope.binding(name) for name in reduction.names]
            if bindings[0].is_partial:
                continue
            found.append(Partials(reduction, bindings, [x.values[SCALAR] for x in bindings]))
            keys: dict[int, int] = dict.fromkeys(range(phases[0].parts), phases[0].lanes)
            if phases[-1].lanes == 1:
                keys[SCALAR] = 1
            for binding in bindings:
                binding.values, binding.is_partial = {}, True
            for key, lanes in keys.items():
                for binding, value in zip(
                    bindings, reduction.neutral(self.builder, lanes), strict=True
                ):
                    binding.values[key] = value
        return found

    def _combine(self, partial: Partials) -> None:
        """Partial results become one, on top of what was there before."""
        bindings = partial.bindings
        keys = list(bindings[0].values)
        vectors = [[x.values[key] for x in bindings] for key in keys if key != SCALAR]
        total = partial.reduction.combine(vectors)
        if SCALAR in keys:
            total = partial.reduction.step(total, [x.values[SCALAR] for x in bindings])
        total = partial.reduction.step(partial.before, total)
        for binding, value in zip(bindings, total, strict=True):
            binding.values, binding.is_partial = {SCALAR: value}, False

    def _reductions(self, body: ir.Block) -> list[Reduction]:
        """What a vector loop accumulates outside of itself."""
        found: dict[tuple[str, ...], Reduction] = {}
        for stmt in _accumulations(body):
            names = (stmt.name,) if isinstance(stmt, ir.Accumulate) else (stmt.best, stmt.at)
            bindings = [self._bound(name) for name in names]
            known = [binding for binding in bindings if binding is not None]
            if len(known) == len(names):
                found[names] = reduction_of(stmt, tuple(binding.dtype for binding in known))
        return list(found.values())

    def _partials_across(self, loop: ir.For) -> list[Partials]:
        """Reductions of vector loops inside a serial one whose partial results can stay apart."""
        vector_loops = [inner for inner in _loops(loop.body) if inner.vector]
        opened = []
        for inner in vector_loops:
            phases = self.phases_of(inner)
            names = accumulators_changed(inner.body)
            others = [other for other in vector_loops if other is not inner]
            elsewhere = {*_accumulated_outside_vectors(loop.body), *_names_read(loop.body)}
            if any(accumulators_changed(other.body) & names for other in others):
                continue
            if names & elsewhere or not all(self._bound(name) for name in names):
                continue
            opened += self._open_reductions(inner.body, phases)
        return opened

    def branch(self, stmt: ir.If) -> None:
        """A condition that is the same in all lanes: a jump."""
        b, scope = self.builder, self.scope
        cond = self.value(stmt.cond, SCALAR)
        names = sorted(accumulators_changed((*stmt.then, *stmt.else_)))
        carried = [binding for name in names if (binding := self._bound(name))]
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


def _position(bindings: Sequence[Binding], wanted: Binding) -> int:
    return next(at for at, binding in enumerate(bindings) if binding is wanted)


def _is_flat(stmt: ir.If) -> bool:
    inner = (*stmt.then, *stmt.else_)
    return all(
        _is_flat(one) if isinstance(one, ir.If) else not isinstance(one, ir.For) for one in inner
    )


def _accumulations(block: ir.Block) -> Iterator[ir.Accumulate | ir.AccumulateArg]:
    for stmt in block:
        if isinstance(stmt, ir.Accumulate | ir.AccumulateArg):
            yield stmt
        for inner in ir.blocks(stmt):
            yield from _accumulations(inner)


def _loops(block: ir.Block) -> Iterator[ir.For]:
    """The loops in a block, without those inside vector loops."""
    for stmt in block:
        if isinstance(stmt, ir.For):
            yield stmt
            if stmt.vector:
                continue
        for inner in ir.blocks(stmt):
            yield from _loops(inner)


def _accumulated_outside_vectors(block: ir.Block) -> Iterator[str]:
    for stmt in block:
        match stmt:
            case ir.Accumulate(name):
                yield name
            case ir.AccumulateArg(best, at):
                yield from (best, at)
            case ir.For(vector=True):
                continue
        for inner in ir.blocks(stmt):
            yield from _accumulated_outside_vectors(inner)


def _names_read(block: ir.Block) -> Iterator[str]:
    for stmt in block:
        stack = list(ir.expressions(stmt))
        while stack:
            expr = stack.pop()
            if isinstance(expr, ir.Name):
                yield expr.name
            stack += ir.children(expr)
        for inner in ir.blocks(stmt):
            yield from _names_read(inner)
