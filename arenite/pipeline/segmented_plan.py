"""The plan of a program that is cut: one for each segment, made when it is entered first."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from arenite.device.allocator import readable_nbytes
from arenite.memory import MemoryPlan, Region, Slot, ValueId
from arenite.memory.html import html_table
from arenite.memory.plan import HOST
from arenite.memory.tables import NOTEBOOK_BOXES, aligned

#: Segments whose plans are drawn in a notebook: the largest.
DRAWN = 4


@dataclass(frozen=True, slots=True)
class PlannedSegment:
    """A segment as it was compiled: the sizes it has room for, and its plan."""

    number: int
    sizes: dict[str, int]  # what sizes without a bound may be
    n_kernels: int
    n_entered: int
    plan: MemoryPlan
    device: str = HOST

    @property
    def planned_for(self) -> str:
        """The sizes it has room for, as text."""
        return ", ".join(f"{name} up to {size}" for name, size in self.sizes.items())

    @property
    def name(self) -> str:
        """Its number, and what it was planned for: one segment may be there for several sizes."""
        return f"segment {self.number}{', ' * bool(self.sizes)}{self.planned_for}:"


@dataclass(frozen=True, slots=True)
class SegmentedPlan:
    """Plans of the segments that are compiled now, and what all of it took at most so far."""

    segments: tuple[PlannedSegment, ...]
    n_segments: int  # known so far, compiled or not
    peak_nbytes: int  # arguments, states, arenas, and what is held between segments
    capacity: int | None  # the budget

    @property
    def total_nbytes(self) -> int:
        """The same: arguments and states are counted with the arenas."""
        return self.peak_nbytes

    @property
    def reuse_edges(self) -> int:
        """Pairs of launches that only the sharing of bytes orders, in all segments."""
        return sum(one.plan.reuse_edges for one in self.segments)

    @property
    def slots(self) -> dict[ValueId, Slot]:
        """Those of all segments, each value called by its segment too: "segment 1: x"."""
        return {
            f"{one.name} {value}": slot
            for one in self.segments
            for value, slot in one.plan.slots.items()
        }

    @property
    def regions(self) -> dict[str, Region]:
        """Those of all segments, as slots are called: each segment has an arena of its own."""
        return {
            f"{one.name} {name}": region
            for one in self.segments
            for name, region in one.plan.regions.items()
        }

    def verify(self) -> None:
        """InvalidPlan, where a segment's plan breaks a rule."""
        for one in self.segments:
            one.plan.verify()

    def to_json(self) -> str:
        return json.dumps(
            {
                "segments": [
                    {
                        "number": one.number,
                        "sizes": one.sizes,
                        "n_kernels": one.n_kernels,
                        "n_entered": one.n_entered,
                        "device": one.device,
                        "plan": json.loads(one.plan.to_json()),
                    }
                    for one in self.segments
                ],
                "n_segments": self.n_segments,
                "peak_nbytes": self.peak_nbytes,
                "capacity": self.capacity,
            }
        )

    def _rows(self, amount: Callable[[int], str] = str) -> list[list[str]]:
        rows = [["segment", "planned for", "kernels", "arena bytes", "entered", "device"]]
        rows += [
            [
                str(one.number),
                one.planned_for,
                str(one.n_kernels),
                amount(one.plan.peak_nbytes),
                str(one.n_entered),
                one.device,
            ]
            for one in self.segments
        ]
        return rows

    def _repr_html_(self) -> str:
        from arenite.memory.svg import draw

        largest = sorted(self.segments, key=lambda one: -one.plan.total_nbytes)[:DRAWN]
        pictures = [draw(one.plan, NOTEBOOK_BOXES) for one in largest]
        return html_table(self._rows(readable_nbytes), {2, 3, 4}) + "".join(pictures)

    def __str__(self) -> str:
        budget = "" if self.capacity is None else f" of {self.capacity}"
        return (
            aligned(self._rows(), {2, 3, 4})
            + f"\n\n{self.n_segments} segments, at most {self.peak_nbytes} bytes{budget} so far"
        )
