"""The plan of a program, for little memory or for launches side by side, with its price.

In: a program before it is known where anything lies. Out: a MemoryPlan that says what it was made
for, how many launches wait for another only because values share bytes, and, where it was made for
concurrency, what the plan for memory would have taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePath

from arenite.errors import DoesNotFit, InvalidArgument
from arenite.memory import MemoryPlan, Price, ValueId
from arenite.memory import plan as plan_memory
from arenite.memory.fit import within_capacity
from arenite.memory.plan import CONCURRENCY, MADE_FOR
from arenite.pipeline.steps import Lowered
from arenite.pipeline.windows import Windows


def planned(
    program: Lowered, is_shared: Sequence[bool], memory: int | None, made_for: str
) -> MemoryPlan:
    """`is_shared` says of each launch whether workers share it, `memory` is the most bytes the
    arena may have."""
    if made_for not in MADE_FOR:
        raise InvalidArgument(f"a plan is made for {' or '.join(MADE_FOR)}, not for {made_for!r}")
    windows = Windows(program, is_shared)
    small = plan_memory(program.lifetimes(), memory)
    details = _details(program)
    small = replace(small, reuse_edges=windows.added_edges(small), details=details)
    if made_for != CONCURRENCY:
        return small
    both = [plan_memory(program.lifetimes(one)) for one in (windows, windows.begun_early())]
    wide = replace(min(both, key=lambda plan: plan.peak_nbytes), capacity=memory)
    try:
        within_capacity(wide)
    except DoesNotFit as refusal:
        raise DoesNotFit(
            f"planned for concurrency: {refusal}. Planned for memory it takes {small.peak_nbytes} "
            "bytes: compile with plan='memory'",
            capacity=refusal.capacity,
            lower_bound=refusal.lower_bound,
            smallest_known=refusal.smallest_known,
            peak_tick=refusal.peak_tick,
            live=refusal.live,
            plan=refusal.plan,
        ) from None
    price = Price(small.peak_nbytes, small.reuse_edges)
    return replace(wide, made_for=CONCURRENCY, instead=price, details=details)


def _details(program: Lowered) -> dict[ValueId, str]:
    """Dtype and shape of each value, and the place in a model or a source that it comes from."""
    places: dict[int, str] = {}
    for launch in (*program.load, *program.launches):
        for origin in launch.kernel.origins[:1]:
            file = PurePath(origin.file).name
            place = origin.name or (f"{file}:{origin.line}" if origin.line else file)
            for number in (*launch.writes, *launch.scratch):
                places.setdefault(number, f", from {place}")
    return {
        spec.name: f"{spec.dtype.name} [{', '.join(map(str, spec.shape))}]{places.get(number, '')}"
        for number, spec in enumerate(program.values)
    }
