"""A checked run: launch by launch, with every byte watched. Slow; for tests and for debugging.

In: a program bound to its sizes and the arrays it gets. Out: what it returns; or UndeclaredAccess,
which names the first kernel that writes a byte it did not declare, reads one it did not declare,
or leaves a byte of its result unwritten. All memory of the run is one block, guards between:

    guard | arena | guard | input | guard | constant | guard | output | guard

Each launch runs twice, alone, with everything it does not declare to read filled with two
different patterns: a byte that changes outside its writes was written, a result that differs was
made from bytes that were not its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arenite.errors import NotSupported, UndeclaredAccess
from arenite.ir.dim import evaluate
from arenite.memory import ValueId
from arenite.runtime.assemble import Assembly, Place
from arenite.runtime.compiled import Compiled
from arenite.runtime.native import BoundTable, Outcome
from arenite.runtime.table import ENTRY, NONE, Flag, LaunchTable, Op, aligned_empty

Array = NDArray[Any]

GUARD_NBYTES = 256
#: What undeclared bytes hold: NaN and -1, then numbers below 1 that no other would absorb.
PATTERNS = (0xFF, 0x3F)
_STRAIGHT = (Op.END, Op.BLOCK, Op.LAUNCH)


@dataclass(frozen=True, slots=True)
class BoundProgram:
    """A program at known sizes: what a checked run walks."""

    compiled: Compiled
    assembly: Assembly
    table: LaunchTable  # with addresses of code
    bind: tuple[int, int]  # (first, count) of the instructions that run before all else
    places: Mapping[ValueId, Place]
    sizes: Mapping[str, int]


def run_checked(
    program: BoundProgram, given: Mapping[int, Array], check_outcome: Callable[[Outcome], None]
) -> list[Array]:
    """The outputs. `given` are inputs and constants by number of their value; `check_outcome`
    raises for a launch that failed."""
    ticks = _launches(program.table)
    memory = _Memory(program, given)
    for tick in ticks:
        k = int(program.table.entries[tick]["kernel"])
        _check_launch(program, memory, tick, k, check_outcome)
    values = program.compiled.values
    return [
        memory.bytes[memory.spans[number]]
        .copy()
        .view(values[number].dtype.to_numpy())
        .reshape([evaluate(size, program.sizes) for size in values[number].shape])
        for number in program.compiled.outputs
    ]


def _launches(table: LaunchTable) -> list[int]:
    """The ticks of launches in their order; NotSupported unless the table is straight."""
    for tick, op in enumerate(table.entries["op"].tolist()):
        if op not in _STRAIGHT:
            raise NotSupported(
                f"a checked run goes through launches one after another, and entry {tick} is a "
                f"{Op(op).name}; check the graph without its loops and branches"
            )
    return [int(tick) for tick in np.flatnonzero(table.entries["op"] == Op.LAUNCH)]


class _Memory:
    """One block for all values of a run, and where each lies in it."""

    def __init__(self, program: BoundProgram, given: Mapping[int, Array]) -> None:
        places = program.places
        arena_nbytes = max(
            (p.offset + p.nbytes for p in places.values() if p.offset is not None), default=0
        )
        self.arena = GUARD_NBYTES
        at = _behind(self.arena + arena_nbytes)
        self.spans: dict[ValueId, slice] = {}
        for number, place in places.items():
            if place.offset is None:
                self.spans[number] = slice(at, at + place.nbytes)
                at = _behind(at + place.nbytes)
            else:
                start = self.arena + place.offset
                self.spans[number] = slice(start, start + place.nbytes)
        self.bytes: NDArray[np.uint8] = aligned_empty(at, np.uint8)
        for number, array in given.items():
            self.bytes[self.spans[number]] = array.reshape(-1).view(np.uint8)
        base = self.bytes.__array_interface__["data"][0]
        self.registers: NDArray[np.int64] = aligned_empty(program.table.n_registers, np.int64)
        program.assembly.fill(self.registers, places, base + self.arena, program.sizes)
        for number, place in places.items():
            if place.io is not None:
                register = program.assembly.layout.io + place.io
                self.registers[register] = base + self.spans[number].start


def _behind(end: int) -> int:
    """Where the next value may begin: behind a guard, on a line."""
    return -(-(end + GUARD_NBYTES) // 64) * 64


def _check_launch(
    program: BoundProgram,
    memory: _Memory,
    tick: int,
    k: int,
    check_outcome: Callable[[Outcome], None],
) -> None:
    launch = program.compiled.launches[k]
    bound = BoundTable(_only(program.table, tick), memory.registers)
    before = memory.bytes.copy()
    is_written = np.zeros(len(before), np.bool_)
    for number in launch.writes:
        is_written[memory.spans[number]] = True
    outcomes = []
    for pattern in PATTERNS:
        memory.bytes[:] = pattern
        for number in launch.reads:
            memory.bytes[memory.spans[number]] = before[memory.spans[number]]
        start = memory.bytes.copy()
        check_outcome(replace(bound.run(bind=program.bind), site=tick))
        changed = np.flatnonzero((memory.bytes != start) & ~is_written)
        if len(changed):
            raise _undeclared(program, memory, k, "writes", int(changed[0]))
        outcomes.append(memory.bytes.copy())
    one, other = outcomes
    for number in program.compiled.kernels[k].outs:
        span = memory.spans[number]
        differs = span.start + np.flatnonzero(one[span] != other[span])
        if len(differs):
            at = int(differs[0])
            is_left = (one[at], other[at]) == PATTERNS
            how = "leaves unwritten" if is_left else "makes from bytes it does not declare to read"
            raise _undeclared(program, memory, k, how, at)
    memory.bytes[:] = np.where(is_written, other, before)


def _only(table: LaunchTable, tick: int) -> LaunchTable:
    """A table of this one launch, by one thread."""
    entries = aligned_empty(3, ENTRY)
    entries["guard"] = entries["sync"] = entries["tiles"] = NONE
    entries[0]["op"], entries[0]["a"], entries[0]["tiles"] = Op.BLOCK, 1, 0
    entries[1] = table.entries[tick]
    entries[1]["flags"] &= np.uint8(Flag.FN_REGISTER)
    entries[1]["wait_count"], entries[1]["sync"] = 0, NONE
    entries[2]["op"] = Op.END
    return replace(table, entries=entries)


def _undeclared(
    program: BoundProgram, memory: _Memory, k: int, how: str, at: int
) -> UndeclaredAccess:
    kernel = program.compiled.kernels[k]
    where = f"; it comes from {kernel.origins[0]}" if kernel.origins else ""
    launch = program.compiled.launches[k]
    names = [program.compiled.values[int(number)].name for number in launch.writes]
    return UndeclaredAccess(
        f"kernel {kernel.entry_point} {how} {_place_of(program, memory, at)}; it declares to "
        f"write {', '.join(map(repr, names)) or 'nothing'}{where}"
    )


def _place_of(program: BoundProgram, memory: _Memory, at: int) -> str:
    """In words, with the values that have the byte at one time or another."""
    values = program.compiled.values
    inside = [
        f"byte {at - span.start} of {values[int(number)].name!r}"
        for number, span in memory.spans.items()
        if span.start <= at < span.stop
    ]
    if inside:
        return " and ".join(inside)
    ends = {span.stop: number for number, span in memory.spans.items() if span.stop <= at}
    if not ends:
        return f"a byte {memory.arena - at} before the arena"
    last = max(ends)
    return f"a byte {at - last} behind the end of {values[int(ends[last])].name!r}"
