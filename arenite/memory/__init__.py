"""memory/: where every value lives, decided before anything runs.

Values with sizes and lifetimes come in, a MemoryPlan goes out: no two values share a byte while
both live. The room knows nothing of graphs. `Arena` binds a plan to one block of real memory.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

# The function below has the name of this module, and takes its place here.
from arenite.memory.plan import MemoryPlan, Price, Region, Slot, Tick

if TYPE_CHECKING:
    from arenite.memory.arena import Arena
    from arenite.memory.replay import Replay
    from arenite.memory.search import OnProgress, Progress
    from arenite.memory.validator import validate
    from arenite.memory.values import Alias, Lifetime, Value, ValueId
else:
    from arenite.lazy import names_of

    __getattr__, __dir__, _ = names_of(
        "arenite.memory",
        {
            "arena": "Arena",
            "replay": "Replay",
            "search": "Progress",
            "validator": "validate",
            "values": "Alias Lifetime Value ValueId",
        },
    )

#: Neighbours that each of the two phases of a search may look at by default: about a second in all.
DEFAULT_EFFORT = 4_000_000


def plan(
    values: Iterable["Value"],
    capacity: int | None = None,
    *,
    effort: int | None = DEFAULT_EFFORT,
    on_progress: "OnProgress | None" = None,
) -> MemoryPlan:
    """Place every value so that no two share bytes while both live.

    `capacity` is the most bytes the arena may have; when no plan within it is found DoesNotFit
    carries the best one. The search ends at the lower bound, at the capacity, when each of its
    phases has looked at `effort` neighbours (None: no limit), or when `on_progress` answers False.
    """
    from arenite.memory import planner

    return planner.plan(values, capacity, effort, on_progress)


__all__ = [
    "DEFAULT_EFFORT",
    "Alias",
    "Arena",
    "Lifetime",
    "MemoryPlan",
    "Price",
    "Progress",
    "Region",
    "Replay",
    "Slot",
    "Tick",
    "Value",
    "ValueId",
    "plan",
    "validate",
]
