"""Judges and random programs for the hazard tests.

Everything here is as plain as it can be: bytes are looked at one by one, orders are closed by
three nested loops, loops of a program are written out three times.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from hypothesis import strategies as st

from arenite.hazards import BufferRange, HazardKind, Launch, Loop, Order, Role

Matrix = list[list[bool]]


@dataclass(frozen=True)
class View:
    """A view as the hazard rooms see one: bytes of a storage."""

    storage_id: int
    offset: int
    nbytes: int

    def view(self, offset: int, nbytes: int) -> View:
        assert offset + nbytes <= self.nbytes
        return View(self.storage_id, self.offset + offset, nbytes)


def touched(launch: Launch, role: Role) -> set[tuple[int, int]]:
    """Each byte of a declared launch as (storage, address)."""
    assert launch.ranges is not None
    return {
        (r.storage_id, byte)
        for r in launch.ranges
        if r.role is role
        for byte in range(r.start, r.end)
    }


def hazard(before: Launch, after: Launch) -> tuple[HazardKind, int | None, int | None] | None:
    """The first hazard of a pair: its kind, storage and first byte."""
    if before.ranges is None or after.ranges is None:
        return HazardKind.UNDECLARED, None, None
    wrote, read = touched(before, Role.WRITE), touched(before, Role.READ)
    for place in sorted(touched(after, Role.READ)):
        if place in wrote:
            return HazardKind.RAW, *place
    for place in sorted(touched(after, Role.WRITE)):
        if place in wrote:
            return HazardKind.WAW, *place
        if place in read:
            return HazardKind.WAR, *place
    return None


def closed(n: int, pairs: set[tuple[int, int]]) -> Matrix:
    """reach[a][b]: a comes before b by some path."""
    reach = [[(a, b) in pairs for b in range(n)] for a in range(n)]
    for k in range(n):
        for a in range(n):
            if reach[a][k]:
                for b in range(n):
                    reach[a][b] = reach[a][b] or reach[k][b]
    return reach


def reduction(launches: list[Launch]) -> set[tuple[int, int]]:
    """The pairs of the conflict order that no third launch stands between."""
    n = len(launches)
    reach = closed(
        n, {(a, b) for b in range(n) for a in range(b) if hazard(launches[a], launches[b])}
    )
    return {
        (a, b)
        for a in range(n)
        for b in range(n)
        if reach[a][b] and not any(reach[a][k] and reach[k][b] for k in range(n))
    }


@dataclass(frozen=True)
class Instance:
    """One run of a launch: at which position, in which iteration of each loop around it."""

    position: int
    iterations: tuple[tuple[int, int], ...]  # (loop, iteration), outermost first


Step = Instance | None  # None = an ordering point


def written_out(n: int, order: Order, times: int = 3) -> list[Step]:
    """The program with each loop `times` times in a row."""
    keys = range(len(order.loops))
    nesting = sorted(keys, key=lambda k: (order.loops[k].start, -order.loops[k].stop, k))

    def run(low: int, high: int, inside: list[int], at: tuple[tuple[int, int], ...]) -> list[Step]:
        steps: list[Step] = []
        position = low
        while position < high:
            if position in order.barriers and (position > low or not at):
                steps.append(None)
            key = next((k for k in inside if order.loops[k].start == position), None)
            if key is None:
                steps.append(Instance(position, at))
                position += 1
                continue
            loop = order.loops[key]
            inner = [
                k
                for k in inside[inside.index(key) + 1 :]
                if loop.start <= order.loops[k].start and order.loops[k].stop <= loop.stop
            ]
            steps.append(None)
            for iteration in range(times):
                if iteration and loop.back_edges is None:
                    steps.append(None)
                steps += run(loop.start, loop.stop, inner, (*at, (key, iteration)))
            steps.append(None)
            position = loop.stop
        return steps

    return run(0, n, nesting, ())


def races(launches: list[Launch], order: Order) -> tuple[set[tuple[bool, int, int]], bool]:
    """Races as (next_iteration, second, first) at a distance of at most one iteration, and
    whether there is any at all."""
    steps = written_out(len(launches), order)
    runs = [step for step in steps if step is not None]
    points = [steps[:i].count(None) for i, step in enumerate(steps) if step is not None]
    edges = set(order.edges)
    pairs = set()
    for b, after in enumerate(runs):
        for a, before in enumerate(runs[:b]):
            same = before.iterations == after.iterations
            if (
                points[a] < points[b]
                or (same and (before.position, after.position) in edges)
                or _joined_by_back_edge(before, after, order)
            ):
                pairs.add((a, b))
    reach = closed(len(runs), pairs)
    near, found = set(), False
    for b, after in enumerate(runs):
        for a, before in enumerate(runs[:b]):
            if hazard(launches[before.position], launches[after.position]) and not reach[a][b]:
                found = True
                distances = [
                    y - x
                    for (_, x), (_, y) in zip(before.iterations, after.iterations, strict=False)
                ]
                if sum(map(abs, distances)) <= 1:
                    near.add((any(distances), after.position, before.position))
    return near, found


def _joined_by_back_edge(before: Instance, after: Instance, order: Order) -> bool:
    for depth, (key, iteration) in enumerate(before.iterations):
        if depth >= len(after.iterations) or after.iterations[depth][0] != key:
            return False
        if after.iterations[depth][1] != iteration:
            back_edges = order.loops[key].back_edges
            return (
                after.iterations[depth][1] == iteration + 1
                and back_edges is not None
                and (before.position, after.position) in back_edges
            )
    return False


@st.composite
def views(draw: st.DrawFn) -> list[View]:
    """Views of views over one or more storages; some overlap, some touch, some are empty."""
    tree = [View(s, 0, draw(st.integers(8, 24))) for s in range(draw(st.integers(1, 2)))]
    for _ in range(draw(st.integers(0, 10))):
        parent = draw(st.sampled_from(tree))
        low, high = sorted(draw(st.tuples(*[st.integers(0, parent.nbytes)] * 2)))
        tree.append(parent.view(low, high - low))
    return tree


@st.composite
def programs(draw: st.DrawFn, max_size: int = 12) -> list[Launch]:
    """Launches over random views: in place, over siblings, undeclared, touching nothing."""
    tree = draw(views())
    accesses = st.builds(BufferRange.of, st.sampled_from(tree), st.sampled_from(Role))
    declared = st.lists(accesses, max_size=4).map(tuple)
    # One in eight is undeclared: more would leave little else to look at.
    ranges = st.integers(0, 7).flatmap(lambda i: declared if i else st.none())
    drawn = draw(st.lists(ranges, max_size=max_size))
    return [Launch(f"kernel{i}", r) for i, r in enumerate(drawn)]


@st.composite
def wide_programs(draw: st.DrawFn) -> list[Launch]:
    """Many launches with wide reads and narrow writes, which cut an arena to pieces.

    What a launch may touch is one of three parts of the arena or all of it, so that some families
    of launches stay independent for a while.
    """
    rng = draw(st.randoms(use_true_random=False))
    launches = []
    for i in range(rng.randint(0, 40)):
        low, high = rng.choice([(0, 12), (12, 24), (24, 36), (0, 24), (0, 36)])
        ranges = []
        for _ in range(rng.randint(0, 2)):
            start = rng.randint(low, (low + high) // 2)
            ranges.append(BufferRange(0, start, rng.randint(start, high), Role.READ))
        if rng.random() < 0.7:
            start = rng.randrange(low, high)
            ranges.append(BufferRange(0, start, start + rng.choice([1, 1, 2, 9]), Role.WRITE))
        launches.append(Launch(f"kernel{i}", tuple(ranges)))
    return launches


@st.composite
def nested_loops(draw: st.DrawFn, low: int, high: int, depth: int = 2) -> tuple[Loop, ...]:
    if depth == 0 or high - low < 1:
        return ()
    cuts = sorted(draw(st.sets(st.integers(low, high), max_size=4)))
    loops: list[Loop] = []
    for start, stop in pairwise(cuts):
        if draw(st.booleans()):
            inside = st.integers(start, stop - 1)
            explicit = st.lists(st.tuples(inside, inside), max_size=6).map(tuple)
            loops.append(Loop(start, stop, draw(st.none() | explicit)))
            loops += draw(nested_loops(start, stop, depth - 1))
    return tuple(loops)


@st.composite
def orders(draw: st.DrawFn, n: int) -> Order:
    """Some of all possible edges, barriers and loops over n launches."""
    pairs = [(a, b) for b in range(n) for a in range(b)]
    edges = draw(st.lists(st.sampled_from(pairs), max_size=3 * n)) if pairs else []
    barriers = draw(st.lists(st.integers(0, n), max_size=1))
    return Order(tuple(edges), tuple(barriers), draw(nested_loops(0, n)))


@st.composite
def looping_orders(draw: st.DrawFn, launches: list[Launch]) -> Order:
    """Without a race in one pass, and with a loop whose back edges are mostly enough."""
    n = len(launches)
    conflicting = [(a, b) for a in range(n) for b in range(n) if hazard(launches[a], launches[b])]
    start = draw(st.integers(0, n - 1))
    stop = draw(st.integers(start + 1, n))
    needed = [(a, b) for a, b in conflicting if start <= a < stop and start <= b < stop]
    left_out = draw(st.sets(st.sampled_from(needed), max_size=2)) if needed else set()
    back_edges = tuple(pair for pair in needed if pair not in left_out)
    cut = st.integers(start, stop)
    barriers = tuple(draw(st.lists(cut, max_size=1)))
    low, high = sorted((draw(cut), draw(cut)))
    inner = (Loop(low, high),) if low < high and draw(st.booleans()) else ()
    edges = tuple((a, b) for a, b in conflicting if a < b)
    return Order(edges, barriers, (Loop(start, stop, back_edges), *inner))
