"""memory/: where every value lives, decided before anything runs.

Values with sizes and lifetimes come in, a MemoryPlan goes out: no two values share a byte while
both live. The room knows nothing of graphs. `Arena` binds a plan to one block of real memory.
"""

from arenite.memory.arena import Arena
from arenite.memory.plan import MemoryPlan, Price, Region, Slot
from arenite.memory.planner import DEFAULT_EFFORT, plan
from arenite.memory.replay import Replay
from arenite.memory.search import Progress
from arenite.memory.validator import validate
from arenite.memory.values import Alias, Lifetime, Value, ValueId

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
    "Value",
    "ValueId",
    "plan",
    "validate",
]
