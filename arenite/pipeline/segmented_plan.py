"""The plan of a program that is cut: one for each segment, made when it is entered first."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from arenite.device.allocator import readable_nbytes
from arenite.memory import MemoryPlan
from arenite.memory.html import html_table
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

    @property
    def name(self) -> str:
        return f"segment {self.number}"


@dataclass(frozen=True, slots=True)
class SegmentedPlan:
    """Plans of the segments that are compiled now, and what all of it took at most so far."""

    segments: tuple[PlannedSegment, ...]
    n_segments: int  # known so far, compiled or not
    peak_nbytes: int  # arguments, states, arenas, and what is held between segments
    capacity: int | None  # the budget

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
        rows = [["segment", "planned for", "kernels", "arena bytes", "entered"]]
        rows += [
            [
                str(one.number),
                ", ".join(f"{name} up to {size}" for name, size in one.sizes.items()),
                str(one.n_kernels),
                amount(one.plan.peak_nbytes),
                str(one.n_entered),
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
