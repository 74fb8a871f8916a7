"""What bytes remember of launches: the launch with all that is ordered before it, and readers.

Here is no byte and no range looked at; `segments` keeps, for each stretch of bytes, one writer and
one list of readers as defined here. Must hold: a reader leaves a list only when a later one in the
list is ordered after it, so whoever waits for the list waits for every reader there ever was.
"""

from __future__ import annotations

CUT_EVERY = 1024  # launches; those between two multiples of it share what is older
_OLD_FROM = 4096  # launches; sharing less saves nothing
_COMPACT_FROM = 16  # readers; shorter lists are not worth looking through

Span = tuple[int, int, int]  # storage_id, start, end
Spans = list[Span]  # of one launch and role: disjoint, in rising order


class Seen:
    """A launch that some byte remembers, and the launches ordered before it.

    Its ancestors are all launches below `floor`, `floor + i` for each bit i of `old`, and
    `cut + i` for each bit i of `bits`. Launches of one time mostly agree on what is long past, so
    they can share one `old`. Python frees a `Seen` when no segment mentions it any more. Together
    that keeps memory small.
    """

    __slots__ = ("bits", "cut", "floor", "old", "position", "reads", "writes")

    def __init__(self, position: int, reads: Spans, writes: Spans) -> None:
        self.position = position
        self.reads = reads
        self.writes = writes
        self.floor = self.cut = 0
        self.old = self.bits = 0

    def set_ancestors(self, floor: int, bits: int, shared: dict[int, int]) -> None:
        """All below `floor`, and `floor + i` for each bit i; `shared` has the `old` of others."""
        self.floor = self.cut = floor
        self.bits = bits
        cut = self.position // CUT_EVERY * CUT_EVERY - CUT_EVERY
        if cut - floor >= _OLD_FROM:
            old = bits & ((1 << (cut - floor)) - 1)
            self.cut, self.old, self.bits = cut, shared.setdefault(old, old), bits >> (cut - floor)

    def ancestors(self) -> tuple[int, int]:
        """Floor and bits."""
        if self.cut == self.floor:
            return self.floor, self.bits
        return self.floor, self.bits << (self.cut - self.floor) | self.old

    def is_after(self, other: Seen) -> bool:
        if other.position >= self.cut:
            return bool(self.bits >> (other.position - self.cut) & 1)
        return other.position < self.floor or bool(self.old >> (other.position - self.floor) & 1)


# The readers of a segment, latest first: reader, the readers before it, how many there are. Never
# changed, so segments that part ways share what they have in common.
Readers = tuple[Seen, "Readers | None", int]


def push(reader: Seen, readers: Readers | None) -> Readers:
    """The list with a reader later than all in it."""
    if readers is None:
        return reader, None, 1
    latest, older, count = readers
    # What the latest reader is ordered after need not be remembered beside it. With the one next
    # to it below its floor, so are all the others. Looking at them one by one is done at powers of
    # two only, which keeps the cost of a push constant on average when nothing can be dropped.
    if older is not None and older[0].position < latest.floor:
        readers = latest, None, 1
        count = 1
    elif count >= _COMPACT_FROM and not count & (count - 1):
        readers = _compact(readers)
        count = readers[2]
    return reader, readers, count + 1


def _compact(readers: Readers) -> Readers:
    """Without those that the latest one is ordered after."""
    latest = readers[0]
    kept: Readers | None = None
    for reader in reversed(_listed(readers)):
        if not latest.is_after(reader):
            kept = _cons(reader, kept)
    assert kept is not None  # no launch is after itself
    return kept


def _cons(reader: Seen, readers: Readers | None) -> Readers:
    return reader, readers, 1 if readers is None else readers[2] + 1


def _listed(readers: Readers | None) -> list[Seen]:
    """As a list, latest first."""
    listed = []
    while readers is not None:
        listed.append(readers[0])
        readers = readers[1]
    return listed


def stack(later: Readers, earlier: Readers) -> Readers:
    """The readers of both lists."""
    for reader in reversed(_listed(later)):
        earlier = _cons(reader, earlier)
    return earlier
