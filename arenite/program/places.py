"""Where the values of a program lie, for one plan: columns by number of the value; and how sizes
become a plan, and a plan places, which a bind begins with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from arenite.ir.dim import evaluate
from arenite.memory import MemoryPlan, ValueId
from arenite.memory.columns import SlotColumns
from arenite.memory.values import REGIONS
from arenite.program.steps import Pointer
from arenite.records import NamedTuple

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from arenite.memory import Replay
    from arenite.program.frame import Frame

Numbers: TypeAlias = "NDArray[np.int64]"
#: In the columns: not there.
NOWHERE = -1


class Place(NamedTuple):
    """Where a value lives: bytes of the arena, an address of its own in an io register, or, where
    it has neither, the bytes of the values it points to."""

    nbytes: int
    offset: int | None  # in the arena; None: outside
    io: int | None = None  # which of the io addresses
    targets: tuple[ValueId, ...] = ()


class Places(Mapping[ValueId, Place]):
    """All of them; a Place is made where one is asked for."""

    __slots__ = ("io", "nbytes", "offset", "pointers")

    def __init__(
        self, nbytes: Numbers, offset: Numbers, io: Numbers, pointers: Mapping[ValueId, Pointer]
    ) -> None:
        self.nbytes = nbytes
        self.offset = offset  # NOWHERE: outside of the arena
        self.io = io  # NOWHERE: no address of its own
        self.pointers = pointers

    @classmethod
    def outside(cls, nbytes: list[int]) -> Places:
        """Values that all have an address of their own."""
        n = len(nbytes)
        return cls(np.array(nbytes, np.int64), np.full(n, NOWHERE), np.arange(n), {})

    def __getitem__(self, value: ValueId) -> Place:
        number = int(value)
        if not 0 <= number < len(self.nbytes):
            raise KeyError(value)
        offset, io = int(self.offset[number]), int(self.io[number])
        if offset == io == NOWHERE:
            return Place(0, None, targets=self.pointers[number].targets)
        return Place(
            int(self.nbytes[number]),
            None if offset == NOWHERE else offset,
            None if io == NOWHERE else io,
        )

    def __iter__(self) -> Iterator[ValueId]:
        return iter(range(len(self.nbytes)))

    def __len__(self) -> int:
        return len(self.nbytes)


class Resizer:
    """What is resized with the variables; sizes found while running stay at their largest."""

    def __init__(self, frame: Frame, plan: MemoryPlan, pointers: Mapping[ValueId, Pointer]) -> None:
        self._frame = frame
        self._plan = plan
        self._pointers = pointers
        self._io = frame.io
        self._is_sized = frame.nbytes_of != NOWHERE
        self._in_arena = frame.in_arena

    @cached_property
    def _columns(self) -> SlotColumns:
        return SlotColumns.of(self._plan.slots)

    @cached_property
    def _replay(self) -> Replay:
        from arenite.memory.replay import Replay

        below = self._frame.below
        return Replay(self._plan, None if below is None else {"work": below})

    def plan_for(self, sizes: Mapping[str, int]) -> MemoryPlan:
        """The plan for these values of the variables."""
        frame = self._frame
        known = np.array([evaluate(dim, sizes) for dim in frame.dims], np.int64)
        nbytes = self._replay.columns.nbytes.copy()
        nbytes[frame.rows[self._is_sized]] = known[frame.nbytes_of[self._is_sized]]
        return self._replay.resize_rows(nbytes)

    def n_state_slots(self) -> int:
        """How many slots there are for states and their copies."""
        return int((self._columns.region == REGIONS.index("state")).sum())

    def offset_of(self, name: ValueId) -> int:
        """Where the plan for the largest sizes has a value."""
        return self._columns[name].offset

    def places(self, plan: MemoryPlan) -> Places:
        """Where a plan has every value."""
        columns = self._columns if plan is self._plan else SlotColumns.of(plan.slots)
        rows = self._frame.rows
        return Places(
            np.where(rows == NOWHERE, 0, columns.nbytes[rows]),
            np.where(self._in_arena, columns.offset[rows], NOWHERE),
            self._io,
            self._pointers,
        )
