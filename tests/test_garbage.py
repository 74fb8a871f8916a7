"""While a program is made the garbage collector looks less often, and as it did afterwards."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import arenite
from arenite.garbage import OBJECTS_A_LOOK, collected_less_often
from tests.pipeline.forked import in_child

X = np.ones((4, 4), np.float32)


@pytest.fixture(autouse=True)
def usual() -> Iterator[tuple[int, int, int]]:
    before, mine = gc.get_threshold(), (701, 11, 12)
    gc.set_threshold(*mine)
    yield mine
    gc.set_threshold(*before)


def test_thresholds_are_as_before_when_a_program_is_made(usual: tuple[int, int, int]) -> None:
    seen = []

    def function(x: Any) -> Any:
        seen.append(gc.get_threshold())
        return x + 1

    np.testing.assert_array_equal(arenite.compile(function, X)(X), X + 1)
    assert seen == [(OBJECTS_A_LOOK, 11, 12)]
    assert gc.get_threshold() == usual

    def failing(x: Any) -> Any:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        arenite.compile(failing, X)
    assert gc.get_threshold() == usual


def test_the_last_of_several_threads_puts_them_back(usual: tuple[int, int, int]) -> None:
    is_in, may_go = threading.Event(), threading.Event()

    def other() -> None:
        with collected_less_often():
            is_in.set()
            may_go.wait()

    thread = threading.Thread(target=other)
    with collected_less_often():
        thread.start()
        is_in.wait()
    assert gc.get_threshold()[0] == OBJECTS_A_LOOK
    may_go.set()
    thread.join()
    assert gc.get_threshold() == usual


def test_what_somebody_else_sets_stays() -> None:
    with collected_less_often():
        gc.set_threshold(5, 6, 7)
    assert gc.get_threshold() == (5, 6, 7)
    for first in (0, 10 * OBJECTS_A_LOOK):  # never, or seldom enough
        gc.set_threshold(first, 6, 7)
        with collected_less_often():
            assert gc.get_threshold() == (first, 6, 7)
        assert gc.get_threshold() == (first, 6, 7)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_has_those_of_its_own_programs(usual: tuple[int, int, int]) -> None:
    is_in, may_go = threading.Event(), threading.Event()

    def other() -> None:
        with collected_less_often():
            is_in.set()
            may_go.wait()

    thread = threading.Thread(target=other)
    thread.start()
    is_in.wait()
    try:
        assert in_child(lambda: gc.get_threshold() == usual) == "true"

        def inside() -> bool:
            return gc.get_threshold()[0] == OBJECTS_A_LOOK

        with collected_less_often():
            assert in_child(inside) == "true"
    finally:
        may_go.set()
        thread.join()


def test_a_program_of_many_nodes_is_made_with_few_looks() -> None:
    def function(x: Any) -> Any:
        for _ in range(1000):
            x = (x * 1.5 + 0.25).sin()
        return x

    before = sum(one["collections"] for one in gc.get_stats())
    arenite.compile(function, X)
    assert sum(one["collections"] for one in gc.get_stats()) - before <= 20


def test_no_look_at_all_that_was_made_follows() -> None:
    kept: list[Any] = []
    looks: list[int] = []

    def told(phase: str, about: dict[str, int]) -> None:
        if phase == "start":
            looks.append(about["generation"])

    gc.collect()
    with collected_less_often():
        kept += ([] for _ in range(50_000))
    gc.callbacks.append(told)
    try:
        kept.append([])
    finally:
        gc.callbacks.remove(told)
    assert not looks


def test_objects_that_somebody_froze_stay_frozen() -> None:
    frozen: list[object] = []
    gc.freeze()
    try:
        with collected_less_often():
            pass
        # Those that are looked at; how many are frozen changes as some of them end.
        assert not any(one is frozen for one in gc.get_objects())
    finally:
        gc.unfreeze()
