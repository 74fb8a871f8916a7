"""Launch: the one record of a kernel's launch, before it is known where anything lies."""

from __future__ import annotations

from arenite.ir.dim import Dim, bounds
from arenite.memory import ValueId
from arenite.records import NamedTuple

#: Estimated work from which a launch is shared among workers, whatever is around it.
SHARED_FROM_NS = 5_000


class Launch(NamedTuple):
    """Its code, and the values and sizes it gets: arrays first, then sizes, then the tiles."""

    name: str
    entry: int  # where its code begins in the program's image
    arrays: tuple[ValueId, ...]
    reads: tuple[ValueId, ...]
    writes: tuple[ValueId, ...]  # scratch among them
    sizes: tuple[Dim, ...]
    tiles: Dim
    cost_ns: int
    #: (k, start, end): of the k-th of `reads` and `writes` it touches these bytes alone. Only of
    #: values whose bytes nothing else ever has, so that it holds wherever the others lie.
    parts: tuple[tuple[int, int, int], ...] = ()

    @property
    def is_shared(self) -> bool:
        return self.cost_ns >= SHARED_FROM_NS and bounds(self.tiles)[1] > 1
