"""Plain loops become loops for groups of threads: barriers go in where threads need them.

In: a LoopKernel as builders make it, without a thought for threads. Out: a GroupKernel, one group a
tile. What is done one after another inside a tile, a row's maximum, its exponentials, its
quotients, stays so: between two steps of which one stores there is a barrier.
"""

from __future__ import annotations

from typing import NamedTuple

from arenite.codegen import loop_ir as ir
from arenite.codegen.group_check import touched
from arenite.errors import NotCompiled


class _Since(NamedTuple):
    """What was done since the last barrier."""

    reads: bool = False
    writes: bool = False

    def conflicts(self, later: _Since) -> bool:
        return (later.writes and (self.reads or self.writes)) or (later.reads and self.writes)

    def and_(self, other: _Since) -> _Since:
        return _Since(self.reads or other.reads, self.writes or other.writes)


def grouped(kernel: ir.LoopKernel, threads: int) -> ir.GroupKernel:
    """The same loops for groups of so many threads; of one, where there is no vector loop."""
    if not any(_is_vector(stmt) for stmt in ir.statements(kernel.body)):
        return ir.GroupKernel(*kernel.parts, threads=1)
    body, _ = _parted(kernel.body, _Since(), kernel.name)
    return ir.GroupKernel(*kernel.parts[:-1], body, threads=threads)


def _parted(block: ir.Block, since: _Since, name: str) -> tuple[ir.Block, _Since]:
    """The block with barriers, and what is left open at its end."""
    found: list[ir.Stmt] = []
    for stmt in block:
        if isinstance(stmt, ir.For) and not stmt.vector:
            _, at_end = _parted(stmt.body, since, name)
            body, since = _parted(stmt.body, since.and_(at_end), name)
            found.append(ir.For(stmt.var, stmt.start, stmt.stop, body, False, stmt.unroll))
            continue
        own = _Since(*map(bool, touched((stmt,))))
        if since.conflicts(own):
            found.append(ir.Barrier())
            since = _Since()
        if isinstance(stmt, ir.If):
            _refuse_order(stmt, name)
        found.append(stmt)
        since = since.and_(own)
    return tuple(found), since


def _refuse_order(stmt: ir.If, name: str) -> None:
    """Threads do not meet under a condition, so what stands there must not need it."""
    if any(_is_vector(inner) for block in ir.blocks(stmt) for inner in ir.statements(block)):
        raise NotCompiled(f"{name}: loops of threads under a condition are not done in groups yet")


def _is_vector(stmt: ir.Stmt) -> bool:
    return isinstance(stmt, ir.For) and stmt.vector
