"""Quick calls: arrays like those of the last call go straight to native code, all others do not.

NumPy is the judge of what comes out. That a call was quick is seen by taking the long way away.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import arenite
from arenite import Var
from arenite.backends.cpu.driver.native import stop_team
from arenite.errors import IndexOutOfRange, InvalidArgument, RunFailed, ShapeMismatch, TypeMismatch
from arenite.runtime.executable import Executable
from tests.pipeline.forked import in_child
from tests.pipeline.interrupted import run_script

Array = NDArray[Any]

both = pytest.mark.parametrize("threads", [1, 2])
X = np.arange(12, dtype=np.float32).reshape(3, 4)


@contextmanager
def no_long_way() -> Iterator[None]:
    def refuse(*_: object) -> None:
        raise AssertionError("the long way was taken")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Executable, "_run", refuse)
        yield


@both
def test_a_second_call_is_quick_and_its_results_are_new(threads: int) -> None:
    with arenite.compile(lambda x, y: (x + y, x @ y.T), X, X, threads=threads) as program:
        program(X, X)
        with no_long_way():
            first = program(X, X)
            second = program(X + 1, X)
            by_name = program.executable.run({"x": X, "y": X})
    for (total, product), x in ((first, X), (second, X + 1), (by_name, X)):
        np.testing.assert_array_equal(total, x + X)
        np.testing.assert_array_equal(product, x @ X.T)


@both
def test_a_large_result_that_is_still_held_stays_as_it_is(threads: int) -> None:
    x = np.ones((300, 300), np.float32)
    with arenite.compile(lambda x: x + 1, x, threads=threads) as program:
        held = [program(x * k) for k in range(5)]
    for k, one in enumerate(held):
        assert (one == k + 1).all()


def swapped(x: Array) -> Array:
    return x.astype(x.dtype.newbyteorder())


def off_alignment(x: Array) -> Array:
    memory = np.zeros(x.nbytes + 1, np.uint8)
    there = memory[1:].view(x.dtype).reshape(x.shape)
    there[...] = x
    return there


class Own(np.ndarray[Any, Any]):
    pass


@pytest.mark.parametrize(
    "other",
    [
        lambda x: x.tolist(),
        lambda x: np.asfortranarray(x),
        lambda x: x[::-1][::-1],
        lambda x: np.repeat(x, 2, 1)[:, ::2],
        lambda x: x.view(Own),
        lambda x: arenite.Tensor(x),
        off_alignment,
        swapped,
    ],
)
def test_what_is_no_such_array_gives_the_same(other: Any) -> None:
    with arenite.compile(lambda x: x * 2 + 1, X.astype(np.float64)) as program:
        x = X.astype(np.float64)
        for _ in range(2):
            np.testing.assert_array_equal(program(x), x * 2 + 1)
            np.testing.assert_array_equal(program(other(x)), x * 2 + 1)


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        ((X.T, X), ShapeMismatch),
        ((X[:2], X), ShapeMismatch),
        ((X.reshape(1, 3, 4), X), ShapeMismatch),
        ((X.reshape(-1), X), ShapeMismatch),
        ((X, X.astype(np.float64)), TypeMismatch),
        ((X, X.view(np.int32)), TypeMismatch),
        ((X,), InvalidArgument),
        ((X, X, X), InvalidArgument),
        ((None, X), TypeMismatch),
    ],
)
def test_what_does_not_fit_is_told_after_a_quick_call_too(bad: Any, error: Any) -> None:
    with arenite.compile(lambda x, y: x - y, X, X) as program:
        for _ in range(2):
            program(X, X + 1)
            with pytest.raises(error):
                program(*bad)
            with pytest.raises(error):
                program.executable(*bad)
        np.testing.assert_array_equal(program(X, X + 1), np.full_like(X, -1))


@both
def test_other_sizes_are_never_taken_for_the_last_ones(threads: int) -> None:
    spec = arenite.spec((Var("n", 0, 50), 4))
    with arenite.compile(lambda x: x.cumsum(0) * 2, spec, threads=threads) as program:
        for n in (3, 3, 5, 3, 0, 0, 50, 50, 3):
            x = np.arange(4 * n, dtype=np.float32).reshape(n, 4)
            np.testing.assert_array_equal(program(x), x.cumsum(0) * 2)
        with no_long_way():
            np.testing.assert_array_equal(program(x + 1), (x + 1).cumsum(0) * 2)
        with pytest.raises(ValueError, match="n"):
            program(np.zeros((51, 4), np.float32))


@both
def test_a_launch_that_fails_in_a_quick_call_poisons_until_reset(threads: int) -> None:
    places = np.array([0, 2])
    with arenite.compile(lambda x, at: x.take(at, 0), X, places, threads=threads) as program:
        program(X, places)
        with no_long_way(), pytest.raises(IndexOutOfRange, match="kernel gather"):
            program(X, places + 1)
        with pytest.raises(RunFailed, match="before reset"):
            program(X, places)
        program.reset()
        np.testing.assert_array_equal(program(X, places), X[places])


def test_a_closed_one_says_so_after_quick_calls() -> None:
    program = arenite.compile(lambda x: x + 1, X)
    executable = program.executable
    program(X), program(X)
    program.close()
    for use in (program, executable):
        with pytest.raises(RunFailed, match="closed"):
            use(X)


@both
def test_a_profile_in_between_changes_nothing(threads: int) -> None:
    with arenite.compile(lambda x: x @ x.T, X, threads=threads) as program:
        for _ in range(3):
            np.testing.assert_array_equal(program(X), X @ X.T)
            np.testing.assert_array_equal(program.run_checked(X), X @ X.T)
            assert program.profile(X).kernels


def test_a_team_that_was_stopped_starts_again_in_a_quick_call() -> None:
    x = np.ones((400, 400), np.float32)
    with arenite.compile(lambda x: x @ x, x, threads=2) as program:
        program(x)
        with no_long_way():
            for _ in range(3):
                assert (program(x) == 400).all()
                assert stop_team()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_makes_quick_calls() -> None:
    x = np.ones((400, 400), np.float32)
    with arenite.compile(lambda x: x @ x, x, threads=2) as program:
        program(x)
        program(x)
        with no_long_way():
            assert in_child(lambda: all((program(x) == 400).all() for _ in range(3))) == "true"
        assert (program(x) == 400).all()


@both
def test_ctrl_c_ends_a_quick_call(threads: int) -> None:
    script = f"""
import os, signal, threading
import numpy as np, arenite
signal.signal(signal.SIGINT, signal.default_int_handler)
def endless(x, limit):
    return arenite.while_loop(lambda y: y.sum() < limit, lambda y: y.sort(), x)
x = np.arange(100, dtype=np.float32)
program = arenite.compile(endless, x, np.zeros((), np.float32), threads={threads})
program(x, np.zeros((), np.float32))
program.executable._run = None
threading.Timer(0.3, os.kill, (os.getpid(), {int(signal.SIGINT)})).start()
try:
    program(x, np.full((), np.inf, np.float32))
except KeyboardInterrupt:
    print("interrupted", (program(x, np.zeros((), np.float32)) == x).all())
"""
    assert run_script(script) == (0, "", "interrupted True\n")
