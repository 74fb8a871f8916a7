"""Which launches touch the same bytes, what order that needs, and whether an order is enough.

`BufferRange` and `Launch` say what is touched. `HazardTracker` answers launch by launch whether
the next one must wait, and for whom; `order` hands it a whole sequence and gives the fewest edges;
`verify` proves, with code of its own, that an order leaves no race. All of them work on bytes of
storages alone.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arenite.hazards.ordering import Edge
    from arenite.hazards.proof import Loop, Order, Race, find_race, verify
    from arenite.hazards.ranges import BufferRange, ByteView, HazardKind, Launch, Role
    from arenite.hazards.tracker import HazardTracker, order
else:
    from arenite.lazy import names_of

    __getattr__, __dir__ = names_of(
        "arenite.hazards",
        {
            "ordering": "Edge",
            "proof": "Loop Order Race find_race verify",
            "ranges": "BufferRange ByteView HazardKind Launch Role",
            "tracker": "HazardTracker order",
        },
    )

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
