"""Waits of real tables, taken away one by one: whether a race is left is judged by brute force.

The judge looks at entries and bytes alone: which launches conflict, and whether waits and worker
0's own order lead from the one to the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import pytest

from arenite.errors import RaceFound
from arenite.pipeline import compile_anew
from arenite.program.table import NONE, Flag, LaunchTable, Op, aligned_copy
from arenite.runtime.executable import Executable
from tests.pipeline.graphs import square_graph
from tests.pipeline.loaded import loaded

#: storage (the arena is None), start, end, whether it is a write
Touched = tuple[int | None, int, int, bool]


def touched(program: Executable) -> list[list[Touched]]:
    """The bytes of every launch."""
    places = loaded(program).binder.places(program.plan)

    def one(number: int, writes: bool) -> Touched:
        place = places[number]
        start = 0 if place.offset is None else place.offset
        return place.io, start, start + place.nbytes, writes

    return [
        [one(int(k), False) for k in launch.reads] + [one(int(k), True) for k in launch.writes]
        for launch in program.compiled.launches
    ]


def conflict(a: list[Touched], b: list[Touched]) -> bool:
    return any(
        x[0] == y[0] and x[1] < y[2] and y[1] < x[2] and (x[3] or y[3]) for x in a for y in b
    )


def before(table: LaunchTable) -> list[set[int]]:
    """For each launch, those that are over when it begins."""
    launches = [entry for entry in table.entries if entry["op"] == Op.LAUNCH]
    speaker = {int(e["sync"]): k for k, e in enumerate(launches) if e["sync"] != NONE}
    known: list[set[int]] = []
    last_alone: int | None = None
    for k, entry in enumerate(launches):
        start = int(entry["wait_start"])
        waits = table.waits[start : start + int(entry["wait_count"])]
        earlier = {speaker[int(sync)] for sync in waits}
        if not entry["flags"] & Flag.SHARED:
            earlier |= set() if last_alone is None else {last_alone}
            last_alone = k
        known.append(earlier.union(*(known[one] for one in earlier)))
    return known


def has_race(table: LaunchTable, bytes_of: list[list[Touched]]) -> bool:
    known = before(table)
    return any(
        a not in known[b] and conflict(bytes_of[a], bytes_of[b])
        for a, b in combinations(range(len(bytes_of)), 2)
    )


def with_one_wait_less(table: LaunchTable) -> Iterator[LaunchTable]:
    for tick in range(len(table.entries)):
        start, count = (int(table.entries[tick][name]) for name in ("wait_start", "wait_count"))
        for lost in range(count):
            entries, waits = aligned_copy(table.entries), aligned_copy(table.waits)
            # The last of the entry's waits takes the place of the one that goes.
            waits[start + lost] = waits[start + count - 1]
            entries[tick]["wait_count"] -= 1
            yield table._replace(entries=entries, waits=waits)


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("seed", range(8))
def test_the_verifier_sees_every_wait_that_is_missed(seed: int) -> None:
    graph = square_graph(seed, 40, 40)
    with Executable(graph, compile_anew(graph), 2) as program:
        places = loaded(program).binder.places(program.plan)
        table, bytes_of = loaded(program).assembly.table(places), touched(program)
        loaded(program).assembly.verify(places, table)
        assert not has_race(table, bytes_of)
        n_needed = n_waits = 0
        for mutant in with_one_wait_less(table):
            n_waits += 1
            if not has_race(mutant, bytes_of):
                loaded(program).assembly.verify(places, mutant)
                continue
            n_needed += 1
            with pytest.raises(RaceFound):
                loaded(program).assembly.verify(places, mutant)
        assert n_needed > 1, "or this would show nothing"
        assert n_needed > n_waits / 2, "a wait that nothing needs costs time"
