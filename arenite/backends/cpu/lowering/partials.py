"""Partial results of reductions: where vector loops keep them, and when they become one.

While a vector loop runs, an accumulator declared outside of it stands for one value in each lane of
each vector, and one more for the elements that are done singly. The loop combines them when it
ends; a serial loop around it that does not look at the accumulator in between puts that off.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from arenite.backends.cpu.lowering.reduction import Reduction, reduction_of
from arenite.backends.cpu.lowering.scope import SCALAR, Binding, accumulators_changed
from arenite.backends.cpu.lowering.statements import Statements
from arenite.backends.cpu.lowering.vector import Vec
from arenite.backends.cpu.lowering.vectorize import shape_of
from arenite.codegen import loop_ir as ir


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


class PartialResults(Statements):
    """Statements that also open and close reductions."""

    def phases_of(self, loop: ir.For) -> list[Phase]:
        shape = shape_of(loop, self.builder.target)
        first = Phase(shape.lanes, shape.parts)
        if self.builder.has_masks:
            return [first, Phase(shape.lanes, 1, True)]
        middle = [Phase(shape.lanes, 1)] if shape.parts > 1 else []
        return [first, *middle, Phase(1, 1)]

    def bound(self, name: str) -> Binding | None:
        try:
            return self.scope.binding(name)
        except KeyError:
            return None

    def open_reductions(self, body: ir.Block, phases: Sequence[Phase]) -> list[Partials]:
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

    def combine(self, partial: Partials) -> None:
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
            bindings = [self.bound(name) for name in names]
            known = [binding for binding in bindings if binding is not None]
            if len(known) == len(names):
                found[names] = reduction_of(stmt, tuple(binding.dtype for binding in known))
        return list(found.values())

    def partials_across(self, loop: ir.For) -> list[Partials]:
        """Reductions of vector loops inside a serial one whose partial results can stay apart."""
        changed = {
            id(inner): (inner, accumulators_changed(inner.body))
            for inner in _loops(loop.body)
            if inner.vector
        }
        n_loops = Counter(name for _, names in changed.values() for name in names)
        if not n_loops:
            return []
        elsewhere = {*_accumulated_outside_vectors(loop.body), *_names_read(loop.body)}
        opened = []
        for inner, names in changed.values():
            if any(n_loops[name] > 1 for name in names) or names & elsewhere:
                continue
            if names and all(self.bound(name) for name in names):
                opened += self.open_reductions(inner.body, self.phases_of(inner))
        return opened


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
        for expr in ir.walk(*ir.expressions(stmt)):
            if isinstance(expr, ir.Name):
                yield expr.name
        for inner in ir.blocks(stmt):
            yield from _names_read(inner)
