"""How often a thread goes round its loops, all of them together: there are drivers that end loops
after so many turns (lavapipe after 65,535), and say nothing.

In: loops with int64 indices, and the bounds of sizes. Out: the most turns that a launch may take.
How long a loop is follows from the same facts as where accesses end (`bounds_proof.py`); text of
the device's own says it. A loop takes one turn more than it has, in which it finds that it ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import cache

from arenite.backends.webgpu.bounds_proof import Proof, Unproven, sizes_at_work
from arenite.codegen import loop_ir as ir
from arenite.codegen.maths import definitions
from arenite.dtype import DType
from arenite.errors import NotCompiled
from arenite.ir.dim import Dim, Var, bounds, substitute

#: Of a repetition inside of an op: bits of an exponent, or steps of a remainder.
_OF_AN_OP = 65


def refuse_long_loops(
    kernel: ir.GroupKernel, sizes: Mapping[str, Var], tiles: Dim, most: int
) -> None:
    """NotCompiled for a kernel whose threads may take more than so many turns."""
    try:
        turns = most_turns(kernel, sizes, tiles)
    except Unproven as reason:
        found = str(reason)
    else:
        if turns <= most:
            return
        found = f"here they may take {turns}"
    raise NotCompiled(
        f"{kernel.name}: this WebGPU device ends the loops of a thread after {most} turns, all "
        f"of them together; {found}"
    )


def most_turns(kernel: ir.GroupKernel, sizes: Mapping[str, Var], tiles: Dim) -> int:
    """Of a thread at the most; Unproven where that is not known."""
    known = sizes_at_work(sizes, tiles)
    counted = _Turns(kernel, {}, {name: known.get(var, var) for name, var in sizes.items()})
    counted.run(substitute(tiles, known))
    return counted.turns


class _Turns(Proof):
    """Walks the statements of a kernel as the proof does."""

    turns, times = 0, 1  # `times`: how often the statement is run
    is_in_vector = False

    def statement(self, stmt: ir.Stmt) -> None:
        outside = self.times, self.is_in_vector
        parts = ir.walk(*ir.expressions(stmt))
        self.turns += self.times * _OF_AN_OP * sum(map(_repeats, parts))
        super().statement(stmt)
        self.times, self.is_in_vector = outside

    def loop(self, loop: ir.For, first: Dim, last: Dim) -> None:
        most = self.most(last - first + 1, f"it is not known how long the one over {loop.var} is")
        if loop.vector and not self.is_in_vector:
            self.is_in_vector = True
            most = -(-most // self.kernel.threads)
            # What threads have found is combined by halves.
            found = {name for one in ir.statements(loop.body) for name in ir.changed(one)}
            self.turns += self.times * len(found) * self.kernel.threads.bit_length()
        self.turns += self.times * (most + 1)
        self.times *= most

    def foreign(self, stmt: ir.Foreign) -> None:
        if stmt.turns is None:
            if "for (" in stmt.text:
                raise Unproven("it is not known how many text of the device's own takes")
            return
        self.turns += self.times * self.most(
            self.value(stmt.turns), "it is not known how many text has"
        )

    def most(self, dim: Dim, reason: str) -> int:
        """What a polynomial is at most, at least 0; the best of all ways to look at it."""
        found: list[int] = []
        with suppress(Unproven):
            found.extend(bounds(-low)[1] for low in self.lows(-dim))
        self.n_steps = 0
        if not found:
            raise Unproven(reason)
        return max(0, min(found))

    def access(self, array: str, index: ir.Expr, mask: ir.Expr | None, *, is_read: bool) -> None:
        """Lies where it may."""

    def table(self) -> None:
        """Has no loop."""


def _repeats(expr: ir.Expr) -> bool:
    """Whether an expression is an op that repeats something."""
    match expr:
        case ir.Unary(op, x):
            return _has_loop(op, x.dtype)
        case ir.Binary(op, a):
            return _has_loop(op, a.dtype)
    return False


@cache
def _has_loop(op: str, dtype: DType) -> bool:
    function = definitions(has_fma=False, has_float64=False, is_ieee=False).op(op, dtype)
    if function is None:
        return False
    inside = [*ir.statements(function.body)]
    parts = [part for one in inside for part in ir.expressions(one)]
    is_loop = any(isinstance(one, ir.While) for one in inside)
    return is_loop or any(map(_repeats, ir.walk(*parts, function.result)))
