"""Which launches touch the same bytes, what order that needs, and whether an order is enough.

`BufferRange` and `Launch` say what is touched. `HazardTracker` answers launch by launch whether
the next one must wait; `order` gives the fewest edges for a whole sequence; `verify` proves, with
code of its own, that an order leaves no race. All of them work on bytes of storages alone.
"""

from arenite.hazards.order import Edge, order
from arenite.hazards.ranges import BufferRange, ByteView, HazardKind, Launch, Role
from arenite.hazards.tracker import HazardTracker
from arenite.hazards.verify import Loop, Order, Race, find_race, verify

__all__ = [
    "BufferRange",
    "ByteView",
    "Edge",
    "HazardKind",
    "HazardTracker",
    "Launch",
    "Loop",
    "Order",
    "Race",
    "Role",
    "find_race",
    "order",
    "verify",
]
