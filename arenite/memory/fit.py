"""The one place that says no: a plan above its capacity becomes DoesNotFit."""

from __future__ import annotations

from arenite.errors import DoesNotFit
from arenite.memory.plan import MemoryPlan
from arenite.memory.values import ARENA_REGIONS

#: Values named in the message; the exception carries all of them.
NAMED_VALUES = 8


def within_capacity(made: MemoryPlan) -> MemoryPlan:
    """The plan itself when its arena fits its capacity, DoesNotFit with the reasons otherwise."""
    capacity = made.capacity
    if capacity is None or made.peak_nbytes <= capacity:
        return made
    live = [slot for slot in made.live_at(made.peak_tick) if slot.region in ARENA_REGIONS]
    named = ", ".join(f"{slot.id} ({slot.capacity})" for slot in live[:NAMED_VALUES])
    if len(live) > NAMED_VALUES:
        named += f" and {len(live) - NAMED_VALUES} more"
    if made.lower_bound > capacity:
        outlook = f"no plan can be smaller than {made.lower_bound}"
    else:
        outlook = f"the lower bound is {made.lower_bound}, so a longer search may find one"
    raise DoesNotFit(
        f"no plan within {capacity} bytes was found; {outlook}. The most bytes are live at tick "
        f"{made.peak_tick}: {named}. The smallest capacity known to work is "
        f"{made.peak_nbytes} bytes",
        capacity=capacity,
        lower_bound=made.lower_bound,
        smallest_known=made.peak_nbytes,
        peak_tick=made.peak_tick,
        live=tuple((slot.id, slot.capacity) for slot in live),
        plan=made,
    )
