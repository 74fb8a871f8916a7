"""An Executable asked for anything in any order: it answers right, or says why not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from numpy.typing import NDArray

import arenite
from arenite import Var, device
from arenite.errors import IndexOutOfRange, RunFailed
from arenite.tensor.compile import CompiledFunction

Array = NDArray[Any]

MAX_ROWS = 60
sizes = st.integers(1, MAX_ROWS)


def function(x: Any, places: Any) -> Any:
    y = (x * 2).sort(0).cumsum(1)
    return y.take(places, 0), (y @ x.T).sum(0)


def expected(x: Array, places: Array) -> list[Array]:
    y = np.sort(x * 2, 0).cumsum(1)
    return [y[places], (y @ x.T).sum(0)]


def given_for(rows: int, seed: int) -> tuple[Array, Array]:
    """Whole numbers, so that every order of adding them gives the same."""
    rng = np.random.default_rng(seed)
    return rng.integers(-3, 4, (rows, 7)).astype(np.float32), rng.integers(0, rows, 5)


class Calls(RuleBasedStateMachine):
    """One compiled function, all that can be done to it, and what it must be like then."""

    threads = 1

    def __init__(self) -> None:
        super().__init__()
        x = arenite.spec((Var("rows", 1, MAX_ROWS), 7))
        places = arenite.spec((5,), "int64")
        self.program: CompiledFunction = arenite.compile(function, x, places, threads=self.threads)
        self.is_failed = self.is_closed = False
        self.held: list[tuple[list[Array], list[Array]]] = []

    def teardown(self) -> None:
        self.program.close()

    def _asked(self, call: Any, rows: int, seed: int) -> None:
        """Call with good arrays: right, or refused with the reason."""
        arrays = given_for(rows, seed)
        if self.is_closed or self.is_failed:
            with pytest.raises(RunFailed, match="closed" if self.is_closed else "before reset"):
                call(*arrays)
            return
        results = call(*arrays)
        wanted = expected(*arrays)
        for one, other in zip(results, wanted, strict=True):
            np.testing.assert_array_equal(one, other)
        self.held = [*self.held[-5:], (list(results), wanted)]

    @rule(rows=sizes, seed=st.integers(0, 99))
    def call(self, rows: int, seed: int) -> None:
        self._asked(self.program, rows, seed)

    @rule(rows=sizes, seed=st.integers(0, 99))
    def call_checked(self, rows: int, seed: int) -> None:
        self._asked(self.program.run_checked, rows, seed)

    @rule(rows=sizes, n=st.sampled_from([-(2**40), MAX_ROWS, 2**40]))
    @precondition(lambda self: not (self.is_failed or self.is_closed))
    def call_with_a_bad_index(self, rows: int, n: int) -> None:
        x, places = given_for(rows, 1)
        places[3] = n
        with pytest.raises(IndexOutOfRange, match=r"test_states\.py"):
            self.program(x, places)
        self.is_failed = True

    @rule(rows=sizes)
    @precondition(lambda self: not (self.is_failed or self.is_closed))
    def call_with_bad_arrays(self, rows: int) -> None:
        x, places = given_for(rows, 2)
        for bad in ((x[:, :5], places), (x.astype(np.float64), places), (x, places[:2]), (x,)):
            with pytest.raises((ValueError, TypeError)):
                self.program(*bad)

    @rule(rows=sizes)
    @precondition(lambda self: not (self.is_failed or self.is_closed))
    def profile(self, rows: int) -> None:
        assert self.program.profile(*given_for(rows, 3)).kernels

    @rule()
    def cancel_nothing(self) -> None:
        self.program.cancel()

    @rule()
    @precondition(lambda self: not self.is_closed)
    def reset(self) -> None:
        self.program.reset()
        self.is_failed = False

    @rule()
    @precondition(lambda self: not self.is_closed)
    def verify(self) -> None:
        self.program.verify()

    @rule(really=st.integers(0, 5))
    def close(self, really: int) -> None:
        if really == 0:
            self.program.close()
            self.is_closed = True

    @invariant()
    def results_stay_what_they_were(self) -> None:
        for results, wanted in self.held:
            for one, other in zip(results, wanted, strict=True):
                np.testing.assert_array_equal(one, other)


class CallsOfTwo(Calls):
    threads = 2


TestCalls = Calls.TestCase
TestCalls.settings = settings(max_examples=15, stateful_step_count=25, deadline=None)
TestCallsOfTwo = CallsOfTwo.TestCase
TestCallsOfTwo.settings = settings(max_examples=15, stateful_step_count=25, deadline=None)


def test_nothing_is_left_behind() -> None:
    """After all of the above, and what is above ran in the same process."""
    live = device.get("cpu").stats.live_nbytes
    machine = Calls()
    machine.call(5, 1)
    assert device.get("cpu").stats.live_nbytes > live
    machine.teardown()
    machine.held.clear()
    assert device.get("cpu").stats.live_nbytes == live
