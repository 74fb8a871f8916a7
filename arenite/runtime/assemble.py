"""A plan and launches become a launch table: who waits for whom, and where arguments lie.

In: launches with the values they touch, where each value lives, and the sizes as variables. Out:
entries, sync words and the layout of the register file. The order is found from byte ranges on
final addresses, so reuse of bytes is ordered like any other hazard; only what another worker may
wait for gets a sync word.

    registers   r0 = 0, r1 = 1 | addresses of io values | one window a launch: arrays, sizes, tiles
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
from arenite.runtime.table import (
    ENTRY,
    INSTRUCTION,
    NONE,
    Flag,
    Ins,
    LaunchTable,
    Op,
    aligned_empty,
)

#: Estimated work from which a launch is shared among workers.
SHARED_FROM_NS = 5_000
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
    """Where a value lives: bytes of the arena, or an address of its own in an io register."""

    nbytes: int
    offset: int | None  # in the arena; None: outside
    io: int | None = None  # which of the io addresses


@dataclass(frozen=True, slots=True)
class Layout:
    """Which registers hold what."""

    io: int  # first address register
    windows: tuple[int, ...]  # first register of each launch's window
    n_registers: int


class Assembly:
    """The launches of one program, laid out once; bound anew for each plan and each size."""

    def __init__(self, launches: Sequence[LaunchSpec], n_io: int) -> None:
        self.launches = tuple(launches)
        first = 2
        at = first + n_io
        windows = []
        for launch in self.launches:
            windows.append(at)
            at += len(launch.arrays) + len(launch.sizes) + 1
        self.layout = Layout(first, tuple(windows), at)

    def hazards(self, places: Mapping[ValueId, Place]) -> list[Launch]:
        """What each launch touches, on final addresses."""
        return [
            Launch(
                launch.name,
                tuple(
                    _range(places[value], value, role)
                    for role, values in ((Role.READ, launch.reads), (Role.WRITE, launch.writes))
                    for value in values
                ),
            )
            for launch in self.launches
        ]

    def table(self, places: Mapping[ValueId, Place]) -> LaunchTable:
        """The entries for a plan, with waits for every hazard that workers could run into."""
        # One worker keeps the order of the table by itself.
        is_shared = any(launch.is_shared for launch in self.launches)
        edges = order(self.hazards(places)) if is_shared else ()
        waits_of, signals = self._waits(edges)
        n = len(self.launches)
        entries = aligned_empty(n + 2, ENTRY)
        entries["guard"] = entries["sync"] = entries["tiles"] = NONE
        waits: list[int] = []
        syncs: dict[int, int] = {}
        for k, launch in enumerate(self.launches):
            if launch.is_shared or k in signals:
                syncs[k] = len(syncs)
        n_shared = sum(launch.is_shared for launch in self.launches)
        entries[0]["op"], entries[0]["a"], entries[0]["tiles"] = Op.BLOCK, n, n_shared
        entries[0]["flags"] = Flag.PARALLEL if n_shared else 0
        for k, launch in enumerate(self.launches):
            entry = entries[k + 1]
            entry["op"] = Op.LAUNCH
            entry["fn"] = launch.entry
            entry["args"] = self.layout.windows[k]
            entry["tiles"] = self.layout.windows[k] + len(launch.arrays) + len(launch.sizes)
            entry["kernel"], entry["cost_ns"] = k, min(launch.cost_ns, 2**31)
            if launch.is_shared:
                entry["flags"] = Flag.SHARED
            elif k in signals:
                entry["flags"] = Flag.SIGNALS
            if k in syncs:
                entry["sync"] = syncs[k]
            entry["wait_start"], entry["wait_count"] = len(waits), len(waits_of[k])
            waits += [syncs[before] for before in waits_of[k]]
        entries[n + 1]["op"] = Op.END
        waiting = aligned_empty(len(waits), "<u4")
        waiting[...] = waits
        return LaunchTable(
            entries,
            self._io_program(places),
            waiting,
            len(syncs),
            self.layout.n_registers,
            aligned_empty(0, "<u4"),
        )

    def _waits(self, edges: Sequence[Edge]) -> tuple[list[list[int]], set[int]]:
        """Whom each launch waits for, and which launches of worker 0 must say they are done."""
        waits_of: list[list[int]] = [[] for _ in self.launches]
        signals: set[int] = set()
        for edge in edges:
            before, after = self.launches[edge.before], self.launches[edge.after]
            if not before.is_shared and not after.is_shared:
                continue  # worker 0 runs both, in this order
            waits_of[edge.after].append(edge.before)
            if not before.is_shared:
                signals.add(edge.before)
        return waits_of, signals

    def verify(self, places: Mapping[ValueId, Place]) -> None:
        """RaceFound unless the order the table keeps leaves no race; looks at the table's waits."""
        table = self.table(places)
        syncs = {int(e["sync"]): k for k, e in enumerate(table.entries[1:-1]) if e["sync"] != NONE}
        edges: set[tuple[int, int]] = set()
        last_solo: int | None = None
        for k, entry in enumerate(table.entries[1:-1]):
            start, count = int(entry["wait_start"]), int(entry["wait_count"])
            edges |= {(syncs[int(s)], k) for s in table.waits[start : start + count]}
            if not entry["flags"] & Flag.SHARED:
                if last_solo is not None:
                    edges.add((last_solo, k))
                last_solo = k
        verify(self.hazards(places), Order(edges=tuple(sorted(edges))))

    def _io_program(self, places: Mapping[ValueId, Place]) -> NDArray[Any]:
        """Instructions that put the io addresses into the windows; they run before each run."""
        moves = [
            (Ins.MOV, self.layout.windows[k] + position, self.layout.io + io, 0)
            for k, launch in enumerate(self.launches)
            for position, value in enumerate(launch.arrays)
            if (io := places[value].io) is not None
        ]
        program = aligned_empty(len(moves), INSTRUCTION)
        program[...] = np.array(moves, dtype=INSTRUCTION) if moves else 0
        return program

    def fill(
        self,
        registers: NDArray[np.int64],
        places: Mapping[ValueId, Place],
        base: int,
        bindings: Mapping[str, int],
    ) -> None:
        """Write arena addresses, sizes and tile counts for a plan and the values of variables."""
        registers[0], registers[1] = 0, 1
        known: dict[Dim, int] = {}

        def number(dim: Dim) -> int:
            if dim not in known:
                known[dim] = evaluate(dim, bindings)
            return known[dim]

        for launch, window in zip(self.launches, self.layout.windows, strict=True):
            addresses = [places[value].offset for value in launch.arrays]
            numbers = [base + offset if offset is not None else 0 for offset in addresses]
            numbers += [number(size) for size in (*launch.sizes, launch.tiles)]
            registers[window : window + len(numbers)] = numbers


def _range(place: Place, value: ValueId, role: Role) -> BufferRange:
    if place.offset is None:
        assert place.io is not None
        return BufferRange(1 + place.io, 0, place.nbytes, role)
    return BufferRange(ARENA, place.offset, place.offset + place.nbytes, role)
