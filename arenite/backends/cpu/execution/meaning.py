"""What a schedule means: whose value every kernel, condition and trip count is to see.

In: a schedule and the way a run goes. Out: events in the order in which a table has to make them,
each with who wrote what it is meant to read. Nothing here knows where anything lies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import TypeAlias

from arenite.ir.dim import Dim, evaluate
from arenite.ir.node import Node
from arenite.ir.ops.control import is_always, trip_size
from arenite.schedule import Branch, Cut, HostCall, Kernel, Loop, Schedule, Step

#: Who wrote a byte: a launch or store by its number from 1 on; what was there before the run.
Writer: TypeAlias = int | str
CONSTANT = "a constant"


@dataclass(frozen=True, slots=True)
class Rows:
    """A value written row by row; rows nobody wrote have what was there `before`, if anything."""

    nbytes: Dim  # of one row
    written: Mapping[int, Content]  # from row 0 on
    before: Writer | None


#: None: a row that nobody wrote, because this walk goes round less often than a run.
Content: TypeAlias = Writer | Rows | None


@dataclass(frozen=True, slots=True)
class LaunchEvent:
    kernel: Kernel
    reads: tuple[Content, ...]
    writer: int


@dataclass(frozen=True, slots=True)
class LoadEvent:
    what: str
    content: Content


@dataclass(frozen=True, slots=True)
class StoreEvent:
    writer: int


@dataclass(frozen=True, slots=True)
class CallEvent:
    """A function of the host; `nbytes` of what it gets and, last, of what it makes."""

    name: str
    reads: tuple[Content, ...]
    writer: int
    nbytes: tuple[Dim, ...]


@dataclass(frozen=True, slots=True)
class EndEvent:
    """What a state is when the run ends."""

    state: str  # its name
    content: Content


Event: TypeAlias = LaunchEvent | LoadEvent | StoreEvent | CallEvent | EndEvent


@dataclass(slots=True)
class Way:
    """How a run goes: iterations of loops at the most, and which branches it takes."""

    iterations: Callable[[int], int]  # of the n-th loop entered
    takes: Callable[[int], bool]  # the n-th branch met
    n_loops: int = 0
    n_branches: int = 0

    def next_loop(self) -> int:
        self.n_loops += 1
        return self.iterations(self.n_loops)

    def next_branch(self) -> bool:
        self.n_branches += 1
        return self.takes(self.n_branches)


def ways() -> list[Callable[[], Way]]:
    """Each made anew for both who walk it."""
    return [
        lambda: Way(lambda n: 3, lambda n: True),
        lambda: Way(lambda n: 3, lambda n: False),
        lambda: Way(lambda n: 4, lambda n: n % 2 == 0),
        lambda: Way(lambda n: 4, lambda n: n % 3 == 0),
        lambda: Way(lambda n: 0, lambda n: True),
        lambda: Way(lambda n: 3 * (n % 2), lambda n: n % 2 == 0),
        lambda: Way(lambda n: 3 * ((n + 1) % 2), lambda n: n % 3 != 0),
        lambda: Way(lambda n: n % 4, lambda n: n % 2 == 1),
    ]


def packed(name: str) -> str:
    return f"{name}, made at load"


def state(name: str) -> str:
    return f"state {name}, of the run before"


class Meaning:
    """What a schedule says: events with whose value is to be seen."""

    def __init__(
        self, schedule: Schedule, sizes: Mapping[str, int], way: Way, load: frozenset[str]
    ) -> None:
        self.schedule = schedule
        self.load = load
        self.sizes = sizes
        self.way = way
        self._writers = count(1)

    def events(self) -> Iterator[Event]:
        scope: dict[Node, Content] = {
            node: f"input {k}" for k, node in enumerate(self.schedule.inputs)
        }
        scope |= {node: state(node.attr("name")) for node in self.schedule.states}
        yield from self._schedule(self.schedule, scope)
        becomes = dict(self.schedule.updates)
        for node in self.schedule.states:
            yield EndEvent(node.attr("name"), scope[becomes.get(node, node)])

    def _schedule(self, schedule: Schedule, scope: dict[Node, Content]) -> Iterator[Event]:
        for step in schedule.steps:
            if isinstance(step, Kernel) and step.name in self.load:
                for k, node in enumerate(step.outputs):
                    scope[node] = packed(f"{step.name}.{k}")
            elif isinstance(step, Kernel):
                yield self._launched(step, scope)
            elif isinstance(step, Branch):
                yield from self._branch(step, scope)
            elif isinstance(step, Cut):
                yield LoadEvent(f"the size {step.size}", scope.get(step.count, CONSTANT))
                scope[step.output] = scope.get(step.source, CONSTANT)
            elif isinstance(step, HostCall):
                reads = tuple(scope.get(node, CONSTANT) for node in step.inputs)
                scope[step.output] = writer = next(self._writers)
                nbytes = tuple(node.nbytes for node in (*step.inputs, step.output))
                yield CallEvent(step.function.name, reads, writer, nbytes)
            else:
                yield from self._loop(step, scope)

    def _launched(self, kernel: Kernel, scope: dict[Node, Content]) -> LaunchEvent:
        reads = tuple(scope.get(node, CONSTANT) for node in kernel.inputs)
        writer = next(self._writers)
        scope.update(dict.fromkeys(kernel.outputs, writer))
        return LaunchEvent(kernel, reads, writer)

    def _branch(self, branch: Branch, scope: dict[Node, Content]) -> Iterator[Event]:
        yield LoadEvent("the condition of a branch", scope.get(branch.condition, CONSTANT))
        side = branch.then if self.way.next_branch() else branch.otherwise
        inner = self._given(side.inputs, branch.captures, scope)
        yield from self._schedule(side, inner)
        for index, node in branch.outputs:
            scope[node] = inner[side.outputs[index]]

    def _given(
        self, parameters: tuple[Node, ...], values: tuple[Node, ...], scope: dict[Node, Content]
    ) -> dict[Node, Content]:
        pairs = zip(parameters, values, strict=True)
        return {one: scope.get(value, CONSTANT) for one, value in pairs}

    def _loop(self, loop: Loop, scope: dict[Node, Content]) -> Iterator[Event]:
        parts = loop.parts
        before: list[Writer | None] = [None] * len(loop.rows)
        for k, kernel in enumerate(loop.zeros):
            launched = self._launched(kernel, {})
            before[k] = launched.writer
            yield launched
        size = trip_size(parts.trips)
        if size is None:
            yield LoadEvent("the trip count of a loop", scope.get(parts.trips, CONSTANT))
        if not is_always(parts.condition):
            yield LoadEvent("the condition of a loop", scope.get(parts.condition, CONSTANT))
        trips = self.way.next_loop()
        if size is not None:
            trips = min(trips, evaluate(size, self.sizes))
        carried = [scope.get(node, CONSTANT) for node in parts.initial]
        written: list[dict[int, Content]] = [{} for _ in loop.rows]
        reads_number = any(parts.iteration in step.inputs for step in loop.body.steps)
        for i in range(trips):
            inner = self._given(parts.captured, parts.captures, scope)
            inner |= dict(zip(parts.carried, carried, strict=True))
            for window, captured in loop.windows:
                inner[window] = _row(inner[captured], i)
            if reads_number:
                stored = StoreEvent(next(self._writers))
                inner[parts.iteration] = stored.writer
                yield stored
            yield from self._schedule(loop.body, inner)
            if not is_always(parts.goes_on):
                content = inner.get(parts.goes_on, CONSTANT)
                yield LoadEvent("the condition to go on with a loop", content)
            carried = [inner.get(node, CONSTANT) for node in parts.following]
            for k, row in enumerate(loop.rows):
                written[k][i] = inner[parts.rows[row]]
        row_of = iter(range(len(loop.rows)))
        for index, node in loop.outputs:
            if index < len(parts.initial):
                scope[node] = carried[index]
            else:
                k = next(row_of)
                nbytes = parts.rows[loop.rows[k]].nbytes
                scope[node] = Rows(nbytes, written[k], before[k])


def _row(content: Content, i: int) -> Content:
    if not isinstance(content, Rows):
        return content
    return content.written.get(i, content.before)


def with_found(schedule: Schedule, sizes: Mapping[str, int]) -> dict[str, int]:
    """Sizes that are found while running too, as large as they may get."""
    known = dict(sizes)
    pending: list[Step] = [*reversed(schedule.steps)]
    while pending:
        step = pending.pop()
        if isinstance(step, Cut):
            known[step.size.name] = evaluate(step.source.shape[0], known)
        elif isinstance(step, Branch):
            pending += reversed((*step.then.steps, *step.otherwise.steps))
        elif isinstance(step, Loop):
            pending += reversed(step.body.steps)
    return known
