"""A plan as a page: the memory map over time, to step through, search and zoom.

In: a plan. Out: HTML in one piece. The plan becomes plain data here, a row a value; the components
of `show/` draw it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from arenite.device.allocator import readable_nbytes
from arenite.errors import printable
from arenite.memory.groups import few_runs, kind_of, kinds_of, runs_of
from arenite.memory.svg import MAX_RUNS, region_meaning
from arenite.memory.values import ARENA_REGIONS, RESIDENT_REGIONS, Lifetime, ValueId
from arenite.show import document, read_part

if TYPE_CHECKING:
    from arenite.memory.plan import MemoryPlan, Region, Slot

#: Kinds of values of a region that have a colour of their own.
N_COLOURS = 6
#: Letters of a name that are kept.
MAX_LETTERS = 300
#: Regions from the bottom of the page's list to its top; "source" is given back at load.
_ORDER = (*RESIDENT_REGIONS, "source")
STYLES = ("page.css", "memory.css")
SCRIPTS = (
    "elements.js",
    "scales.js",
    "box_map.js",
    "strip.js",
    "stepper.js",
    "memory.js",
    "memory_page.js",
)


def plan_page(plan: MemoryPlan, title: str = "") -> str:
    """The page of a plan; `title` is what was planned."""
    data = page_data(plan, title)
    styles, scripts = map(read_part, STYLES), map(read_part, SCRIPTS)
    return document(f"{data['title']}: memory", data, styles, scripts)


def page_data(plan: MemoryPlan, title: str = "") -> dict[str, Any]:
    """What the page shows, in plain data; values are rows, and other values in them are rows."""
    rows = {value_id: row for row, value_id in enumerate(plan.slots)}
    spans = _spans(plan)
    owners: dict[str, list[Slot]] = {name: [] for name in plan.regions}
    for slot in plan.slots.values():
        if slot.alias_of is None and slot.region in owners:
            owners[slot.region].append(slot)
    colours = {name: _colours(slots) for name, slots in owners.items()}

    def value(slot: Slot) -> dict[str, Any]:
        what, _, origin = plan.details.get(slot.id, "").partition(", from ")
        start, end = spans.get(slot.id, slot.lifetime)
        kind = kind_of(str(slot.id))
        return {
            "name": shown_name(slot.id),
            "region": slot.region,
            "offset": slot.offset,
            "nbytes": slot.nbytes,
            "capacity": slot.capacity,
            "start": start,
            "end": end,
            "what": shown_name(what),
            "origin": shown_name(origin),
            "kind": shown_name(kind),
            "colour": colours[slot.region].get(kind, N_COLOURS),
            "alias": None if slot.alias_of is None else rows[slot.alias_of],
            "tookOver": None if slot.took_over is None else rows[slot.took_over],
        }

    return {
        "title": shown_name(title) or "A plan",
        "facts": _facts(plan),
        "total": plan.total_nbytes,
        "peakTick": plan.peak_tick,
        "regions": [
            _region(plan.regions[name], owners[name]) for name in _ORDER if name in plan.regions
        ],
        "values": [value(slot) for slot in plan.slots.values()],
        "ticks": [
            {
                "name": shown_name(tick.name),
                "reads": [rows[one] for one in tick.reads],
                "writes": [rows[one] for one in tick.writes],
                "origin": shown_name(tick.origin),
                "atLoad": tick.at_load,
            }
            for tick in plan.ticks
        ],
    }


def _spans(plan: MemoryPlan) -> dict[ValueId, Lifetime]:
    """When the bytes of each value are in use; an alias keeps its owner's so."""
    spans: dict[ValueId, Lifetime] = {}
    for slot in plan.slots.values():
        if slot.lifetime.start < slot.lifetime.end:
            owner = slot
            while owner.alias_of is not None:
                owner = plan.slots[owner.alias_of]
            for one in {slot.id, owner.id}:
                start, end = spans.get(one, slot.lifetime)
                mine = slot.lifetime
                spans[one] = Lifetime(min(start, mine.start), max(end, mine.end))
    return spans


def _colours(slots: list[Slot]) -> dict[str, int]:
    return dict(zip(kinds_of(slots), range(N_COLOURS), strict=False))


def _region(region: Region, owners: list[Slot]) -> dict[str, Any]:
    runs = few_runs(runs_of(owners, " packed"), MAX_RUNS)
    lifetimes = {slot.lifetime for slot in owners}
    return {
        "name": region.name,
        "meaning": region_meaning(region),
        "device": shown_name(region.device),
        "base": region.base,
        "nbytes": region.nbytes,
        "lowerBound": region.lower_bound,
        "inArena": region.name in ARENA_REGIONS,
        "isResident": region.name in RESIDENT_REGIONS,
        "isTimed": len(lifetimes) > 1,
        "runs": [
            {"label": shown_name(run.label), "nbytes": run.nbytes, "count": len(run.groups)}
            for run in (runs if len(lifetimes) < 2 else ())
        ],
    }


def _facts(plan: MemoryPlan) -> list[list[str]]:
    """What the plan takes, in pairs of a name and an amount."""
    arena = readable_nbytes(plan.peak_nbytes)
    if plan.capacity is not None:
        arena += f" of {readable_nbytes(plan.capacity)}"
    facts = [
        ["in all", readable_nbytes(plan.total_nbytes)],
        ["arena", arena],
        ["arena / lower bound", f"{plan.ratio:.3f}"],
        ["saved by reuse", readable_nbytes(max(plan.reused_nbytes, 0))],
        ["values", f"{len(plan.slots):,}"],
        ["fullest at tick", f"{plan.peak_tick:,}"],
    ]
    if plan.ticks:
        at_load = sum(tick.at_load for tick in plan.ticks)
        facts.append(["steps", f"{at_load:,} at load, {len(plan.ticks) - at_load:,} a run"])
    return facts


def shown_name(text: object) -> str:
    """A text from a file, with control characters shown, of a length that can be looked at."""
    shown = printable(text)
    return shown if len(shown) <= MAX_LETTERS else shown[: MAX_LETTERS - 1] + "…"
