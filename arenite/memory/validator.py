"""Whether a plan is sound. Shares no code with the planner: it sees slots and nothing else.

A family is a value that owns its bytes with its aliases. It holds the bytes of the owner from the
first tick that one of them lives to the last. Sound: every slot is aligned, inside its region and
inside the arena, an alias inside its owner, regions don't overlap, and no two families hold a byte
in the same tick, with one exception: a value may take over the bytes of another one

    tick    0 1 2 3 4 5
    a       ████████        in the last tick of a's family, which is the first of b's,
    b             ██████    if nobody else of the two families uses these bytes in it.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from arenite.errors import InvalidPlan

if TYPE_CHECKING:
    from arenite.memory.plan import MemoryPlan, Slot


@dataclass(eq=False, slots=True)
class _Family:
    """An owner with its aliases, and the ticks [birth, death) in which one of them lives."""

    owner: Slot
    live: list[Slot]
    birth: int = 0
    death: int = 0

    def users(self, tick: int, low: int, high: int) -> list[Slot]:
        """The values that live at a tick and have bytes in [low, high)."""
        return [
            slot
            for slot in self.live
            if slot.lifetime.start <= tick < slot.lifetime.end
            and max(slot.offset, low) < min(slot.end, high)
        ]


def validate(plan: MemoryPlan) -> None:
    """Return when the plan is sound, raise InvalidPlan naming the first fault otherwise."""
    arena = sorted((r for r in plan.regions.values() if r.in_arena), key=lambda r: r.base)
    for lower, upper in pairwise(arena):
        if lower.base + lower.nbytes > upper.base:
            raise InvalidPlan(f"regions {lower.name} and {upper.name} overlap in the arena")
    if plan.shadow_nbytes and 2 * plan.shadow_nbytes < plan.peak_nbytes:
        raise InvalidPlan(
            f"a shadow of {plan.shadow_nbytes} bytes is not half of the arena's {plan.peak_nbytes}"
        )
    for slot in plan.slots.values():
        region = plan.regions.get(slot.region)
        if region is None:
            raise InvalidPlan(f"value {slot.id!r} lies in region {slot.region!r}, which is missing")
        _check_bounds(plan, slot, region.base, region.base + region.nbytes)
    families = _families(plan)
    for name in plan.regions:
        _check_sharing([one for one in families if one.owner.region == name])
    _check_blocks(plan, families)


def _check_bounds(plan: MemoryPlan, slot: Slot, low: int, high: int) -> None:
    if slot.alignment < 1 or slot.offset % slot.alignment:
        raise InvalidPlan(f"value {slot.id!r} at {slot.offset} is not aligned to {slot.alignment}")
    if not 0 <= slot.nbytes <= slot.capacity:
        raise InvalidPlan(f"value {slot.id!r} needs {slot.nbytes} bytes and has {slot.capacity}")
    if slot.offset < low or slot.end > high:
        raise InvalidPlan(
            f"value {slot.id!r} at [{slot.offset}, {slot.end}) leaves its region {slot.region} "
            f"at [{low}, {high})"
        )
    if slot.took_over is not None and slot.took_over not in plan.slots:
        raise InvalidPlan(f"value {slot.id!r} took over {slot.took_over!r}, not found")
    if slot.alias_of is None:
        return
    owner = plan.slots.get(slot.alias_of)
    if owner is None or owner.region != slot.region:
        raise InvalidPlan(f"value {slot.id!r} is an alias of {slot.alias_of!r}, not found")
    end = slot.offset + slot.nbytes
    if slot.offset < owner.offset or end > owner.offset + owner.nbytes or slot.end > owner.end:
        raise InvalidPlan(
            f"value {slot.id!r} at [{slot.offset}, {end}), with room up to {slot.end}, leaves the "
            f"bytes of its owner {owner.id!r} at [{owner.offset}, {owner.offset + owner.nbytes}), "
            f"with room up to {owner.end}"
        )


def _families(plan: MemoryPlan) -> list[_Family]:
    family_of = {s.id: _Family(s, []) for s in plan.slots.values() if s.alias_of is None}
    families = list(family_of.values())
    for slot in plan.slots.values():
        path: list[Slot] = []
        at = slot
        while at.id not in family_of:
            if at.alias_of is None or len(path) > len(plan.slots):
                raise InvalidPlan(f"value {slot.id!r} is an alias of itself, through others")
            path.append(at)
            at = plan.slots[at.alias_of]
        family_of |= {one.id: family_of[at.id] for one in path}
        if slot.lifetime.start < slot.lifetime.end:
            family_of[slot.id].live.append(slot)
    for family in families:
        family.birth = min((s.lifetime.start for s in family.live), default=0)
        family.death = max((s.lifetime.end for s in family.live), default=0)
    return families


def _check_blocks(plan: MemoryPlan, families: list[_Family]) -> None:
    """Values of one block move together when sizes change, so they must begin together."""
    first: dict[tuple[str, int], Slot] = {}
    for family in families:
        owner = family.owner
        other = first.setdefault((owner.region, owner.block), owner)
        if other.offset != owner.offset:
            raise InvalidPlan(
                f"values {other.id!r} at {other.offset} and {owner.id!r} at {owner.offset} are in "
                f"block {owner.block} of region {owner.region} and don't begin together"
            )
    for slot in plan.slots.values():
        if slot.alias_of is not None and slot.block != plan.slots[slot.alias_of].block:
            raise InvalidPlan(f"value {slot.id!r} is not in the block of its owner")


def _check_sharing(families: list[_Family]) -> None:
    """A pass over time with the stretches of bytes that are held, by address."""
    lows: list[int] = []
    held: list[tuple[int, _Family]] = []  # where each stretch ends, and who holds it
    dying: list[tuple[int, int, _Family]] = []
    at_birth = sorted(families, key=lambda one: one.birth)
    for number, family in enumerate(at_birth):
        low, high = family.owner.offset, family.owner.end
        if low == high or family.birth == family.death:
            continue
        while dying and dying[0][0] <= family.birth:
            dead = heapq.heappop(dying)[2]
            where = _between(lows, held, dead.owner.offset, dead.owner.end)
            kept = [k for k in range(where.start, where.stop) if held[k][1] is not dead]
            lows[where], held[where] = [lows[k] for k in kept], [held[k] for k in kept]
        where = _between(lows, held, low, high)
        pieces = [(low, high, family)]
        for start, (end, other) in zip(lows[where], held[where], strict=True):
            _check_handover(other, family)
            pieces += [(start, low, other)] if start < low else []
            pieces += [(high, end, other)] if end > high else []
        pieces.sort(key=lambda piece: piece[0])
        lows[where] = [piece[0] for piece in pieces]
        held[where] = [piece[1:] for piece in pieces]
        heapq.heappush(dying, (family.death, number, family))


def _between(lows: list[int], held: list[tuple[int, _Family]], low: int, high: int) -> slice:
    """The stretches with bytes in [low, high)."""
    first = bisect_right(lows, low)
    if first and held[first - 1][0] > low:
        first -= 1
    return slice(first, max(first, bisect_left(lows, high)))


def _check_handover(old: _Family, new: _Family) -> None:
    """InvalidPlan unless the two meet for one tick, in which the one takes over a value of the
    other and nobody else uses bytes of both."""
    tick, owner = new.birth, new.owner
    low, high = max(old.owner.offset, owner.offset), min(old.owner.end, owner.end)
    is_last = old.birth < tick == old.death - 1
    before, after = old.users(tick, low, high), new.users(tick, low, high)
    if is_last and after == [owner] and len(before) == 1:
        taken = before[0]
        is_named = owner.took_over == taken.id and taken.offset == owner.offset
        if is_named and taken.lifetime.start < tick:
            return
    names = [slot.id for slot in (before or [old.owner])[:1] + (after or [owner])[:1]]
    raise InvalidPlan(
        f"values {old.owner.id!r} at [{old.owner.offset}, {old.owner.end}) and {owner.id!r} at "
        f"[{owner.offset}, {owner.end}) share bytes and both live at tick {tick}"
        + (f", through {names[0]!r} and {names[1]!r}" if names != [old.owner.id, owner.id] else "")
    )
