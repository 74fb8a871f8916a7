"""Which launches touch the same bytes, what order that needs, and whether an order is enough.

`BufferRange` and `Launch` say what is touched. `HazardTracker` answers launch by launch whether
the next one must wait, and for whom; `order` hands it a whole sequence and gives the fewest edges;
`verify` proves, with code of its own, that an order leaves no race. All of them work on bytes of
storages alone.
"""

# ruff: noqa: I001 - names that are exported stand together, each under its own name

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arenite.hazards.proof import (
        Loop as Loop,
        Order as Order,
        Race as Race,
        find_race as find_race,
        verify as verify,
    )
    from arenite.hazards.ranges import (
        BufferRange as BufferRange,
        ByteView as ByteView,
        HazardKind as HazardKind,
        Launch as Launch,
        Role as Role,
    )
    from arenite.hazards.tracker import Edge as Edge, HazardTracker as HazardTracker, order as order
else:
    from arenite.lazy import names_of

    __getattr__, __dir__, __all__ = names_of(
        "arenite.hazards",
        {
            "proof": "Loop Order Race find_race verify",
            "ranges": "BufferRange ByteView HazardKind Launch Role",
            "tracker": "Edge HazardTracker order",
        },
    )
