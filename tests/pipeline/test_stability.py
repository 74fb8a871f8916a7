"""What docs/stability.md says is the same to the last bit, on programs of several kinds.

Whether the numbers are right is judged elsewhere; here they are compared with each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import arenite
from arenite import Tensor
from arenite.pipeline import compile_anew
from arenite.runtime import assemble
from arenite.runtime.executable import Executable

Array = NDArray[Any]


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def layers(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    hidden = (x @ w + b).gelu()
    return (hidden - hidden.mean(-1, keepdims=True)).softmax(-1) @ w.T


def image(x: Tensor, w: Tensor) -> Tensor:
    return x.conv(w, None, 1, 1).relu().mean((2, 3))


def reductions(x: Tensor) -> tuple[Tensor, ...]:
    return x.sum(), x.mean(0), x.max(-1), x.cumsum(-1), (x * x).sum(-1)


PROGRAMS: dict[str, tuple[Callable[..., Any], list[Array]]] = {
    "layers": (layers, [numbers(70, 96), numbers(96, 200, seed=1), numbers(200, seed=2)]),
    "one row": (layers, [numbers(1, 96), numbers(96, 2500, seed=1), numbers(2500, seed=2)]),
    "image": (image, [numbers(2, 16, 19, 21), numbers(40, 16, 3, 3, seed=1)]),
    "reductions": (reductions, [numbers(333, 1037)]),
}


@pytest.fixture(autouse=True)
def dealt_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even small kernels are dealt out to threads."""
    monkeypatch.setattr(assemble, "SHARED_FROM_NS", 0)


def bits(results: Any) -> list[bytes]:
    return [one.tobytes() for one in (results if isinstance(results, tuple | list) else [results])]


def usual(name: str) -> list[bytes]:
    function, arrays = PROGRAMS[name]
    with arenite.compile(function, *arrays, threads=1) as program:
        return bits(program(*arrays))


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("threads", [2, 3, 5])
def test_any_number_of_threads(name: str, threads: int) -> None:
    function, arrays = PROGRAMS[name]
    with arenite.compile(function, *arrays, threads=threads) as program:
        for _ in range(3):
            assert bits(program(*arrays)) == usual(name)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_compiled_anew_and_one_from_the_cache(name: str) -> None:
    function, arrays = PROGRAMS[name]
    with arenite.compile(function, *arrays) as program:
        graph = program.executable.graph
    with Executable(graph, compile_anew(graph)) as anew:
        assert bits(anew(*arrays)) == usual(name)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_budget_and_a_plan_for_concurrency(name: str) -> None:
    function, arrays = PROGRAMS[name]
    with arenite.compile(function, *arrays) as program:
        need = program.plan.peak_nbytes
    for options in ({"memory": need}, {"memory": 2 * need}, {"plan": "concurrency"}):
        with arenite.compile(function, *arrays, **options) as program:
            assert bits(program(*arrays)) == usual(name)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("nbytes", [4, 20, 32])
def test_wherever_arrays_lie(name: str, nbytes: int) -> None:
    function, arrays = PROGRAMS[name]
    with arenite.compile(function, *arrays) as program:
        assert bits(program(*(moved(array, nbytes) for array in arrays))) == usual(name)


def moved(array: Array, nbytes: int) -> Array:
    """The array, so far behind a cache line."""
    room = np.empty(array.nbytes + 64 + nbytes, np.uint8)
    first = -room.ctypes.data % 64 + nbytes
    made = room[first : first + array.nbytes].view(array.dtype).reshape(array.shape)
    made[...] = array
    return made


@pytest.mark.parametrize("name", PROGRAMS)
def test_runs_that_are_watched(name: str) -> None:
    function, arrays = PROGRAMS[name]
    with arenite.compile(function, *arrays) as program:
        assert bits(program.run_checked(*arrays)) == usual(name)
