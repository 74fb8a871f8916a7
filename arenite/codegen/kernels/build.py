"""A Kernel becomes a LoopKernel: passes over rows, reductions, epilogues, stores.

The stages of a kernel are dealt out to passes over its reduced axes; a stage that needs a finished
reduction comes in a later pass. Softmax over rows:

    for row in tile
        pass 1   m = max(x)
        pass 2   e = exp(x - m), kept in the output's row;  s = sum(e)
        pass 3   out = e / s
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TypeAlias

from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.built import Built, Scratch
from arenite.codegen.kernels.loops import BLOCK, Axis, nest
from arenite.codegen.kernels.values import (
    Scope,
    Values,
    cast,
    check_dtype,
    compute_dtype,
    guard_expr,
    index_expr,
    loop,
    neutral,
    read_dtype,
    stored_dtype,
    zero,
)
from arenite.codegen.kernels.window_bounds import Ends, ended, ends_of
from arenite.dtype import Kind
from arenite.errors import NotCompiled
from arenite.ir import OPS, Dim, Expr, Node, maximum, product
from arenite.ir.ops.access import (
    Guard,
    Index,
    Reduction,
    is_elementwise,
    is_view,
    linear,
    reduction_of,
    sources,
    space_vars,
)
from arenite.schedule.kernel import Kernel, Role, Stage, outer_index
from arenite.schedule.roots import is_made_up

#: A row value needed in two passes is kept, not computed again, from this many operations on.
KEEP_OPS = 8

_ROW = ir.Name("row")
#: A value in memory and the place of the element in it, in variables of the space; None for a
#: position that is compared or counted.
Access: TypeAlias = tuple[Node | None, Dim]


@dataclass(slots=True)
class Pass:
    """Stages that one walk over the reduced axes computes, then what follows from them."""

    walked: list[Stage]
    after: list[Stage]


class KernelBuilder:
    """Turns one kernel into loops."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.made = {stage.node: stage.role for stage in kernel.stages}
        self.names = {node: f"in{k}" for k, node in enumerate(kernel.inputs)}
        self.stores = {node: f"out{k}" for k, node in enumerate(kernel.outputs)}
        self.values = Values(self.names)
        for node in self.computed():
            check_dtype(node)
        self.kept = self._choose_kept()
        self.nest = nest(kernel, [place for _, place in self._accesses(kernel.stages, self.made)])
        self.point = self.nest.map_index(space_vars(kernel.space))
        self.outer_point = self.nest.map_index(outer_index(kernel.axes, space_vars(kernel.space)))

    def computed(self) -> Sequence[Node]:
        """Values whose elements it computes with."""
        return (*self.kernel.inputs, *self.made)

    def build(self) -> Built:
        loops = self.nest
        tile, scope = ir.Name("tile"), Scope()
        row_tile, chunk = _quotient_and_rest(tile, loops.n_chunks)
        row_tile, across = _quotient_and_rest(row_tile, loops.n_blocks)
        first: ir.Expr = row_tile * loops.tile_rows
        n_rows = index_expr(loops.n_rows)
        last: ir.Expr = ir.Binary("min", first + loops.tile_rows, n_rows)
        body = self._body(scope.inner(), chunk, across)
        axes, start, stop = loops.rows, first, last
        inner = loops.inner_rows
        if inner > 1 and loops.tile_rows % inner == 0:
            # Whole turns of the last row axis, which has a loop of its own.
            body = (self._loop(axes[-1], body),)
            axes, start, stop = axes[:-1], first // inner, last // inner
        row_scope = Scope()
        self._name_rows(row_scope, axes)
        rows = (ir.For("row", start, stop, (*row_scope.block, *body)),)
        return self.loop_kernel(loops.n_tiles, body if loops.n_rows == 1 else rows)

    def loop_kernel(
        self, n_tiles: Dim, block: ir.Block, scratch: tuple[Scratch, ...] = ()
    ) -> Built:
        arrays = [
            ir.ArrayArg(name, read_dtype(node.dtype), "in") for node, name in self.names.items()
        ]
        arrays += [
            ir.ArrayArg(name, stored_dtype(node.dtype), "inout" if self._is_reread(node) else "out")
            for node, name in self.stores.items()
        ]
        dims = (*self.kernel.space, *self._dims())
        return Built.of(self.kernel.name, arrays, dims, n_tiles, block, scratch)

    def _dims(self) -> list[Dim]:
        """All sizes the kernel may need, those in attributes too."""
        nodes = [*self.kernel.inputs, *self.made, *self.inlined()]
        found: list[Dim] = [dim for node in nodes for dim in node.shape]
        pending: list[object] = [value for node in nodes for _, value in node.attrs]
        while pending:
            value = pending.pop()
            if isinstance(value, tuple):
                pending += value
            elif isinstance(value, Expr):
                found.append(value)
        return found

    def inlined(self) -> list[Node]:
        found: dict[Node, None] = {}
        pending = list(self.made)
        while pending:
            node = pending.pop()
            if node not in found:
                found[node] = None
                pending += [v for v in node.inputs if v not in self.names]
        return list(found)

    def _is_reread(self, node: Node) -> bool:
        return any(place == self.stores[node] for place in self.kept.values()) or (
            self.made[node] is Role.ROW and self.kernel.axes != ()
        )

    def _name_rows(
        self, scope: Scope, axes: Sequence[Axis] | None = None, row: ir.Expr = _ROW
    ) -> None:
        """Take the row number apart into the row axes."""
        axes = self.nest.rows if axes is None else axes
        for k, axis in enumerate(axes):
            below = product([later.size for later in axes[k + 1 :]])
            if below != 1:
                inner = index_expr(maximum(below, 1))
                scope.let(axis.var.name, row // inner)
                row = row % inner
            else:
                scope.let(axis.var.name, row)
                row = ir.index(0)

    # What is read and written where, to choose the loops by.

    def _accesses(self, stages: Sequence[Stage], ready: Collection[Node]) -> list[Access]:
        """Where stages read and write memory, and the positions they compare or count; what is
        `ready` is not looked into."""
        space = space_vars(self.kernel.space)
        outer = outer_index(self.kernel.axes, space)
        found: list[Access] = []
        pending: list[tuple[Node, Index]] = []
        for stage in stages:
            index = space if stage.role is Role.ROW else outer
            if stage.node in self.stores:
                found.append((stage.node, linear(index, stage.node.shape)))
            if stage.role is Role.REDUCE:
                reduction = self.reduction(stage.node)
                for factor in reduction.factors(space):
                    pending.append((factor.node, factor.index))
                    found += [(None, guard.position) for guard in factor.guards]
                if reduction.op in ("argmax", "argmin"):
                    found.append((None, space[reduction.axes[0]]))
            else:
                pending += self._parts(stage.node, index, found)
        seen: set[tuple[Node, Index]] = set()
        while pending:
            node, index = pending.pop()
            if (node, index) in seen or node in ready:
                continue
            seen.add((node, index))
            if node in self.names:
                found.append((node, linear(index, node.shape)))
            elif node.op == "iota":
                found.append((None, index[node.attr("axis")]))
            elif not is_made_up(node):
                pending += self._parts(node, index, found)
        return found

    def _parts(self, node: Node, index: Index, found: list[Access]) -> list[tuple[Node, Index]]:
        if not is_elementwise(node) and not is_view(node):
            if is_made_up(node):
                return []
            raise NotCompiled(f"no kernel can do {node.op} yet")
        parts = sources(node, index)
        found += [(None, guard.position) for part in parts for guard in part.guards]
        return [(part.node, part.index) for part in parts]

    def reduction(self, node: Node) -> Reduction:
        reduction = reduction_of(node)
        assert reduction is not None
        return reduction

    # Passes.

    def _choose_kept(self) -> dict[Node, str]:
        """Row values that are not stored and too dear to compute twice, and whose row they use."""
        kept: dict[Node, str] = {}
        rows = [s.node for s in self.kernel.stages if s.role is Role.ROW]
        if not self.kernel.axes:
            return kept
        for node in rows:
            if node in self.stores:
                continue
            cost = sum(OPS[n.op].cost for n in self._below(node) if not is_view(n))
            users = [
                s for s in self.kernel.stages if node in self._below(s.node) and s.node != node
            ]
            if cost < KEEP_OPS or len(users) < 2:
                continue
            place = users[-1].node
            is_free = self.stores.get(place) not in (None, *kept.values())
            if place in rows and is_free and place.dtype == node.dtype:
                kept[node] = self.stores[place]
        return kept

    def _below(self, node: Node) -> dict[Node, None]:
        """What a node is computed from inside the kernel, itself included."""
        found: dict[Node, None] = {}
        pending = [node]
        while pending:
            current = pending.pop()
            if current not in found and current not in self.names:
                found[current] = None
                if current is node or current not in self.made or self.made[current] is Role.ROW:
                    pending += current.inputs
        return found

    def _passes(self) -> list[Pass]:
        passes: list[Pass] = []
        complete: set[Node] = set()
        for stage in self.kernel.stages:
            needs = {
                n
                for n in self._below(stage.node)
                if n is not stage.node and n in self.made and self.made[n] is not Role.ROW
            }
            if stage.role is Role.SCALAR:
                if not passes:
                    passes.append(Pass([], []))
                passes[-1].after.append(stage)
                continue
            walked_here = (
                stage.role is Role.REDUCE or stage.node in self.stores or stage.node in self.kept
            )
            if not walked_here:
                continue
            if not passes or not needs <= complete:
                complete |= {s.node for p in passes for s in (*p.walked, *p.after)}
                passes.append(Pass([], []))
            passes[-1].walked.append(stage)
        return passes

    def _body(self, scope: Scope, chunk: ir.Expr, across: ir.Expr) -> ir.Block:
        """What happens for one row, or for one chunk of the vector axis in it."""
        vector = self.nest.vector
        if vector is None or vector.is_reduced:
            self._row(scope)
            return scope.block
        inner = scope.inner()
        self._row(inner)
        loop = _chunk_loop(vector, chunk, self.nest.chunk, inner.block)
        if self.nest.across is not None:
            loop = _chunk_loop(self.nest.across, across, BLOCK, (loop,))
        return (*scope.block, loop)

    def _row(self, scope: Scope) -> None:
        if not self.kernel.axes:
            # All values first: a result may lie in the bytes of what another is computed from.
            values = [self.values.stored(s.node, self.point, scope) for s in self.kernel.stages]
            for stage, parts in zip(self.kernel.stages, values, strict=True):
                if stage.node in self.stores:
                    first = linear(self.point, stage.node.shape) * len(parts)
                    for k, value in enumerate(parts):
                        at = index_expr(first + k)
                        scope.statements.append(ir.Store(self.stores[stage.node], at, value))
            return
        self._walk_all(self._passes(), scope)

    def _walk_all(self, passes: Sequence[Pass], scope: Scope) -> None:
        for one in passes:
            self._walk(one, scope)
            for stage in one.after:
                self._scalar(stage.node, scope)

    def _walk(self, one: Pass, scope: Scope, part: tuple[ir.Expr, int] | None = None) -> None:
        """The accumulators, the loops over the reduced axes, and what they leave behind; of the
        vector axis one part alone, where its number and its length are given."""
        if not one.walked:
            return
        inner = Scope(scope)
        finishes: list[tuple[Node, str]] = []
        ends = self._ends(one.walked)
        self.values.proven = {guard for guards in ends.values() for guard in guards}
        for stage in one.walked:
            if stage.role is Role.REDUCE:
                finishes.append((stage.node, self.accumulate(stage.node, scope, inner)))
            else:
                self._store_row(stage.node, inner)
        block = inner.block
        for axis in reversed(self.nest.reduced):
            if part is not None and axis is self.nest.vector:
                block = (_chunk_loop(axis, *part, block),)
            else:
                block = (ended(self._loop(axis, block), axis, ends.get(axis, ())),)
        scope.statements += block
        for node, name in finishes:
            self.finish(node, name, scope)

    def _loop(self, axis: Axis, block: ir.Block) -> ir.For:
        return loop(axis.var.name, axis.size, *block, vector=axis is self.nest.vector)

    def _ends(self, walked: Sequence[Stage]) -> Ends:
        """Where loops over reduced axes end, if they are those of one reduction alone."""
        if len(walked) != 1 or walked[0].role is not Role.REDUCE:
            return {}
        reduction = self.reduction(walked[0].node)
        factors = reduction.factors(space_vars(self.kernel.space))
        if len(factors) != 1 or factors[0].guards:
            return {}
        index = self.nest.map_index(factors[0].index)
        return ends_of(self.nest, reduction.op, factors[0].node, index, self.names)

    def accumulate(self, node: Node, scope: Scope, inner: Scope) -> str:
        """Declare the accumulator outside the loops and feed it inside; its name."""
        reduction = self.reduction(node)
        name = self.values.fresh("acc")
        factors: list[ir.Expr] = []
        point = space_vars(self.kernel.space)
        for factor in reduction.factors(point):
            mask = guard_expr(self._mapped_guards(factor.guards), inner, self.values)
            index = self.nest.map_index(factor.index)
            value = self.values.at(factor.node, index, inner, mask)
            wide = compute_dtype(node.dtype if reduction.op in ("add", "mul") else value.dtype)
            value = cast(value, wide)
            if mask is not None:
                value = ir.Select(mask, value, ir.Const(zero(wide), wide))
            factors.append(value)
        product_of = reduce(operator.mul, factors)
        op = reduction.op
        if op in ("argmax", "argmin"):
            dtype = product_of.dtype
            scope.statements += [
                ir.Accumulator(name, ir.Const(neutral(op[3:], dtype), dtype)),
                ir.Accumulator(f"{name}_at", ir.index(ir.NO_INDEX)),
            ]
            at = index_expr(self.nest.map_index((point[reduction.axes[0]],))[0])
            inner.statements.append(
                ir.AccumulateArg(name, f"{name}_at", op, product_of, at)  # type: ignore[arg-type]
            )
            return name
        if product_of.dtype.kind is Kind.BOOL:
            op = {"max": "or", "min": "and"}.get(op, op)
        start = ir.Const(neutral(op, product_of.dtype), product_of.dtype)
        scope.statements.append(ir.Accumulator(name, start))
        inner.statements.append(ir.Accumulate(name, op, product_of))
        return name

    def _mapped_guards(self, guards: tuple[Guard, ...]) -> tuple[Guard, ...]:
        return tuple(Guard(*self.nest.map_index((g.position, g.size))) for g in guards)

    def finish(self, node: Node, name: str, scope: Scope) -> None:
        """Name the reduced value for the stages that follow, and store it where it is an output."""
        reduction = self.reduction(node)
        if reduction.op in ("argmax", "argmin"):
            at = ir.Name(f"{name}_at")
            empty = ir.Binary("eq", at, ir.index(ir.NO_INDEX))
            value: ir.Expr = ir.Select(empty, ir.index(0), at)
        else:
            accumulators = [s for s in scope.statements if isinstance(s, ir.Accumulator)]
            held = next(one.init.dtype for one in accumulators if one.name == name)
            value = cast(ir.Name(name, held), node.dtype)
        self.name_scalar(node, value, scope)

    def _scalar(self, node: Node, scope: Scope) -> None:
        self.name_scalar(node, self.values.at(node, self.outer_point, scope, None), scope)

    def scalars(self, scope: Scope) -> None:
        """All that follows from finished reductions."""
        for stage in self.kernel.stages:
            if stage.role is Role.SCALAR:
                self._scalar(stage.node, scope)

    def name_scalar(self, node: Node, value: ir.Expr, scope: Scope) -> None:
        if not isinstance(value, ir.Name):
            value = self.values.named(value, scope)
        scope.known[node, self.outer_point, None] = value
        if node in self.stores:
            at = index_expr(linear(self.outer_point, node.shape))
            scope.statements.append(ir.Store(self.stores[node], at, value))

    def _store_row(self, node: Node, scope: Scope) -> None:
        value = self.values.at(node, self.point, scope, None)
        place = self.stores.get(node) or self.kept.get(node)
        if place is not None:
            at = index_expr(linear(self.point, node.shape))
            scope.statements.append(ir.Store(place, at, value))
            self.values.rereadable[node] = place


def _quotient_and_rest(number: ir.Expr, size: Dim) -> tuple[ir.Expr, ir.Expr]:
    """Quotient and remainder."""
    if size == 1:
        return number, ir.index(0)
    return number // index_expr(size), number % index_expr(size)


def _chunk_loop(axis: Axis, chunk: ir.Expr, length: int, block: ir.Block) -> ir.For:
    start = chunk * length
    stop = ir.Binary("min", start + length, index_expr(axis.size))
    return ir.For(axis.var.name, start, stop, block, vector=True)
