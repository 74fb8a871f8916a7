"""verify(): an order is enough, or the two launches, the bytes and the hazard are named."""

from __future__ import annotations

import ast
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import arenite.hazards
from arenite.errors import InvalidArgument, RaceFound
from arenite.hazards import (
    BufferRange,
    HazardKind,
    Launch,
    Loop,
    Order,
    Race,
    Role,
    find_race,
    verify,
)

from .brute import hazard, looping_orders, orders, programs, races


def reads(start: int, end: int, storage_id: int = 0) -> BufferRange:
    return BufferRange(storage_id, start, end, Role.READ)


def writes(start: int, end: int, storage_id: int = 0) -> BufferRange:
    return BufferRange(storage_id, start, end, Role.WRITE)


def program(*launches: tuple[BufferRange, ...] | None) -> list[Launch]:
    return [Launch(f"kernel{i}", ranges) for i, ranges in enumerate(launches)]


PRODUCE_CONSUME = program((writes(0, 64),), (reads(32, 96),))


def test_an_edge_or_a_barrier_between_two_launches_orders_them() -> None:
    verify(PRODUCE_CONSUME, Order(edges=((0, 1),)))
    verify(PRODUCE_CONSUME, Order(barriers=(1,)))


def test_a_barrier_at_either_end_orders_nothing_between() -> None:
    assert find_race(PRODUCE_CONSUME, Order(barriers=(0, 2))) is not None


def test_a_path_of_edges_is_as_good_as_an_edge() -> None:
    launches = program((writes(0, 8),), (), (reads(0, 8),))
    verify(launches, Order(edges=((0, 1), (1, 2))))


@pytest.mark.parametrize(
    ("first", "second", "kind", "start", "end"),
    [
        (writes(0, 64), reads(32, 96), HazardKind.RAW, 32, 64),
        (reads(0, 64), writes(32, 48), HazardKind.WAR, 32, 48),
        (writes(10, 64), writes(0, 11), HazardKind.WAW, 10, 11),
    ],
)
def test_a_race_is_named_with_its_kind_and_bytes(
    first: BufferRange, second: BufferRange, kind: HazardKind, start: int, end: int
) -> None:
    race = find_race(program((first,), (second,)), Order())
    assert race == Race(0, 1, kind, 0, start, end)


def test_lesson_1_ranges_that_touch_do_not_race() -> None:
    verify(program((writes(64, 128),), (writes(0, 64),), (writes(128, 192),)), Order())


def test_lesson_3_undeclared_races_with_everything_that_is_not_ordered_with_it() -> None:
    for launches in (program(None, ()), program((), None), program(None, None)):
        assert find_race(launches, Order()) == Race(0, 1, HazardKind.UNDECLARED, None, None, None)
        verify(launches, Order(edges=((0, 1),)))
    verify(program((), ()), Order())


def test_a_launch_does_not_race_with_itself() -> None:
    verify(program((reads(0, 8), writes(4, 12), writes(6, 8), reads(0, 8))), Order())


def test_the_smallest_second_then_first_is_named_even_where_it_is_no_neighbour() -> None:
    launches = program((writes(0, 8),), (writes(0, 8),), (writes(0, 8),), (writes(0, 8),))
    race = find_race(launches, Order(edges=((0, 1), (2, 3))))
    assert race is not None
    assert (race.first, race.second) == (0, 2)


def test_bytes_that_a_launch_declares_twice_are_open_until_the_last_range_ends() -> None:
    launches = program((reads(0, 4), reads(0, 8)), (writes(6, 8),))
    assert find_race(launches, Order()) == Race(0, 1, HazardKind.WAR, 0, 6, 8)


def test_the_message_names_launches_bytes_hazard_and_remedy() -> None:
    with pytest.raises(RaceFound) as caught:
        verify(PRODUCE_CONSUME, Order())
    assert str(caught.value) == (
        "launch 0 ('kernel0') and launch 1 ('kernel1') are not ordered; both touch storage 0, "
        "bytes [32, 64): read after write (RAW). To mend it, add the edge (0, 1), or a barrier at "
        "position 1."
    )


def test_the_message_says_which_barriers_would_do() -> None:
    with pytest.raises(RaceFound, match=r"or a barrier at a position from 1 to 3\.$"):
        verify(program((writes(0, 8),), (), (), (reads(0, 8),)), Order())


def test_the_message_names_an_undeclared_launch() -> None:
    with pytest.raises(RaceFound, match=r"\('kernel1'\) may touch anything.*declare its ranges"):
        verify(program((), None), Order())


ACCUMULATE = program(
    (reads(0, 8), writes(0, 8)),
)


def test_a_loop_whose_back_edge_orders_everything_is_judged_as_one_pass() -> None:
    verify(ACCUMULATE, Order(loops=(Loop(0, 1),)))


def test_a_launch_can_race_with_itself_in_the_next_iteration() -> None:
    order = Order(loops=(Loop(0, 1, back_edges=()),))
    race = find_race(ACCUMULATE, order)
    assert race == Race(0, 0, HazardKind.RAW, 0, 0, 8, next_iteration=True)
    with pytest.raises(RaceFound, match=r"launch 0 \('kernel0'\) in the next iteration.*back edge"):
        verify(ACCUMULATE, order)
    verify(ACCUMULATE, Order(loops=(Loop(0, 1, back_edges=((0, 0),)),)))


def test_of_races_across_back_edges_the_smallest_is_named_whatever_the_order_of_loops() -> None:
    launches = program((writes(0, 8),), (), (writes(8, 16),))
    for loops in ((Loop(0, 1, ()), Loop(2, 3, ())), (Loop(2, 3, ()), Loop(0, 1, ()))):
        race = find_race(launches, Order(loops=loops))
        assert race == Race(0, 0, HazardKind.WAW, 0, 0, 8, next_iteration=True)


def test_double_buffering_needs_the_back_edge_from_the_reader() -> None:
    launches = program((writes(0, 8),), (reads(0, 8), writes(8, 16)))
    once = Order(edges=((0, 1),), loops=(Loop(0, 2, back_edges=((0, 0), (1, 1))),))
    assert find_race(launches, once) == Race(1, 0, HazardKind.WAR, 0, 0, 8, next_iteration=True)
    verify(launches, Order(edges=((0, 1),), loops=(Loop(0, 2, back_edges=((1, 0),)),)))


def test_entering_and_leaving_a_loop_orders_everything() -> None:
    launches = program((writes(0, 8),), (reads(0, 8), writes(8, 16)), (reads(8, 16),))
    verify(launches, Order(loops=(Loop(1, 2),)))


def test_a_barrier_inside_a_body_orders_what_is_before_it_in_the_next_iteration_too() -> None:
    launches = program((writes(0, 8),), (reads(0, 8),))
    order = Order(barriers=(1,), loops=(Loop(0, 2, back_edges=()),))
    race = find_race(launches, order)
    assert race == Race(1, 0, HazardKind.WAR, 0, 0, 8, next_iteration=True)


def test_an_inner_loop_at_the_start_orders_the_iterations_of_the_outer_one() -> None:
    launches = program((reads(0, 8),), (writes(0, 8),))
    inner, outer = Loop(0, 1), Loop(0, 2, back_edges=())
    verify(launches, Order(loops=(outer, inner)))
    # A barrier at the same place stands before the loop and is met only once.
    assert find_race(launches, Order(barriers=(0, 1), loops=(outer,))) is not None


def test_of_loops_with_the_same_body_the_first_is_the_outer_one() -> None:
    explicit, ordered = Loop(0, 1, back_edges=()), Loop(0, 1)
    verify(ACCUMULATE, Order(loops=(explicit, ordered)))
    assert find_race(ACCUMULATE, Order(loops=(ordered, explicit))) is not None


@pytest.mark.parametrize(
    "make",
    [
        lambda: Order(edges=((1, 1),)),
        lambda: Order(edges=((2, 1),)),
        lambda: Order(edges=((-1, 1),)),
        lambda: Order(barriers=(-1,)),
        lambda: Order(loops=(Loop(0, 4), Loop(2, 6))),
        lambda: Order(loops=(Loop(0, 8), Loop(5, 7), Loop(1, 6))),
        lambda: Loop(3, 3),
        lambda: Loop(-1, 3),
        lambda: Loop(1, 3, back_edges=((0, 1),)),
        lambda: Loop(1, 3, back_edges=((1, 3),)),
        lambda: Loop(1, 3, back_edges=((3, 1),)),
        lambda: find_race(PRODUCE_CONSUME, Order(edges=((0, 2),))),
        lambda: find_race(PRODUCE_CONSUME, Order(barriers=(3,))),
        lambda: find_race(PRODUCE_CONSUME, Order(loops=(Loop(0, 3),))),
    ],
)
def test_an_order_that_makes_no_sense_is_refused(make: type[object]) -> None:
    with pytest.raises(InvalidArgument):
        make()


def test_loops_side_by_side_and_inside_each_other_are_accepted() -> None:
    Order(loops=(Loop(0, 4), Loop(4, 8), Loop(4, 6), Loop(6, 8), Loop(5, 6), Loop(5, 6)))


@pytest.mark.parametrize("few_reads", [32, 0], ids=["pairs", "bits"])
@pytest.mark.parametrize("nbytes", [1 << 20, 0], ids=["at the end", "at each step"])
@settings(max_examples=60)
@given(launches=programs(max_size=7), data=st.data())
def test_verify_agrees_with_every_pair_of_the_program_written_out(
    few_reads: int, nbytes: int, launches: list[Launch], data: st.DataObject
) -> None:
    order = data.draw(orders(len(launches)))
    with (
        patch("arenite.hazards.sweep._FEW_READS", few_reads),
        patch("arenite.hazards.sweep._DEMAND_NBYTES", nbytes),
    ):
        race = find_race(launches, order)
    near, found = races(launches, order)
    assert (race is not None) == found
    if race is not None:
        assert (race.next_iteration, race.second, race.first) == min(near)
        first, second = launches[race.first], launches[race.second]
        assert (race.kind, race.storage_id, race.start) == hazard(first, second)
        with pytest.raises(RaceFound):
            verify(launches, order)


@settings(max_examples=80)
@given(launches=programs(max_size=4).filter(bool), data=st.data())
def test_where_one_pass_is_ordered_iterations_are_judged_as_written_out(
    launches: list[Launch], data: st.DataObject
) -> None:
    order = data.draw(looping_orders(launches))
    race = find_race(launches, order)
    near, found = races(launches, order)
    assert (race is not None) == found
    if race is not None:
        assert (race.next_iteration, race.second, race.first) == min(near)


def test_a_range_that_all_launches_read_waits_for_all_of_them_before_it_is_written() -> None:
    n = 500
    launches = [
        *(Launch(f"read{i}", (reads(0, 8),)) for i in range(n)),
        Launch("w", (writes(4, 6),)),
    ]
    edges = tuple((i, n) for i in range(n))
    verify(launches, Order(edges))
    for removed in (0, 250, n - 1):
        race = find_race(launches, Order((*edges[:removed], *edges[removed + 1 :])))
        assert race == Race(removed, n, HazardKind.WAR, 0, 4, 6)


def test_all_readers_wait_for_the_write_before_them() -> None:
    n = 500
    launches = [
        Launch("w", (writes(4, 6),)),
        *(Launch(f"read{i}", (reads(0, 8),)) for i in range(n)),
    ]
    edges = tuple((0, i + 1) for i in range(n))
    verify(launches, Order(edges))
    race = find_race(launches, Order((*edges[:99], *edges[100:299], *edges[300:])))
    assert race == Race(0, 100, HazardKind.RAW, 0, 4, 6)


def test_many_launches_that_declare_the_same_bytes_twice_are_all_waited_for() -> None:
    n = 100
    readers = [Launch(f"read{i}", (reads(0, 4), reads(0, 8))) for i in range(n)]
    launches = [*readers, Launch("w", (writes(6, 8),))]
    edges = tuple((i, n) for i in range(n))
    verify(launches, Order(edges))
    race = find_race(launches, Order((*edges[:50], *edges[51:])))
    assert race == Race(50, n, HazardKind.WAR, 0, 6, 8)


def test_the_verifier_shares_no_code_with_what_it_judges() -> None:
    room = Path(arenite.hazards.__file__).parent
    for name in ("proof.py", "sweep.py"):
        tree = ast.parse((room / name).read_text())
        imported = {
            node.module
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module and "hazards" in node.module
        }
        assert imported <= {"arenite.hazards.ranges", "arenite.hazards.sweep"}


def test_an_order_given_by_iterators_is_the_same_order() -> None:
    bytes_of = (BufferRange(0, 0, 8, Role.WRITE),)
    launches = [Launch("a", bytes_of), Launch("b", bytes_of)]
    loops = [Loop(0, 2, back_edges=())]
    wanted = Order(edges=((0, 1),), loops=tuple(loops))
    given_once = Order(edges=iter([(0, 1)]), loops=iter(loops))  # type: ignore[arg-type]
    assert given_once == wanted
    race = find_race(launches, given_once)
    assert race is not None
    assert race == find_race(launches, wanted)
    back = Loop(0, 2, back_edges=iter([(1, 0), (0, 0), (1, 1)]))  # type: ignore[arg-type]
    assert find_race(launches, Order(edges=((0, 1),), loops=(back,))) is None
