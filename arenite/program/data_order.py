"""Launches as data alone orders them: every value in a storage of its own, sharing no byte.

In: the values that launches read and write, and what pointers may point to. Out: hazards; the
edges between them are those that no placement of values can do without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from arenite import hazards
from arenite.hazards import BufferRange, Role
from arenite.memory import ValueId
from arenite.program.launch import Launch


def data_hazards(
    launches: Iterable[Launch], targets: Mapping[ValueId, Sequence[ValueId]]
) -> list[hazards.Launch]:
    """Hazards over values apart; `targets` is what values that are pointers may point to."""

    def targets_of(value: ValueId) -> Sequence[ValueId]:
        return targets.get(value, ())

    storages: dict[ValueId, int] = {}

    def ranges(values: Sequence[ValueId], role: Role) -> list[BufferRange]:
        return [
            BufferRange(storages.setdefault(value, len(storages)), 0, 1, role)
            for value in pointed_to(values, targets_of)
        ]

    return [
        hazards.Launch(
            launch.name,
            (*ranges(launch.reads, Role.READ), *ranges(launch.writes, Role.WRITE)),
        )
        for launch in launches
    ]


def pointed_to(
    values: Iterable[ValueId], targets_of: Callable[[ValueId], Sequence[ValueId]]
) -> list[ValueId]:
    """The values themselves, and in place of pointers all that they may point to."""
    found: dict[ValueId, None] = {}
    pending = [*values]
    while pending:
        value = pending.pop()
        if value not in found:
            found[value] = None
            pending += targets_of(value)
    return [value for value in found if not targets_of(value)]
