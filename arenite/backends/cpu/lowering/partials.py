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
from arenite.backends.cpu.lowering.scope import (
    SCALAR,
    Binding,
    Scope,
    accumulators,
    accumulators_changed,
)
from arenite.backends.cpu.lowering.vector import Builder, Vec
from arenite.backends.cpu.lowering.vectorize import Shape, shape_of
from arenite.codegen import loop_ir as ir


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of a loop: how much one turn does, and whether its last turn may be in part."""

    lanes: int
    parts: int
    is_masked: bool = False
    rest: int = 0  # lanes of the last turn, where they are known

    @property
    def step(self) -> int:
        return self.lanes * self.parts


@dataclass(slots=True)
class Partials:
    """A reduction while its accumulators hold partial results, and what they held before."""

    reduction: Reduction
    bindings: list[Binding]
    before: list[Vec]

    def combine(self) -> None:
        """Partial results become one, on top of what was there before."""
        keys = list(self.bindings[0].values)
        vectors = [[x.values[key] for x in self.bindings] for key in keys if key != SCALAR]
        total = self.reduction.combine(vectors)
        if SCALAR in keys:
            total = self.reduction.step(total, [x.values[SCALAR] for x in self.bindings])
        total = self.reduction.step(self.before, total)
        for binding, value in zip(self.bindings, total, strict=True):
            binding.values, binding.is_partial = {SCALAR: value}, False


def phases_of(loop: ir.For, builder: Builder) -> list[Phase]:
    """The phases of a vector loop."""
    shape = shape_of(loop, builder.target)
    first = Phase(shape.lanes, shape.parts)
    if shape.length is not None and shape.length > 0:
        return _known_phases(shape, shape.length, builder.has_masks)
    if builder.has_masks:
        return [first, Phase(shape.lanes, 1, True)]
    middle = [Phase(shape.lanes, 1)] if shape.parts > 1 else []
    return [first, *middle, Phase(1, 1)]


def _known_phases(shape: Shape, length: int, has_masks: bool) -> list[Phase]:
    """Those that a loop of known length has turns for; what is left is known, too."""
    n_vectors, rest = divmod(length, shape.lanes)
    phases = [Phase(shape.lanes, shape.parts)] if n_vectors >= shape.parts else []
    if n_vectors % shape.parts:
        phases.append(Phase(shape.lanes, 1))
    if rest:
        phases.append(Phase(shape.lanes, 1, True, rest) if has_masks else Phase(1, 1))
    return phases


def open_reductions(scope: Scope, body: ir.Block, phases: Sequence[Phase]) -> list[Partials]:
    """Sets the accumulators a vector loop reduces into to partial results."""
    opened = []
    for reduction in _reductions(scope, body):
        bindings = [scope.binding(name) for name in reduction.names]
        if bindings[0].is_partial:
            continue
        opened.append(Partials(reduction, bindings, [x.values[SCALAR] for x in bindings]))
        keys: dict[int, int] = dict.fromkeys(range(phases[0].parts), phases[0].lanes)
        if phases[-1].lanes == 1:
            keys[SCALAR] = 1
        for binding in bindings:
            binding.values, binding.is_partial = {}, True
        for key, lanes in keys.items():
            neutral = reduction.neutral(scope.builder, lanes)
            for binding, value in zip(bindings, neutral, strict=True):
                binding.values[key] = value
    return opened


def partials_across(scope: Scope, loop: ir.For) -> list[Partials]:
    """Reductions of vector loops inside a serial one whose partial results can stay apart."""
    inner_loops = {id(inner): inner for inner in _loops(loop.body) if inner.vector}
    changed = [(inner, accumulators_changed(inner.body)) for inner in inner_loops.values()]
    # Most accumulators are declared in the loops that change them.
    outside = [(inner, names) for inner, names in changed if names and all(map(scope.find, names))]
    if not outside:
        return []
    n_loops = Counter(name for _, names in changed for name in names)
    elsewhere = {*_accumulated_outside_vectors(loop.body), *_names_read(loop.body)}
    opened = []
    for inner, names in outside:
        if all(n_loops[name] == 1 for name in names) and not names & elsewhere:
            opened += open_reductions(scope, inner.body, phases_of(inner, scope.builder))
    return opened


def _reductions(scope: Scope, body: ir.Block) -> list[Reduction]:
    """What a vector loop accumulates outside of itself."""
    reductions: dict[tuple[str, ...], Reduction] = {}
    for stmt in ir.statements(body):
        if not isinstance(stmt, ir.Accumulate | ir.AccumulateArg):
            continue
        names = accumulators(stmt)
        bindings = [scope.find(name) for name in names]
        known = [binding for binding in bindings if binding is not None]
        if len(known) == len(names):
            reductions[names] = reduction_of(stmt, tuple(binding.dtype for binding in known))
    return list(reductions.values())


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
        yield from accumulators(stmt)
        if not (isinstance(stmt, ir.For) and stmt.vector):
            for inner in ir.blocks(stmt):
                yield from _accumulated_outside_vectors(inner)


def _names_read(block: ir.Block) -> Iterator[str]:
    roots = (expr for stmt in ir.statements(block) for expr in ir.expressions(stmt))
    return (expr.name for expr in ir.walk(*roots) if isinstance(expr, ir.Name))
