"""A checked run: launch by launch, with every byte watched. Slow; for tests and for debugging.

In: a program bound to its sizes and the arrays it gets. Out: what it returns; or UndeclaredAccess,
which names the first kernel, of those at load and of those in a run, that writes a byte it did not
declare, reads one it did not declare, or leaves a byte of its result unwritten. All memory is one
block, guards between:

    guard | arena | guard | input | guard | constant | guard | output | guard

Each launch runs twice, alone, with everything it does not declare to read filled with two
different patterns: a byte that changes outside its writes was written, a result that differs was
made from bytes that were not its own. Branches and loops are walked here, entry by entry; where a
value moves from place to place, its bytes are those at the address the kernel gets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arenite.backends.cpu.driver.native import BoundTable, Outcome
from arenite.backends.cpu.execution.host_calls import HostCalls
from arenite.dtype import Array
from arenite.errors import UndeclaredAccess
from arenite.ir.dim import bounds, evaluate, variables
from arenite.ir.element import unpacked
from arenite.memory import ValueId
from arenite.program.assemble import Assembly
from arenite.program.cached_kernel import CachedKernel
from arenite.program.places import Places
from arenite.program.skeleton import FIRST_IO
from arenite.program.table import ENTRY, NONE, LaunchTable, Op, aligned_empty
from arenite.program.value_spec import ValueSpec

GUARD_NBYTES = 256
#: What undeclared bytes hold: NaN and -1, then numbers below 1 that no other would absorb.
PATTERNS = (0xFF, 0x3F)
_READS = "makes from bytes it does not declare to read"


@dataclass(frozen=True, slots=True)
class BoundPart:
    """What is done at load, or in a run, at known sizes."""

    kernels: Sequence[CachedKernel]
    assembly: Assembly
    table: LaunchTable  # with addresses of code
    found: Mapping[str, int]  # cells of the sizes that are found while running
    hosts: HostCalls
    check_outcome: Callable[[Outcome], None]  # raises for a launch that failed


@dataclass(frozen=True, slots=True)
class BoundProgram:
    """What a checked run walks, one part after the other, over one memory."""

    values: Sequence[ValueSpec]
    outputs: Sequence[int]
    parts: Sequence[BoundPart]
    places: Places
    sizes: Mapping[str, int]


def run_checked(program: BoundProgram, given: Mapping[int, Array]) -> list[Array]:
    """The outputs; `given` are inputs and constants by number of their value."""
    memory = _Memory(program, given)
    sizes = program.sizes
    for part in program.parts:
        walk = _Walk(program, part, memory)
        for tick in walk.launches():
            walk.check(tick)
        sizes = walk.sizes
    results = []
    for number in program.outputs:
        value, start = program.values[number], memory.spans[number].start
        content = memory.bytes[start : start + evaluate(value.nbytes, sizes)].copy()
        shape = tuple(evaluate(size, sizes) for size in value.shape)
        results.append(unpacked(content, value.dtype, shape))
    return results


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
            if place.offset is not None:
                start = self.arena + place.offset
                self.spans[number] = slice(start, start + place.nbytes)
            elif place.io is not None:
                self.spans[number] = slice(at, at + place.nbytes)
                at = _behind(at + place.nbytes)
        self.bytes: NDArray[np.uint8] = aligned_empty(at, np.uint8)
        for number, array in given.items():
            self.bytes[self.spans[number]] = array.reshape(-1).view(np.uint8)
        self.base: int = self.bytes.__array_interface__["data"][0]


def _behind(end: int) -> int:
    """Where the next value may begin: behind a guard, on a line."""
    return -(-(end + GUARD_NBYTES) // 64) * 64


class _Walk:
    """A run of the table, one entry at a time."""

    def __init__(self, program: BoundProgram, part: BoundPart, memory: _Memory) -> None:
        self._program = program
        self._part = part
        self._memory = memory
        self._alone: dict[int, BoundTable] = {}
        places = program.places
        self._registers: NDArray[np.int64] = aligned_empty(part.table.n_registers, np.int64)
        part.assembly.fill(self._registers, places, memory.base + memory.arena, program.sizes)
        for number, place in places.items():
            if place.io is not None:
                address = memory.base + memory.spans[number].start
                self._registers[FIRST_IO + place.io] = address

    def launches(self) -> Iterator[int]:
        """The ticks of launches, in the order a run comes to them."""
        entries, registers = self._part.table.entries, self._registers
        self._run(len(entries) - 1)  # END: nothing but the instructions before all else
        tick = 0
        while True:
            entry, after = entries[tick], tick + 1
            op = Op(int(entry["op"]))
            if op is Op.END:
                return
            if op is Op.LAUNCH:
                yield tick
            elif op is Op.EVAL:
                self._run(tick)
            elif op is Op.IF:
                after = after if registers[entry["a"]] else int(entry["target"])
            elif op is Op.JUMP:
                after = int(entry["target"])
            elif op is Op.LOOP:
                registers[entry["a"]] = 0
                after = after if self._goes_on(entry) else int(entry["target"])
            elif op is Op.NEXT:
                registers[entry["a"]] += 1
                after = int(entry["target"]) if self._goes_on(entry) else after
            elif op is Op.SEGMENT:
                self._part.hosts.call(int(entry["a"]), registers, self.sizes)
            tick = after

    @property
    def sizes(self) -> dict[str, int]:
        """Those of the run, and those it has found so far."""
        first = self._part.assembly.first_cell
        found = {name: int(self._registers[first + k]) for name, k in self._part.found.items()}
        return {**self._program.sizes, **found}

    def _goes_on(self, entry: Any) -> bool:
        registers = self._registers
        holds = entry["c"] == NONE or registers[entry["c"]] != 0
        return bool(holds and registers[entry["a"]] < registers[entry["b"]])

    def _run(self, tick: int) -> None:
        """This one entry, by one thread."""
        if tick not in self._alone:
            self._alone[tick] = BoundTable(_only(self._part.table, tick), self._registers)
        outcome = self._alone[tick].run(bind=(0, self._part.assembly.n_bind))
        self._part.check_outcome(outcome._replace(site=tick))

    def check(self, tick: int) -> None:
        """Run a launch twice and compare."""
        memory = self._memory
        k = int(self._part.table.entries[tick]["kernel"])
        kernel = self._part.kernels[k]
        reads, writes = self._touched(k)
        before = memory.bytes.copy()
        is_written = np.zeros(len(before), np.bool_)
        for span in writes:
            is_written[span] = True
        made = []
        for pattern in PATTERNS:
            memory.bytes[:] = pattern
            for span in reads:
                memory.bytes[span] = before[span]
            start = memory.bytes.copy()
            self._run(tick)
            changed = np.flatnonzero((memory.bytes != start) & ~is_written)
            if len(changed):
                raise self._undeclared(k, "writes", int(changed[0]))
            made.append(memory.bytes.copy())
        one, other = made
        for number, span in zip(kernel.outs, writes, strict=False):
            if not self._knows_size(k, number):
                continue  # it is the one that finds it
            differs = span.start + np.flatnonzero(one[span] != other[span])
            if len(differs):
                at = int(differs[0])
                is_left = (one[at], other[at]) == PATTERNS
                raise self._undeclared(k, "leaves unwritten" if is_left else _READS, at)
        memory.bytes[:] = np.where(is_written, other, before)

    def _touched(self, k: int) -> tuple[list[slice], list[slice]]:
        """The bytes that launch `k` declares to read, and to write: results first."""
        launch = self._part.assembly.launches[k]
        spans = [self._span(k, number) for number in (*launch.reads, *launch.writes)]
        for at, start, end in launch.parts:
            spans[at] = slice(spans[at].start + start, spans[at].start + end)
        return spans[: len(launch.reads)], spans[len(launch.reads) :]

    def _knows_size(self, k: int, number: ValueId) -> bool:
        """Whether launch `k` gets the sizes that a value depends on, where they are found."""
        got = {
            var.name for size in self._part.assembly.launches[k].sizes for var in variables(size)
        }
        needed = variables(self._program.values[int(number)].nbytes)
        return all(var.name in got for var in needed if var.name in self._part.found)

    def _span(self, k: int, number: ValueId) -> slice:
        """The bytes of a value, as launch `k` gets it; as many as it may have, if it finds them."""
        memory, assembly = self._memory, self._part.assembly
        nbytes = self._program.values[int(number)].nbytes
        if number in memory.spans:
            span = memory.spans[number]
        else:
            position = assembly.launches[k].arrays.index(number)
            start = int(self._registers[assembly.skeleton.windows[k] + position]) - memory.base
            span = slice(start, start + bounds(nbytes)[1])
        is_found = any(var.name in self._part.found for var in variables(nbytes))
        if (number in memory.spans and not is_found) or not self._knows_size(k, number):
            return span
        return slice(span.start, span.start + evaluate(nbytes, self.sizes))

    def _undeclared(self, k: int, how: str, at: int) -> UndeclaredAccess:
        kernel, launch = self._part.kernels[k], self._part.assembly.launches[k]
        where = f"; it comes from {kernel.origins[0]}" if kernel.origins else ""
        names = [repr(self._program.values[int(number)].name) for number in launch.writes]
        for written, start, end in launch.parts:
            if written >= len(launch.reads):
                names[written - len(launch.reads)] += f" (bytes {start} to {end})"
        return UndeclaredAccess(
            f"kernel {kernel.entry_point} {how} {self._place_of(at)}; it declares to write "
            f"{', '.join(names) or 'nothing'}{where}"
        )

    def _place_of(self, at: int) -> str:
        """In words, with the values that have the byte at one time or another."""
        values, spans = self._program.values, self._memory.spans
        inside = [
            f"byte {at - span.start} of {values[int(number)].name!r}"
            for number, span in spans.items()
            if span.start <= at < span.stop
        ]
        if inside:
            return " and ".join(inside)
        ends = {span.stop: number for number, span in spans.items() if span.stop <= at}
        if not ends:
            return f"a byte {self._memory.arena - at} before the arena"
        last = max(ends)
        return f"a byte {at - last} behind the end of {values[int(ends[last])].name!r}"


def _only(table: LaunchTable, tick: int) -> LaunchTable:
    """A table of this one entry."""
    entry = table.entries[tick]
    is_launch = entry["op"] == Op.LAUNCH
    entries = aligned_empty(3, ENTRY)  # those that are zero: END
    if is_launch:
        entries[0]["op"], entries[0]["a"] = Op.BLOCK, 1
    entries[int(is_launch)] = entry
    entries["flags"] = entries["wait_count"] = 0
    return table._replace(entries=entries)
