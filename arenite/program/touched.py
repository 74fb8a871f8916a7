"""What launches touch, on final addresses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from arenite import hazards
from arenite.hazards import BufferRange, Role
from arenite.memory import ValueId
from arenite.program.data_order import pointed_to
from arenite.program.launch import Launch
from arenite.program.places import Place

#: The storage id of the arena in hazard ranges; values outside have others.
ARENA = 0


def touched(launches: Iterable[Launch], places: Mapping[ValueId, Place]) -> list[hazards.Launch]:
    """What each launch touches; what it may touch, through a pointer."""
    return [
        hazards.Launch(
            launch.name,
            tuple(
                one
                for role, values in ((Role.READ, launch.reads), (Role.WRITE, launch.writes))
                for value in values
                for one in _ranges(places, value, role)
            ),
        )
        for launch in launches
    ]


def _ranges(places: Mapping[ValueId, Place], value: ValueId, role: Role) -> list[BufferRange]:
    """The bytes of a value; of everything it may point to, where it is a pointer."""
    place = places[value]
    if not place.targets:
        return [_range(place, role)]
    return [
        _range(places[target], role) for target in pointed_to([value], lambda v: places[v].targets)
    ]


def _range(place: Place, role: Role) -> BufferRange:
    if place.offset is None:
        assert place.io is not None
        return BufferRange(1 + place.io, 0, place.nbytes, role)
    return BufferRange(ARENA, place.offset, place.offset + place.nbytes, role)
