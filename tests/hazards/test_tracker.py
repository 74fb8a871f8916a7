"""HazardTracker: what is open, and what has to wait for it."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arenite.errors import InvalidArgument
from arenite.hazards import BufferRange, HazardTracker, Launch, Role

from .brute import programs, reduction, wide_programs

READ, WRITE = Role.READ, Role.WRITE


def test_a_new_tracker_lets_everything_run() -> None:
    tracker = HazardTracker()
    assert not tracker.check((BufferRange(0, 0, 8, WRITE),))
    assert not tracker.check(None)
    assert not tracker.check(())


def test_lesson_1_a_range_that_touches_an_open_one_need_not_wait() -> None:
    tracker = HazardTracker()
    tracker.add((BufferRange(0, 64, 128, WRITE),))
    assert not tracker.check((BufferRange(0, 0, 64, WRITE),))
    assert not tracker.check((BufferRange(0, 128, 192, WRITE),))
    assert tracker.check((BufferRange(0, 0, 65, READ),))
    assert tracker.check((BufferRange(0, 127, 192, READ),))


def test_lesson_3_undeclared_is_not_none() -> None:
    tracker = HazardTracker()
    tracker.add(())
    assert not tracker.check(())
    assert tracker.check(None)  # it may conflict with the open launch, whatever that declares
    tracker.add(None)
    assert tracker.check(())
    assert tracker.check((BufferRange(9, 0, 1, READ),))


def test_reads_open_side_by_side_and_a_write_waits_for_them() -> None:
    tracker = HazardTracker()
    tracker.add((BufferRange(0, 0, 64, READ),))
    assert not tracker.check((BufferRange(0, 0, 64, READ),))
    assert tracker.check((BufferRange(0, 32, 33, WRITE),))


def test_after_an_ordering_point_nothing_is_open() -> None:
    tracker = HazardTracker()
    tracker.add((BufferRange(0, 0, 64, WRITE),))
    tracker.add(None)
    tracker.reset()
    assert not tracker.check((BufferRange(0, 0, 64, WRITE),))
    assert not tracker.check(None)
    assert (tracker.n_launches, tracker.n_undeclared) == (0, 0)


def test_an_empty_range_neither_waits_nor_makes_others_wait() -> None:
    tracker = HazardTracker()
    tracker.add((BufferRange(0, 32, 32, WRITE),))
    assert not tracker.check((BufferRange(0, 0, 64, WRITE),))
    tracker.add((BufferRange(0, 0, 64, WRITE),))
    assert not tracker.check((BufferRange(0, 32, 32, WRITE),))


def test_conflicts_names_the_open_ranges_to_wait_for() -> None:
    tracker = HazardTracker()
    tracker.add((BufferRange(0, 0, 64, WRITE), BufferRange(0, 64, 96, READ)))
    tracker.add((BufferRange(0, 48, 80, WRITE), BufferRange(1, 0, 8, READ)))
    assert tracker.conflicts((BufferRange(0, 70, 100, READ),)) == (BufferRange(0, 0, 80, WRITE),)
    assert tracker.conflicts((BufferRange(0, 70, 100, WRITE),)) == (
        BufferRange(0, 0, 80, WRITE),
        BufferRange(0, 64, 96, READ),
    )
    assert tracker.conflicts((BufferRange(1, 0, 8, READ),)) == ()
    assert tracker.conflicts(None) == tuple(tracker.open_ranges())
    assert len(tracker.open_ranges()) == 3


def test_a_tracker_prints_what_is_open() -> None:
    tracker = HazardTracker()
    assert repr(tracker) == "<HazardTracker: 0 open: no bytes>"
    tracker.add((BufferRange(0, 0, 8, READ), BufferRange(0, 8, 16, READ)))
    tracker.add(None)
    assert repr(tracker) == "<HazardTracker: 2 open, 1 undeclared: <read storage 0 [0, 16)>>"


@pytest.mark.parametrize("page_segments", [2, 192])
@given(launches=programs() | wide_programs(), data=st.data())
def test_check_is_true_exactly_when_an_open_launch_conflicts(
    page_segments: int, launches: list[Launch], data: st.DataObject
) -> None:
    tracker = HazardTracker()
    opened: list[Launch] = []
    with patch("arenite.hazards.segments._PAGE_SEGMENTS", page_segments):
        for launch in launches:
            conflict = any(launch.conflicts_with(other) for other in opened)
            assert tracker.check(launch.ranges) == conflict
            if launch.ranges is not None and not tracker.n_undeclared:
                assert bool(tracker.conflicts(launch.ranges)) == conflict
            if data.draw(st.booleans()) and conflict:
                tracker.reset()
                opened.clear()
            tracker.add(launch.ranges)
            opened.append(launch)


@given(programs())
def test_add_gives_the_edges_to_open_launches_until_an_ordering_point(
    launches: list[Launch],
) -> None:
    tracker = HazardTracker()
    for part in (launches, launches[len(launches) // 2 :]):
        pairs = [edge.pair for launch in part for edge in tracker.add(launch.ranges)]
        assert set(pairs) == reduction(part)
        tracker.reset()


@given(programs())
def test_open_ranges_are_the_open_bytes_in_disjoint_stretches(launches: list[Launch]) -> None:
    tracker = HazardTracker()
    expected = set()
    for launch in launches:
        tracker.add(launch.ranges)
        for r in launch.ranges or ():
            expected |= {(r.storage_id, r.role, byte) for byte in range(r.start, r.end)}
    listed = [
        (r.storage_id, r.role, byte)
        for r in tracker.open_ranges()
        for byte in range(r.start, r.end)
    ]
    assert len(listed) == len(set(listed))
    assert set(listed) == expected
    for one in tracker.open_ranges():
        for other in tracker.open_ranges():
            touching = one.end == other.start and one.storage_id == other.storage_id
            assert not (touching and one.role is other.role)


def test_ranges_that_can_be_looked_at_once_only_are_refused_and_open_nothing() -> None:
    tracker = HazardTracker()
    ranges: Any = (one for one in [BufferRange(1, 0, 64, Role.WRITE)])
    tuples: Any = [(1, 0, 64)]
    for call in (tracker.check, tracker.add, tracker.conflicts):
        with pytest.raises(InvalidArgument, match="generator, which can't be looked at twice"):
            call(ranges)
    assert (tracker.n_launches, tracker.open_ranges()) == (0, [])
    for call in (tracker.check, tracker.add, tracker.conflicts):
        with pytest.raises(InvalidArgument, match=r"BufferRange, not \(1, 0, 64\)"):
            call(tuples)
    assert tracker.n_launches == 0
