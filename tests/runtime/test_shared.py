"""Which launches workers share, by their estimates and by what they read."""

from __future__ import annotations

from arenite.program.launch import SHARED_FROM_NS, Launch
from arenite.program.skeleton import FOLLOWING_FROM_NS, shared_of


def launch(reads: list[int], write: int, tiles: int, cost_ns: int) -> Launch:
    read = tuple(reads)
    return Launch(f"made{write}", 0, (*read, write), read, (write,), (), tiles, cost_ns)


LONG = launch([0], 1, 2, SHARED_FROM_NS)


def test_long_launches_of_several_tiles() -> None:
    alone = launch([0], 1, 1, 100 * SHARED_FROM_NS)
    short = launch([0], 1, 2, SHARED_FROM_NS - 1)
    assert [shared_of([one])[0] for one in (LONG, alone, short)] == [True, False, False]


def test_short_launches_that_are_cut_like_a_shared_one_they_read() -> None:
    after = launch([0, 1], 2, 2, FOLLOWING_FROM_NS)
    assert shared_of([LONG, after]) == [True, True]
    assert shared_of([LONG, after, launch([2], 3, 2, FOLLOWING_FROM_NS)]) == [True, True, True]


def test_short_launches_that_stay_with_one_worker() -> None:
    for after in (
        launch([0], 2, 2, FOLLOWING_FROM_NS),  # reads something else
        launch([1], 2, 3, FOLLOWING_FROM_NS),  # is cut otherwise
        launch([1], 2, 2, FOLLOWING_FROM_NS - 1),
    ):
        assert shared_of([LONG, after]) == [True, False]
    overwritten = launch([0], 1, 1, FOLLOWING_FROM_NS)
    after = launch([1], 2, 2, FOLLOWING_FROM_NS)
    assert shared_of([LONG, overwritten, after]) == [True, False, False]
