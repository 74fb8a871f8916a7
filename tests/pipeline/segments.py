"""Programs that are cut, judged by NumPy and by the oracle, on one thread and on two, and launch by
launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import arenite
from arenite.ir import evaluate, verify
from arenite.pipeline.segmented import SegmentedExecutable
from arenite.tensor.compile import CompiledFunction

Array = NDArray[Any]


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(-9, 9, shape)


def check(
    function: Callable[..., Any],
    numpy_function: Callable[..., Any],
    *calls: tuple[Any, ...],
    specs: Any = (),
) -> SegmentedExecutable:
    """Equal to NumPy in all calls, whatever comes first, and by the oracle."""
    arguments = [[np.asarray(one) for one in call] for call in calls]
    wanted = [_listed(numpy_function(*arrays)) for arrays in arguments]
    for threads in (1, 2):
        executable = in_segments(function, *(specs or arguments[0]), threads=threads)
        verify(executable.graph)
        for arrays, expected in [*zip(arguments, wanted, strict=True)] * 2:
            _same(executable(*arrays), expected)
            executable.verify()
        for arrays, expected in zip(arguments, wanted, strict=True):
            _same(executable.run_checked(*arrays), expected)
            _same(evaluate(executable.graph, arrays), expected)
    return executable


def in_segments(function: Callable[..., Any], *specs: Any, threads: int) -> SegmentedExecutable:
    executable = arenite.compile(function, *specs, threads=threads).executable
    assert isinstance(executable, SegmentedExecutable)
    return executable


def _listed(made: Any) -> list[Array]:
    return [np.asarray(one) for one in (made if isinstance(made, tuple) else (made,))]


def _same(results: list[Array], expected: list[Array]) -> None:
    assert len(results) == len(expected)
    for one, other in zip(results, expected, strict=True):
        assert one.shape == other.shape
        np.testing.assert_array_equal(one, other)


def repeated(step: Callable[[int, Any], Any]) -> Callable[[Any, Any], Any]:
    """What a loop does, in Python."""

    def run(state: Any, trips: Any) -> Any:
        for i in range(int(trips)):
            state = step(i, state)
        return state

    return run


def segments_of(program: CompiledFunction) -> SegmentedExecutable:
    """What a function that is cut was compiled to."""
    executable = program.executable
    assert isinstance(executable, SegmentedExecutable)
    return executable
