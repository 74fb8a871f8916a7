"""Layout: steps and launches become the skeleton of a launch table. Only compiling needs it: a
program from a file has its skeleton there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from arenite.ir.dim import Dim, bounds
from arenite.memory import ValueId
from arenite.program.skeleton import FIRST_IO, Skeleton, shared_of
from arenite.program.steps import NO_CONDITION, ZERO, Cell, Pointer, Step, StepKind
from arenite.program.table import ENTRY, INSTRUCTION, NONE, Flag, Ins, Op, aligned_empty

if TYPE_CHECKING:
    from arenite.program.launch import Launch

#: For estimates: trips of a loop that finds out while running, and an iteration by itself.
UNKNOWN_TRIPS = 1_000
LOOP_NS = 100


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
