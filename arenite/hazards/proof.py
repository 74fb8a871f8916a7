"""Proof that an order leaves no race; shares no code with what makes orders.

In come launches and the order a program keeps: edges, barriers and loops. Out comes the first two
launches that touch the same bytes, one of them writing, with nothing to order them; or none. Each
sequence is judged by `sweep`, straight from the ranges; here is what a program's structure means:

    position      0   1 | 2   3   4 | 5        | a barrier at 2, and the exit of the loop at 5
                          ^-------'            a loop over [2, 5)

A loop is judged as one pass between barriers, and once more across its back edge, as two
iterations one after the other. What is undeclared conflicts with every other launch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from arenite.errors import InvalidArgument, RaceFound
from arenite.hazards.ranges import BufferRange, HazardKind, Launch, Role
from arenite.hazards.sweep import Pair, smallest_race


@dataclass(frozen=True, slots=True)
class Loop:
    """The launches [start, stop) run again and again; entry and exit order everything.

    `back_edges`: None when going back orders everything too; otherwise the pairs (a, b) of which a
    in one iteration comes before b in the next, and nothing else does.
    """

    start: int
    stop: int
    back_edges: tuple[Pair, ...] | None = None

    def __post_init__(self) -> None:
        if self.back_edges is not None:
            object.__setattr__(self, "back_edges", tuple(self.back_edges))
        if not 0 <= self.start < self.stop:
            raise InvalidArgument(
                f"a loop over launches [{self.start}, {self.stop}) has no body: "
                "0 <= start < stop must hold"
            )
        for a, b in self.back_edges or ():
            if not (self.start <= a < self.stop and self.start <= b < self.stop):
                raise InvalidArgument(
                    f"back edge ({a}, {b}) leaves its loop over launches "
                    f"[{self.start}, {self.stop})"
                )


@dataclass(frozen=True, slots=True)
class Order:
    """What a program keeps in order, by positions of launches.

    An edge (a, b) runs a before b; a barrier at b runs all launches below b before all others; of
    loops with the same body the outer one comes first. A barrier at the first launch of a loop
    stands before the loop, one at its stop behind it: neither is met again when going back.
    """

    edges: tuple[Pair, ...] = ()
    barriers: tuple[int, ...] = ()
    loops: tuple[Loop, ...] = ()

    def __post_init__(self) -> None:
        # They are looked at more than once, which an iterator can't be.
        for name in ("edges", "barriers", "loops"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        for before, after in self.edges:
            if not 0 <= before < after:
                raise InvalidArgument(
                    f"edge ({before}, {after}) does not lead from an earlier to a later launch; "
                    "what leads back into a loop is a back edge"
                )
        for barrier in self.barriers:
            if barrier < 0:
                raise InvalidArgument(f"a barrier at position {barrier}, before the first launch")
        around: list[Loop] = []
        for loop in sorted(self.loops, key=lambda loop: (loop.start, -loop.stop)):
            while around and around[-1].stop <= loop.start:
                around.pop()
            if around and loop.stop > around[-1].stop:
                raise InvalidArgument(
                    f"loops [{around[-1].start}, {around[-1].stop}) and [{loop.start}, "
                    f"{loop.stop}) overlap, and neither lies inside the other"
                )
            around.append(loop)


@dataclass(frozen=True, slots=True)
class Race:
    """Launch `first` and launch `second`, which runs later in the sequence, are not ordered.

    With `next_iteration` it is `second` of the following iteration, so `second` may be `first`
    itself or lie before it. Bytes are those both touch; `None` when one of the two is undeclared.
    """

    first: int
    second: int
    kind: HazardKind
    storage_id: int | None
    start: int | None
    end: int | None
    next_iteration: bool = False


def verify(launches: Sequence[Launch], order: Order) -> None:
    """Raise RaceFound unless every two conflicting launches are ordered."""
    race = find_race(launches, order)
    if race is not None:
        raise RaceFound(_message(launches, race))


def find_race(launches: Sequence[Launch], order: Order) -> Race | None:
    """The race with the smallest (next_iteration, second, first), or None."""
    _check_positions(len(launches), order)
    barriers = {*order.barriers}
    for loop in order.loops:
        barriers |= {loop.start, loop.stop}
    pair = smallest_race(launches, order.edges, barriers)
    if pair is not None:
        return _race(launches, *pair)
    # Within one pass all is well, so what remains are pairs across a back edge. One iteration and
    # the next are enough: say a writes what b touches two iterations later. Then a also conflicts
    # with b one iteration later, and with itself from each iteration to the next, and if these
    # are ordered, so is a, a of the next iteration, b of the one after. The same with b writing.
    # Inner loops take part as one pass: entering and leaving them orders everything.
    across = []
    for outer_key, loop in enumerate(order.loops):
        if loop.back_edges is None:
            continue
        n = loop.stop - loop.start
        inside = {b - loop.start for b in order.barriers if loop.start < b < loop.stop}
        for inner_key, inner in enumerate(order.loops):
            if _is_inside(inner, inner_key, loop, outer_key):
                inside |= {inner.start - loop.start, inner.stop - loop.start}
        edges = [
            (a - loop.start, b - loop.start)
            for a, b in order.edges
            if loop.start <= a and b < loop.stop
        ]
        body = launches[loop.start : loop.stop]
        pair = smallest_race(
            [*body, *body],
            [
                *edges,
                *((a + n, b + n) for a, b in edges),
                *((a - loop.start, b - loop.start + n) for a, b in loop.back_edges),
            ],
            {*inside, *(b + n for b in inside)},
        )
        if pair is not None:
            across.append((pair[1] - n + loop.start, pair[0] + loop.start))
    if not across:
        return None
    second, first = min(across)
    return _race(launches, first, second, next_iteration=True)


def _check_positions(n: int, order: Order) -> None:
    for before, after in order.edges:
        if after >= n:
            raise InvalidArgument(f"edge ({before}, {after}) names a launch; there are only {n}")
    for barrier in order.barriers:
        if barrier > n:
            raise InvalidArgument(f"a barrier at position {barrier}; there are only {n} launches")
    for loop in order.loops:
        if loop.stop > n:
            raise InvalidArgument(
                f"a loop over launches [{loop.start}, {loop.stop}); there are only {n}"
            )


def _is_inside(inner: Loop, inner_key: int, outer: Loop, outer_key: int) -> bool:
    if (inner.start, inner.stop) == (outer.start, outer.stop):
        return inner_key > outer_key
    return outer.start <= inner.start and inner.stop <= outer.stop


def _race(
    launches: Sequence[Launch], first: int, second: int, next_iteration: bool = False
) -> Race:
    """The race with its first hazard: reads of `second` first, then by storage and address."""
    earlier, later = launches[first].ranges, launches[second].ranges
    if earlier is None or later is None:
        return Race(first, second, HazardKind.UNDECLARED, None, None, None, next_iteration)
    hazards = [
        (kind is not HazardKind.RAW, mine.storage_id, start, kind is HazardKind.WAR, -end, kind)
        for mine in later
        for theirs in earlier
        if mine.conflicts_with(theirs)
        for start, end in [(max(mine.start, theirs.start), min(mine.end, theirs.end))]
        for kind in [_kind(theirs, mine)]
    ]
    _, storage_id, start, _, minus_end, kind = min(hazards, key=lambda hazard: hazard[:5])
    return Race(first, second, kind, storage_id, start, -minus_end, next_iteration)


def _kind(earlier: BufferRange, later: BufferRange) -> HazardKind:
    if later.role is Role.READ:
        return HazardKind.RAW
    return HazardKind.WAR if earlier.role is Role.READ else HazardKind.WAW


def _message(launches: Sequence[Launch], race: Race) -> str:
    def name(position: int) -> str:
        return f"launch {position} ({launches[position].name!r})"

    second = name(race.second) + (" in the next iteration" if race.next_iteration else "")
    pair = f"({race.first}, {race.second})"
    if race.next_iteration:
        mend = f"add {pair} to the back edges of their loop, or let going back order everything"
    else:
        low, high = race.first + 1, race.second
        where = f"position {low}" if low == high else f"a position from {low} to {high}"
        mend = f"add the edge {pair}, or a barrier at {where}"
    if race.kind is HazardKind.UNDECLARED:
        open_ones = {p for p in (race.first, race.second) if launches[p].ranges is None}
        who = " and ".join(name(p) for p in sorted(open_ones))
        what = f"{who} may touch anything (undeclared ranges)"
        mend = f"declare its ranges, or {mend}"
    else:
        what = (
            f"both touch storage {race.storage_id}, bytes [{race.start}, {race.end}): "
            f"{race.kind.value} ({race.kind.name})"
        )
    return f"{name(race.first)} and {second} are not ordered; {what}. To mend it, {mend}."
