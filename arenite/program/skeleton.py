"""What no plan and no size changes of a launch table: entries, instructions, where numbers go.

In: steps with the launches in them, which values have an address of their own, cells and pointers.
Out: columns, so that a bind is a few steps over all of them, and so that a file can hold them.

    registers   r0 = 0, r1 = 1 | addresses of io values | cells | one window a launch: arrays,
                sizes, tiles
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arenite.ir.dim import Dim, bounds
from arenite.memory import ValueId
from arenite.memory.flat import Arrays
from arenite.program.dim_json import dim_from_json, dim_to_json
from arenite.program.places import Numbers
from arenite.program.steps import NO_CONDITION, ZERO, Cell, Pointer, Step, StepKind
from arenite.program.table import (
    ENTRY,
    INSTRUCTION,
    NONE,
    Flag,
    Ins,
    Op,
    aligned_copy,
    aligned_empty,
)

if TYPE_CHECKING:
    from arenite.program.launch import Launch

#: For estimates: trips of a loop that finds out while running, and an iteration by itself.
UNKNOWN_TRIPS = 1_000
LOOP_NS = 100
#: The first io register, behind those that hold 0 and 1.
FIRST_IO = 2
#: Estimated work from which a launch is shared that reads what a shared one has made.
FOLLOWING_FROM_NS = 500


def shared_of(launches: Sequence[Launch]) -> list[bool]:
    """Which launches workers share: long ones, and of shorter ones those that are cut like a shared
    one whose results they read, for these lie in the workers' caches."""
    found: list[bool] = []
    maker: dict[ValueId, int] = {}
    for number, launch in enumerate(launches):
        makers = [maker[value] for value in launch.reads if value in maker]
        follows = any(found[k] and launches[k].tiles == launch.tiles for k in makers)
        found.append(launch.is_shared or (follows and launch.cost_ns >= FOLLOWING_FROM_NS))
        maker |= dict.fromkeys(launch.writes, number)
    return found


class Skeleton(NamedTuple):
    """Columns have one element a launch unless something else is said."""

    first_cell: int
    n_registers: int
    n_syncs: int
    n_bind: int  # instructions that bring io addresses to the windows, the first there are
    cost_ns: int  # estimated work of a run, loops as long as they may get
    is_straight: bool  # launches alone, no branch and no loop
    dims: tuple[Dim, ...]
    entries: NDArray[Any]  # of ENTRY, without waits
    instructions: NDArray[Any]  # of INSTRUCTION
    windows: Numbers  # first register
    ticks: Numbers
    is_shared: NDArray[np.bool_]
    blocks: Numbers  # first launch and the one behind the last, block by block
    arena_slots: Numbers  # registers that get the address of a value of the arena,
    arena_values: Numbers  # and its number
    size_slots: Numbers  # registers that get a size,
    size_sources: Numbers  # and which of `dims` it is

    def data(self) -> dict[str, Any]:
        """What is no array, as JSON can have it."""
        return {name: getattr(self, name) for name in _SCALARS} | {
            "dims": [dim_to_json(dim) for dim in self.dims]
        }

    def arrays(self, prefix: str) -> Arrays:
        """The arrays, under names that begin with `prefix`."""
        columns = {prefix + name: getattr(self, name) for name in _COLUMNS}
        for name in ("entries", "instructions"):
            columns[prefix + name] = columns[prefix + name].view(np.uint8)
        return columns

    @classmethod
    def saved(cls, data: Mapping[str, Any], arrays: Arrays, prefix: str) -> Skeleton:
        """Read back; ValueError where a number leads out of what there is."""
        columns: dict[str, Any] = {name: arrays[prefix + name] for name in _COLUMNS}
        for name, item in (("entries", ENTRY), ("instructions", INSTRUCTION)):
            columns[name] = aligned_copy(columns[name].view(item))
        dims = tuple(map(dim_from_json, data["dims"]))
        made = cls(**{name: data[name] for name in _SCALARS}, dims=dims, **columns)
        made.check()
        return made

    def check(self) -> None:
        """That all registers, instructions and launches that are named are there."""
        entries, code, n = self.entries, self.instructions, self.n_registers
        if len(entries) == 0 or entries["op"][-1] != Op.END or not FIRST_IO <= n < 2**31:
            raise ValueError("a table without an end, or without registers")
        launches = entries[self.ticks]
        is_eval = entries["op"] == Op.EVAL
        first = entries["a"][is_eval].astype(np.int64)  # so that sums do not wrap around
        for what, numbers, limit in (
            ("window", self.windows, n),
            ("register of an address", self.arena_slots, n),
            ("register of a size", self.size_slots, n),
            ("size", self.size_sources, len(self.dims)),
            ("launch of a block", self.blocks, len(self.ticks) + 1),
            ("register of tiles", launches["tiles"], n),
            ("sync word", launches["sync"][launches["sync"] != NONE], self.n_syncs),
            ("jump", entries["target"], len(entries)),
            ("instruction", first + entries["b"][is_eval], len(code) + 1),
            *((f"operand {name}", code[name], n) for name in ("dst", "a", "b")),
        ):
            if len(numbers) and not (int(numbers.min()) >= 0 and int(numbers.max()) < limit):
                raise ValueError(f"a {what} is not below {limit}")
        if not (launches["op"] == Op.LAUNCH).all() or len(self.ticks) != len(self.is_shared):
            raise ValueError("the launches are not those of the table")
        if len(self.arena_slots) != len(self.arena_values) or self.n_bind > len(code):
            raise ValueError("not every address has a value")


_COLUMNS = Skeleton._fields[7:]
_SCALARS = Skeleton._fields[:6]


@dataclass(slots=True)
class Layout:
    """A table in the making. `io` are the values with an address of their own and its number,
    `late` the cells of sizes that are found while running."""

    launches: Sequence[Launch]
    io: Mapping[ValueId, int]
    steps: Sequence[Step]
    cells: Sequence[Cell] = ()
    pointers: Mapping[ValueId, Pointer] = field(default_factory=dict)
    late: Mapping[Dim, int] = field(default_factory=dict)
    _windows: list[int] = field(default_factory=list, init=False)
    _is_shared: list[bool] = field(default_factory=list, init=False)
    _ticks: list[int] = field(default_factory=list, init=False)
    _blocks: list[int] = field(default_factory=list, init=False)
    _n_syncs: int = field(default=0, init=False)
    _rows: list[dict[str, int]] = field(default_factory=list, init=False)
    _program: list[tuple[int, int, int, int]] = field(default_factory=list, init=False)

    @property
    def _first_cell(self) -> int:
        return FIRST_IO + len(self.io)

    def skeleton(self) -> Skeleton:
        needed = (len(one.arrays) + len(one.sizes) + 1 for one in self.launches)
        *windows, n_registers = accumulate(needed, initial=self._first_cell + len(self.cells))
        self._windows, self._is_shared = windows, shared_of(self.launches)
        address_slots: list[tuple[int, ValueId]] = []
        size_slots: list[tuple[int, Dim]] = []
        for launch, window in zip(self.launches, self._windows, strict=True):
            address_slots += [(window + k, value) for k, value in enumerate(launch.arrays)]
            sizes = enumerate((*launch.sizes, launch.tiles), window + len(launch.arrays))
            size_slots += [(slot, size) for slot, size in sizes if size not in self.late]
        for k, cell in enumerate(self.cells, self._first_cell):
            if cell.address is not None:
                address_slots.append((k, cell.address))
            elif cell.size is not None:
                size_slots.append((k, cell.size))
        io_moves = [
            (int(Ins.MOV), slot, FIRST_IO + self.io[value], 0)
            for slot, value in address_slots
            if value in self.io
        ]
        in_arena = [
            (slot, int(value))
            for slot, value in address_slots
            if value not in self.io and value not in self.pointers
        ]
        numbers = {size: k for k, size in enumerate(dict.fromkeys(size for _, size in size_slots))}
        self._program += io_moves
        self._lay_out_entries()
        return Skeleton(
            self._first_cell,
            n_registers,
            self._n_syncs,
            len(io_moves),
            self._cost_ns(),
            all(step.kind is StepKind.LAUNCH for step in self.steps),
            tuple(numbers),
            self._entries(),
            self._instructions(),
            np.array(self._windows, np.int64),
            np.array(self._ticks, np.int64),
            np.array(self._is_shared, np.bool_),
            np.array(self._blocks, np.int64),
            np.array([slot for slot, _ in in_arena], np.int64),
            np.array([value for _, value in in_arena], np.int64),
            np.array([slot for slot, _ in size_slots], np.int64),
            np.array([numbers[size] for _, size in size_slots], np.int64),
        )

    def _entries(self) -> NDArray[Any]:
        entries = aligned_empty(len(self._rows), ENTRY)
        fresh = {"sync": NONE, "tiles": NONE}
        for name in ENTRY.names or ():
            entries[name] = [row.get(name, fresh.get(name, 0)) for row in self._rows]
        return entries

    def _instructions(self) -> NDArray[Any]:
        instructions = aligned_empty(len(self._program), INSTRUCTION)
        if self._program:
            instructions[...] = np.array(self._program, dtype=INSTRUCTION)
        return instructions

    def _lay_out_entries(self) -> None:
        rows, steps = self._rows, self.steps
        open_ifs: list[int] = []
        open_loops: list[int] = []
        at = 0
        while at < len(steps):
            begin, step = at, steps[at]
            at += 1
            if step.kind is StepKind.LAUNCH:
                first = step.a
                while at < len(steps) and steps[at].kind is StepKind.LAUNCH:
                    at += 1
                stop = first + at - begin
                self._evaluate_here(self._pointer_moves(first, stop))
                self._block_rows(first, stop)
            elif step.kind is StepKind.EVAL:
                self._evaluate_here(
                    [(op, *map(self._register, rest)) for op, *rest in step.instructions]  # type: ignore[misc]
                )
            elif step.kind is StepKind.HOST:
                rows.append({"op": Op.SEGMENT, "a": step.a})
            elif step.kind is StepKind.IF:
                open_ifs.append(len(rows))
                rows.append({"op": Op.IF, "a": self._register(step.a)})
            elif step.kind is StepKind.ELSE:
                rows[open_ifs[-1]]["target"] = len(rows) + 1
                open_ifs[-1] = len(rows)
                rows.append({"op": Op.JUMP})
            elif step.kind is StepKind.END:
                rows[open_ifs.pop()]["target"] = len(rows)
            elif step.kind is StepKind.LOOP:
                open_loops.append(len(rows))
                condition = NONE if step.c == NO_CONDITION else self._register(step.c)
                registers = {"a": self._register(step.a), "b": self._register(step.b)}
                rows.append({"op": Op.LOOP, **registers, "c": condition})
            else:
                opened = open_loops.pop()
                rows.append({**rows[opened], "op": Op.NEXT, "target": opened + 1})
                rows[opened]["target"] = len(rows)
        rows.append({"op": Op.END})

    def _evaluate_here(self, instructions: list[tuple[int, int, int, int]]) -> None:
        if instructions:
            row = {"op": Op.EVAL, "a": len(self._program), "b": len(instructions)}
            self._rows.append(row)
            self._program.extend(instructions)

    def _register(self, cell: int) -> int:
        return 0 if cell == ZERO else self._first_cell + cell

    def _pointer_moves(self, first: int, stop: int) -> list[tuple[int, int, int, int]]:
        """What puts addresses of pointers and sizes found while running into the windows of a
        block."""
        moves: list[tuple[int, int, int, int]] = []
        for k in range(first, stop):
            launch = self.launches[k]
            cells = [
                pointer.cell if (pointer := self.pointers.get(value)) is not None else None
                for value in launch.arrays
            ]
            cells += [self.late.get(size) for size in (*launch.sizes, launch.tiles)]
            moves += [
                (int(Ins.MOV), self._windows[k] + position, self._register(cell), 0)
                for position, cell in enumerate(cells)
                if cell is not None
            ]
        return moves

    def _block_rows(self, first: int, stop: int) -> None:
        """A block of launches; each that may be waited for has a sync word, always the same."""
        n_shared = sum(self._is_shared[first:stop])
        self._blocks += [first, stop]
        flags = Flag.PARALLEL if n_shared else 0
        head = {"op": Op.BLOCK, "a": stop - first, "tiles": n_shared, "flags": flags}
        self._rows.append(head)
        for k in range(first, stop):
            launch, window = self.launches[k], self._windows[k]
            self._ticks.append(len(self._rows))
            row = {
                "op": Op.LAUNCH,
                "fn": launch.entry,
                "args": window,
                "tiles": window + len(launch.arrays) + len(launch.sizes),
                "kernel": k,
                "cost_ns": min(launch.cost_ns, 2**31),
            }
            if n_shared:
                row["sync"] = self._n_syncs
                self._n_syncs += 1
            if self._is_shared[k]:
                row["flags"] = Flag.SHARED
            self._rows.append(row)

    def _cost_ns(self) -> int:
        total, times = 0, [1]
        for step in self.steps:
            if step.kind is StepKind.LAUNCH:
                total += self.launches[step.a].cost_ns * times[-1]
            elif step.kind is StepKind.LOOP:
                size = self.cells[step.b].size
                times.append(times[-1] * (UNKNOWN_TRIPS if size is None else bounds(size)[1]))
                total += LOOP_NS * times[-1]
            elif step.kind is StepKind.NEXT:
                times.pop()
        return total
