"""Steps, launches and a plan become a launch table: who waits for whom, where arguments lie.

In: steps with the launches in them, the values launches touch, where each value lives, and the
sizes as variables. Out: entries, sync words and registers. Order inside a block is found from byte
ranges on final addresses, so reuse of bytes is ordered like any other hazard; between blocks
everything is ordered.

What no plan and no size changes is laid out once (`skeleton`); a bind fills in columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from arenite.ir.dim import evaluate
from arenite.memory import ValueId
from arenite.program.places import Place, Places
from arenite.program.skeleton import Skeleton
from arenite.program.steps import straight
from arenite.program.table import Flag, LaunchTable
from arenite.program.waits import WaitBook

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from arenite import hazards
    from arenite.program.launch import Launch


class Assembly:
    """The launches of one program, laid out once; bound anew for each plan and each size."""

    def __init__(self, launches: Sequence[Launch], skeleton: Skeleton, waits: WaitBook) -> None:
        self.launches = launches
        self.skeleton = skeleton
        self.waits = waits

    @classmethod
    def straight(cls, launches: Sequence[Launch], io: Mapping[ValueId, int]) -> Assembly:
        """Of launches alone, for one plan; `io` are the values outside of the arena."""
        from arenite.program.layout import Layout

        skeleton = Layout(launches, io, straight(len(launches))).skeleton()
        return cls(launches, skeleton, WaitBook(skeleton, np.zeros((0, 0), np.int64)))

    @property
    def first_cell(self) -> int:
        return self.skeleton.first_cell

    @property
    def n_bind(self) -> int:
        return self.skeleton.n_bind

    @property
    def blocks(self) -> list[tuple[int, int]]:
        """(first launch, launch behind the last) of each block."""
        return [(first, stop) for first, stop in self.skeleton.blocks.reshape(-1, 2).tolist()]

    @cached_property
    def launch_at(self) -> dict[int, int]:
        """The launch at a tick."""
        return {tick: k for k, tick in enumerate(self.skeleton.ticks.tolist())}

    def hazards(self, places: Mapping[ValueId, Place]) -> list[hazards.Launch]:
        """What each launch touches, on final addresses; what it may touch, through a pointer."""
        from arenite.program.launch_hazards import placed

        return placed(self.launches, places)

    def table(self, places: Places) -> LaunchTable:
        """The entries for a plan, with waits for every hazard that workers could run into."""
        waits = self.waits.obtain(places, lambda: self.hazards(places))
        return waits.table(self.skeleton)

    def verify(self, places: Places, table: LaunchTable | None = None) -> None:
        """RaceFound unless the order the table keeps leaves no race; looks at the table's waits.

        The ends of blocks order everything, so each block is judged by itself.
        """
        from arenite.hazards import Order, verify

        table = self.table(places) if table is None else table
        hazards = self.hazards(places)
        ticks = self.skeleton.ticks.tolist()
        for first, stop in self.blocks:
            inside = [table.entries[tick] for tick in ticks[first:stop]]
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
        places: Places,
        base: int,
        bindings: Mapping[str, int],
    ) -> None:
        """Write arena addresses, sizes and tile counts for a plan and the values of variables."""
        registers[0], registers[1] = 0, 1
        made = self.skeleton
        registers[made.arena_slots] = places.offset[made.arena_values] + base
        sizes = np.array([evaluate(size, bindings) for size in made.dims], np.int64)
        registers[made.size_slots] = sizes[made.size_sources]
