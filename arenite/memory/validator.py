"""Whether a plan is sound. Shares no code with the planner: it sees slots and nothing else.

Sound: every slot is aligned, inside its region and inside the arena, regions don't overlap, and no
two slots share a byte while both live, except an alias with its owner and a value with the one
whose bytes it took over in the tick where the one dies and the other is born.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from arenite.errors import InvalidPlan

if TYPE_CHECKING:
    from arenite.memory.plan import MemoryPlan, Slot


def validate(plan: MemoryPlan) -> None:
    """Return when the plan is sound, raise InvalidPlan naming the first fault otherwise."""
    arena = sorted((r for r in plan.regions.values() if r.in_arena), key=lambda r: r.base)
    for lower, upper in pairwise(arena):
        if lower.base + lower.nbytes > upper.base:
            raise InvalidPlan(f"regions {lower.name} and {upper.name} overlap in the arena")
    for slot in plan.slots.values():
        region = plan.regions.get(slot.region)
        if region is None:
            raise InvalidPlan(f"value {slot.id!r} lies in region {slot.region!r}, which is missing")
        _check_bounds(plan, slot, region.base, region.base + region.nbytes)
    spans = _spans_with_aliases(plan)
    for name in plan.regions:
        owners = [s for s in plan.slots.values() if s.region == name and s.alias_of is None]
        _check_overlaps(owners, spans)


def _check_bounds(plan: MemoryPlan, slot: Slot, low: int, high: int) -> None:
    if slot.alignment < 1 or slot.offset % slot.alignment:
        raise InvalidPlan(f"value {slot.id!r} at {slot.offset} is not aligned to {slot.alignment}")
    if not 0 <= slot.nbytes <= slot.capacity:
        raise InvalidPlan(f"value {slot.id!r} needs {slot.nbytes} bytes and has {slot.capacity}")
    if slot.offset < low or slot.offset + slot.capacity > high:
        raise InvalidPlan(
            f"value {slot.id!r} at [{slot.offset}, {slot.offset + slot.capacity}) leaves its "
            f"region {slot.region} at [{low}, {high})"
        )
    if slot.alias_of is not None:
        owner = plan.slots.get(slot.alias_of)
        if owner is None or owner.region != slot.region:
            raise InvalidPlan(f"value {slot.id!r} is an alias of {slot.alias_of!r}, not found")
        if slot.offset < owner.offset or slot.offset + slot.nbytes > owner.offset + owner.nbytes:
            raise InvalidPlan(f"value {slot.id!r} leaves the bytes of its owner {owner.id!r}")


def _check_overlaps(owners: list[Slot], spans: dict[object, tuple[int, int]]) -> None:
    """A pass over time: each slot against those alive at its birth."""
    alive: list[Slot] = []
    for slot in sorted(owners, key=lambda s: spans[s.id]):
        birth, death = spans[slot.id]
        if birth >= death or not slot.capacity:
            continue
        alive = [other for other in alive if spans[other.id][1] > birth]
        for other in alive:
            apart = slot.offset >= other.end or other.offset >= slot.end
            taken_over = slot.took_over == other.id and slot.offset == other.offset
            in_one_tick = spans[other.id][0] < birth and spans[other.id][1] == birth + 1
            if not apart and not (taken_over and in_one_tick):
                raise InvalidPlan(
                    f"values {other.id!r} at [{other.offset}, {other.end}) and {slot.id!r} at "
                    f"[{slot.offset}, {slot.end}) share bytes and both live at tick {birth}"
                )
        alive.append(slot)


def _spans_with_aliases(plan: MemoryPlan) -> dict[object, tuple[int, int]]:
    """For each owner, the ticks in which it or an alias of it lives."""
    spans: dict[object, tuple[int, int]] = {}
    for slot in plan.slots.values():
        owner, steps = slot, 0
        while owner.alias_of is not None:
            owner, steps = plan.slots[owner.alias_of], steps + 1
            if steps > len(plan.slots):
                raise InvalidPlan(f"value {slot.id!r} is an alias of itself, through others")
        start, end = spans.get(owner.id, (owner.lifetime.start, owner.lifetime.end))
        if slot.lifetime.start < slot.lifetime.end:
            start, end = min(start, slot.lifetime.start), max(end, slot.lifetime.end)
        spans[owner.id] = (start, end)
    return spans
