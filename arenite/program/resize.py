"""Sizes become a plan, and a plan places, for one program: what a bind begins with."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from arenite.ir.dim import evaluate
from arenite.memory import MemoryPlan, Replay, ValueId
from arenite.memory.columns import SlotColumns
from arenite.memory.values import REGIONS
from arenite.program.places import NOWHERE, Places
from arenite.program.steps import Pointer

if TYPE_CHECKING:
    from arenite.program.frame import Frame


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
