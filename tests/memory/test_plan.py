"""MemoryPlan: prints, saves, reads back, draws; the validator catches every unsound plan."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arenite import memory
from arenite.errors import InvalidPlan
from arenite.memory import Alias, Lifetime, MemoryPlan, Value, svg
from tests.memory.problems import conflicts, graph_like, values


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
    return replace(plan, slots={**plan.slots, name: plan.slots[name]._replace(**changes)})


@settings(max_examples=200)
@given(values(), st.data())
def test_the_validator_agrees_with_brute_force_on_moved_slots(
    given_values: list[Value], data: st.DataObject
) -> None:
    plan = memory.plan(given_values, effort=2000)
    owners = [v for v in given_values if v.alias is None and v.nbytes and v.region == "work"]
    if not owners:
        return
    region = plan.regions["work"]
    chosen = data.draw(st.sampled_from(owners))
    slot = plan.slots[chosen.id]
    room = region.nbytes - slot.capacity
    steps = data.draw(st.integers(0, room // chosen.alignment))
    offset = region.base + steps * chosen.alignment
    if any(s.alias_of is not None or s.took_over is not None for s in plan.slots.values()):
        return
    moved = with_slot(plan, str(chosen.id), offset=offset)
    padded = [v._replace(nbytes=v.padded_nbytes) for v in given_values]
    full = replace(moved, slots={k: s._replace(nbytes=s.capacity) for k, s in moved.slots.items()})
    if conflicts(full, padded):
        with pytest.raises(InvalidPlan, match="share bytes"):
            moved.verify()
    else:
        moved.verify()


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
        ("half", {"offset": 256, "alias_of": "c"}, "leaves the bytes of its owner 'c'"),
        ("half", {"region": "packed", "offset": 64}, "alias of 'a', not found"),
        ("half", {"alias_of": "gone"}, "alias of 'gone', not found"),
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
        replace(plan, regions={**plan.regions, "packed": packed}).verify()


def test_the_validator_is_small_and_shares_no_code_with_the_planner() -> None:
    import arenite.memory.validator as validator

    assert validator.__file__ is not None
    with open(validator.__file__) as file:
        lines = file.read().splitlines()
    assert len(lines) < 100
    imports = {line.split()[1] for line in lines if line.strip().startswith(("from", "import"))}
    assert imports == {
        "__future__",
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
        (["slots", 4, "offset"], 256, "share bytes"),
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
    cells = [[cell.text for cell in row] for row in page.iter("tr")]
    assert ["<script>", "work", "0", "64", "[0, 2)"] in [row[:5] for row in cells]


def test_reuse_is_counted_in_bytes() -> None:
    one_after_another = [Value(k, 64, Lifetime(k, k + 1)) for k in range(5)]
    assert memory.plan(one_after_another).reused_nbytes == 4 * 64


def test_the_drawing_has_one_named_box_a_value_and_both_lines() -> None:
    plan = sample()
    root = ElementTree.fromstring(plan.to_svg())
    space = "{http://www.w3.org/2000/svg}"
    boxes = [r for r in root.iter(f"{space}rect") if r.get("class") == "box"]
    titles = [box.findtext(f"{space}title") or "" for box in boxes]
    assert sorted(title.split()[0] for title in titles) == ["a", "b", "c", "w"]
    assert any("took over a" in title for title in titles)
    classes = {line.get("class") for line in root.iter(f"{space}line")}
    assert {"peak", "bound"} <= classes
    wide = next(b for b, t in zip(boxes, titles, strict=True) if t.startswith("w"))
    tall = next(b for b, t in zip(boxes, titles, strict=True) if t.startswith("c"))
    assert float(wide.get("width", 0)) > float(tall.get("width", 0))
    assert float(wide.get("y", 0)) > float(tall.get("y", 0)), "bytes go up"


def test_names_from_strangers_cannot_break_the_drawing() -> None:
    names = ["<script>", "a&b", '"', "\x00\x1b", "\ud800", "\ufffe", "x" * 400, "]]>"]
    plan = memory.plan([Value(name, 640, Lifetime(0, 9)) for name in names])
    root = ElementTree.fromstring(plan.to_svg().encode("utf-8"))
    assert not list(root.iter("script"))


def test_a_drawing_of_a_huge_plan_leaves_the_smallest_out_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(svg, "MAX_BOXES", 10)
    text = memory.plan(graph_like(50, 1)).to_svg()
    assert text.count('class="box"') == 10
    assert "the largest 10 are drawn" in text
    assert "0 values" in memory.plan([]).to_svg()
