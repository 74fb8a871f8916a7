"""Replay: a known plan taken to new sizes without a search.

Looking down from a block one sees the tops of other blocks; on these it stands. With new sizes
each block goes to the highest top among them, so two blocks that live together keep which of
them is below and can never overlap. A few look-ups a block, nothing more.

    bytes         ┌───────┐
             ┌────┤   c   │     c stands on a and b, b on a, a on nothing.
             │ b  └──┬────┘
             ├───┬───┘          c comes down as b shrinks, until a is the higher.
             │ a │
             └───┘       time
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, replace
from operator import add
from time import perf_counter

import numpy as np

from arenite.errors import InvalidArgument
from arenite.memory.fit import within_capacity
from arenite.memory.plan import REGION_ALIGNMENT, MemoryPlan, Region, Slot
from arenite.memory.profile import LiveProfile
from arenite.memory.values import ARENA_REGIONS, ValueId, align_up


@dataclass(slots=True)
class _Box:
    """A block of the known plan: its values move together."""

    offset: int
    alignment: int
    start: int
    end: int
    pinned: bool
    members: list[Slot]

    def add(self, slot: Slot) -> None:
        self.members.append(slot)
        self.offset = min(self.offset, slot.offset)
        self.alignment = max(self.alignment, slot.alignment)
        self.pinned |= slot.pinned
        if slot.lifetime.start < slot.lifetime.end:
            self.start = min(self.start, slot.lifetime.start)
            self.end = max(self.end, slot.lifetime.end)

    def padded_nbytes(self, nbytes: Mapping[ValueId, int]) -> int:
        """Bytes the block takes when its values have these sizes; aliases lie inside owners."""
        most = 0
        for slot in self.members:
            if slot.alias_of is None:
                most = max(most, align_up(nbytes.get(slot.id, slot.nbytes), slot.alignment))
        return most


class Replay:
    """Who stands on whom in a plan, found once; then a new plan for any sizes."""

    def __init__(self, known: MemoryPlan) -> None:
        self.known = known
        self._boxes = {name: _boxes(known, name) for name in known.regions}
        self._below = {name: _look_down(boxes) for name, boxes in self._boxes.items()}
        self._lifetimes = {
            name: (np.array([b.start for b in boxes]), np.array([b.end for b in boxes]))
            for name, boxes in self._boxes.items()
        }
        arena = [b for name, boxes in self._boxes.items() if name in ARENA_REGIONS for b in boxes]
        self._arena_lifetimes = ([box.start for box in arena], [box.end for box in arena])

    def resize(self, nbytes: Mapping[ValueId, int]) -> MemoryPlan:
        """The plan for values of these sizes; those not named keep theirs.

        An alias keeps its distance from its owner's first byte. DoesNotFit when the plan's
        capacity is passed, InvalidArgument when a value would grow into a pinned one: plan anew.
        """
        began = perf_counter()
        self._check(nbytes)
        slots: dict[ValueId, Slot] = {}
        regions: dict[str, Region] = {}
        arena_sizes: list[int] = []
        top_of_arena = 0
        for name, boxes in self._boxes.items():
            sizes = [box.padded_nbytes(nbytes) for box in boxes]
            offsets = _restack(boxes, self._below[name], sizes)
            high = max(map(add, offsets, sizes), default=0)
            profile = LiveProfile.of(*self._lifetimes[name], sizes)
            base = 0
            if name in ARENA_REGIONS:
                alignment = max([REGION_ALIGNMENT, *(box.alignment for box in boxes)])
                base = align_up(top_of_arena, alignment)
                top_of_arena = base + high
                arena_sizes += sizes
            regions[name] = Region(name, base, high, profile.peak_nbytes)
            for box, offset in zip(boxes, offsets, strict=True):
                for slot in box.members:
                    slots[slot.id] = _moved(slot, base + offset + slot.offset - box.offset, nbytes)
        made = replace(
            self.known,
            slots={value_id: slots[value_id] for value_id in self.known.slots},
            regions=regions,
            peak_tick=LiveProfile.of(*self._arena_lifetimes, arena_sizes).peak_tick,
            method="replay",
            work=0,
            seconds=perf_counter() - began,
        )
        return within_capacity(made)

    def _check(self, nbytes: Mapping[ValueId, int]) -> None:
        slots = self.known.slots
        for value_id, size in nbytes.items():
            if value_id not in slots or size < 0:
                raise InvalidArgument(f"{value_id!r} with {size} bytes is no value of the plan")
        for slot in slots.values():
            if slot.alias_of is not None:
                owner = slots[slot.alias_of]
                end = slot.offset - owner.offset + nbytes.get(slot.id, slot.nbytes)
                if end > nbytes.get(owner.id, owner.nbytes):
                    raise InvalidArgument(
                        f"value {slot.id!r} is an alias that would end {end} bytes into "
                        f"{owner.id!r}, behind its last byte"
                    )


def _boxes(known: MemoryPlan, region: str) -> list[_Box]:
    """The blocks of a region, from the ground up."""
    boxes: dict[int, _Box] = {}
    for slot in known.slots.values():
        if slot.region == region:
            if slot.block not in boxes:
                span = slot.lifetime
                boxes[slot.block] = _Box(slot.offset, 1, span.start, span.end, False, [])
            boxes[slot.block].add(slot)
    return sorted(boxes.values(), key=lambda box: box.offset)


def _look_down(boxes: list[_Box]) -> list[tuple[int, ...]]:
    """For each box, by position, the boxes directly below it."""
    below: list[tuple[int, ...]] = []
    # The skyline: segment k spans [borders[k], borders[k + 1]) with box `tops[k]` on top.
    borders, tops = [-1], [-1]
    for i, box in enumerate(boxes):
        if box.start >= box.end:
            below.append(())
            continue
        first = bisect_right(borders, box.start) - 1
        last = bisect_left(borders, box.end)
        seen = dict.fromkeys(tops[first:last])
        seen.pop(-1, None)
        below.append(tuple(seen))
        new_borders, new_tops = [box.start], [i]
        if borders[first] < box.start:
            new_borders, new_tops = [borders[first], box.start], [tops[first], i]
        if last == len(borders) or borders[last] > box.end:
            new_borders.append(box.end)
            new_tops.append(tops[last - 1])
        borders[first:last] = new_borders
        tops[first:last] = new_tops
    return below


def _restack(boxes: list[_Box], below: list[tuple[int, ...]], sizes: list[int]) -> list[int]:
    """New offsets, each box on the highest top below it."""
    offsets: list[int] = []
    tops: list[int] = []
    for box, size, beneath in zip(boxes, sizes, below, strict=True):
        base = 0
        for j in beneath:
            if tops[j] > base:
                base = tops[j]
        base = -(-base // box.alignment) * box.alignment
        if box.pinned:
            if base > box.offset:
                raise InvalidArgument(
                    f"value {box.members[0].id!r} is pinned to offset {box.offset}, and what lies "
                    f"below it now ends at {base}; plan anew"
                )
            base = box.offset
        offsets.append(base)
        tops.append(base + size)
    return offsets


def _moved(slot: Slot, offset: int, nbytes: Mapping[ValueId, int]) -> Slot:
    size = nbytes.get(slot.id, slot.nbytes)
    capacity = size if slot.alias_of is not None else align_up(size, slot.alignment)
    return Slot(
        slot.id,
        slot.region,
        offset,
        size,
        capacity,
        slot.alignment,
        slot.lifetime,
        slot.block,
        slot.pinned,
        slot.alias_of,
        slot.took_over,
    )
