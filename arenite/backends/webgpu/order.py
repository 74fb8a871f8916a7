"""The order in which a program's launches are recorded: sets of them, rows of a table, and copies.

In: launches, and where their values lie. Out: sets of launches that wait for the same and for none
of each other, and the steps of a run. All of it follows from the bytes that launches touch.

    sets     [0] [1 2] [3] [4 5 6] ...        launches by number, copies from the host among them
    rows      0   1 2       3 4 5             of the table: those that are dispatches
    steps    copy, range(0, 6), copy          what is recorded, one after another
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cached_property

from arenite.backends.webgpu.exchange import Transfer
from arenite.backends.webgpu.shader import Shader
from arenite.errors import RaceFound
from arenite.program.compiled import Compiled
from arenite.program.launch import Launch
from arenite.program.places import Places


class LaunchOrder:
    """That of one program."""

    def __init__(self, compiled: Compiled, shaders: Sequence[Shader], places: Places) -> None:
        self._launches, self._shaders, self._places = compiled.launches, shaders, places
        #: Values that lie in the host's memory.
        self.on_host = frozenset(compiled.frame.numbers("input", "output"))

    @cached_property
    def _edges(self) -> list[tuple[int, int]]:
        """Launches and those that wait for them."""
        from arenite.hazards import order
        from arenite.program.launch_hazards import placed

        edges = order(placed(self._launches, self._places))
        return sorted(((one.before, one.after) for one in edges), key=lambda edge: edge[1])

    @cached_property
    def sets(self) -> list[list[int]]:
        """Launches by number, in the order they run in: those of a set wait for the same, conflict
        with none of each other on their final addresses, and may be one dispatch."""
        levels = [0] * len(self._launches)
        for before, after in self._edges:
            levels[after] = max(levels[after], levels[before] + 1)
        sets: dict[tuple[int, int], list[int]] = {}
        for k, launch in enumerate(self._launches):
            kind = -1 - k
            if self._is_dispatch(launch):
                shader = self._shaders[launch.entry]
                kind = min([one.threads for _, _, one in shader.smaller], default=shader.threads)
            sets.setdefault((levels[k], kind), []).append(k)
        return [sets[key] for key in sorted(sets)]

    @property
    def every(self) -> list[int]:
        """All launches by number."""
        return [k for one in self.sets for k in one]

    @cached_property
    def rows(self) -> list[int]:
        """The numbers of launches that are rows of the table."""
        return [k for k in self.every if self._is_dispatch(self._launches[k])]

    @cached_property
    def joinable(self) -> list[range]:
        """Rows of a set each."""
        rows = {k: row for row, k in enumerate(self.rows)}
        return [range(rows[one[0]], rows[one[-1]] + 1) for one in self.sets if one[0] in rows]

    @cached_property
    def steps(self) -> list[range | Transfer]:
        """What is recorded, in order: rows of the table, which are one pass, and copies. A pass
        costs as much as several dispatches: one ends only for a copy that is bound to its place."""
        waiting = {after for _, after in self._edges}
        awaited = {before for before, _ in self._edges}
        steps: list[range | Transfer] = []
        results: list[Transfer] = []
        first = end = 0
        for k in self.every:
            launch = self._launches[k]
            if self._is_dispatch(launch):
                end += 1
                continue
            transfer = self._transfer(k, launch, waiting, awaited)
            if transfer.is_free:
                (results if self.is_result(transfer) else steps).append(transfer)
                continue
            steps += [range(first, end), transfer]
            first = end
        return [*steps, range(first, end), *results]

    @cached_property
    def single_steps(self) -> dict[int, range | Transfer]:
        """A step for each launch, by its number."""
        found: dict[int, range | Transfer] = {
            step.launch: step for step in self.steps if isinstance(step, Transfer)
        }
        return found | {number: range(row, row + 1) for row, number in enumerate(self.rows)}

    @cached_property
    def arguments(self) -> list[Transfer]:
        """Copies to the device."""
        copies = [step for step in self.steps if isinstance(step, Transfer)]
        return [step for step in copies if not self.is_result(step)]

    def is_result(self, transfer: Transfer) -> bool:
        """Whether it is a copy to the host."""
        return not self.on_host.isdisjoint(map(int, self._launches[transfer.launch].writes))

    def verify(self, places: Places) -> None:
        """RaceFound unless the sets, one after another and without an order within, are free of
        races with values at these places."""
        from arenite.hazards import Order, order, verify
        from arenite.program.launch_hazards import placed

        touched = placed(self._launches, places)
        at = {k: place for place, k in enumerate(self.every)}
        edges = tuple(
            (at[before], at[after])
            for one, other in itertools.pairwise(self.sets)
            for before in one
            for after in other
        )
        verify([touched[k] for k in at], Order(edges=edges))
        for edge in order(touched):
            if at[edge.before] > at[edge.after]:
                raise RaceFound(
                    f"launch {touched[edge.after].name} runs before {touched[edge.before].name}, "
                    "which it conflicts with and stands behind in the program"
                )

    def _transfer(
        self, number: int, launch: Launch, waiting: set[int], awaited: set[int]
    ) -> Transfer:
        """The copy that a launch is: one of its values is on the host. One to the device is free if
        it waits for none, one to the host if none waits for it."""
        [host] = [n for n in map(int, launch.arrays) if n in self.on_host]
        [there] = [n for n in map(int, launch.arrays) if n not in self.on_host]
        is_result = host in map(int, launch.writes)
        return Transfer(number, host, there, number not in (awaited if is_result else waiting))

    def _is_dispatch(self, launch: Launch) -> bool:
        """Whether it is no copy from the host, or to it."""
        return self.on_host.isdisjoint(map(int, launch.arrays))
