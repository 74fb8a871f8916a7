"""What no plan and no size changes of a launch table: entries, instructions, where numbers go.

In: steps with the launches in them, which values have an address of their own, cells and pointers.
Out: columns, so that a bind is a few steps over all of them, and so that a file can hold them.

    registers   r0 = 0, r1 = 1 | addresses of io values | cells | one window a launch: arrays,
                sizes, tiles
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from arenite.ir.dim import Dim
from arenite.memory import ValueId
from arenite.memory.flat import Arrays
from arenite.program.places import Numbers
from arenite.program.record_json import dim_from_json, dim_to_json
from arenite.program.table import (
    ENTRY,
    INSTRUCTION,
    NONE,
    Op,
    aligned_copy,
)
from arenite.records import NamedTuple

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from arenite.program.launch import Launch

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
