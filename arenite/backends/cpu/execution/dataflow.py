"""Whether every byte that is read was written last by the one whose value is meant.

Order alone does not show that: bytes of a loop's body over those of a carried value, or pointers
that change places at the wrong time, are perfectly ordered and wrong. So a table with branches and
loops is walked twice, in step. The schedule says, by nodes, whose value each kernel, condition and
trip count is meant to see; the table says, by registers, which bytes that is in truth, and who
wrote them last. They share the names of kernels, and nothing else.

Loops go round often enough for pointers to repeat (a carried value is read from three places at
most), and not at all, all of them or some; branches are taken either way, and in turns.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from arenite.backends.cpu.execution.meaning import (
    CONSTANT,
    CallEvent,
    Content,
    EndEvent,
    Event,
    LaunchEvent,
    LoadEvent,
    Meaning,
    Rows,
    StoreEvent,
    Way,
    Writer,
    packed,
    state,
    ways,
    with_found,
)
from arenite.errors import InvalidPlan
from arenite.ir.dim import evaluate
from arenite.ir.node import Node
from arenite.memory import ValueId
from arenite.program.assemble import Assembly
from arenite.program.compiled import Compiled
from arenite.program.places import Places
from arenite.program.skeleton import FIRST_IO
from arenite.program.steps import HostSpec
from arenite.program.table import Ins, LaunchTable, Op
from arenite.schedule import Kernel, Schedule

E = TypeVar("E", LaunchEvent, LoadEvent, StoreEvent, CallEvent)

#: Where memory begins, as far as this walk is concerned.
_ARENA = 1 << 20
_OUTSIDE = 1 << 44
#: A number that is found while running: sizes are cut to what there may be, as in a run.
_ANY = 1 << 40


def check_dataflow(
    schedule: Schedule,
    assembly: Assembly,
    table: LaunchTable,
    places: Places,
    sizes: Mapping[str, int],
    given: Mapping[ValueId, Writer],
    load: frozenset[str] = frozenset(),
    hosts: Sequence[HostSpec] = (),
) -> None:
    """InvalidPlan naming the first kernel that would see a byte of another value.

    `given` are the values that are there before a run, `load` the names of kernels that ran before,
    `hosts` the calls of the host by their number in the table.
    """
    sizes = with_found(schedule, sizes)
    for new_way in ways():
        meant = Meaning(schedule, sizes, new_way(), load).events()
        _Walk(assembly, table, places, sizes, given, hosts, meant).run(new_way())


def given_values(compiled: Compiled, states: Sequence[Node] = ()) -> dict[ValueId, Writer]:
    """What is in memory when a run begins: inputs, constants, what was made at load, and the
    states of the graph, which come in this order."""
    found: dict[ValueId, Writer] = {
        number: packed(f"{launch.name}.{k}")
        for launch in compiled.load
        for k, number in enumerate(launch.writes)
        if compiled.values[int(number)].kind == "packed"
    }
    for number, value in enumerate(compiled.values):
        if value.kind == "input":
            found[number] = f"input {value.source}"
        elif value.kind == "constant":
            found[number] = CONSTANT
        elif value.kind == "state":
            found[number] = state(states[value.source].attr("name"))
    return found


class _Memory:
    """Who wrote each byte last: stretches [starts[k], starts[k + 1]) of one writer."""

    def __init__(self) -> None:
        self.starts = [0]
        self.writers: list[Writer | None] = [None]

    def write(self, start: int, end: int, writer: Writer) -> None:
        if start >= end:
            return
        behind = self.writers[bisect_right(self.starts, end) - 1]
        first, last = bisect_left(self.starts, start), bisect_left(self.starts, end)
        starts: list[int] = [start]
        writers: list[Writer | None] = [writer]
        if last == len(self.starts) or self.starts[last] != end:
            starts.append(end)
            writers.append(behind)
        self.starts[first:last] = starts
        self.writers[first:last] = writers

    def stranger(self, start: int, end: int, writer: Writer | None) -> tuple[int, Writer | None]:
        """The first byte of another writer: (address, writer); (end, writer) if there is none."""
        k = bisect_right(self.starts, start) - 1
        at = start
        while at < end:
            if self.writers[k] != writer:
                return at, self.writers[k]
            k += 1
            at = self.starts[k] if k < len(self.starts) else end
        return end, writer


@dataclass(eq=False)
class _Walk:
    """What a table does, register by register."""

    assembly: Assembly
    table: LaunchTable
    places: Places
    sizes: Mapping[str, int]
    given: Mapping[ValueId, Writer]
    hosts: Sequence[HostSpec]
    meant: Iterator[Event]

    def __post_init__(self) -> None:
        self.memory, given = _Memory(), self.given
        registers = np.zeros(self.table.n_registers, np.int64)
        self.assembly.fill(registers, self.places, _ARENA, self.sizes)
        self.registers: list[int] = registers.tolist()
        for value, place in self.places.items():
            if place.io is not None:
                address = (place.io + 1) * _OUTSIDE
                self.registers[FIRST_IO + place.io] = address
                if value in given:
                    self.memory.write(address, address + place.nbytes, given[value])
            elif value in given and place.offset is not None:
                start = _ARENA + place.offset
                self.memory.write(start, start + place.nbytes, given[value])
        self._states = {writer: value for value, writer in given.items()}

    def run(self, way: Way) -> None:
        self._evaluate(0, self.assembly.n_bind)
        entries = self.table.entries
        tick = 0
        limits: list[int] = []  # of the loops around
        while True:
            entry = entries[tick]
            op, target = int(entry["op"]), int(entry["target"])
            tick += 1
            if op == Op.END:
                break
            if op == Op.LAUNCH:
                self._launch(int(entry["kernel"]))
            elif op == Op.EVAL:
                self._evaluate(int(entry["a"]), int(entry["b"]))
            elif op == Op.SEGMENT:
                self._call_host(self.hosts[int(entry["a"])])
            elif op == Op.IF:
                tick = tick if way.next_branch() else target
            elif op == Op.JUMP:
                tick = target
            elif op in (Op.LOOP, Op.NEXT):
                counter, trips = int(entry["a"]), int(entry["b"])
                done = 0 if op == Op.LOOP else self.registers[counter] + 1
                self.registers[counter] = done
                if op == Op.LOOP:
                    limits.append(way.next_loop())
                limit = min(limits[-1], self.registers[trips])
                if done >= limit:
                    limits.pop()
                if (done < limit) is (op == Op.NEXT):
                    tick = target
        for event in self.meant:
            if not isinstance(event, EndEvent):
                raise InvalidPlan(f"the table ends before {event!r}")
            place = self.places[self._states[state(event.state)]]
            assert place.offset is not None
            what = f"the end of a run, of state {event.state!r},"
            self._check(what, _ARENA + place.offset, place.nbytes, event.content)

    def _next(self, kind: type[E]) -> E:
        event = next(self.meant, None)
        if not isinstance(event, kind):
            raise InvalidPlan(f"the table has a {kind.__name__} where {event!r} is meant")
        return event

    def _launch(self, number: int) -> None:
        event = self._next(LaunchEvent)
        launch = self.assembly.launches[number]
        if launch.name != event.kernel.name:
            raise InvalidPlan(f"kernel {launch.name} runs where {event.kernel.name} is meant")
        kernel = event.kernel
        window = int(self.assembly.skeleton.windows[number])
        spans = []
        nodes = (*kernel.inputs, *kernel.outputs)
        for position, value in enumerate(launch.arrays):
            is_scratch = position >= len(nodes)
            nbytes = (
                self.places[value].nbytes
                if is_scratch
                else evaluate(nodes[position].nbytes, self.sizes)
            )
            address = self.registers[window + position]
            spans.append((address, address + nbytes))
        n = len(kernel.inputs)
        for position, content in enumerate(event.reads):
            start, end = spans[position]
            what = f"kernel {launch.name}, input {position}"
            self._check(what, start, end - start, content)
        for position in range(n, len(spans)):
            for k in range(n):
                self._check_in_place(kernel, spans, position, k)
            self.memory.write(*spans[position], event.writer)

    def _call_host(self, host: HostSpec) -> None:
        event = self._next(CallEvent)
        *reads, write = (self.registers[self.assembly.first_cell + k] for k in host.addresses)
        *sizes, made = (evaluate(nbytes, self.sizes) for nbytes in event.nbytes)
        for k, (address, nbytes) in enumerate(zip(reads, sizes, strict=True)):
            self._check(f"{event.name}, argument {k}", address, nbytes, event.reads[k])
        self.memory.write(write, write + made, event.writer)

    def _check_in_place(
        self, kernel: Kernel, spans: list[tuple[int, int]], position: int, k: int
    ) -> None:
        """That a kernel writes over what it reads only where each element is read before."""
        (start, end), (low, high) = spans[position], spans[k]
        if max(start, low) >= min(end, high):
            return
        written = position - len(kernel.inputs)
        pair = None
        if written < len(kernel.outputs):
            pair = (kernel.outputs[written], kernel.inputs[k])
        if pair not in kernel.in_place or start != low:
            raise InvalidPlan(
                f"kernel {kernel.name} writes over bytes of its input {k} that it may still read"
            )

    def _check(self, what: str, address: int, nbytes: int, content: Content) -> None:
        end = address + nbytes
        if content is None:
            return
        if isinstance(content, Rows):
            row_nbytes = evaluate(content.nbytes, self.sizes)
            for i, row in content.written.items():
                self._check(f"{what}, row {i}", address + i * row_nbytes, row_nbytes, row)
            if content.before is None:
                return
            address, content = address + len(content.written) * row_nbytes, content.before
        at, found = self.memory.stranger(address, end, content)
        if at < end:
            raise InvalidPlan(
                f"{what} would see byte {at - address} of {nbytes} as {_who(found)} left it; "
                f"meant is {_who(content)}"
            )

    def _evaluate(self, first: int, n: int) -> None:
        for one in self.table.instructions[first : first + n]:
            op, dst, a, b = (int(one[name]) for name in ("op", "dst", "a", "b"))
            x, y = self.registers[a], self.registers[b]
            if op in (Ins.LOAD8, Ins.LOAD64):
                loaded = self._next(LoadEvent)
                nbytes = 1 if op == Ins.LOAD8 else 8
                self._check(loaded.what, x + y, nbytes, loaded.content)
                self.registers[dst] = 1 if op == Ins.LOAD8 else _ANY
            elif op == Ins.STORE64:
                self.memory.write(x, x + 8, self._next(StoreEvent).writer)
            else:
                self.registers[dst] = _ARITHMETIC[op](x, y)


_ARITHMETIC: dict[int, Callable[[int, int], int]] = {
    Ins.MOV: lambda x, y: x,
    Ins.ADD: lambda x, y: x + y,
    Ins.SUB: lambda x, y: x - y,
    Ins.MUL: lambda x, y: x * y,
    Ins.DIV: lambda x, y: x // y if y > 0 else 0,
    Ins.MIN: min,
    Ins.MAX: max,
}


def _who(writer: Writer | None) -> str:
    if writer is None:
        return "nobody"
    return f"write {writer}" if isinstance(writer, int) else writer
