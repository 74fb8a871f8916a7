"""memory.plan: sound always, tight mostly, the same everywhere."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arenite import memory
from arenite.errors import DoesNotFit, InvalidArgument, InvalidPlan
from arenite.memory import Alias, Lifetime, Progress, Value, placement
from arenite.memory.blocks import Block, make_blocks
from arenite.memory.placement import Layout, Problem, count_pairs, list_neighbours, sweep
from tests.memory.problems import conflicts, graph_like, optimum, values


def box(name: str, nbytes: int, start: int, end: int) -> Value:
    return Value(name, nbytes, Lifetime(start, end), alignment=1)


@settings(max_examples=400, deadline=None)
@given(values())
def test_no_two_values_share_a_byte_while_both_live(given_values: list[Value]) -> None:
    plan = memory.plan(given_values, effort=2000)
    plan.verify()
    assert conflicts(plan) == []
    used = {slot.id for tick in range(20) for slot in plan.live_at(tick)}
    for value in given_values:
        slot = plan.slots[value.id]
        assert slot.offset % value.alignment == 0
        assert slot.capacity >= slot.nbytes
        owner = value
        while owner.alias is not None:
            owner = next(v for v in given_values if owner.alias and v.id == owner.alias.of)
        assert slot.nbytes == (value.nbytes if owner.id in used else 0)
    assert plan.lower_bound <= plan.peak_nbytes


boxes = st.lists(
    st.builds(
        lambda start, length, size: (start, start + length, size),
        st.integers(0, 6),
        st.integers(1, 5),
        st.integers(1, 9),
    ),
    max_size=5,
)


@settings(max_examples=150)
@given(boxes)
def test_small_problems_are_placed_as_tightly_as_brute_force(
    problem: list[tuple[int, int, int]],
) -> None:
    made = memory.plan([box(str(k), size, a, b) for k, (a, b, size) in enumerate(problem)])
    assert made.lower_bound <= made.peak_nbytes == optimum(problem)


def test_ten_thousand_graph_like_values_come_within_two_percent_of_the_bound() -> None:
    for seed, reach, skips in [(1, 4, 0.02), (2, 8, 0.05)]:
        plan = memory.plan(graph_like(10_000, seed, reach, skips))
        plan.verify()
        assert plan.ratio < 1.02


def test_the_result_does_not_depend_on_the_process() -> None:
    code = (
        "from tests.memory.problems import graph_like\nfrom arenite import memory\n"
        "p = memory.plan(graph_like(400, 7, 20, 0.2), effort=100_000)\n"
        "print(p.peak_nbytes, p.work, hash(tuple(s.offset for s in p.slots.values())))"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": "."},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(seen) == 1


def test_ejection_lowers_what_greedy_orders_leave() -> None:
    problem = graph_like(400, 7, 20, 0.2)
    greedy = memory.plan(problem, effort=1)
    searched = memory.plan(problem)
    assert "ejection" in searched.method
    assert searched.peak_nbytes < greedy.peak_nbytes
    searched.verify()


def test_what_lies_in_other_regions_is_no_room_for_a_loose_plan() -> None:
    problem = graph_like(30, 4, 20, 0.2)
    searched = memory.plan(problem)
    assert memory.plan(problem, effort=1).peak_nbytes > searched.peak_nbytes
    always = Lifetime(0, 99)
    others = [Value(name, 2**23, always, region=name) for name in ("packed", "state")]
    capacity = 2**24 + searched.peak_nbytes
    assert memory.plan([*problem, *others], capacity=capacity).peak_nbytes == capacity


def test_a_capacity_that_cannot_be_met_names_what_fills_the_memory() -> None:
    crowd = [box("a", 40, 0, 9), box("b", 30, 3, 5), box("c", 20, 4, 8), box("d", 99, 9, 10)]
    with pytest.raises(DoesNotFit) as caught:
        memory.plan([*crowd[:3], box("e", 5, 0, 1)], capacity=80)
    error = caught.value
    assert (error.capacity, error.lower_bound, error.peak_tick) == (80, 90, 4)
    assert error.live == (("a", 40), ("b", 30), ("c", 20))
    assert error.smallest_known == 90
    for word in ("80 bytes", "tick 4", "a (40), b (30), c (20)", "90 bytes", "no plan can be"):
        assert word in str(error)
    assert memory.plan(crowd, capacity=99).peak_nbytes == 99
    assert isinstance(error, MemoryError)


def test_a_capacity_above_the_bound_that_was_not_reached_says_search_longer() -> None:
    problem = graph_like(300, 3, 30, 0.3)
    bound = memory.plan(problem, effort=1).lower_bound
    with pytest.raises(DoesNotFit, match="longer search") as caught:
        memory.plan(problem, capacity=bound, effort=1)
    assert caught.value.smallest_known > bound
    assert len(caught.value.live) > 8
    assert "more" in str(caught.value)


def test_a_capacity_ends_the_search_once_it_is_met() -> None:
    problem = graph_like(300, 3, 30, 0.3)
    best = memory.plan(problem)
    loose = memory.plan(problem, capacity=2 * best.peak_nbytes)
    assert loose.work < best.work


def test_progress_is_told_and_can_end_the_search() -> None:
    seen: list[Progress] = []

    def stop_at_seventh(now: Progress) -> bool:
        seen.append(now)
        return len(seen) < 7

    problem = graph_like(400, 7, 20, 0.2)
    plan = memory.plan(problem, effort=None, on_progress=stop_at_seventh)
    plan.verify()
    assert len(seen) == 7
    assert seen[-1].peak_nbytes >= plan.lower_bound == seen[-1].lower_bound
    assert seen[0].work < seen[3].work


def test_a_value_takes_over_the_bytes_of_one_that_dies_as_it_is_born() -> None:
    chain = [Value(k, 64, Lifetime(k, k + 2), takes_over=(k - 1,) if k else ()) for k in range(10)]
    plan = memory.plan(chain)
    assert plan.peak_nbytes == plan.lower_bound == 64
    assert plan.slots[5].took_over == 4
    assert memory.plan([Value(v.id, 64, v.lifetime) for v in chain]).peak_nbytes == 128


def test_a_value_is_not_taken_over_while_it_or_an_alias_of_it_is_still_read() -> None:
    for last, alias_last in [(4, 2), (2, 4)]:
        plan = memory.plan(
            [
                Value("old", 64, Lifetime(0, last)),
                Value("part", 32, Lifetime(0, alias_last), 1, alias=Alias("old", 8)),
                Value("new", 64, Lifetime(1, 6), takes_over=("old",)),
            ]
        )
        assert plan.peak_nbytes == 128
        assert plan.slots["new"].took_over is None


def test_bytes_that_have_gone_on_to_another_value_are_not_taken_over_from_the_first() -> None:
    plan = memory.plan(
        [
            Value("a", 64, Lifetime(0, 3)),
            Value("b", 64, Lifetime(2, 5), takes_over=("a",)),
            Value("c", 64, Lifetime(4, 7), takes_over=("a",)),
        ]
    )
    assert (plan.slots["b"].took_over, plan.slots["c"].took_over) == ("a", None)
    assert plan.slots["b"].offset != plan.slots["c"].offset


def test_a_value_that_died_is_not_taken_over_because_an_alias_of_it_dies_now() -> None:
    plan = memory.plan(
        [
            Value("a", 128, Lifetime(0, 2)),
            Value("v", 64, Lifetime(0, 4), alias=Alias("a", 64)),
            Value("c", 128, Lifetime(3, 5), takes_over=("a",)),
        ]
    )
    assert plan.slots["c"].took_over is None
    assert plan.peak_nbytes == 256


@pytest.mark.parametrize("user", ["of the old one", "of the new one"])
def test_nobody_else_uses_the_bytes_in_the_tick_they_are_taken_over(user: str) -> None:
    owner, span = ("old", Lifetime(1, 3)) if user == "of the old one" else ("new", Lifetime(2, 3))
    chain = [
        Value("old", 64, Lifetime(0, 3)),
        Value("new", 64, Lifetime(2, 5), takes_over=("old",)),
    ]
    assert memory.plan(chain).slots["new"].took_over == "old"
    plan = memory.plan([*chain, Value("part", 8, span, 1, alias=Alias(owner, 8))])
    assert plan.slots["new"].took_over is None


def test_the_alias_that_dies_may_be_taken_over_where_its_owner_is_dead() -> None:
    plan = memory.plan(
        [
            Value("old", 64, Lifetime(0, 2)),
            Value("view", 64, Lifetime(1, 4), alias=Alias("old")),
            Value("new", 64, Lifetime(3, 5), takes_over=("view",)),
        ]
    )
    assert plan.slots["new"].took_over == "view"
    assert plan.peak_nbytes == 64


def test_two_values_never_take_over_the_same_bytes() -> None:
    plan = memory.plan(
        [
            Value("old", 64, Lifetime(0, 2)),
            Value("left", 64, Lifetime(1, 3), takes_over=("old",)),
            Value("right", 64, Lifetime(1, 3), takes_over=("old",)),
        ]
    )
    plan.verify()
    assert plan.peak_nbytes == 128
    assert {plan.slots["left"].took_over, plan.slots["right"].took_over} == {"old", None}


def test_bytes_are_taken_over_once_in_a_tick_also_by_a_value_of_one_tick() -> None:
    plan = memory.plan(
        [
            Value("old", 64, Lifetime(4, 9)),
            Value("brief", 64, Lifetime(8, 9), takes_over=("old",)),
            Value("late", 64, Lifetime(8, 9), takes_over=("old",)),
        ]
    )
    plan.verify()
    assert plan.peak_nbytes == 128


def test_a_small_value_takes_over_a_large_one_only_where_that_costs_no_peak() -> None:
    shrinking = [
        Value("large", 256, Lifetime(0, 2)),
        Value("small", 64, Lifetime(1, 9), takes_over=("large",)),
    ]
    assert memory.plan(shrinking).slots["small"].took_over == "large"
    crowded = [*shrinking, Value("later", 256, Lifetime(3, 5))]
    plan = memory.plan(crowded)
    assert plan.slots["small"].took_over is None
    assert plan.peak_nbytes == 320


@pytest.mark.parametrize(
    ("why", "old", "others", "new"),
    [
        (
            "bytes from the middle on",
            Value("a", 128, Lifetime(0, 3)),
            [Value("half", 64, Lifetime(0, 3), alias=Alias("a", 64))],
            Value("b", 64, Lifetime(2, 5), takes_over=("half",)),
        ),
        (
            "it lies elsewhere",
            Value("a", 64, Lifetime(0, 3)),
            [],
            Value("b", 64, Lifetime(2, 5), pin=64, takes_over=("a",)),
        ),
        (
            "it is in use before",
            Value("a", 64, Lifetime(0, 3)),
            [Value("early", 64, Lifetime(1, 2), alias=Alias("b"))],
            Value("b", 64, Lifetime(2, 5), takes_over=("a",)),
        ),
        (
            "it was no byte of it that died",
            Value("a", 64, Lifetime(0, 2)),
            [Value("none", 0, Lifetime(0, 3), alias=Alias("a"))],
            Value("b", 64, Lifetime(2, 5), takes_over=("none",)),
        ),
        (
            "it would end beside its alignment",
            Value("a", 192, Lifetime(0, 3)),
            [],
            Value("b", 128, Lifetime(2, 5), 128, takes_over=("a",)),
        ),
        (
            "it would begin beside its alignment",
            Value("a", 128, Lifetime(0, 3), pin=64),
            [],
            Value("b", 128, Lifetime(2, 5), 128, takes_over=("a",)),
        ),
    ],
)
def test_bytes_that_cannot_be_taken_over(
    why: str, old: Value, others: list[Value], new: Value
) -> None:
    plan = memory.plan([old, new, *others])
    plan.verify()
    assert plan.slots["b"].took_over is None, why


def test_aliases_of_aliases_add_their_offsets_exactly_once() -> None:
    plan = memory.plan(
        [
            Value("below", 64, Lifetime(0, 9)),
            Value("q_k_v", 96, Lifetime(0, 1), 32),
            Value("k_v", 64, Lifetime(1, 2), 32, alias=Alias("q_k_v", 32)),
            Value("v", 32, Lifetime(5, 7), 32, alias=Alias("k_v", 32)),
            Value("other", 96, Lifetime(4, 6), 32),
        ]
    )
    plan.verify()
    base = plan.slots["q_k_v"].offset
    assert plan.slots["k_v"].offset == base + 32
    assert plan.slots["v"].offset == base + 64
    assert plan.peak_nbytes == 256, "an alias keeps its owner alive"


def test_regions_are_stacked_in_the_arena_and_outside_ones_are_apart() -> None:
    always = Lifetime(0, 100)
    plan = memory.plan(
        [
            Value("x", 100, Lifetime(0, 2), region="io"),
            Value("w", 1000, always, region="packed"),
            Value("kv", 500, always, region="state"),
            Value("t", 128, Lifetime(0, 1)),
            Value("f", 64, always, 32, region="mapped", pin=4096),
        ]
    )
    plan.verify()
    assert [plan.slots[k].offset for k in ("w", "kv", "t", "x", "f")] == [0, 1024, 1536, 0, 4096]
    assert plan.peak_nbytes == 1664
    assert plan.regions["mapped"].nbytes == 4160


def test_pinned_values_stay_and_others_go_around_them() -> None:
    plan = memory.plan([Value("p", 64, Lifetime(0, 9), pin=128), *graph_like(30, 1)])
    plan.verify()
    assert plan.slots["p"].offset == 128
    with pytest.raises(InvalidArgument, match="'a' and 'b' are pinned to bytes that overlap"):
        memory.plan(
            [Value("a", 64, Lifetime(0, 2), pin=0), Value("b", 64, Lifetime(1, 3), 32, pin=32)]
        )
    apart = [Value("a", 64, Lifetime(0, 2), pin=0), Value("b", 64, Lifetime(2, 3), pin=0)]
    assert memory.plan(apart).peak_nbytes == 64


def test_the_search_goes_around_pinned_values() -> None:
    pins = [Value(f"p{k}", 64, Lifetime(0, 400), pin=k * 2**21) for k in range(3)]
    plan = memory.plan([*pins, *graph_like(300, 3, 30, 0.3)], effort=200_000)
    plan.verify()
    assert [plan.slots[p.id].offset for p in pins] == [0, 2**21, 2**22]


def test_empty_things_are_placed_without_bytes() -> None:
    assert memory.plan([]).peak_nbytes == 0
    assert memory.plan([]).ratio == 1.0
    plan = memory.plan([box("none", 0, 0, 5), box("never", 8, 3, 3), box("a", 4, 0, 9)])
    plan.verify()
    assert plan.peak_nbytes == plan.lower_bound == 4
    assert (plan.slots["never"].nbytes, plan.slots["never"].capacity) == (0, 0)


def test_what_never_lives_fails_no_plan_that_fits() -> None:
    never = [
        Value("never", 640, Lifetime(3, 3)),
        Value("part", 64, Lifetime(7, 7), alias=Alias("never", 128)),
        Value("pinned", 64, Lifetime(2, 2), pin=6400),
    ]
    plan = memory.plan([*never, Value("a", 64, Lifetime(0, 9))], capacity=64)
    assert plan.peak_nbytes == 64
    assert memory.plan(never, capacity=0).peak_nbytes == 0
    many = [Value(k, 64, Lifetime(0, 2)) for k in range(4000)]
    swept = memory.plan([*never, *many])
    assert (swept.method, swept.peak_nbytes) == ("sweep by birth", 64 * 4000)


def test_an_owner_that_never_lives_has_bytes_while_its_aliases_live_and_no_longer() -> None:
    plan = memory.plan(
        [
            Value("part", 64, Lifetime(0, 2), alias=Alias("owner", 64)),
            Value("owner", 128, Lifetime(5, 5)),
            Value("later", 128, Lifetime(2, 6)),
        ]
    )
    assert plan.peak_nbytes == plan.lower_bound == 128
    assert plan.slots["owner"].nbytes == 128


def test_the_tick_of_the_peak_counts_bytes_taken_over_once_and_those_that_aliases_keep() -> None:
    chain = [Value("a", 64, Lifetime(0, 3)), Value("b", 64, Lifetime(2, 5), takes_over=("a",))]
    plan = memory.plan([*chain, Value("c", 8, Lifetime(4, 6))])
    assert plan.peak_tick == 4
    plan = memory.plan(
        [
            Value("a", 128, Lifetime(0, 2)),
            Value("v", 64, Lifetime(0, 4), alias=Alias("a", 64)),
            Value("c", 64, Lifetime(3, 5)),
        ]
    )
    assert plan.peak_tick == 3
    assert [slot.id for slot in plan.live_at(3)] == ["a", "c"]


def test_a_plan_that_is_not_sound_is_not_handed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arenite.memory.blocks._may_take_over", lambda *_: True)
    with pytest.raises(InvalidPlan, match="share bytes"):
        memory.plan(
            [
                Value("a", 64, Lifetime(0, 3)),
                Value("b", 64, Lifetime(1, 5), takes_over=("a",)),
            ]
        )


def test_aliases_of_aliases_are_followed_once_each() -> None:
    n = 5000
    chain = [Value(0, 8, Lifetime(0, 1), 1)]
    chain += [Value(k, 8, Lifetime(0, 1), 1, alias=Alias(k - 1)) for k in range(1, n)]
    counted = [_Counted(*value.alias) for value in chain if value.alias is not None]
    memory.plan(chain[:1] + [v._replace(alias=c) for v, c in zip(chain[1:], counted, strict=True)])
    assert sum(one.asked for one in counted) < 20 * n


class _Counted(Alias):
    """An alias that counts how often it is asked whose it is."""

    asked = 0

    def __getattribute__(self, name: str) -> Any:
        if name == "of":
            self.asked += 1
        return super().__getattribute__(name)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (Value("a", -1, Lifetime(0, 1)), "size of -1 bytes"),
        (Value("a", 2**61, Lifetime(0, 1)), "not within"),
        (Value("a", 1, Lifetime(0, 1), 3), "alignment 3 is not a power of two"),
        (Value("a", 1, Lifetime(0, 1), 0), "alignment 0"),
        (Value("a", 1, Lifetime(0, 1), region="heap"), "region 'heap' is none of"),
        (Value("a", 1, Lifetime(0, 1), pin=-64), "pin -64"),
        (Value("a", 1, Lifetime(0, 1), pin=3), "pin 3 is not a multiple"),
        (Value("a", 1, Lifetime(0, 1), takes_over=("a",)), "not another value"),
        (Value("a", 1, Lifetime(0, 1), takes_over=("z",)), "not another value"),
        (Value("a", 1, Lifetime(0, 1), takes_over=("io",)), "lies in region 'io'"),
        (Value("a", 1, Lifetime(0, 1), 2**31), "alignment 2147483648 is not"),
        (Value("a", 1, Lifetime(0, 1), alias=Alias("z")), "alias of 'z'"),
        (Value("a", 1, Lifetime(0, 1), alias=Alias("a")), "alias of 'a', not another value"),
        (Value("a", 4, Lifetime(0, 1), 1, pin=0, alias=Alias("b")), "neither a pin nor values"),
        (Value("a", 4, Lifetime(0, 1), 1, alias=Alias("b"), takes_over=("b",)), "neither a pin"),
        (Value("a", 4, Lifetime(0, 1), 128, alias=Alias("b")), "alignment of 128"),
        (Value("a", 4, Lifetime(0, 1), alias=Alias("b", 62)), r"bytes \[62, 66\) of 'b'"),
        (Value("a", 4, Lifetime(0, 1), alias=Alias("b", 2)), "alignment of 64"),
        (Value("a", 4, Lifetime(0, 1), region="io", alias=Alias("b")), "its owner's region"),
        (Value("b", 4, Lifetime(0, 1)), "two values are called 'b'"),
        (Value("a", 2**60, Lifetime(0, 1)), "all values together"),
        (Value("a", 3.5, Lifetime(0, 1)), "3.5 among its sizes"),  # type: ignore[arg-type]
        (Value("a", np.int32(8), Lifetime(0, 1)), "not an int"),  # type: ignore[arg-type]
        (Value("a", 8, Lifetime(0, 1), 8.0), "8.0 among"),  # type: ignore[arg-type]
        (Value("a", 8, Lifetime(0, 1), pin=64.0), "64.0 among"),  # type: ignore[arg-type]
        (Value("a", 8, (0, 1)), "is no Lifetime"),  # type: ignore[arg-type]
        (Value("a", 8, Lifetime(0, 1), alias="b"), "'b' is no Alias"),  # type: ignore[arg-type]
        (Value("a", 8, Lifetime(0, 1), takes_over="b"), "a tuple of ids, not 'b'"),  # type: ignore[arg-type]
        (("a", 8, Lifetime(0, 1)), "is no Value"),
        (Value(None, 8, Lifetime(0, 1)), "not None"),  # type: ignore[arg-type]
        (Value(True, 8, Lifetime(0, 1)), "not True"),
        (Value((1, 2), 8, Lifetime(0, 1)), "not .1, 2."),  # type: ignore[arg-type]
    ],
)
def test_values_that_make_no_sense_are_named_with_the_reason(value: Value, reason: str) -> None:
    others = [Value("b", 64, Lifetime(0, 1)), Value("io", 1, Lifetime(0, 1), region="io")]
    with pytest.raises(InvalidArgument, match=reason):
        memory.plan([*others, value])


def test_aliases_in_a_circle_are_refused() -> None:
    circle = [
        Value("a", 4, Lifetime(0, 1), 1, alias=Alias("b")),
        Value("b", 4, Lifetime(0, 1), 1, alias=Alias("a")),
    ]
    with pytest.raises(InvalidArgument, match="alias of itself"):
        memory.plan(circle)


def test_lifetimes_and_capacities_that_make_no_sense_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="not a span of ticks"):
        Lifetime(3, 2)
    with pytest.raises(InvalidArgument, match="not a span of ticks"):
        Lifetime(-1, 2)
    with pytest.raises(InvalidArgument, match=r"a tick must be an integer, not 0\.5"):
        Lifetime(0.5, 2)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=r"capacity must be an integer, not 3\.5"):
        memory.plan([], capacity=3.5)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="capacity of -1"):
        memory.plan([], capacity=-1)
    assert memory.plan([], capacity=0).peak_nbytes == 0


def test_lifetimes_are_half_open() -> None:
    assert not Lifetime(0, 3).overlaps(Lifetime(3, 5))
    assert not Lifetime(3, 5).overlaps(Lifetime(0, 3))
    assert Lifetime(0, 4).overlaps(Lifetime(3, 5))
    assert not Lifetime(2, 2).overlaps(Lifetime(0, 9))


@settings(max_examples=200)
@given(boxes, st.integers(0, 2**32))
def test_pairs_are_counted_as_they_are_listed(
    problem: list[tuple[int, int, int]], seed: int
) -> None:
    starts, ends = [b[0] for b in problem], [b[1] for b in problem]
    pairs = {
        frozenset((i, j))
        for i in range(len(problem))
        for j in range(i)
        if max(starts[i], starts[j]) < min(ends[i], ends[j])
    }
    listed = list_neighbours(starts, ends)
    assert {frozenset((i, j)) for i, near in enumerate(listed) for j in near} == pairs
    assert count_pairs(starts, ends) == len(pairs) == sum(map(len, listed)) // 2


@settings(max_examples=200)
@given(values(30))
def test_the_sweep_for_huge_problems_is_sound(given_values: list[Value]) -> None:
    work = [
        v._replace(takes_over=()) for v in given_values if v.region == "work" and v.alias is None
    ]
    work.append(Value("pinned", 8, Lifetime(0, 9), 8, pin=16))
    blocks = make_blocks(work)
    problem = Problem.of(blocks.blocks, max_pairs=-1)
    assert problem.neighbours is None
    offsets = sweep(problem)
    cells: set[tuple[int, int]] = set()
    for block, offset in zip(blocks.blocks, offsets, strict=True):
        assert offset % block.alignment == 0
        for cell in [
            (t, offset + b) for t in range(block.start, block.end) for b in range(block.nbytes)
        ]:
            assert cell not in cells
            cells.add(cell)


@settings(max_examples=200)
@given(
    st.lists(st.tuples(st.integers(0, 20), st.sampled_from([1, 4, 8, 32])), max_size=12),
    st.booleans(),
)
def test_what_lives_at_once_goes_to_the_lowest_gap(
    sizes: list[tuple[int, int]], is_pinned: bool
) -> None:
    lives = [(0, 3), (1, 2), (1, 9)]
    blocks = [Block(n, a, *lives[k % 3]) for k, (n, a) in enumerate(sizes)]
    blocks += [Block(5, 1, 4, 4)]  # never lives
    blocks += [Block(7, 1, 0, 3, pin=16), Block(0, 1, 0, 3, pin=20)] if is_pinned else []
    problem = Problem.of(blocks)
    assert problem.is_crowd
    layout = Layout(problem)
    layout.place_all(range(len(blocks)), 2**40)
    assert layout.work == sum(
        problem.n_live if block.is_live else 1 for block in blocks if block.pin is None
    )
    taken = set(range(16, 23)) if is_pinned else set()
    for block, offset in zip(blocks, layout.offsets, strict=True):
        if block.pin is None:
            mine = taken if block.is_live and block.nbytes else set()
            lowest = next(
                low
                for low in range(0, 10_000, block.alignment)
                if mine.isdisjoint(range(low, low + block.nbytes))
            )
            assert offset == lowest
            if block.is_live:
                taken |= set(range(lowest, lowest + block.nbytes))


def test_weights_are_placed_without_a_list_of_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    # All live at once: the list would grow with the square of the number of layers.
    monkeypatch.setattr(placement, "list_neighbours", None)
    weights = [Value(k, 64 * (1 + k % 5), Lifetime(0, 99), region="packed") for k in range(2000)]
    plan = memory.plan(weights)
    assert plan.peak_nbytes == plan.lower_bound == 64 * 3 * 2000


def test_a_problem_with_too_many_pairs_to_list_is_swept() -> None:
    many = [Value(k, 64, Lifetime(0, 2)) for k in range(4000)]
    plan = memory.plan(many)
    assert plan.method == "sweep by birth"
    assert plan.peak_nbytes == plan.lower_bound == 64 * 4000
