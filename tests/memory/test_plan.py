"""MemoryPlan: prints, saves, reads back, draws; the validator catches every unsound plan."""

from __future__ import annotations

import json
import re
import sys
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arenite import memory
from arenite.errors import InvalidPlan
from arenite.memory import Alias, Lifetime, MemoryPlan, Region, Slot, Tick, Value, ValueId
from arenite.memory.saved import plan_from_bytes, plan_to_bytes
from tests.memory.problems import conflicts, values


def sample() -> MemoryPlan:
    return memory.plan(
        [
            Value("w", 256, Lifetime(0, 9), region="packed"),
            Value("a", 100, Lifetime(0, 3)),
            Value("half", 36, Lifetime(1, 2), 1, alias=Alias("a", 64)),
            Value("b", 128, Lifetime(2, 5), takes_over=("a",)),
            Value("c", 64, Lifetime(2, 6)),
            Value("x", 64, Lifetime(0, 9), region="io", pin=64),
        ],
        capacity=4096,
    )


def with_slot(plan: MemoryPlan, name: str, **changes: Any) -> MemoryPlan:
    return plan._replace(slots={**plan.slots, name: plan.slots[name]._replace(**changes)})


@settings(max_examples=400, deadline=None)
@given(values(), st.data())
def test_the_validator_agrees_with_brute_force_on_changed_slots(
    given_values: list[Value], data: st.DataObject
) -> None:
    plan = memory.plan(given_values, effort=2000)
    if not plan.slots:
        return
    slots = dict(plan.slots)
    for _ in range(data.draw(st.integers(1, 3))):
        slot = slots[data.draw(st.sampled_from([*slots]))]
        what = data.draw(st.sampled_from(["offset", "lifetime", "took_over"]))
        if what == "lifetime":
            start = data.draw(st.integers(0, 8))
            span = Lifetime(start, start + data.draw(st.integers(0, 5)))
            slots[slot.id] = slot._replace(lifetime=span)
        elif slot.alias_of is None and what == "took_over":
            others = [k for k, s in slots.items() if s.region == slot.region]
            slots[slot.id] = slot._replace(took_over=data.draw(st.sampled_from([None, *others])))
        elif slot.alias_of is None:
            region = plan.regions[slot.region]
            room = (region.nbytes - slot.capacity) // slot.alignment
            offset = region.base + slot.alignment * data.draw(st.integers(0, room))
            for one in _family(slots, slot):
                slots[one.id] = one._replace(offset=one.offset + offset - slot.offset)
    # A block of its own for each owner: which values move together is not what is asked here.
    owners = [slot for slot in slots.values() if slot.alias_of is None]
    for number, owner in enumerate(owners):
        for one in _family(slots, owner):
            slots[one.id] = one._replace(block=number)
    changed = plan._replace(slots=slots)
    if conflicts(changed):
        with pytest.raises(InvalidPlan, match="share bytes"):
            changed.verify()
    else:
        changed.verify()


def _family(slots: dict[ValueId, Slot], owner: Slot) -> list[Slot]:
    found = [owner]
    for one in found:
        found += [slot for slot in slots.values() if slot.alias_of == one.id]
    return found


def by_hand(*slots: Slot) -> MemoryPlan:
    return MemoryPlan({s.id: s for s in slots}, {"work": Region("work", 0, 256, 0)}, 0)


def test_a_value_takes_over_another_only_in_that_ones_own_last_tick() -> None:
    a = Slot("a", "work", 0, 64, 64, 64, Lifetime(0, 3), 0)
    b = Slot("b", "work", 0, 64, 64, 64, Lifetime(2, 5), 0, took_over="a")
    c = Slot("c", "work", 0, 64, 64, 64, Lifetime(4, 7), 0, took_over="a")
    by_hand(a, b).verify()
    with pytest.raises(InvalidPlan, match=r"'b' at .* and 'c' at .* both live at tick 4"):
        by_hand(a, b, c).verify()
    by_hand(a, b, c._replace(took_over="b")).verify()


def test_taking_over_a_value_does_not_take_over_its_aliases() -> None:
    a = Slot("a", "work", 0, 128, 128, 64, Lifetime(0, 2), 0)
    v = Slot("v", "work", 64, 64, 64, 64, Lifetime(0, 4), 0, alias_of="a")
    c = Slot("c", "work", 0, 128, 128, 64, Lifetime(3, 5), 0, took_over="a")
    with pytest.raises(InvalidPlan, match=r"'a' at .* and 'c' at .* 3, through 'v' and 'c'"):
        by_hand(a, v, c).verify()


def test_what_is_left_of_bytes_taken_over_in_part_is_still_its_owners() -> None:
    a = Slot("a", "work", 0, 128, 128, 64, Lifetime(0, 3), 0)
    b = Slot("b", "work", 0, 64, 64, 64, Lifetime(2, 5), 0, took_over="a")
    c = Slot("c", "work", 64, 64, 64, 64, Lifetime(2, 5), 1)
    with pytest.raises(InvalidPlan, match=r"'a' at .* and 'c' at .* both live at tick 2"):
        by_hand(a, b, c).verify()
    by_hand(a, b, c._replace(lifetime=Lifetime(3, 5))).verify()


def test_values_of_one_block_begin_together_because_they_are_moved_together() -> None:
    a = Slot("a", "work", 0, 64, 64, 64, Lifetime(0, 3), 0)
    b = Slot("b", "work", 64, 64, 64, 64, Lifetime(0, 3), 0)
    with pytest.raises(InvalidPlan, match="block 0 of region work and don't begin together"):
        by_hand(a, b).verify()
    part = Slot("part", "work", 0, 64, 64, 64, Lifetime(0, 3), 1, alias_of="a")
    with pytest.raises(InvalidPlan, match="'part' is not in the block of its owner"):
        by_hand(a, part).verify()


def test_validating_grows_with_the_values_not_with_their_pairs() -> None:
    def compared(n: int) -> int:
        slots = [Slot(k, "work", k, 1, 1, 1, Lifetime(k, 3 * n), k) for k in range(n)]
        plan = MemoryPlan({s.id: s for s in slots}, {"work": Region("work", 0, n, 0)}, 0)
        calls = 0

        def count(_frame: Any, event: str, _arg: Any) -> None:
            nonlocal calls
            calls += event in ("call", "c_call")

        sys.setprofile(count)
        try:
            plan.verify()
        finally:
            sys.setprofile(None)
        return calls

    assert compared(2000) < 2.5 * compared(1000)


@pytest.mark.parametrize(
    ("name", "changes", "reason"),
    [
        ("c", {"offset": 257}, "not aligned to 64"),
        ("c", {"alignment": 0}, "not aligned to 0"),
        ("c", {"nbytes": 65}, "needs 65 bytes and has 64"),
        ("c", {"offset": 64 * 50}, "leaves its region work"),
        ("c", {"offset": 0}, "leaves its region work"),
        ("c", {"capacity": 128}, "leaves its region work"),
        ("c", {"region": "state"}, "'state', which is missing"),
        ("c", {"offset": 256}, "share bytes and both live at tick 2"),
        ("b", {"took_over": None}, "'a' at .* and 'b' at .* share bytes"),
        ("b", {"offset": 256 + 64}, "'a' at .* and 'b' at .* share bytes"),
        ("a", {"lifetime": Lifetime(0, 4)}, "share bytes"),
        ("half", {"lifetime": Lifetime(1, 4)}, "share bytes"),
        ("half", {"offset": 256 + 80}, "leaves the bytes of its owner 'a'"),
        ("half", {"capacity": 128}, "room up to 448, leaves the bytes of its owner 'a'"),
        ("half", {"offset": 256, "alias_of": "c"}, "leaves the bytes of its owner 'c'"),
        ("half", {"region": "packed", "offset": 64}, "alias of 'a', not found"),
        ("half", {"alias_of": "gone"}, "alias of 'gone', not found"),
        ("c", {"took_over": "gone"}, "took over 'gone', not found"),
        ("half", {"alias_of": "half"}, "alias of itself"),
    ],
)
def test_the_validator_names_what_is_wrong(name: str, changes: Any, reason: str) -> None:
    sample().verify()
    with pytest.raises(InvalidPlan, match=reason):
        with_slot(sample(), name, **changes).verify()


def test_bytes_are_taken_over_only_from_a_value_that_was_there_before() -> None:
    old, new = Value("a", 64, Lifetime(0, 3)), Value("b", 64, Lifetime(2, 5), takes_over=("a",))
    plan = memory.plan([old, new])
    assert plan.slots["b"].took_over == "a"
    with pytest.raises(InvalidPlan, match="share bytes and both live at tick 2"):
        with_slot(plan, "a", lifetime=Lifetime(2, 3)).verify()


def test_a_value_lives_from_the_first_tick_of_its_aliases() -> None:
    plan = memory.plan(
        [
            Value("old", 64, Lifetime(0, 2)),
            Value("new", 64, Lifetime(2, 4)),
            Value("part", 32, Lifetime(2, 3), 1, alias=Alias("new", 0)),
        ]
    )
    with pytest.raises(InvalidPlan, match=r"'old' at .* and 'new' at .* both live at tick 1"):
        with_slot(plan, "part", lifetime=Lifetime(1, 3)).verify()


def test_a_value_without_bytes_may_lie_inside_another() -> None:
    plan = memory.plan([Value("a", 128, Lifetime(0, 3)), Value("none", 0, Lifetime(0, 3))])
    with_slot(plan, "none", offset=64).verify()


def test_the_validator_sees_regions_that_overlap() -> None:
    plan = sample()
    packed = plan.regions["packed"]._replace(nbytes=300)
    with pytest.raises(InvalidPlan, match="regions packed and work overlap"):
        plan._replace(regions={**plan.regions, "packed": packed}).verify()


def test_the_validator_is_small_and_shares_no_code_with_the_planner() -> None:
    import arenite.memory.validator as validator

    assert validator.__file__ is not None
    with open(validator.__file__) as file:
        lines = file.read().splitlines()
    assert len(lines) < 200
    imports = {line.split()[1] for line in lines if line.strip().startswith(("from", "import"))}
    assert imports == {
        "__future__",
        "bisect",
        "dataclasses",
        "heapq",
        "itertools",
        "typing",
        "arenite.errors",
        "arenite.memory.plan",
    }


@given(values())
def test_a_saved_plan_reads_back_equal(given_values: list[Value]) -> None:
    plan = memory.plan(given_values, effort=2000)
    assert MemoryPlan.from_json(plan.to_json()) == plan


def saved() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(sample().to_json())
    return data


@pytest.mark.parametrize(
    ("path", "wrong", "reason"),
    [
        (["schema"], 99, "schema 99"),
        (["schema"], None, "'schema' must be a whole number"),
        (["slots"], {}, "'slots' must be a list"),
        (["slots", 1], 7, "slot 1 is not a JSON object"),
        (["slots", 1, "offset"], -1, "'offset' must be a whole number"),
        (["slots", 1, "offset"], 2**80, "'offset' must be a whole number"),
        (["slots", 1, "offset"], True, "'offset' must be a whole number"),
        (["slots", 1, "id"], [1], "'id' must be a value's id"),
        (["slots", 1, "region"], "heap", "'region' must be one of"),
        (["slots", 1, "lifetime"], [3, 2], "start <= end"),
        (["slots", 1, "lifetime"], [3], "must be"),
        (["slots", 1, "id"], "w", "twice"),
        (["regions", 0, "name"], "work", "twice"),
        (["method"], 3, "'method' must be text"),
        (["seconds"], 10**400, "'seconds' must be a number"),
        (["seconds"], float("inf"), "'seconds' must be a number"),
        (["seconds"], float("nan"), "'seconds' must be a number"),
        (["seconds"], -1, "'seconds' must be a number"),
        (["seconds"], True, "'seconds' must be a number"),
        (["seconds"], "1", "'seconds' must be a number"),
        (["slots", 4, "offset"], 256, "share bytes"),
        (["slots", 1, "pinned"], "yes", "'pinned' must be true or false"),
        (["slots", 1, "detail"], 7, "'detail' must be text"),
    ],
)
def test_a_damaged_saved_plan_is_refused(path: list[Any], wrong: Any, reason: str) -> None:
    data = saved()
    place = data
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = wrong
    with pytest.raises(InvalidPlan, match=reason):
        MemoryPlan.from_json(json.dumps(data))


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "[" * 100_000, '{"schema": NaN}'])
def test_what_is_no_saved_plan_is_refused(text: str) -> None:
    with pytest.raises(InvalidPlan):
        MemoryPlan.from_json(text)


def test_a_plan_prints_as_a_table() -> None:
    text = str(sample())
    for word in ("lower bound", "took over a", "alias of a", "64 pinned", "packed", "outside"):
        assert word in text
    assert "smaller ones" in sample().table(limit=2)
    assert repr(sample()).startswith("<MemoryPlan of 6 values: 448 bytes")
    escaped = memory.plan([Value("\x1b[31m", 8, Lifetime(0, 1))])
    assert "\x1b" not in str(escaped)


def test_a_plan_is_a_table_in_notebooks_whatever_its_names() -> None:
    plan = memory.plan([Value("<script>", 64, Lifetime(0, 2)), Value("b", 32, Lifetime(1, 3))])
    page = ElementTree.fromstring(f"<div>{plan._repr_html_()}</div>")
    rows = [[*row] for row in page.iter("tr")]
    cells = [[cell.text for cell in row] for row in rows]
    assert ["<script>", "work", "0", "64 bytes", "[0, 2)"] in [row[:5] for row in cells]
    assert ["work", "arena from 0", "128 bytes", "128 bytes", "2"] in cells
    for row in rows:
        sides = ["right" if "right" in cell.get("style", "") else "left" for cell in row]
        assert sides == ["left", "left", "right", "right", "right", "left"][: len(row)]
    [picture] = page.iter("{http://www.w3.org/2000/svg}svg")
    assert "made for memory" in "".join(page.itertext())
    assert picture.get("viewBox")


def test_what_else_is_known_of_values_is_saved_and_takes_no_part_in_comparing() -> None:
    plan = sample()._replace(details={"a": "float32 [25], from é", "x": "int8 [64]"})
    assert plan == sample()
    assert MemoryPlan.from_json(plan.to_json()).details == plan.details
    read = plan_from_bytes(memoryview(plan_to_bytes(plan)))
    assert dict(read.details) == plan.details
    assert "b" not in read.details
    assert dict(plan_from_bytes(memoryview(plan_to_bytes(sample()))).details) == {}
    damaged = plan_to_bytes(plan).replace(b'["", "float32', b'["", "float3"')
    with pytest.raises(InvalidPlan, match="details of a saved plan"):
        len(plan_from_bytes(memoryview(damaged)).details)


def test_the_schedule_is_saved_with_the_plan() -> None:
    ticks = [Tick("copy", (), ("a",), "blk.0", True), Tick("add", ("a", "x"), ("b",))]
    plan = sample()._replace(ticks=ticks)
    assert MemoryPlan.from_json(plan.to_json()).ticks == ticks
    content = plan_to_bytes(plan)
    read = plan_from_bytes(memoryview(content)).ticks
    assert ([*read], len(read), read[-1], read[:1]) == (ticks, 2, ticks[1], ticks[:1])
    assert plan_from_bytes(memoryview(plan_to_bytes(sample()))).ticks == ()
    for old, new in ((b'["copy"', b'["copy,'), (b"[], [1]", b"[], [9]")):
        damaged = content.replace(old, new)
        assert damaged != content
        with pytest.raises(InvalidPlan, match="ticks of a saved plan"):
            len(plan_from_bytes(memoryview(damaged)).ticks)


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("reads", ["nowhere"], "tick 0 of a saved plan names no value: 'nowhere'"),
        ("reads", [["a"]], "tick 0: field 'reads' must be a list of values' ids"),
        ("writes", "a", "tick 0: field 'writes' must be a list"),
        ("name", 3, "tick 0: field 'name' must be text"),
        ("at_load", 1, "tick 0: field 'at_load' must be true or false"),
    ],
)
def test_a_saved_schedule_that_makes_no_sense_is_refused(
    field: str, value: object, reason: str
) -> None:
    data = json.loads(sample()._replace(ticks=[Tick("copy", (), ("a",))]).to_json())
    data["ticks"][0][field] = value
    with pytest.raises(InvalidPlan, match=re.escape(reason)):
        MemoryPlan.from_json(json.dumps(data))


def test_reuse_is_counted_in_bytes() -> None:
    one_after_another = [Value(k, 64, Lifetime(k, k + 1)) for k in range(5)]
    assert memory.plan(one_after_another).reused_nbytes == 4 * 64
