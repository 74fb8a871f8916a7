"""Forks: a child works or raises, and never hangs, whatever the process was doing."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest

import arenite
from arenite.backends.cpu.driver import native
from arenite.errors import RunFailed
from tests.pipeline.forked import in_child
from tests.pipeline.test_calls import ROWS, long_program, short_run_is_right

pytestmark = [
    #: Python 3.12 and later warn of every fork of a process that has threads.
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
    pytest.mark.parametrize("threads", [1, 2]),
]

X = np.linspace(-1, 1, 300 * 300, dtype=np.float32).reshape(300, 300)


def function(x: Any) -> Any:
    return ((x @ x).tanh() @ x).sum(0)


def is_right(result: Any) -> bool:
    return np.allclose(result, (np.tanh(X @ X) @ X).sum(0), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("asleep", [False, True])
def test_a_child_of_a_process_with_an_idle_team_works(threads: int, asleep: bool) -> None:
    with arenite.compile(function, X, threads=threads) as program:
        before = program(X)
        if asleep:
            time.sleep(0.05)  # the team goes to sleep after a far shorter time
        for _ in range(2):
            assert in_child(lambda: is_right(program(X))) == "true"
        assert program(X).tobytes() == before.tobytes()


def test_a_child_forked_before_the_first_run_works(threads: int) -> None:
    with arenite.compile(function, X, threads=threads) as program:
        assert in_child(lambda: is_right(program(X))) == "true"
        assert is_right(program(X))


def test_a_child_compiles_what_its_parent_never_did(threads: int) -> None:
    with arenite.compile(function, X, threads=threads) as program:
        program(X)
        shift = 1 + threads / 7  # a program no cache has

        def work() -> bool:
            with arenite.compile(lambda x: x * shift + x.cumsum(0), X, threads=threads) as own:
                return np.allclose(own(X), X * np.float32(shift) + X.cumsum(0), atol=1e-3)

        assert in_child(work) == "true"


def test_a_child_of_a_child_works(threads: int) -> None:
    with arenite.compile(function, X, threads=threads) as program:
        program(X)

        def work() -> bool:
            return is_right(program(X)) and in_child(lambda: is_right(program(X))) == "true"

        assert in_child(work) == "true"


def test_a_child_closes_what_it_inherited(threads: int) -> None:
    with arenite.compile(function, X, threads=threads) as program:
        program(X)

        def work() -> bool:
            program.close()
            return True

        assert in_child(work) == "true"
        assert is_right(program(X)), "the parent's is its own"


def test_a_child_forked_during_a_run_is_told_so_and_can_reset(threads: int) -> None:
    with long_program(threads) as program, arenite.compile(function, X, threads=threads) as other:

        def run() -> None:
            try:
                program(np.ones((ROWS, 64), np.float32), np.eye(64, dtype=np.float32))
            except RunFailed:
                ended.set()

        ended = threading.Event()
        runner = threading.Thread(target=run)
        runner.start()
        while not program.executables[0]._is_running:
            time.sleep(0.001)
        time.sleep(0.05)

        def refused_until_reset() -> bool:
            try:
                short_run_is_right(program)
            except RunFailed as error:
                told = "running when the process forked" in str(error)
                program.reset()
                return told and short_run_is_right(program)
            return False

        try:
            assert in_child(refused_until_reset) == "true"
            assert in_child(lambda: is_right(other(X))) == "true"
            assert is_right(other(X)), "the team is busy, so this runs alone"
        finally:
            while runner.is_alive():
                program.cancel()
                runner.join(0.01)
        assert ended.is_set()
        assert short_run_is_right(program)


def test_a_child_starts_a_team_of_its_own(threads: int) -> None:
    with arenite.compile(function, X, threads=threads) as program:
        program(X)

        def work() -> bool:
            had_none = native._team is None
            program(X)
            return had_none and (threads == 1 or native.team().n_threads == threads)

        assert in_child(work) == "true"
