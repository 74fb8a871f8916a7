"""Steps, launches and a plan become a launch table: who waits for whom, where arguments lie.

In: steps with the launches in them, the values launches touch, where each value lives, and the
sizes as variables. Out: entries, sync words and the layout of the register file. Order inside a
block is found from byte ranges on final addresses, so reuse of bytes is ordered like any other
hazard; between blocks everything is ordered.

    registers   r0 = 0, r1 = 1 | addresses of io values | cells | one window a launch: arrays,
                sizes, tiles

What no plan and no size changes is laid out once; a bind fills in columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arenite.hazards import BufferRange, Edge, Launch, Order, Role, order, verify
from arenite.ir.dim import Dim, bounds, evaluate
from arenite.memory import ValueId
from arenite.memory.plan import CONCURRENCY, MEMORY
from arenite.runtime.apart import apart, pointed_to
from arenite.runtime.steps import NO_CONDITION, ZERO, Cell, Pointer, Step, StepKind, straight
from arenite.runtime.table import (
    ENTRY,
    INSTRUCTION,
    NONE,
    Flag,
    Ins,
    LaunchTable,
    Op,
    Reason,
    aligned_copy,
    aligned_empty,
)

#: Estimated work from which a launch is shared among workers.
SHARED_FROM_NS = 5_000
#: For estimates: trips of a loop that finds out while running, and an iteration by itself.
UNKNOWN_TRIPS = 1_000
LOOP_NS = 100
#: Values up to which a new plan is compared with known ones, and how many of these are kept.
MAX_COMPARED = 1_000
MAX_KNOWN = 4
#: The storage id of the arena in hazard ranges; values outside have others.
ARENA = 0


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """One launch: its code and the values and sizes it gets."""

    name: str
    entry: int  # offset in the code
    arrays: tuple[ValueId, ...]
    reads: tuple[ValueId, ...]
    writes: tuple[ValueId, ...]
    sizes: tuple[Dim, ...]
    tiles: Dim
    cost_ns: int

    @property
    def is_shared(self) -> bool:
        return self.cost_ns >= SHARED_FROM_NS and bounds(self.tiles)[1] > 1


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value lives: bytes of the arena, an address of its own in an io register, or, where
    it has neither, the bytes of the values it points to."""

    nbytes: int
    offset: int | None  # in the arena; None: outside
    io: int | None = None  # which of the io addresses
    targets: tuple[ValueId, ...] = ()


@dataclass(frozen=True, slots=True)
class Layout:
    """Which registers hold what."""

    io: int  # first address register
    cells: int  # first cell
    windows: tuple[int, ...]  # first register of each launch's window
    n_registers: int


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Entries with their waits, which are the same for many plans."""

    entries: NDArray[Any]
    waits: list[int]


class Assembly:
    """The launches of one program, laid out once; bound anew for each plan and each size."""

    def __init__(
        self,
        launches: Sequence[LaunchSpec],
        io: Mapping[ValueId, int],
        steps: Sequence[Step] | None = None,
        cells: Sequence[Cell] = (),
        pointers: Mapping[ValueId, Pointer] | None = None,
        late: Mapping[Dim, int] | None = None,
        made_for: str = MEMORY,
    ) -> None:
        """`made_for` is what plans are made for: where that is concurrency, they share no bytes
        between launches that data leaves unordered, and data alone is waited for."""
        self.launches = tuple(launches)
        self.steps = straight(len(self.launches)) if steps is None else tuple(steps)
        self.cells = tuple(cells)
        self._io = dict(io)
        self._pointers = dict(pointers or {})
        self._late = dict(late or {})
        first_cell = 2 + len(self._io)
        at = first_cell + len(self.cells)
        windows = []
        for launch in self.launches:
            windows.append(at)
            at += len(launch.arrays) + len(launch.sizes) + 1
        self.layout = Layout(2, first_cell, tuple(windows), at)
        self._is_shared = [launch.is_shared for launch in self.launches]
        self._lay_out_registers()
        #: (first launch, launch behind the last) of each block
        self.blocks: list[tuple[int, int]] = []
        #: The tick of each launch, and the launch at a tick.
        self._ticks: list[int] = []
        self._template, self._instructions = self._lay_out_entries()
        self.launch_at = {tick: k for k, tick in enumerate(self._ticks)}
        self._touched = self._find_touched()
        self._known: list[tuple[NDArray[np.bool_], _Waiting]] = []
        self._for_data: _Waiting | None = None
        if made_for == CONCURRENCY:
            targets = {value: pointer.targets for value, pointer in self._pointers.items()}
            self._for_data = self._found_waits(apart(self.launches, targets))
        self.n_bind = len(self._io_moves)

    # What no plan and no size changes.

    def _lay_out_registers(self) -> None:
        """Which registers get an arena address, which a size; and how io addresses get around."""
        address_slots: list[tuple[int, ValueId]] = []
        size_slots: list[tuple[int, Dim]] = []
        for launch, window in zip(self.launches, self.layout.windows, strict=True):
            address_slots += [(window + k, value) for k, value in enumerate(launch.arrays)]
            sizes = enumerate((*launch.sizes, launch.tiles), window + len(launch.arrays))
            size_slots += [(slot, size) for slot, size in sizes if size not in self._late]
        for k, cell in enumerate(self.cells, self.layout.cells):
            if cell.address is not None:
                address_slots.append((k, cell.address))
            elif cell.size is not None:
                size_slots.append((k, cell.size))
        self._io_moves = [
            (Ins.MOV, slot, self.layout.io + self._io[value], 0)
            for slot, value in address_slots
            if value in self._io
        ]
        in_arena = [
            (slot, value)
            for slot, value in address_slots
            if value not in self._io and value not in self._pointers
        ]
        self._arena_values = list(dict.fromkeys(value for _, value in in_arena))
        number = {value: k for k, value in enumerate(self._arena_values)}
        self._arena_slots = np.array([slot for slot, _ in in_arena], np.int64)
        self._arena_sources = np.array([number[value] for _, value in in_arena], np.int64)
        self._dims = list(dict.fromkeys(size for _, size in size_slots))
        numbers = {size: k for k, size in enumerate(self._dims)}
        self._size_slots = np.array([slot for slot, _ in size_slots], np.int64)
        self._size_sources = np.array([numbers[size] for _, size in size_slots], np.int64)

    def _lay_out_entries(self) -> tuple[NDArray[Any], NDArray[Any]]:
        rows: list[dict[str, int]] = []
        program: list[tuple[int, int, int, int]] = list(self._io_moves)
        open_ifs: list[int] = []
        open_loops: list[int] = []
        n_syncs = 0

        def evaluate_here(instructions: list[tuple[int, int, int, int]]) -> None:
            if instructions:
                rows.append({"op": Op.EVAL, "a": len(program), "b": len(instructions)})
                program.extend(instructions)

        at = 0
        while at < len(self.steps):
            begin, step = at, self.steps[at]
            at += 1
            if step.kind is StepKind.LAUNCH:
                first = step.a
                while at < len(self.steps) and self.steps[at].kind is StepKind.LAUNCH:
                    at += 1
                stop = first + at - begin
                evaluate_here(self._pointer_moves(first, stop))
                n_syncs = self._block_rows(rows, first, stop, n_syncs)
            elif step.kind is StepKind.EVAL:
                evaluate_here(
                    [(op, *map(self._register, rest)) for op, *rest in step.instructions]  # type: ignore[misc]
                )
            elif step.kind is StepKind.HOST:
                rows.append({"op": Op.SEGMENT, "a": step.a, "b": Reason.HOST_OP, "c": NONE})
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
        self._n_syncs = n_syncs
        entries = aligned_empty(len(rows), ENTRY)
        fresh = {"guard": NONE, "sync": NONE, "tiles": NONE}
        for name in ENTRY.names or ():
            entries[name] = [row.get(name, fresh.get(name, 0)) for row in rows]
        instructions = aligned_empty(len(program), INSTRUCTION)
        if program:
            instructions[...] = np.array(program, dtype=INSTRUCTION)
        return entries, instructions

    def _register(self, cell: int) -> int:
        return 0 if cell == ZERO else self.layout.cells + cell

    def _pointer_moves(self, first: int, stop: int) -> list[tuple[int, int, int, int]]:
        """What puts addresses of pointers and sizes found while running into the windows of a
        block."""
        moves: list[tuple[int, int, int, int]] = []
        for k in range(first, stop):
            launch = self.launches[k]
            cells = [
                pointer.cell if (pointer := self._pointers.get(value)) is not None else None
                for value in launch.arrays
            ]
            cells += [self._late.get(size) for size in (*launch.sizes, launch.tiles)]
            moves += [
                (Ins.MOV, self.layout.windows[k] + position, self._register(cell), 0)
                for position, cell in enumerate(cells)
                if cell is not None
            ]
        return moves

    def _block_rows(self, rows: list[dict[str, int]], first: int, stop: int, n_syncs: int) -> int:
        """A block of launches; every one that may be waited for has a sync word, always the same.

        Returns how many sync words there are then.
        """
        n_shared = sum(self._is_shared[first:stop])
        self.blocks.append((first, stop))
        flags = Flag.PARALLEL if n_shared else 0
        rows.append({"op": Op.BLOCK, "a": stop - first, "tiles": n_shared, "flags": flags})
        for k in range(first, stop):
            launch, window = self.launches[k], self.layout.windows[k]
            self._ticks.append(len(rows))
            row = {
                "op": Op.LAUNCH,
                "fn": launch.entry,
                "args": window,
                "tiles": window + len(launch.arrays) + len(launch.sizes),
                "kernel": k,
                "cost_ns": min(launch.cost_ns, 2**31),
            }
            if n_shared:
                row["sync"] = n_syncs
                n_syncs += 1
            if self._is_shared[k]:
                row["flags"] = Flag.SHARED
            rows.append(row)
        return n_syncs

    @property
    def is_straight(self) -> bool:
        """Whether there are launches alone, no branch and no loop."""
        return all(step.kind is StepKind.LAUNCH for step in self.steps)

    @property
    def cost_ns(self) -> int:
        """Estimated work of a run, loops as long as they may get."""
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

    def _find_touched(self) -> list[ValueId]:
        """All values of the arena that launches touch, through pointers too."""
        found: dict[ValueId, None] = {}
        pending = [value for launch in self.launches for value in (*launch.reads, *launch.writes)]
        while pending:
            value = pending.pop()
            pointer = self._pointers.get(value)
            if pointer is not None:
                pending += [one for one in pointer.targets if one not in found]
            elif value not in self._io:
                found[value] = None
        return list(found)

    # What a plan decides.

    def hazards(self, places: Mapping[ValueId, Place]) -> list[Launch]:
        """What each launch touches, on final addresses; what it may touch, through a pointer."""
        return [
            Launch(
                launch.name,
                tuple(
                    one
                    for role, values in ((Role.READ, launch.reads), (Role.WRITE, launch.writes))
                    for value in values
                    for one in _ranges(places, value, role)
                ),
            )
            for launch in self.launches
        ]

    def table(self, places: Mapping[ValueId, Place]) -> LaunchTable:
        """The entries for a plan, with waits for every hazard that workers could run into."""
        # One worker keeps the order of the table by itself.
        made = self._ordered(places) if any(self._is_shared) else _Waiting(self._template, [])
        waiting = aligned_empty(len(made.waits), "<u4")
        waiting[...] = made.waits
        return LaunchTable(
            aligned_copy(made.entries),
            self._instructions,
            waiting,
            self._n_syncs,
            self.layout.n_registers,
            aligned_empty(0, "<u4"),
        )

    def _ordered(self, places: Mapping[ValueId, Place]) -> _Waiting:
        """The waits for a plan: those of an earlier one, if values now share bytes only where they
        did then, for then every conflict there is was one before and is ordered."""
        if self._for_data is not None:
            return self._for_data
        overlaps = self._overlaps(places)
        if overlaps is not None:
            for k, (known, made) in enumerate(self._known):
                if not (overlaps & ~known).any():
                    self._known.insert(0, self._known.pop(k))
                    return made
        made = self._found_waits(self.hazards(places))
        if overlaps is not None:
            self._known = [(overlaps, made), *self._known[: MAX_KNOWN - 1]]
        return made

    def _overlaps(self, places: Mapping[ValueId, Place]) -> NDArray[np.bool_] | None:
        """Which two values of the arena share bytes; None where there are too many to look at."""
        held = [places[value] for value in self._touched]
        if len(held) > MAX_COMPARED:
            return None
        first = np.array([place.offset for place in held], np.int64)
        last = first + np.array([place.nbytes for place in held], np.int64)
        before: NDArray[np.bool_] = first[:, None] < last[None, :]
        return before & before.T

    def _found_waits(self, hazards: Sequence[Launch]) -> _Waiting:
        entries = aligned_copy(self._template)
        waits: list[int] = []
        for first, stop in self.blocks:
            if not any(self._is_shared[first:stop]):
                continue
            waits_of, signals = self._waits(first, order(hazards[first:stop]))
            for k, befores in waits_of.items():
                entry = entries[self._ticks[k]]
                entry["wait_start"], entry["wait_count"] = len(waits), len(befores)
                waits += [int(entries[self._ticks[before]]["sync"]) for before in befores]
            for k in signals:
                entries[self._ticks[k]]["flags"] = Flag.SIGNALS
        return _Waiting(entries, waits)

    def _waits(self, first: int, edges: Sequence[Edge]) -> tuple[dict[int, list[int]], set[int]]:
        """Whom launches wait for, and which launches of worker 0 must say they are done."""
        waits_of: dict[int, list[int]] = {}
        signals: set[int] = set()
        for edge in edges:
            before, after = first + edge.before, first + edge.after
            if not self._is_shared[before] and not self._is_shared[after]:
                continue  # worker 0 runs both, in this order
            waits_of.setdefault(after, []).append(before)
            if not self._is_shared[before]:
                signals.add(before)
        return waits_of, signals

    def verify(self, places: Mapping[ValueId, Place], table: LaunchTable | None = None) -> None:
        """RaceFound unless the order the table keeps leaves no race; looks at the table's waits.

        The ends of blocks order everything, so each block is judged by itself.
        """
        table = self.table(places) if table is None else table
        hazards = self.hazards(places)
        for first, stop in self.blocks:
            inside = [table.entries[tick] for tick in self._ticks[first:stop]]
            speaks = Flag.SHARED | Flag.SIGNALS
            syncs = {int(e["sync"]): k for k, e in enumerate(inside) if e["flags"] & speaks}
            edges: set[tuple[int, int]] = set()
            last_solo: int | None = None
            for k, entry in enumerate(inside):
                start, count = int(entry["wait_start"]), int(entry["wait_count"])
                edges |= {(syncs[int(s)], k) for s in table.waits[start : start + count]}
                if not entry["flags"] & Flag.SHARED:
                    if last_solo is not None:
                        edges.add((last_solo, k))
                    last_solo = k
            verify(hazards[first:stop], Order(edges=tuple(sorted(edges))))

    def fill(
        self,
        registers: NDArray[np.int64],
        places: Mapping[ValueId, Place],
        base: int,
        bindings: Mapping[str, int],
    ) -> None:
        """Write arena addresses, sizes and tile counts for a plan and the values of variables."""
        registers[0], registers[1] = 0, 1
        if len(self._arena_slots):
            offsets = np.array([places[value].offset for value in self._arena_values], np.int64)
            registers[self._arena_slots] = offsets[self._arena_sources] + base
        if len(self._size_slots):
            sizes = np.array([evaluate(size, bindings) for size in self._dims], np.int64)
            registers[self._size_slots] = sizes[self._size_sources]


def _ranges(places: Mapping[ValueId, Place], value: ValueId, role: Role) -> list[BufferRange]:
    """The bytes of a value; of everything it may point to, where it is a pointer."""
    place = places[value]
    if not place.targets:
        return [_range(place, role)]
    return [
        _range(places[target], role) for target in pointed_to([value], lambda v: places[v].targets)
    ]


def _range(place: Place, role: Role) -> BufferRange:
    if place.offset is None:
        assert place.io is not None
        return BufferRange(1 + place.io, 0, place.nbytes, role)
    return BufferRange(ARENA, place.offset, place.offset + place.nbytes, role)
