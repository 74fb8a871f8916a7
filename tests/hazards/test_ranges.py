"""BufferRange and Launch: what conflicts, and what only looks as if it did."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from arenite import device
from arenite.errors import InvalidArgument
from arenite.hazards import BufferRange, HazardKind, Launch, Role

from .brute import View, hazard, programs

READ, WRITE = Role.READ, Role.WRITE


def test_lesson_1_ranges_that_touch_do_not_conflict_in_either_direction() -> None:
    low, high = BufferRange(0, 0, 64, WRITE), BufferRange(0, 64, 128, WRITE)
    assert not low.conflicts_with(high)
    assert not high.conflicts_with(low)


def test_lesson_1_one_shared_byte_conflicts_in_both_directions() -> None:
    low, high = BufferRange(0, 0, 65, WRITE), BufferRange(0, 64, 128, READ)
    assert low.conflicts_with(high)
    assert high.conflicts_with(low)


def test_lesson_2_offsets_of_views_of_views_are_added_exactly_once() -> None:
    qkv = View(7, 0, 300)
    k = qkv.view(100, 100)
    second_half_of_k = k.view(50, 50)
    assert BufferRange.of(second_half_of_k, READ) == BufferRange(7, 150, 200, READ)
    assert not BufferRange.of(qkv.view(0, 100), WRITE).conflicts_with(
        BufferRange.of(second_half_of_k, READ)
    )


def test_lesson_2_holds_for_views_of_real_buffers() -> None:
    qkv = device.Buffer(device.get("cpu"), "uint8", (300,))
    q, k = qkv.view(0, 100), qkv.view(100, 100)
    second_half_of_k = k.view(50, 50)
    assert BufferRange.of(second_half_of_k, READ) == BufferRange(qkv.storage_id, 150, 200, READ)
    assert BufferRange.of(k, WRITE).conflicts_with(BufferRange.of(second_half_of_k, READ))
    assert not BufferRange.of(q, WRITE).conflicts_with(BufferRange.of(second_half_of_k, READ))


def test_lesson_3_undeclared_conflicts_with_everything_and_none_with_nothing_else() -> None:
    undeclared, nothing = Launch("opaque", None), Launch("noop", ())
    writer = Launch("fill", (BufferRange(0, 0, 8, WRITE),))
    assert undeclared.conflicts_with(writer)
    assert writer.conflicts_with(undeclared)
    assert undeclared.conflicts_with(nothing)
    assert nothing.conflicts_with(undeclared)
    assert undeclared.conflicts_with(undeclared)
    assert not nothing.conflicts_with(writer)
    assert not nothing.conflicts_with(nothing)


def test_lesson_4_ranges_are_exact_bytes_so_rows_of_one_buffer_are_independent() -> None:
    rows = [View(0, 0, 4096).view(1024 * i, 1024) for i in range(4)]
    for i, one in enumerate(rows):
        for j, other in enumerate(rows):
            conflict = BufferRange.of(one, WRITE).conflicts_with(BufferRange.of(other, WRITE))
            assert conflict == (i == j)


def test_lesson_5_overlapping_views_of_one_arena_conflict_whatever_their_handles() -> None:
    arena = View(3, 0, 256)
    one, other = arena.view(0, 128), arena.view(64, 128)
    assert BufferRange.of(one, WRITE).conflicts_with(BufferRange.of(other, READ))


def test_two_reads_never_conflict() -> None:
    assert not BufferRange(0, 0, 8, READ).conflicts_with(BufferRange(0, 0, 8, READ))


def test_equal_bytes_of_other_storages_do_not_conflict() -> None:
    assert not BufferRange(0, 0, 8, WRITE).conflicts_with(BufferRange(1, 0, 8, WRITE))


def test_an_empty_range_conflicts_with_nothing_even_inside_another() -> None:
    empty, around = BufferRange(0, 5, 5, WRITE), BufferRange(0, 0, 10, WRITE)
    assert empty.is_empty
    assert not empty.conflicts_with(around)
    assert not around.conflicts_with(empty)
    assert not empty.conflicts_with(empty)


@pytest.mark.parametrize(("start", "end"), [(-1, 4), (4, 3), (-4, -2)])
def test_what_is_no_range_is_refused_with_its_bytes(start: int, end: int) -> None:
    with pytest.raises(InvalidArgument, match=rf"\[{start}, {end}\) of storage 2"):
        BufferRange(2, start, end, READ)


def test_a_range_is_a_value_that_cannot_change() -> None:
    one = BufferRange(0, 0, 8, READ)
    assert {one, BufferRange(0, 0, 8, READ)} == {one}
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.start = 4  # type: ignore[misc]


def test_a_range_prints_its_role_storage_and_bytes() -> None:
    assert repr(BufferRange(3, 64, 128, WRITE)) == "<write storage 3 [64, 128)>"


@given(programs(max_size=4))
def test_launches_conflict_exactly_when_they_share_a_byte_that_one_writes(
    launches: list[Launch],
) -> None:
    for one in launches:
        for other in launches:
            assert one.conflicts_with(other) == (hazard(one, other) is not None)
            assert one.conflicts_with(other) == other.conflicts_with(one)


@pytest.mark.parametrize("role", ["write", "read", None, 1, HazardKind.WAW])
def test_a_role_is_a_role(role: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"say Role\.READ or Role\.WRITE"):
        BufferRange(1, 0, 64, role)


@pytest.mark.parametrize("numbers", [(1, 0, 64.0), (1, 0.5, 64), ("1", 0, 64), (None, 0, 1)])
def test_bytes_are_counted_in_whole_numbers(numbers: Any) -> None:
    with pytest.raises(InvalidArgument, match="is not a whole number"):
        BufferRange(numbers[0], numbers[1], numbers[2], Role.READ)
    start: Any = np.int64(0)
    assert BufferRange(1, start, 64, Role.READ).overlaps(BufferRange(1, 0, 1, Role.READ))


def test_a_launch_keeps_ranges_that_can_be_looked_at_again() -> None:
    ranges = [BufferRange(1, 0, 64, Role.WRITE)]
    with pytest.raises(InvalidArgument, match="generator, which can't be looked at twice"):
        Launch("a", (one for one in ranges))  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="BufferRange, not 'x'"):
        Launch("a", ("x",))  # type: ignore[arg-type]
