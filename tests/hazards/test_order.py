"""order(): the edges a sequence of launches needs, and no other."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest
from hypothesis import given, settings

from arenite.hazards import BufferRange, Edge, HazardKind, Launch, Order, Role, find_race, order

from .brute import hazard, programs, reduction, wide_programs

READ, WRITE = Role.READ, Role.WRITE


def reads(start: int, end: int, storage_id: int = 0) -> BufferRange:
    return BufferRange(storage_id, start, end, READ)


def writes(start: int, end: int, storage_id: int = 0) -> BufferRange:
    return BufferRange(storage_id, start, end, WRITE)


def program(*launches: tuple[BufferRange, ...] | None) -> list[Launch]:
    return [Launch(f"kernel{i}", ranges) for i, ranges in enumerate(launches)]


def pairs(launches: list[Launch]) -> list[tuple[int, int]]:
    return [edge.pair for edge in order(launches)]


@contextmanager
def tiny_limits() -> Iterator[None]:
    """Pages, reader lists and shared ancestors at sizes that small programs reach."""
    with (
        patch("arenite.hazards.segments._PAGE_SEGMENTS", 2),
        patch("arenite.hazards.history._COMPACT_FROM", 2),
        patch("arenite.hazards.history._OLD_FROM", 1),
        patch("arenite.hazards.history.CUT_EVERY", 2),
        patch("arenite.hazards.tracker.CUT_EVERY", 2),
    ):
        yield


def test_lesson_1_ranges_that_touch_need_no_edge() -> None:
    assert pairs(program((writes(0, 64),), (writes(64, 128),), (reads(128, 192),))) == []


def test_lesson_3_undeclared_is_ordered_with_everything_and_none_only_with_it() -> None:
    launches = program((), (writes(0, 8),), None, (), (reads(0, 8),), None)
    assert pairs(launches) == [(0, 2), (1, 2), (2, 3), (2, 4), (3, 5), (4, 5)]
    assert {edge.kind for edge in order(launches)} == {HazardKind.UNDECLARED}


def test_lesson_4_a_launch_that_works_in_place_does_not_wait_for_itself() -> None:
    launches = program((reads(0, 8), writes(0, 8)), (writes(0, 8), reads(0, 8)))
    assert order(launches) == (Edge(0, 1, HazardKind.RAW, 0, 0, 8),)


def test_lesson_5_siblings_are_ordered_exactly_when_their_bytes_overlap() -> None:
    launches = program((writes(0, 64),), (writes(64, 128),), (reads(32, 64),), (reads(96, 160),))
    assert order(launches) == (
        Edge(0, 2, HazardKind.RAW, 0, 32, 64),
        Edge(1, 3, HazardKind.RAW, 0, 96, 128),
    )


def test_the_three_hazards_have_their_names_and_bytes() -> None:
    launches = program((writes(0, 8),), (reads(4, 12),), (writes(6, 20),), (writes(16, 32),))
    assert order(launches) == (
        Edge(0, 1, HazardKind.RAW, 0, 4, 8),
        Edge(1, 2, HazardKind.WAR, 0, 6, 12),
        Edge(2, 3, HazardKind.WAW, 0, 16, 20),
    )


def test_ranges_of_one_launch_that_touch_or_overlap_count_as_one() -> None:
    launches = program((writes(0, 8), writes(8, 16), writes(4, 10)), (reads(11, 12), reads(4, 11)))
    assert order(launches) == (Edge(0, 1, HazardKind.RAW, 0, 4, 12),)


def test_a_write_that_covers_older_ones_replaces_them() -> None:
    launches = program((writes(0, 8),), (writes(8, 16),), (writes(0, 16),), (reads(0, 16),))
    assert pairs(launches) == [(0, 2), (1, 2), (2, 3)]


def test_a_write_in_the_middle_leaves_both_sides_to_their_writer() -> None:
    launches = program((writes(0, 30),), (writes(10, 20),), (reads(0, 10),), (reads(20, 30),))
    assert pairs(launches) == [(0, 1), (0, 2), (0, 3)]


def test_edges_implied_by_others_are_dropped() -> None:
    launches = program((writes(0, 8),), (reads(0, 8), writes(8, 16)), (reads(0, 16),))
    assert pairs(launches) == [(0, 1), (1, 2)]


def test_other_storages_and_empty_ranges_need_no_edge() -> None:
    assert pairs(program((writes(0, 8),), (writes(0, 8, storage_id=1),), (writes(4, 4),))) == []


def test_no_launches_need_no_edges() -> None:
    assert order([]) == ()


@pytest.mark.parametrize("tiny", [False, True], ids=["usual limits", "tiny limits"])
@given(launches=programs(max_size=16) | wide_programs())
def test_order_is_the_transitive_reduction_of_the_conflicts(
    tiny: bool, launches: list[Launch]
) -> None:
    if tiny:
        with tiny_limits():
            edges = order(launches)
    else:
        edges = order(launches)
    found = [edge.pair for edge in edges]
    assert found == sorted(reduction(launches), key=lambda pair: (pair[1], pair[0]))


@given(launches=programs())
def test_each_edge_gives_the_first_hazard_of_its_pair(launches: list[Launch]) -> None:
    for edge in order(launches):
        before, after = launches[edge.before], launches[edge.after]
        assert (edge.kind, edge.storage_id, edge.start) == hazard(before, after)
        if edge.start is None or edge.end is None or edge.storage_id is None:
            assert edge.kind is HazardKind.UNDECLARED
            continue
        # Every byte named is a hazard of that kind by itself.
        earlier, later = {
            HazardKind.RAW: (WRITE, READ),
            HazardKind.WAR: (READ, WRITE),
            HazardKind.WAW: (WRITE, WRITE),
        }[edge.kind]
        for byte in range(edge.start, edge.end):
            here = BufferRange(edge.storage_id, byte, byte + 1, READ)
            assert any(r.role is earlier and r.overlaps(here) for r in before.ranges or ())
            assert any(r.role is later and r.overlaps(here) for r in after.ranges or ())


def fragmented(n: int) -> list[Launch]:
    """Each launch reads a wide part of an arena that ever smaller writes cut to pieces."""
    launches = []
    for i in range(n):
        place = i * 37 % 997
        low = i * 53 % 500
        launches.append((reads(low, low + 700), writes(place, place + 1 + i % 5)))
    return program(*launches)


def two_families(n: int) -> list[Launch]:
    """Two independent chains that each read all of their own arena."""
    return program(*((reads(0, 2 * n, i % 2), writes(2 * i, 2 * i + 2, i % 2)) for i in range(n)))


def one_weight(n: int) -> list[Launch]:
    """Two chains that both read one weight, which is overwritten at the end."""
    steps = ((reads(0, 8), reads(i, i + 1, 1), writes(i + 2, i + 3, 1)) for i in range(n - 1))
    return program(*steps, (writes(0, 8),))


@pytest.mark.parametrize("make", [fragmented, two_families, one_weight])
@pytest.mark.parametrize("tiny", [False, True], ids=["usual limits", "tiny limits"])
def test_many_segments_give_the_transitive_reduction_too(
    make: Callable[[int], list[Launch]], tiny: bool
) -> None:
    launches = make(150)
    if tiny:
        with tiny_limits():
            found = pairs(launches)
    else:
        found = pairs(launches)
    assert set(found) == reduction(launches)
    assert len(found) == len(set(found))


def test_thousands_of_wide_reads_of_thousands_of_segments_form_one_chain() -> None:
    n = 3000
    launches = program(*((reads(0, n), writes(i * 7 % n, i * 7 % n + 1)) for i in range(n)))
    assert pairs(launches) == [(i, i + 1) for i in range(n - 1)]


def test_long_independent_chains_keep_their_own_edges_when_the_past_is_shared() -> None:
    n = 9000  # more than twice the length from which launches share what is long past
    launches = program(*((reads(i, i + 1), writes(i + 2, i + 3)) for i in range(n)))
    assert pairs(launches) == [(i, i + 2) for i in range(n - 2)]
    joined = [*launches, Launch("join", (reads(0, n + 3),)), Launch("late", (reads(4, 5),))]
    assert pairs(joined)[n - 2 :] == [(n - 2, n), (n - 1, n), (2, n + 1)]


@pytest.mark.parametrize("stray", [False, True], ids=["chain", "chain beside a stray launch"])
def test_memory_stays_small_over_a_long_chain(stray: bool) -> None:
    n = 20_000
    chain = [(reads(i, i + 1), writes(i + 1, i + 2)) for i in range(n)]
    launches = program(*([(writes(0, 8, 9),)] if stray else []), *chain)
    tracemalloc.start()
    edges = order(launches)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(edges) == n - 1
    # Full ancestor sets would take n * n / 16 bytes: 25 MB on top of some 600 bytes a launch.
    assert peak < 1000 * n


def test_launches_with_many_ranges_give_the_first_bytes_they_share() -> None:
    scatter = tuple(writes(10 * i, 10 * i + 4) for i in range(100))
    between = tuple(reads(10 * i + 4, 10 * i + 10) for i in range(100))
    gather = (*between, reads(553, 561), reads(777, 779))
    launches = program(scatter, between, gather, (writes(558, 572),))
    assert order(launches) == (
        Edge(0, 2, HazardKind.RAW, 0, 553, 554),
        Edge(1, 3, HazardKind.WAR, 0, 558, 560),
        Edge(2, 3, HazardKind.WAR, 0, 558, 561),
    )


def test_order_takes_any_iterable() -> None:
    launches = program((writes(0, 8),), (reads(0, 8),))
    assert order(iter(launches)) == order(launches)


@settings(max_examples=60)
@given(launches=programs())
def test_the_verifier_accepts_the_edges_and_misses_each_one_that_is_removed(
    launches: list[Launch],
) -> None:
    edges = pairs(launches)
    assert find_race(launches, Order(tuple(edges))) is None
    for i, removed in enumerate(edges):
        race = find_race(launches, Order((*edges[:i], *edges[i + 1 :])))
        assert race is not None
        assert race.second == removed[1]
        assert race.first <= removed[0]  # what came before through it may be lost as well
