"""Do the threads of a group keep out of each other's way? Barriers where they must and may be.

In: a GroupKernel whose names and dtypes are right. Out: nothing, or a complaint. A walk over the
statements, loops walked twice so that the end of a body meets its beginning:

    between two steps of which one stores        a barrier, since arrays may share bytes in place
    between a store to a shared array and a load a barrier, inside a thread loop too
    a barrier, or a sum over the group           not under a condition, not in a plain vector loop

A step is a vector loop, or a statement outside of one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn

from arenite.codegen import loop_ir as ir

Complain = Callable[[str], NoReturn]
#: Is told which arrays are read, which are written, and by what.
Step = Callable[[set[str], set[str], str], None]


@dataclass(slots=True)
class _Touched:
    """Arrays that were read and written since the last barrier."""

    reads: set[str] = field(default_factory=set)
    writes: set[str] = field(default_factory=set)

    def clear(self) -> None:
        self.reads.clear()
        self.writes.clear()


def check_group(kernel: ir.GroupKernel, complain: Complain) -> None:
    """Complains if threads could see each other's work half done."""
    if kernel.threads < 1 or any(array.count < 1 for array in kernel.shared):
        complain(f"{kernel.threads} threads and shared arrays {kernel.shared} are none")
    if kernel.index_dtype not in (ir.INT64, ir.INT32):
        complain(f"indices are {kernel.index_dtype}, and must be int32 or int64")
    steps = _Steps(kernel, complain)
    steps.block(kernel.body, True, steps.step, steps.open)


class _Steps:
    def __init__(self, kernel: ir.GroupKernel, complain: Complain) -> None:
        self.kernel = kernel
        self.complain = complain
        self.shared = {array.name for array in kernel.shared}
        self.open = _Touched()
        self.inside = _Touched()  # of a thread loop: shared arrays alone

    def block(self, block: ir.Block, is_certain: bool, step: Step, since: _Touched) -> None:
        """Statements outside of vector loops, or what each thread does in a thread loop;
        `is_certain` where no condition is around them."""
        for stmt in block:
            match stmt:
                case ir.Barrier():
                    if not is_certain:
                        self.complain("a barrier stands under a condition")
                    since.clear()
                case ir.For(vector=True) if since is self.open:
                    if not is_certain and _combines(stmt, self.kernel.threads):
                        self.complain(f"the group sums {stmt.var} up under a condition")
                    step(*touched((stmt,)), "a vector loop")
                    self.vector_loop(stmt)
                case ir.For():
                    for _ in range(2):
                        step(*_of_expressions(stmt), "the bounds of a loop")
                        self.block(stmt.body, is_certain, step, since)
                case ir.Foreign():
                    if not is_certain:
                        self.complain("foreign text stands under a condition")
                    step(*touched((stmt,)), "foreign text")
                case ir.If():
                    step(*_of_expressions(stmt), "a condition")
                    for inner in ir.blocks(stmt):
                        self.block(inner, False, step, since)
                case _:
                    step(*touched((stmt,)), "a statement")

    def step(self, reads: set[str], writes: set[str], what: str) -> None:
        if self.kernel.threads > 1:
            before = self.open
            if writes and (before.reads or before.writes):
                self.complain(
                    f"{what} stores to {', '.join(sorted(writes))} with no barrier behind what "
                    f"touched {', '.join(sorted(before.reads | before.writes))}"
                )
            if reads and before.writes:
                self.complain(
                    f"{what} reads {', '.join(sorted(reads))} with no barrier behind the stores "
                    f"to {', '.join(sorted(before.writes))}"
                )
        self.open.reads |= reads
        self.open.writes |= writes

    def vector_loop(self, loop: ir.For) -> None:
        has_barrier = any(isinstance(stmt, ir.Barrier) for stmt in ir.statements(loop.body))
        if not self.kernel.is_thread_loop(loop):
            if has_barrier:
                self.complain(
                    f"a barrier stands in the vector loop over {loop.var}, of which threads run "
                    f"different numbers of iterations; only a loop over 0 .. {self.kernel.threads} "
                    "may hold one"
                )
            if {*touched(loop.body)[0]} & {*touched(loop.body)[1]} & self.shared:
                self.complain(f"iterations of {loop.var} read a shared array that others write")
            return
        self.inside.clear()
        self.block(loop.body, True, self.thread_step, self.inside)

    def thread_step(self, reads: set[str], writes: set[str], what: str) -> None:
        """Statements of one thread against another's."""
        reads, writes = reads & self.shared, writes & self.shared
        clash = (reads & self.inside.writes) | (writes & self.inside.reads) | (reads & writes)
        if clash and self.kernel.threads > 1:
            names = ", ".join(sorted(clash))
            self.complain(f"threads read and write {names} with no barrier between, at {what}")
        self.inside.reads |= reads
        self.inside.writes |= writes


def _combines(loop: ir.For, threads: int) -> bool:
    """Whether an accumulator from outside is changed inside."""
    inside = [*ir.statements(loop.body)]
    declared = {stmt.name for stmt in inside if isinstance(stmt, ir.Accumulator)}
    changed = {name for stmt in inside for name in ir.changed(stmt)}
    has_barrier = any(isinstance(stmt, ir.Barrier) for stmt in inside)
    return has_barrier or (threads > 1 and not changed <= declared)


def _of_expressions(stmt: ir.Stmt) -> tuple[set[str], set[str]]:
    """Arrays that the expressions directly in a statement read; none are written."""
    return {e.array for e in ir.walk(*ir.expressions(stmt)) if isinstance(e, ir.Load)}, set()


def touched(block: ir.Block) -> tuple[set[str], set[str]]:
    """Arrays that statements and all inside them read, and those they write."""
    reads: set[str] = set()
    writes: set[str] = set()
    for stmt in ir.statements(block):
        reads |= _of_expressions(stmt)[0]
        if isinstance(stmt, ir.Store):
            writes.add(stmt.array)
        elif isinstance(stmt, ir.Foreign):
            # What it reads of what it writes lies between barriers of its own.
            reads |= {*stmt.reads} - {*stmt.writes}
            writes |= {*stmt.writes}
    return reads, writes
