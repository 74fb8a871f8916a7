"""What launches touch, as hazards: every value in a storage of its own, or on final addresses.

In: the values that launches read and write, what pointers may point to, and where values lie. With
values apart, the edges between launches are those that no placement can do without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from arenite import hazards
from arenite.hazards import BufferRange, Role
from arenite.memory import ValueId
from arenite.program.launch import Launch
from arenite.program.places import Place

#: The storage id of the arena in hazard ranges; values outside have others.
ARENA = 0
#: Behind the last byte of every value.
_END = 1 << 62

#: The bytes of a value: storage id, start, end.
SpanOf: TypeAlias = Callable[[ValueId], tuple[int, int, int]]
#: What a value may point to; nothing where it is no pointer.
TargetsOf: TypeAlias = Callable[[ValueId], Sequence[ValueId]]


def data_hazards(
    launches: Iterable[Launch], targets: Mapping[ValueId, Sequence[ValueId]]
) -> list[hazards.Launch]:
    """Every value in a storage of its own; `targets` is what pointers may point to."""
    storages: dict[ValueId, int] = {}
    return touched(
        launches,
        lambda value: (storages.setdefault(value, len(storages)), 0, _END),
        lambda value: targets.get(value, ()),
    )


def placed(launches: Iterable[Launch], places: Mapping[ValueId, Place]) -> list[hazards.Launch]:
    """On final addresses."""
    return touched(launches, span_in(places), lambda value: places[value].targets)


def span_in(places: Mapping[ValueId, Place]) -> SpanOf:
    """Where values lie: bytes of the arena, or of a storage of their own."""

    def span_of(value: ValueId) -> tuple[int, int, int]:
        place = places[value]
        if place.offset is None:
            assert place.io is not None
            return 1 + place.io, 0, place.nbytes
        return ARENA, place.offset, place.offset + place.nbytes

    return span_of


def touched(
    launches: Iterable[Launch], span_of: SpanOf, targets_of: TargetsOf
) -> list[hazards.Launch]:
    """What each launch touches; what it may touch, through a pointer."""
    return [
        hazards.Launch(launch.name, tuple(one for _, one in ranges_of(launch, span_of, targets_of)))
        for launch in launches
    ]


def ranges_of(
    launch: Launch, span_of: SpanOf, targets_of: TargetsOf
) -> Iterator[tuple[ValueId, BufferRange]]:
    """The bytes that a launch touches, with the values that have them."""
    parts = {k: (start, end) for k, start, end in launch.parts}
    for k, value in enumerate((*launch.reads, *launch.writes)):
        role = Role.READ if k < len(launch.reads) else Role.WRITE
        if k in parts:
            storage, first, _ = span_of(value)
            start, end = parts[k]
            yield value, BufferRange(storage, first + start, first + end, role)
        else:
            for one in pointed_to([value], targets_of):
                yield one, BufferRange(*span_of(one), role)


def pointed_to(values: Iterable[ValueId], targets_of: TargetsOf) -> list[ValueId]:
    """The values themselves, and in place of pointers all that they may point to."""
    found: dict[ValueId, None] = {}
    pending = [*values]
    while pending:
        value = pending.pop()
        if value not in found:
            found[value] = None
            pending += targets_of(value)
    return [value for value in found if not targets_of(value)]
