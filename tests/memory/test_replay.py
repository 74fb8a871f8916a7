"""Replay: new sizes on a known plan, never an overlap."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arenite import memory
from arenite.errors import DoesNotFit, InvalidArgument
from arenite.memory import Alias, Lifetime, Region, Replay, Value
from tests.memory.problems import conflicts, graph_like, values


@settings(max_examples=300, deadline=None)
@given(values(), st.data())
def test_any_new_sizes_give_a_sound_plan(given_values: list[Value], data: st.DataObject) -> None:
    plan = memory.plan(given_values, effort=2000)
    aliased = {v.alias.of for v in given_values if v.alias} | {
        v.id for v in given_values if v.alias
    }
    free = [v.id for v in given_values if v.id not in aliased]
    sizes = {v: data.draw(st.integers(0, 40)) for v in free}
    new = Replay(plan).resize(sizes)
    new.verify()
    assert conflicts(new) == []
    used = {slot.id for tick in range(20) for slot in plan.live_at(tick)}
    assert all(new.slots[v].nbytes == size for v, size in sizes.items() if v in used)
    assert all(new.slots[v].nbytes == 0 for v in sizes if v not in used)
    assert list(new.slots) == list(plan.slots)


def test_an_owner_that_never_lives_is_there_as_long_as_its_aliases() -> None:
    plan = memory.plan(
        [
            Value("part", 64, Lifetime(0, 2), alias=Alias("owner")),
            Value("owner", 64, Lifetime(5, 5)),
            Value("never", 64, Lifetime(9, 9), alias=Alias("owner")),
            Value("late", 64, Lifetime(4, 6)),
            Value("later", 64, Lifetime(2, 7)),
        ]
    )
    new = Replay(plan).resize({"late": 128, "later": 128})
    new.verify()
    assert (plan.peak_nbytes, new.peak_nbytes) == (128, 256)


def test_sizes_that_all_double_double_the_peak_at_most() -> None:
    given_values = graph_like(2000, 4)
    plan = memory.plan(given_values)
    double = Replay(plan).resize({v.id: 2 * v.nbytes for v in given_values})
    double.verify()
    assert double.peak_nbytes <= 2 * plan.peak_nbytes
    assert double.lower_bound == 2 * plan.lower_bound
    assert double.peak_tick == plan.peak_tick
    same = Replay(plan).resize({})
    assert same.peak_nbytes <= plan.peak_nbytes


def test_regions_and_outside_values_move_along() -> None:
    always = Lifetime(0, 9)
    plan = memory.plan(
        [
            Value("w", 64, always, region="packed"),
            Value("t", 64, Lifetime(0, 1)),
            Value("half", 32, Lifetime(0, 2), 32, alias=Alias("t", 32)),
            Value("x", 64, always, region="io"),
        ]
    )
    new = Replay(plan).resize({"w": 640, "t": 128, "x": 10})
    assert (new.slots["t"].offset, new.slots["half"].offset) == (640, 672)
    assert new.peak_nbytes == 768
    assert (new.slots["x"].offset, new.slots["x"].capacity) == (0, 64)


def test_where_no_size_changes_every_value_stays_where_it_lies() -> None:
    plan = memory.plan(
        [
            Value("kept", 64, Lifetime(0, 9), region="state"),
            Value("a", 64, Lifetime(0, 2)),
            Value("b", 64, Lifetime(1, 3)),
        ]
    )
    slots = {k: slot._replace(offset=slot.offset + 128) for k, slot in plan.slots.items()}
    regions = {k: region._replace(base=region.base + 128) for k, region in plan.regions.items()}
    regions["state"] = Region("state", 0, 192, 64)
    spread = plan._replace(slots=slots, regions=regions)
    spread.verify()
    assert Replay(spread).resize({}).slots["kept"].offset == 128
    assert Replay(spread).resize({"a": 256}).slots["kept"].offset == 128


def test_the_tick_of_the_peak_follows_the_sizes() -> None:
    plan = memory.plan([Value("a", 64, Lifetime(0, 2)), Value("b", 128, Lifetime(3, 5))])
    assert (plan.peak_tick, Replay(plan).resize({"a": 256}).peak_tick) == (3, 0)


def test_regions_without_values_and_plans_without_an_arena_are_taken_along() -> None:
    plan = memory.plan([Value("x", 64, Lifetime(0, 2), region="io")])
    assert Replay(plan).resize({"x": 200}).slots["x"].capacity == 256
    plan = memory.plan([Value("a", 64, Lifetime(0, 2))])
    empty = plan._replace(regions={"state": Region("state", 0, 0, 0), **plan.regions})
    new = Replay(empty).resize({"a": 200})
    new.verify()
    assert (new.peak_nbytes, new.peak_tick) == (256, 0)


def test_who_stands_on_whom_may_be_given() -> None:
    plan = memory.plan(
        [
            Value("kept", 64, Lifetime(0, 9), region="state"),
            Value("a", 64, Lifetime(0, 1)),
            Value("b", 64, Lifetime(1, 2)),
        ]
    )
    known = Replay(plan)
    assert [list(some) for some in known.below_of("work")] == [[], []]
    assert [list(some) for some in known.below_of("state")] == [[]]
    new = Replay(plan, {"work": [[], [0]]}).resize({"b": 128})
    assert {new.slots[name].offset for name in "ab"} == {64, 64 + new.slots["a"].capacity}


def test_what_cannot_be_kept_is_refused() -> None:
    pinned = memory.plan(
        [
            Value("a", 64, Lifetime(0, 2)),
            Value("p", 64, Lifetime(0, 2), pin=64),
            Value("part", 8, Lifetime(0, 1), 1, alias=Alias("a", 8)),
        ],
        capacity=128,
    )
    with pytest.raises(InvalidArgument, match="'p' is pinned to offset 64"):
        Replay(pinned).resize({"a": 65})
    with pytest.raises(InvalidArgument, match="'part' is an alias that would end 16 bytes"):
        Replay(pinned).resize({"a": 12})
    with pytest.raises(InvalidArgument, match="no value of the plan"):
        Replay(pinned).resize({"z": 1})
    with pytest.raises(InvalidArgument, match="no value of the plan"):
        Replay(pinned).resize({"a": -1})
    for size in (3.5, "3"):
        with pytest.raises(InvalidArgument, match="the size of 'a' must be an integer"):
            Replay(pinned).resize({"a": size})  # type: ignore[dict-item]
    with pytest.raises(InvalidArgument, match="no value of the plan"):
        Replay(pinned).resize({"a": 2**70})
    many = memory.plan([Value(k, 64, Lifetime(0, 1)) for k in range(32)])
    with pytest.raises(InvalidArgument, match="all values together"):
        Replay(many).resize(dict.fromkeys(range(32), 2**59))
    with pytest.raises(DoesNotFit, match="within 128 bytes"):
        Replay(pinned).resize({"p": 128})
