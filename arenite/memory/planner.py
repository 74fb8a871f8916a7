"""`memory.plan`: values in, a sound MemoryPlan out, or DoesNotFit with what fills the memory.

Each region is placed by itself: best of several greedy orders, then the ejection search while
there is effort left. The arena's regions are stacked on one another. The validator looks at every
plan before it is handed out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from time import perf_counter

from arenite.device.allocator import as_integer
from arenite.errors import InvalidArgument
from arenite.memory.blocks import Blocks, live_profile, make_blocks
from arenite.memory.fit import within_capacity
from arenite.memory.placement import Layout, Problem, check_pins, sweep
from arenite.memory.plan import REGION_ALIGNMENT, MemoryPlan, Region, Slot
from arenite.memory.profile import LiveProfile
from arenite.memory.search import EjectionSearch, OnProgress, Progress
from arenite.memory.values import ARENA_REGIONS, REGIONS, Value, ValueId, align_up, check_values

log = logging.getLogger("arenite.memory")


@dataclass(slots=True)
class _Placed:
    """One region, placed from offset 0 on."""

    blocks: Blocks
    offsets: list[int]
    nbytes: int
    lower_bound: int
    alignment: int
    method: str
    work: int


def plan(
    values: Iterable[Value],
    capacity: int | None,
    effort: int | None,
    on_progress: OnProgress | None,
) -> MemoryPlan:
    """What `memory.plan` says."""
    began = perf_counter()
    if capacity is not None:
        capacity = as_integer("capacity", capacity)
    if capacity is not None and capacity < 0:
        raise InvalidArgument(f"a capacity of {capacity} bytes makes no sense; it must be >= 0")
    by_id = check_values(values)
    by_region: dict[str, list[Value]] = {}
    for value in by_id.values():
        by_region.setdefault(value.region, []).append(value)
    placed: dict[str, _Placed] = {}
    base = 0
    for name in REGIONS:
        if name in by_region:
            left = None
            if name in ARENA_REGIONS and capacity is not None:
                left = max(0, capacity - base)
            placed[name] = _place_region(by_region[name], left, effort, on_progress)
            if name in ARENA_REGIONS:
                base = align_up(base, placed[name].alignment) + placed[name].nbytes
    made = _assemble(by_id, placed, capacity, perf_counter() - began)
    made.verify()
    log.info("planned %d values: %d bytes, ratio %.3f", len(by_id), made.peak_nbytes, made.ratio)
    return within_capacity(made)


def _place_region(
    values: list[Value],
    capacity: int | None,
    effort: int | None,
    on_progress: OnProgress | None,
) -> _Placed:
    blocks = make_blocks(values)
    problem = Problem.of(blocks.blocks)
    check_pins(problem, [block.members[0][0] for block in blocks.blocks])
    profile = LiveProfile.of(problem.starts, problem.ends, problem.sizes)
    lower_bound = profile.peak_nbytes
    goal = max(lower_bound, capacity or 0)
    offsets, method, work = _search(problem, profile, goal, effort, on_progress)
    return _Placed(
        blocks,
        offsets,
        max((o + s for o, s in zip(offsets, problem.sizes, strict=True)), default=0),
        lower_bound,
        max([REGION_ALIGNMENT, *problem.alignments]),
        method,
        work,
    )


def _search(
    problem: Problem,
    profile: LiveProfile,
    goal: int,
    effort: int | None,
    on_progress: OnProgress | None,
) -> tuple[list[int], str, int]:
    """Offsets, the name of what found them, and the neighbours looked at."""
    if not problem.is_listed:
        return sweep(problem), "sweep by birth", len(problem)

    def keep_on(peak: int, work: int) -> bool:
        now = Progress(peak, profile.peak_nbytes, work, effort)
        return on_progress is None or on_progress(now) is not False

    layout = Layout(problem)
    best: list[int] = []
    best_peak, method, stopped = 2**62, "", False
    for name, key in _greedy_keys(problem, profile).items():
        peak = layout.place_all(sorted(range(len(problem)), key=key), best_peak)
        if peak < best_peak:
            best, best_peak, method = layout.offsets, peak, f"greedy by {name}"
        stopped = not keep_on(best_peak, layout.work)
        if best_peak <= goal or stopped or (effort is not None and layout.work >= effort):
            break
    if best_peak <= goal or stopped:
        return best, method, layout.work
    search = EjectionSearch(problem, best, goal, effort, keep_on)
    offsets = search.run()
    if offsets != best:
        method += ", then ejection"
    return offsets, method, layout.work + search.work


def _greedy_keys(
    problem: Problem, profile: LiveProfile
) -> dict[str, Callable[[int], tuple[int, int]]]:
    """Orders worth trying, best first; whole numbers only, so that every machine sorts alike."""
    sizes = problem.sizes
    spans = list(zip(problem.starts, problem.ends, strict=True))
    crowd = [profile.peak_between(start, end) for start, end in spans]
    return {
        "size and crowd": lambda i: (-sizes[i] * crowd[i], i),
        "size": lambda i: (-sizes[i], i),
        "size and life": lambda i: (-sizes[i] * (spans[i][1] - spans[i][0]).bit_length(), i),
        "size and twice crowd": lambda i: (-sizes[i] * crowd[i] ** 2, i),
    }


def _assemble(
    by_id: dict[ValueId, Value],
    placed: dict[str, _Placed],
    capacity: int | None,
    seconds: float,
) -> MemoryPlan:
    regions: dict[str, Region] = {}
    slots: dict[ValueId, Slot] = {}
    base = 0
    for name, region in placed.items():
        at = align_up(base, region.alignment) if name in ARENA_REGIONS else 0
        regions[name] = Region(name, at, region.nbytes, region.lower_bound)
        if name in ARENA_REGIONS:
            base = at + region.nbytes
        for number, (block, offset) in enumerate(
            zip(region.blocks.blocks, region.offsets, strict=True)
        ):
            for value_id, inside in block.members:
                value = by_id[value_id]
                room = value.nbytes if value.alias else value.padded_nbytes
                slots[value_id] = Slot(
                    value_id,
                    name,
                    at + offset + (inside if block.is_live else 0),
                    value.nbytes if block.is_live else 0,
                    room if block.is_live else 0,
                    value.alignment,
                    value.lifetime,
                    number,
                    value.pin is not None and block.is_live,
                    value.alias.of if value.alias else None,
                    region.blocks.taken_over.get(value_id),
                )
    work_region = placed.get("work")
    return MemoryPlan(
        slots={value_id: slots[value_id] for value_id in by_id},
        regions=regions,
        peak_tick=_peak_tick(placed),
        capacity=capacity,
        method=work_region.method if work_region else "",
        work=sum(region.work for region in placed.values()),
        seconds=seconds,
    )


def _peak_tick(placed: dict[str, _Placed]) -> int:
    """When the blocks of the arena take the most bytes."""
    arena = [region.blocks.blocks for name, region in placed.items() if name in ARENA_REGIONS]
    blocks = [block for some in arena for block in some]
    return live_profile(blocks).peak_tick
