"""Replay: a known plan taken to new sizes without a search.

Looking down from a block one sees the tops of other blocks; on these it stands. With new sizes
each block goes to the highest top among them, so two blocks that live together keep which of
them is below and can never overlap. A few look-ups a block, nothing more. A region whose sizes all
stay keeps its offsets.

    bytes         ┌───────┐
             ┌────┤   c   │     c stands on a and b, b on a, a on nothing.
             │ b  └──┬────┘
             ├───┬───┘          c comes down as b shrinks, until a is the higher.
             │ a │
             └───┘       time
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from functools import cached_property
from time import perf_counter
from typing import Any

import numpy as np

from arenite.device.allocator import as_integer
from arenite.errors import InvalidArgument
from arenite.memory.columns import NO_ROW, Numbers, SlotColumns
from arenite.memory.plan import REGION_ALIGNMENT, MemoryPlan, Region
from arenite.memory.profile import Lives, are_first
from arenite.memory.values import ARENA_REGIONS, MAX_NUMBER, REGIONS, ValueId, align_up
from arenite.records import NamedTuple

#: For each box, the boxes directly below it.
Below = Sequence[Sequence[int]]


class _Boxes(NamedTuple):
    """The blocks of a region, from the ground up: the values of each move together."""

    rows: Numbers  # of the region's values, those of one box side by side
    firsts: Numbers  # where the rows of each box begin
    box_of: Numbers  # of each of the rows
    offset: Numbers  # in the region
    alignment: Numbers
    start: Numbers
    end: Numbers
    is_pinned: list[bool]

    @classmethod
    def of(cls, columns: SlotColumns, rows: Numbers, region: Region) -> _Boxes:
        by_block = np.argsort(columns.block[rows], kind="stable")
        is_first = are_first(columns.block[rows][by_block])
        first, box_of = by_block[is_first], np.empty(len(rows), np.int64)
        box_of[by_block] = np.cumsum(is_first) - 1
        offset = np.full(len(first), MAX_NUMBER)
        np.minimum.at(offset, box_of, columns.offset[rows])
        rank = np.empty(len(first), np.int64)
        rank[np.lexsort((first, offset))] = np.arange(len(first))
        box_of = rank[box_of]
        by_box = np.argsort(box_of, kind="stable")
        rows, box_of = rows[by_box], box_of[by_box]
        firsts = np.searchsorted(box_of, np.arange(len(first)))
        start, end = columns.start[rows], columns.end[rows]
        births, deaths = np.full(len(firsts), MAX_NUMBER), np.zeros(len(firsts), np.int64)
        lives = np.flatnonzero(start < end)
        np.minimum.at(births, box_of[lives], start[lives])
        np.maximum.at(deaths, box_of[lives], end[lives])
        births = np.minimum(births, deaths)  # where no value ever lives
        if not len(firsts):
            nothing = np.empty(0, np.int64)
            return cls(rows, firsts, box_of, nothing, nothing, births, deaths, [])
        return cls(
            rows,
            firsts,
            box_of,
            np.minimum.reduceat(columns.offset[rows], firsts) - region.base,
            np.maximum.reduceat(columns.alignment[rows], firsts),
            births,
            deaths,
            np.logical_or.reduceat(columns.pinned[rows], firsts).tolist(),
        )

    def sizes(self, capacity: Numbers, is_alias: np.ndarray[Any, np.dtype[np.bool_]]) -> Numbers:
        """Bytes each box takes when its values take these; aliases lie inside owners."""
        if not len(self.firsts):
            return np.empty(0, np.int64)
        own = np.where(is_alias[self.rows], 0, capacity[self.rows])
        return np.maximum.reduceat(own, self.firsts)


class _Stack:
    """One region of a known plan: its boxes, and who stands on whom."""

    def __init__(self, columns: SlotColumns, region: Region, below: Below | None) -> None:
        self.region = region
        self._columns = columns
        self._known_below = below
        self.rows = np.flatnonzero(columns.region == REGIONS.index(region.name))
        self.alignment = int(columns.alignment[self.rows].max(initial=REGION_ALIGNMENT))

    @cached_property
    def boxes(self) -> _Boxes:
        return _Boxes.of(self._columns, self.rows, self.region)

    @cached_property
    def lives(self) -> Lives:
        return Lives.of(self.boxes.start, self.boxes.end)

    @cached_property
    def below(self) -> Below:
        if self._known_below is not None:
            return self._known_below
        return _look_down(self.boxes.start.tolist(), self.boxes.end.tolist())

    def restacked(self, sizes: Numbers) -> Numbers:
        """New offsets in the region, each box on the highest top below it."""
        boxes = self.boxes
        offsets: list[int] = []
        tops: list[int] = []
        for k, (size, alignment, beneath) in enumerate(
            zip(sizes.tolist(), boxes.alignment.tolist(), self.below, strict=True)
        ):
            base = 0
            for j in beneath:
                if tops[j] > base:
                    base = tops[j]
            base = -(-base // alignment) * alignment
            if boxes.is_pinned[k]:
                base = self._pin(k, base)
            offsets.append(base)
            tops.append(base + size)
        return np.array(offsets, np.int64)

    def _pin(self, box: int, base: int) -> int:
        pin = int(self.boxes.offset[box])
        if base > pin:
            value = self._columns.ids[int(self.boxes.rows[self.boxes.firsts[box]])]
            raise InvalidArgument(
                f"value {value!r} is pinned to offset {pin}, and what lies below it now ends at "
                f"{base}; plan anew"
            )
        return pin


class Replay:
    """Who stands on whom in a plan, found once; then a new plan for any sizes."""

    def __init__(self, known: MemoryPlan, below: Mapping[str, Below] | None = None) -> None:
        """`below`: what `below_of` found for this very plan."""
        self.known = known
        self.columns = SlotColumns.of(known.slots)
        self._is_alias = self.columns.alias_of != NO_ROW
        given = below or {}
        self._stacks = [
            _Stack(self.columns, region, given.get(name)) for name, region in known.regions.items()
        ]

    def below_of(self, region: str) -> Below:
        """For each box of a region, from the ground up, the boxes directly below it."""
        return next(stack.below for stack in self._stacks if stack.region.name == region)

    def resize(self, nbytes: Mapping[ValueId, int]) -> MemoryPlan:
        """The plan for values of these sizes; those not named keep theirs."""
        sizes = self.columns.nbytes.copy()
        for value_id, given in nbytes.items():
            size = as_integer(f"the size of {value_id!r}", given)
            if value_id not in self.columns.rows or not 0 <= size <= MAX_NUMBER:
                raise InvalidArgument(f"{value_id!r} with {size} bytes is no value of the plan")
            sizes[self.columns.rows[value_id]] = size
        return self.resize_rows(sizes)

    def resize_rows(self, nbytes: Numbers) -> MemoryPlan:
        """The plan for values of these sizes, in the order of the plan.

        An alias keeps its distance from its owner's first byte, and a value that never lives has
        no bytes whatever its size. DoesNotFit when the plan's capacity is passed, InvalidArgument
        when a value would grow into a pinned one: plan anew.
        """
        began = perf_counter()
        known = self.columns
        if self._never_lives is not None:
            nbytes = np.where(self._never_lives, known.nbytes, nbytes)
        self._check(nbytes)
        padded = -(-nbytes // known.alignment) * known.alignment
        capacity = np.where(self._is_alias, nbytes, padded)
        is_same = capacity == known.capacity
        offset = known.offset.copy()
        regions: dict[str, Region] = {}
        top_of_arena = 0
        for stack in self._stacks:
            region = stack.region
            in_arena = region.name in ARENA_REGIONS
            base = align_up(top_of_arena, stack.alignment) if in_arena else 0
            if bool(is_same[stack.rows].all()):
                regions[region.name] = region._replace(base=base)
                offset[stack.rows] += base - region.base
            else:
                boxes = stack.boxes
                sizes = boxes.sizes(capacity, self._is_alias)
                offsets = stack.restacked(sizes)
                high = int((offsets + sizes).max(initial=0))
                least = stack.lives.profile(sizes).peak_nbytes
                regions[region.name] = region._replace(base=base, nbytes=high, lower_bound=least)
                moves = base - region.base + offsets - boxes.offset
                offset[boxes.rows] += moves[boxes.box_of]
            if in_arena:
                top_of_arena = base + regions[region.name].nbytes
        made = self.known._replace(
            slots=known.moved(offset, nbytes, capacity),
            regions=regions,
            peak_tick=self._peak_tick(capacity),
            method="replay",
            work=0,
            seconds=perf_counter() - began,
        )
        if made.capacity is None:
            return made
        from arenite.memory.fit import within_capacity

        return within_capacity(made)

    @cached_property
    def _never_lives(self) -> np.ndarray[Any, np.dtype[np.bool_]] | None:
        """Of each value whether neither it nor its owner nor any alias lives; None where all do."""
        known = self.columns
        lives = known.start < known.end
        if lives.all():
            return None
        owners = np.where(self._is_alias, known.alias_of, np.arange(len(lives)))
        for _ in range(len(owners).bit_length()):  # aliases of aliases
            owners = owners[owners]
        owner_lives = np.zeros(len(lives), np.bool_)
        np.logical_or.at(owner_lives, owners, lives)
        return ~owner_lives[owners]

    def _peak_tick(self, capacity: Numbers) -> int:
        boxes = [one.boxes for one in self._stacks if one.region.name in ARENA_REGIONS]
        if not boxes:
            return self.known.peak_tick
        sizes = [one.sizes(capacity, self._is_alias) for one in boxes]
        return self._arena_lives.profile(np.concatenate(sizes)).peak_tick

    @cached_property
    def _arena_lives(self) -> Lives:
        boxes = [one.boxes for one in self._stacks if one.region.name in ARENA_REGIONS]
        starts, ends = ([getattr(one, name) for one in boxes] for name in ("start", "end"))
        return Lives.of(np.concatenate(starts), np.concatenate(ends))

    def _check(self, nbytes: Numbers) -> None:
        known = self.columns
        # As floats, since a sum of integers may come around to a small one.
        if nbytes.sum(dtype=np.float64) > MAX_NUMBER:
            raise InvalidArgument(f"all values together take more than {MAX_NUMBER} bytes")
        for row in np.flatnonzero(self._is_alias).tolist():
            owner = int(known.alias_of[row])
            end = int(known.offset[row] - known.offset[owner] + nbytes[row])
            if end > nbytes[owner]:
                raise InvalidArgument(
                    f"value {known.ids[row]!r} is an alias that would end {end} bytes into "
                    f"{known.ids[owner]!r}, behind its last byte"
                )


def _look_down(starts: list[int], ends: list[int]) -> list[tuple[int, ...]]:
    """For each box, by position, the boxes directly below it."""
    below: list[tuple[int, ...]] = []
    # The skyline: segment k spans [borders[k], borders[k + 1]) with box `tops[k]` on top.
    borders, tops = [-1], [-1]
    for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
        if start >= end:
            below.append(())
            continue
        first = bisect_right(borders, start) - 1
        last = bisect_left(borders, end)
        seen = dict.fromkeys(tops[first:last])
        seen.pop(-1, None)
        below.append(tuple(seen))
        new_borders, new_tops = [start], [i]
        if borders[first] < start:
            new_borders, new_tops = [borders[first], start], [tops[first], i]
        if last == len(borders) or borders[last] > end:
            new_borders.append(end)
            new_tops.append(tops[last - 1])
        borders[first:last] = new_borders
        tops[first:last] = new_tops
    return below
