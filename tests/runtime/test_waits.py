"""Which values share bytes, so that waits of an earlier bind serve again: judged pair by pair."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from arenite.runtime.places import NOWHERE, Places
from arenite.runtime.waits import KnownWaits, Waits, overlapping

spans = st.tuples(st.integers(0, 12), st.integers(0, 4))


def placed(values: list[tuple[int, int]]) -> Places:
    """Values at these offsets, of so many bytes."""
    table = np.array(values, np.int64).reshape(-1, 2)
    return Places(table[:, 1].copy(), table[:, 0].copy(), np.full(len(table), NOWHERE), {})


def bytes_of(value: tuple[int, int]) -> set[int]:
    return set(range(value[0], value[0] + value[1]))


@settings(deadline=None)
@given(st.lists(spans, min_size=1, max_size=6), st.lists(spans, min_size=6, max_size=6), st.data())
def test_waits_serve_where_no_new_pair_shares_bytes(
    before: list[tuple[int, int]], drawn: list[tuple[int, int]], data: st.DataObject
) -> None:
    after = drawn[: len(before)]
    n = len(before)
    rows = data.draw(st.lists(st.lists(st.integers(0, n - 1), unique=True), min_size=1, max_size=3))
    moving = np.full((len(rows), max(map(len, rows))), NOWHERE)
    for row, some in zip(moving, rows, strict=True):
        row[: len(some)] = some
    nothing = Waits(np.zeros(0, np.uint16), np.zeros(0, np.uint32), np.zeros(0, np.bool_))
    known = overlapping(placed(before), moving)
    now = overlapping(placed(after), moving)
    assert known is not None
    assert now is not None
    is_new = any(
        bytes_of(after[i]) & bytes_of(after[j]) and not bytes_of(before[i]) & bytes_of(before[j])
        for some in rows
        for i in some
        for j in some
    )
    assert KnownWaits(known, nothing).cover(now) is not is_new
