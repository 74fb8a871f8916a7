"""Plans as columns, in memory and as bytes: the same plan, and nothing else from bytes that are not
one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arenite import memory
from arenite.errors import InvalidPlan
from arenite.memory import Alias, Lifetime, MemoryPlan, Value
from arenite.memory.columns import SlotColumns
from arenite.memory.saved import plan_from_bytes, plan_to_bytes
from tests.memory.problems import values


@settings(max_examples=100, deadline=None)
@given(values())
def test_a_plan_comes_back(given_values: list[Value]) -> None:
    plan = memory.plan(given_values, effort=500)
    columns = SlotColumns.of(plan.slots)
    assert dict(columns.items()) == plan.slots
    assert list(columns) == list(plan.slots)
    assert SlotColumns.of(columns) is columns
    read = plan_from_bytes(memoryview(plan_to_bytes(plan)))
    assert read == plan
    assert read.to_json() == plan.to_json()
    read.verify()
    with pytest.raises(KeyError):
        columns["not there"]


@settings(max_examples=200, deadline=None)
@given(values(), st.data())
def test_bytes_that_are_no_plan_are_refused(given_values: list[Value], data: st.DataObject) -> None:
    # The time it took to plan would make other bytes each time, which no failure could be found
    # again in.
    plan = memory.plan(given_values, effort=500)._replace(seconds=0.25)
    content = bytearray(plan_to_bytes(plan))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] = data.draw(st.integers(0, 255))
    cut = data.draw(st.one_of(st.just(len(content)), st.integers(0, len(content))))
    try:
        read = plan_from_bytes(memoryview(bytes(content[:cut])))
    except InvalidPlan:
        return
    again = MemoryPlan.from_json(read.to_json(), is_proven=True)
    assert again == read._replace(slots=dict(read.slots.items()))
    assert again.seconds == read.seconds


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"0.25", b"1" + b"0" * 400),
        (b"0.25", b"1e999"),
        (b"0.25", b"-0.5"),
        (b"0.25", b'"a"'),
        (b"[1,null,", b"[1,true,"),
        (b"[1,null,", b"[-1,null,"),
        (b"[1,null,", b"[[],null,"),
        (b'"greedy', b"7,"),
        (b'["a","b"]', b"[" * 100_000 + b"]" * 100_000),
        (b'["a","b"]', b'["a","a"]'),
        (b'["a","b"]', b'["a",{}]'),
        (b'["region","|u1",2]', b'["region","|b1",2]'),
        (b'["pinned","|b1",2]', b'["pinned","|u1",2]'),
    ],
)
def test_every_field_of_saved_bytes_is_checked(old: bytes, new: bytes) -> None:
    made = memory.plan([Value("a", 64, Lifetime(0, 2)), Value("b", 64, Lifetime(1, 3))])
    content = plan_to_bytes(made._replace(seconds=0.25))
    length = int.from_bytes(content[:8], "little")
    about, rest = content[8 : 8 + length], content[-(-(8 + length) // 64) * 64 :]
    changed = about.replace(old, new)
    assert changed != about
    again = len(changed).to_bytes(8, "little") + changed
    again += bytes(-len(again) % 64) + rest
    with pytest.raises(InvalidPlan, match="cannot be read"):
        plan_from_bytes(memoryview(again))


def test_aliases_in_a_circle_are_refused() -> None:
    part = Alias("a")
    owner = Value("a", 8, Lifetime(0, 1), 1)
    made = memory.plan([owner, *(owner._replace(id=k, alias=part) for k in "bcd")])
    columns = SlotColumns.of(made.slots)
    columns.alias_of = np.array([-1, 2, 3, 1], np.int64)
    with pytest.raises(InvalidPlan, match="alias of itself"):
        plan_from_bytes(memoryview(plan_to_bytes(made._replace(slots=columns))))
