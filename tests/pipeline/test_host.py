"""Functions of the host in the middle of a program: segments, in loops and branches too."""

from __future__ import annotations

import os
import signal
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import arenite
from arenite import Var
from arenite.errors import HostCallFailed, RunFailed, TypeMismatch
from arenite.pipeline.segmented import SegmentedExecutable
from arenite.tensor import concat

Array = NDArray[Any]
RNG = np.random.default_rng(9)


def turned(a: Array) -> Array:
    return np.sort(a, axis=0)[::-1]


@pytest.mark.parametrize("threads", [1, 2])
def test_native_code_goes_on_behind_the_host(threads: int) -> None:
    def network(x: Any) -> Any:
        y = (x * 2).tanh()
        z = arenite.host_call(turned, y, y)
        return (z + y).sum(0), z

    program = arenite.compile(network, arenite.spec((Var("n", 0, 500), 7)), threads=threads)
    for n in (3, 500, 0, 7):
        x = RNG.standard_normal((n, 7)).astype(np.float32)
        y = np.tanh(x.astype(np.float64) * 2)
        total, z = program(x)
        assert np.allclose(z, turned(y), atol=1e-6)
        assert np.allclose(total, (turned(y) + y).sum(0), atol=1e-3)
        program.verify()
        for one, other in zip(program.run_checked(x), (total, z), strict=True):
            assert np.array_equal(one, other)
    assert "a segment ends" in str(program.executables[0].schedule)
    assert len(program.profile(x).kernels) == 2


def test_in_loops_and_branches() -> None:
    calls: list[Array] = []

    def one_more(a: Array) -> Array:
        calls.append(a)
        return a + 1

    def body(_: Any, x: Any) -> Any:
        return arenite.host_call(one_more, x, x) * 2

    def network(x: Any, go: Any) -> Any:
        looped = arenite.fori_loop(4, body, x)
        return arenite.cond(go, lambda: arenite.host_call(one_more, x, looped), lambda: looped)

    x = RNG.standard_normal(5).astype(np.float32)
    program = arenite.compile(network, x, np.array(True))
    exact = x
    for _ in range(4):
        exact = (exact + 1) * 2
    assert np.allclose(program(x, np.array(True)), exact + 1)
    assert len(calls) == 5
    assert np.allclose(program(x, np.array(False)), exact)
    assert len(calls) == 9
    program.verify()
    # What a function keeps is its own.
    program.close()
    assert np.array_equal(calls[0], x)
    assert not calls[0].flags.writeable


def test_each_program_calls_its_own_function() -> None:
    """Equal graphs are one program in the cache, whatever the functions do."""
    x = np.ones(3, np.float32)
    programs = [
        arenite.compile(lambda x, by=by: arenite.host_call(lambda a: a * by, x, x + 1), x)
        for by in (np.float32(2), np.float32(3))
    ]
    assert [program(x).tolist() for program in programs] == [[4.0] * 3, [6.0] * 3]


def test_errors_of_the_function_come_through_and_leave_it_usable() -> None:
    answers: list[Any] = [RuntimeError("mine"), np.zeros(2, np.float32), np.zeros(3), None]

    def function(a: Array) -> Any:
        answer = answers.pop(0) if answers else a * 3
        if isinstance(answer, Exception):
            raise answer
        return answer

    x = np.ones(3, np.float32)
    program = arenite.compile(lambda x: arenite.host_call(function, x, x + 1) * 2, x)
    with pytest.raises(RuntimeError, match="mine"):
        program(x)
    for wrong in (r"float32\[2\]", r"float64\[3\]", r"object\[\]"):
        with pytest.raises(HostCallFailed, match=wrong):
            program(x)
    assert program(x).tolist() == [12.0] * 3


def test_what_numpy_cannot_hold_is_refused() -> None:
    with pytest.raises(TypeMismatch, match="int4"):
        arenite.host_call(turned, arenite.spec((3,), "int4"), np.ones(3))


def test_closing_from_within_is_refused_and_leaves_it_open() -> None:
    refused: list[RunFailed] = []

    def function(a: Array) -> Array:
        for one in (program, program.variants[0].executable):
            with pytest.raises(RunFailed, match="in the middle of a run") as caught:
                one.close()
            refused.append(caught.value)
        return a + 1

    def body(x: Any, k: Any) -> Any:
        return arenite.host_call(function, x, x) * k

    x = np.ones(3, np.float32)
    with arenite.compile(body, x, arenite.static) as program:
        assert program(x, 3).tolist() == [6.0] * 3  # another variant is open meanwhile
        for k in (2, 3, 2):
            assert program(x, k).tolist() == [2.0 * k] * 3
        assert len(refused) == 8
    with pytest.raises(RunFailed, match="was closed"):
        program(x, 2)


def test_closing_a_program_in_segments_from_within_leaves_it_open() -> None:
    n_refused = 0

    def function(a: Array) -> Array:
        nonlocal n_refused
        with pytest.raises(RunFailed, match="in the middle of a run"):
            program.close()
        n_refused += 1
        return a + 1

    def body(x: Any) -> Any:
        begun = arenite.host_call(function, x, x)
        return arenite.while_loop(
            lambda v: v.sum() < 10, lambda v: concat([v, v]), begun, grows=True
        )

    x = np.ones(3, np.float32)
    with arenite.compile(body, x) as program:
        assert isinstance(program.executable, SegmentedExecutable)
        for _ in range(2):
            assert program(x).tolist() == [2.0] * 6
    assert n_refused == 2


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("threads", [1, 2])
def test_a_process_forked_by_the_function_goes_on_with_the_run(threads: int) -> None:
    child = 0

    def function(a: Array) -> Array:
        nonlocal child
        child = child or os.fork()
        if child == 0:
            child = -1
            signal.alarm(60)
        return a + 1

    x = np.ones(3, np.float32)
    with arenite.compile(
        lambda x: arenite.host_call(function, x, x * 2) * 2, x, threads=threads
    ) as program:
        is_right = False
        try:
            is_right = program(x).tolist() == program(x).tolist() == [6.0] * 3
        finally:
            if child == -1:
                os._exit(0 if is_right else 1)
        assert is_right
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
