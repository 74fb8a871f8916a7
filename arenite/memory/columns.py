"""Slots as columns: of a plan with thousands of values few are looked at one by one.

In: slots by id. Out: a mapping that is the same from outside, and makes a Slot where one is asked
for; columns for those who work on all rows at once, in the order of the mapping.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from arenite.errors import InvalidPlan
from arenite.memory.plan import Slot
from arenite.memory.values import REGIONS, Lifetime, ValueId

if TYPE_CHECKING:
    from numpy.typing import NDArray

Numbers: TypeAlias = "NDArray[np.int64]"

#: In the columns of other rows: there is none.
NO_ROW = -1
NUMBERS = "offset nbytes capacity alignment start end block alias_of took_over".split()


class SlotColumns(Mapping[ValueId, Slot]):
    """One row a value; `alias_of` and `took_over` are rows too."""

    def __init__(
        self,
        ids: Sequence[ValueId],
        region: NDArray[np.uint8],  # which of REGIONS
        pinned: NDArray[np.bool_],
        offset: Numbers,
        nbytes: Numbers,
        capacity: Numbers,
        alignment: Numbers,
        start: Numbers,  # of the lifetime
        end: Numbers,
        block: Numbers,
        alias_of: Numbers,
        took_over: Numbers,
    ) -> None:
        self.ids, self.region, self.pinned = ids, region, pinned
        self.offset, self.nbytes, self.capacity = offset, nbytes, capacity
        self.alignment, self.start, self.end, self.block = alignment, start, end, block
        self.alias_of, self.took_over = alias_of, took_over

    @cached_property
    def rows(self) -> dict[ValueId, int]:
        """The row of each value."""
        return {value_id: k for k, value_id in enumerate(self.ids)}

    @classmethod
    def of(cls, slots: Mapping[ValueId, Slot]) -> SlotColumns:
        if isinstance(slots, SlotColumns):
            return slots
        rows: dict[ValueId | None, int] = {value_id: k for k, value_id in enumerate(slots)}
        rows[None] = NO_ROW
        some = list(slots.values())
        numbers = [
            (s.offset, s.nbytes, s.capacity, s.alignment, s.lifetime.start, s.lifetime.end, s.block)
            for s in some
        ]
        try:
            others = [(rows[slot.alias_of], rows[slot.took_over]) for slot in some]
        except KeyError as missing:
            raise InvalidPlan(
                f"a slot names the value {missing}, which is not in the plan"
            ) from None
        table = np.array(numbers, np.int64).reshape(-1, 7).T
        return cls(
            list(slots),
            np.array([REGIONS.index(slot.region) for slot in some], np.uint8),
            np.array([slot.pinned for slot in some], np.bool_),
            *table,
            *np.array(others, np.int64).reshape(-1, 2).T,
        )

    def moved(self, offset: Numbers, nbytes: Numbers, capacity: Numbers) -> SlotColumns:
        """The same values at other places, with other sizes."""
        made = object.__new__(SlotColumns)
        places = {"offset": offset, "nbytes": nbytes, "capacity": capacity, "rows": self.rows}
        vars(made).update(vars(self) | places)
        return made

    def __getitem__(self, value_id: ValueId) -> Slot:
        row = self.rows[value_id]
        alias_of, took_over = int(self.alias_of[row]), int(self.took_over[row])
        return Slot(
            value_id,
            REGIONS[self.region[row]],
            int(self.offset[row]),
            int(self.nbytes[row]),
            int(self.capacity[row]),
            int(self.alignment[row]),
            Lifetime(int(self.start[row]), int(self.end[row])),
            int(self.block[row]),
            bool(self.pinned[row]),
            None if alias_of == NO_ROW else self.ids[alias_of],
            None if took_over == NO_ROW else self.ids[took_over],
        )

    def __iter__(self) -> Iterator[ValueId]:
        return iter(self.ids)

    def __len__(self) -> int:
        return len(self.ids)
