"""Conflicts: whom each launch of a program has to wait for, and the bytes that are the reason.

In: a program, and where its values lie. Out: the fewest pairs of launches whose order leaves no
race, as `hazards.order` finds them on final addresses, each with every byte range that both touch
and at least one of them writes, and the values that have it. Two values in one conflict share
bytes: it is reuse of memory, and not data, that orders their launches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from arenite.hazards import BufferRange, HazardKind, Role, order
from arenite.memory import ValueId
from arenite.program.launch_hazards import placed, ranges_of, span_in
from arenite.program.places import Places
from arenite.records import NamedTuple

if TYPE_CHECKING:
    from arenite.program.compiled import Compiled

_KINDS = {
    (Role.WRITE, Role.READ): HazardKind.RAW,
    (Role.READ, Role.WRITE): HazardKind.WAR,
    (Role.WRITE, Role.WRITE): HazardKind.WAW,
}


class Conflict(NamedTuple):
    """Bytes [start, end) of a storage that two launches touch, and whose they are for each."""

    kind: HazardKind
    before: ValueId
    after: ValueId
    storage_id: int  # 0: the arena
    start: int
    end: int


class Wait(NamedTuple):
    """Launch `after` starts when launch `before` has finished."""

    before: int
    after: int
    conflicts: tuple[Conflict, ...]

    @property
    def is_reuse(self) -> bool:
        """Whether no value is handed from one to the other: they only share bytes."""
        return all(one.before != one.after for one in self.conflicts)


def waits_of(compiled: Compiled, places: Places) -> list[Wait]:
    """All of a program, by the launch that waits. The ends of blocks, where branches and loops
    begin and end, order everything: waits are found inside of each."""
    launches = compiled.launches
    hazards = placed(launches, places)
    span_of = span_in(places)
    touched = [
        list(ranges_of(launch, span_of, lambda value: places[value].targets)) for launch in launches
    ]
    found = []
    for first, stop in compiled.frame.skeleton.blocks.reshape(-1, 2).tolist():
        for edge in order(hazards[first:stop]):
            before, after = first + edge.before, first + edge.after
            found.append(Wait(before, after, _conflicts(touched[before], touched[after])))
    return sorted(found, key=lambda wait: (wait.after, wait.before))


def _conflicts(
    before: list[tuple[ValueId, BufferRange]], after: list[tuple[ValueId, BufferRange]]
) -> tuple[Conflict, ...]:
    return tuple(
        Conflict(
            _KINDS[one.role, other.role],
            value,
            its,
            one.storage_id,
            max(one.start, other.start),
            min(one.end, other.end),
        )
        for value, one in before
        for its, other in after
        if one.conflicts_with(other)
    )
