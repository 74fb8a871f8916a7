"""Plans as columns, in memory and as bytes: the same plan, and nothing else from bytes that are not
one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arenite import memory
from arenite.errors import InvalidPlan
from arenite.memory import Value
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
    content = bytearray(plan_to_bytes(memory.plan(given_values, effort=500)))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] = data.draw(st.integers(0, 255))
    cut = data.draw(st.one_of(st.just(len(content)), st.integers(0, len(content))))
    try:
        read = plan_from_bytes(memoryview(bytes(content[:cut])))
    except InvalidPlan:
        return
    assert all(slot.nbytes >= 0 and slot.lifetime.end >= 0 for slot in read.slots.values())
