"""Plans as aligned text, and as tables for notebooks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import TYPE_CHECKING

from arenite.device.allocator import readable_nbytes
from arenite.errors import printable
from arenite.memory.html import html_table
from arenite.memory.plan import HOST
from arenite.memory.values import ARENA_REGIONS

if TYPE_CHECKING:
    from arenite.memory.plan import MemoryPlan

#: Boxes of a picture in a notebook, which keeps every output that it shows.
NOTEBOOK_BOXES = 2000
#: Names in a cell of a table.
SHOWN_NAMES = 3
#: Columns of both tables that are numbers.
_NUMBERS = {2, 3, 4}


def name_list(names: Sequence[str]) -> str:
    """Some names, and how many more there are."""
    more = len(names) - SHOWN_NAMES
    return ", ".join(names[:SHOWN_NAMES]) + (f" and {more} more" if more > 0 else "")


def aligned(rows: list[list[str]], right: set[int]) -> str:
    """Rows of equal length as columns; those in `right` end flush, the first row is the head."""
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if k in right else cell.ljust(width)
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    lines.insert(1, "  ".join("─" * width for width in widths))
    return "\n".join(lines)


def price_line(plan: MemoryPlan) -> str:
    """What the plan was made for, and what that costs."""
    waits = "no launch waits" if not plan.reuse_edges else f"{plan.reuse_edges} waits are there"
    line = f"made for {plan.objective}: {waits} for reuse alone"
    if plan.instead is None:
        return line
    more = plan.peak_nbytes - plan.instead.peak_nbytes
    than = f"{abs(more)} bytes {'more' if more >= 0 else 'fewer'} than"
    return f"{line}; {than} made for memory, with {plan.instead.reuse_edges} such waits"


def summary(plan: MemoryPlan) -> str:
    return (
        f"arena {plan.peak_nbytes} bytes ({readable_nbytes(plan.peak_nbytes)}), lower bound "
        f"{plan.lower_bound}, ratio {plan.ratio:.4f}, fullest at tick {plan.peak_tick}; in all "
        f"{plan.total_nbytes} bytes ({readable_nbytes(plan.total_nbytes)}); "
        f"{len(plan.slots)} values, {readable_nbytes(plan.reused_nbytes)} saved by reuse\n"
        f"{price_line(plan)}"
    )


def region_rows(plan: MemoryPlan, amount: Callable[[int], str] = str) -> list[list[str]]:
    """A row a region; `amount` is how bytes are written."""
    regions = [["region", "where", "bytes", "lower bound", "values"]]
    places = {"source": "outside, read once"}
    for region in plan.regions.values():
        count = sum(slot.region == region.name for slot in plan.slots.values())
        where = places.get(region.name, "outside")
        if region.name in ARENA_REGIONS:
            arena = "arena" if region.device == HOST else f"{region.device} arena"
            where = f"{arena} from {amount(region.base) if region.base else 0}"
        sizes = (amount(region.nbytes), amount(region.lower_bound))
        regions.append([region.name, where, *sizes, str(count)])
    if plan.shadow_nbytes:
        size = amount(plan.shadow_nbytes)
        regions.append(["shadow", "beside the arena, as float16", size, size, ""])
    return regions


def slot_rows(plan: MemoryPlan, limit: int, amount: Callable[[int], str] = str) -> list[list[str]]:
    """The `limit` largest slots of the arena and around it."""
    slots = [["value", "region", "offset", "bytes", "live", "note"]]
    largest = sorted(plan.slots.values(), key=lambda slot: -slot.capacity)[:limit]
    for slot in largest:
        note = f"alias of {printable(slot.alias_of)}" if slot.alias_of is not None else ""
        note = f"took over {printable(slot.took_over)}" if slot.took_over is not None else note
        live = f"[{slot.lifetime.start}, {slot.lifetime.end})"
        offset = f"{slot.offset} pinned" if slot.pinned else str(slot.offset)
        slots.append([printable(slot.id), slot.region, offset, amount(slot.nbytes), live, note])
    return slots


def rest(plan: MemoryPlan, limit: int) -> list[str]:
    """What is to be said of the slots that are not shown."""
    return [f"… and {len(plan.slots) - limit} smaller ones"] if len(plan.slots) > limit else []


def plan_table(plan: MemoryPlan, limit: int) -> str:
    """The summary, the regions and the largest slots as aligned text."""
    tables = (aligned(region_rows(plan), _NUMBERS), aligned(slot_rows(plan, limit), _NUMBERS))
    return "\n\n".join([summary(plan), *tables, *rest(plan, limit)])


def plan_html(plan: MemoryPlan, limit: int) -> str:
    """For notebooks: the picture, then regions and the largest slots."""
    from arenite.memory.svg import draw

    tables = (
        html_table(region_rows(plan, readable_nbytes), _NUMBERS),
        html_table(slot_rows(plan, limit, readable_nbytes), _NUMBERS),
    )
    texts = [f"<p>{escape(text)}</p>" for text in (price_line(plan), *rest(plan, limit))]
    return "".join([draw(plan, NOTEBOOK_BOXES), texts[0], *tables, *texts[1:]])
