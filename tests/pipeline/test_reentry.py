"""What comes in the middle of a run: a signal handler on its own thread, a host function, a cancel
while weights are prepared."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import arenite
from arenite.errors import RunCancelled, RunFailed
from arenite.tensor.compile import CompiledFunction
from tests.pipeline.interrupted import cancelled

both = pytest.mark.parametrize("threads", [1, 2])
X = np.arange(100, dtype=np.float32)


def endless(x: Any, limit: Any) -> Any:
    """Until the sum, which stays what it is, reaches the limit."""
    return arenite.while_loop(lambda y: y.sum() < limit, lambda y: y.sort(), x)


@contextmanager
def handling(program: CompiledFunction, handler: Callable[[], None]) -> Iterator[None]:
    """In the middle of the main thread's run of a program comes a signal; once it is handled, the
    run is cancelled."""
    is_handled, is_over = threading.Event(), threading.Event()
    main = threading.get_ident()

    def handle(number: int, frame: Any) -> None:
        handler()
        is_handled.set()

    def interrupt() -> None:
        while not sys._current_frames()[main].f_code.co_filename.endswith("native.py"):
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGUSR1)
        is_handled.wait()
        while not is_over.wait(0.01):  # a cancel that comes before the run begins is not one
            program.cancel()

    old = signal.signal(signal.SIGUSR1, handle)
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        signal.signal(signal.SIGUSR1, old)


def told(what: Callable[[], object]) -> bool:
    try:
        what()
    except RunFailed as error:
        return "middle of a run on this very thread" in str(error)
    return False


@both
def test_a_signal_handler_cannot_call_what_it_interrupts(threads: int) -> None:
    answers: list[bool] = []
    with arenite.compile(endless, X, np.float32(0), threads=threads) as program:

        def handler() -> None:
            calls: list[Callable[[], object]] = [
                lambda: program(X, np.float32(5)),
                lambda: program.profile(X, np.float32(5)),
                lambda: program.run_checked(X, np.float32(5)),
                program.reset,
                program.executable.close,
            ]
            answers.extend(told(call) for call in calls)

        with handling(program, handler), pytest.raises(RunCancelled):
            program(X, np.float32(np.inf))
        assert answers == [True] * 5
        np.testing.assert_array_equal(program(X, np.float32(5)), X)


@both
def test_a_signal_handler_may_call_another(threads: int) -> None:
    results: list[Any] = []
    with (
        arenite.compile(endless, X, np.float32(0), threads=threads) as program,
        arenite.compile(endless, X, np.float32(0), threads=threads) as other,
    ):

        def handler() -> None:
            results.append(other(X, np.float32(5)))

        with handling(program, handler), pytest.raises(RunCancelled):
            program(X, np.float32(np.inf))
        np.testing.assert_array_equal(results, [X])


def test_states_are_left_alone_in_the_middle_of_a_run() -> None:
    count = arenite.State((100,), "float32", name="count")

    def counting(x: Any, limit: Any) -> Any:
        count.set(count.value + 1)
        return endless(x, limit)

    answers: list[bool] = []
    with arenite.compile(counting, X, np.float32(0)) as program:
        program(X, np.float32(5))

        def handler() -> None:
            answers.append(told(lambda: program.state["count"].numpy()))
            answers.append(told(program.reset_state))

        with handling(program, handler), pytest.raises(RunCancelled):
            program(X, np.float32(np.inf))
        assert answers == [True, True]
        program.reset_state()
        program(X, np.float32(5))
        np.testing.assert_array_equal(program.state["count"].numpy(), np.ones(100, np.float32))


def test_a_host_function_cannot_call_what_it_is_part_of() -> None:
    answers: list[bool] = []

    def ask(x: Any) -> Any:
        answers.append(told(lambda: program(X)))
        return x * 2

    def function(x: Any) -> Any:
        return arenite.host_call(ask, arenite.spec((100,)), x + 1)

    with arenite.compile(function, X) as program:
        np.testing.assert_array_equal(program(X), (X + 1) * 2)
    assert answers == [True]


@both
def test_a_cancel_reaches_the_load_step(threads: int) -> None:
    """Twenty products of weights, computed once: the first call ends among them, the second does
    them anew."""
    rng = np.random.default_rng(1)
    weights = (rng.standard_normal((512, 512)) / 32).astype(np.float32)

    def function(x: Any) -> Any:
        w = arenite.from_numpy(weights)
        product = w
        for _ in range(20):
            product = product @ w + w
        return x @ product

    x = rng.standard_normal((3, 512)).astype(np.float32)
    with arenite.compile(function, x, threads=threads) as program:
        assert len(program.executable.load_kernels) >= 20
        end = cancelled(program, lambda: program(x))
        assert isinstance(end, RunCancelled), end
        assert program.executables[0].load_ns is None
        wide = weights.astype(np.float64)
        product = wide
        for _ in range(20):
            product = product @ wide + wide
        np.testing.assert_allclose(program(x), x @ product, rtol=1e-3, atol=1e-3)
        assert program.executables[0].load_ns is not None
