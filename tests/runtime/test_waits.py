"""Which values share bytes, so that waits of an earlier bind serve again: judged pair by pair. And
whom launches wait for: judged by the proof, from what workers do and nothing else."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arenite.backends.cpu.driver.table_check import check_table
from arenite.hazards import BufferRange, Order, Role, find_race
from arenite.hazards import Launch as HazardLaunch
from arenite.program import waits
from arenite.program.launch import SHARED_FROM_NS, Launch
from arenite.program.layout import Layout
from arenite.program.places import NOWHERE, Places
from arenite.program.skeleton import Skeleton
from arenite.program.steps import Cell, Step, StepKind
from arenite.program.table import Flag, Ins
from arenite.program.waits import (
    WaitBook,
    Waits,
    found_waits,
    moving_values,
    overlapping,
)

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
    assert nothing._replace(overlaps=known).cover(now) is not is_new


def spec(k: int, is_shared: bool) -> Launch:
    cost_ns = SHARED_FROM_NS if is_shared else 0
    return Launch(f"kernel{k}", 0, (), (), (), (), 4, cost_ns)


def blocks_of(shared: list[bool], cuts: set[int]) -> Skeleton:
    """A table of these launches; before some of them a block ends."""
    steps: list[Step] = []
    for k in range(len(shared)):
        if k in cuts:
            steps.append(Step(StepKind.EVAL, instructions=((Ins.MOV, 0, 0, 0),)))
        steps.append(Step(StepKind.LAUNCH, k))
    return Layout([spec(k, one) for k, one in enumerate(shared)], {}, steps, (Cell(),)).skeleton()


def random_launch(k: int, pick: random.Random) -> HazardLaunch:
    ranges = []
    for _ in range(pick.randint(0, 3)):
        start = pick.randrange(12)
        ranges.append(BufferRange(0, start, start + pick.randint(1, 3), pick.choice(list(Role))))
    return HazardLaunch(f"kernel{k}", tuple(ranges))


@pytest.mark.parametrize("seed", range(40))
def test_no_two_launches_race_by_what_workers_wait_for(seed: int) -> None:
    pick = random.Random(seed)
    n = pick.randint(1, 14)
    shared = [pick.random() < 0.5 for _ in range(n)]
    cuts = {k for k in range(1, n) if pick.random() < 0.15}
    hazards = [random_launch(k, pick) for k in range(n)]
    skeleton = blocks_of(shared, cuts)
    assert skeleton.is_shared.tolist() == shared
    table = found_waits(skeleton, hazards).table(skeleton)
    check_table(table)

    entries = table.entries[skeleton.ticks]
    maker = {int(entry["sync"]): k for k, entry in enumerate(entries) if shared[k]}
    maker |= {int(e["sync"]): k for k, e in enumerate(entries) if e["flags"] & Flag.SIGNALS}
    edges = []
    for k, entry in enumerate(entries):
        start = int(entry["wait_start"])
        waited = table.waits[start : start + int(entry["wait_count"])]
        edges += [(maker[int(sync)], k) for sync in waited]
    assert all(shared[a] or shared[b] for a, b in edges), "worker 0 does not wait for itself"
    alone = [k for k in range(n) if not shared[k]]
    in_turn = pairwise(alone)
    assert find_race(hazards, Order((*edges, *in_turn), tuple(sorted(cuts)))) is None


def test_known_waits_serve_again_where_they_cover_what_shares_bytes() -> None:
    skeleton = blocks_of([True, True], set())
    moving = np.array([[0, 1]])
    book = WaitBook(skeleton, moving, max_kept=2)
    asked: list[int] = []

    def waits_at(*offsets: int) -> Waits:
        def found() -> list[HazardLaunch]:
            asked.append(offsets[1])
            ranges = [BufferRange(0, offset, offset + 4, Role.WRITE) for offset in offsets]
            return [HazardLaunch(f"kernel{k}", (one,)) for k, one in enumerate(ranges)]

        return book.obtain(placed([(offset, 4) for offset in offsets]), found)

    assert waits_at(0, 8).counts.tolist() == [0, 0]
    assert waits_at(0, 2).counts.tolist() == [0, 1], "they share bytes now"
    assert asked == [8, 2]
    assert waits_at(0, 3).counts.tolist() == [0, 1]
    assert waits_at(0, 4).counts.tolist() == [0, 0], "those without waits come first"
    assert asked == [8, 2], "known ones serve"
    alone = WaitBook(blocks_of([False, False], set()), moving)
    assert alone.obtain(placed([(0, 4), (0, 4)]), list).counts.tolist() == [0, 0]


def test_values_that_move_are_listed_for_each_block_that_workers_share() -> None:
    skeleton = blocks_of([True, False, False, False, True], {2, 4})
    touched = [[5, 1], [0, 1, 3], [2, 4], [1], [4, 6]]
    moves = [True, True, False, False, True, True, False]
    assert moving_values(skeleton, touched, moves).tolist() == [[0, 1, 5], [4, NOWHERE, NOWHERE]]
    assert moving_values(blocks_of([False], set()), [[0]], moves).shape == (0, 0)


def test_where_too_many_pairs_would_be_compared_waits_are_found_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    skeleton, moving = blocks_of([True, True], set()), np.array([[0, 1]])
    places, asked = placed([(0, 4), (0, 4)]), []

    def found() -> list[HazardLaunch]:
        asked.append(1)
        return [HazardLaunch("kernel0", ()), HazardLaunch("kernel1", ())]

    for most, n_asked in ((4, 1), (3, 2)):
        monkeypatch.setattr(waits, "MAX_COMPARED", most)
        asked.clear()
        book = WaitBook(skeleton, moving)
        for _ in range(2):
            book.obtain(places, found)
        assert len(asked) == n_asked


def test_of_waits_that_were_found_so_many_are_kept() -> None:
    skeleton = blocks_of([True, True, True], set())
    moving = np.array([[0, 1, 2]])
    nothing = [HazardLaunch(f"kernel{k}", ()) for k in range(3)]
    overlaps = np.packbits(np.eye(3, dtype=bool))
    given_waits = found_waits(skeleton, nothing)._replace(overlaps=overlaps)
    book = WaitBook(skeleton, moving, [given_waits], max_kept=2)
    found = []
    for places in ([(0, 4), (0, 4), (8, 4)], [(0, 4), (8, 4), (0, 4)], [(8, 4), (0, 4), (0, 4)]):
        book.obtain(placed(places), lambda: nothing)
        found.append(book.known[-1])
    assert book.known[0] is given_waits
    assert book.known[1:] == found[1:]
