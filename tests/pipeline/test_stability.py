"""What docs/stability.md says is the same to the last bit, on programs of several kinds.

Whether the numbers are right is judged elsewhere; here they are compared with each other.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import arenite
from arenite import Tensor
from arenite.pipeline import compile_anew
from arenite.program import launch
from arenite.runtime.executable import Executable

Array = NDArray[Any]


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def layers(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    hidden = (x @ w + b).gelu()
    return (hidden - hidden.mean(-1, keepdims=True)).softmax(-1) @ w.T


def image(x: Tensor, w: Tensor) -> Tensor:
    return x.conv(w, None, 1, 1).relu().mean((2, 3))


def halves(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    return (x.astype("float16") @ w.astype("float16")).tanh(), x.astype("bfloat16").mean(0)


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return q.attention(k, v, causal=True)


def reductions(x: Tensor) -> tuple[Tensor, ...]:
    return x.sum(), x.mean(0), x.max(-1), x.cumsum(-1), (x * x).sum(-1)


PROGRAMS: dict[str, tuple[Callable[..., Any], list[Array]]] = {
    "layers": (layers, [numbers(70, 96), numbers(96, 200, seed=1), numbers(200, seed=2)]),
    "one row": (layers, [numbers(1, 96), numbers(96, 2500, seed=1), numbers(2500, seed=2)]),
    "image": (image, [numbers(2, 16, 19, 21), numbers(40, 16, 3, 3, seed=1)]),
    "halves": (halves, [numbers(33, 96), numbers(96, 150, seed=1)]),
    "attention": (attention, [numbers(1, 4, 70, 32, seed=k) for k in range(3)]),
    "reductions": (reductions, [numbers(333, 1037)]),
}


@pytest.fixture(autouse=True)
def dealt_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even small kernels are dealt out to threads."""
    monkeypatch.setattr(launch, "SHARED_FROM_NS", 0)


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
def test_a_program_compiled_anew_and_one_from_the_cache(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    function, arrays = PROGRAMS[name]
    with arenite.compile(function, *arrays) as program:
        graph = program.executable.graph
    wanted = usual(name)
    monkeypatch.setenv("ARENITE_CACHE_DIR", str(tmp_path))
    with Executable(graph, compile_anew(graph)) as anew:
        assert bits(anew(*arrays)) == wanted


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_budget_and_a_plan_for_concurrency(name: str) -> None:
    function, arrays = PROGRAMS[name]
    with arenite.compile(function, *arrays) as program:
        need = program.plan.total_nbytes
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


def test_profiled_runs_leave_the_same_state() -> None:
    kept = arenite.State((40, 96), name="kept")

    def step(x: Tensor, w: Tensor) -> Tensor:
        kept.set((kept.value @ w).tanh() + x)
        return kept.value.sum()

    x, w = numbers(40, 96), numbers(96, 96, seed=1)
    states = []
    for is_profiled in (False, True):
        with arenite.compile(step, x, w) as program:
            for _ in range(3):
                program.profile(x, w) if is_profiled else program(x, w)
            states.append(program.state["kept"].numpy().tobytes())
    assert states[0] == states[1]


ELSEWHERE = """
import sys
import numpy as np
import arenite
from tests.pipeline.test_stability import PROGRAMS, bits
for name, (function, arrays) in PROGRAMS.items():
    with arenite.compile(function, *arrays, threads=2) as program:
        for one in bits(program(*arrays)):
            sys.stdout.buffer.write(one)
"""


def test_another_process_that_compiles_by_itself(tmp_path: Path) -> None:
    """With a cache, hash seed and environment of its own."""
    root = Path(__file__).parent.parent.parent
    run = subprocess.run(
        [sys.executable, "-c", ELSEWHERE],
        env={**os.environ, "ARENITE_CACHE_DIR": str(tmp_path), "PYTHONHASHSEED": "7"},
        cwd=root,
        capture_output=True,
    )
    assert run.returncode == 0, run.stderr.decode()
    assert run.stdout == b"".join(one for name in PROGRAMS for one in usual(name))


# The exceptions.


def test_a_budget_may_take_winograd_away_and_nothing_else_changes() -> None:
    """Under a budget that only the smaller weights fit, bits are those of `winograd=False`."""
    w = numbers(64, 64, 3, 3, seed=1)
    x = numbers(1, 64, 28, 28)

    def layer(x: Tensor) -> Tensor:
        return x.conv(w, padding=1)

    def made(**options: Any) -> tuple[bytes, int]:
        with arenite.compile(layer, x, **options) as program:
            return program(x).tobytes(), program.plan.total_nbytes

    fast, fast_nbytes = made()
    direct, direct_nbytes = made(winograd=False)
    assert fast != direct
    assert direct_nbytes < fast_nbytes
    assert made(memory=fast_nbytes)[0] == fast
    assert made(memory=fast_nbytes - 1)[0] == direct


def test_a_budget_may_leave_constant_weights_where_they_are() -> None:
    """Between the two budgets bits change once, to those of the program that packs nothing."""
    x, w = numbers(70, 96), numbers(96, 200, seed=1)
    weights = arenite.from_numpy(w)

    def made(**options: Any) -> tuple[bytes, int]:
        with arenite.compile(lambda x: x @ weights, x, **options) as program:
            return program(x).tobytes(), program.plan.total_nbytes

    packed, packed_nbytes = made()
    assert made(memory=packed_nbytes)[0] == packed
    in_place, in_place_nbytes = made(memory=packed_nbytes - 1)
    assert in_place_nbytes < packed_nbytes
    assert made(memory=in_place_nbytes)[0] == in_place
    found = np.frombuffer(in_place, np.float32).reshape(70, 200)
    assert np.abs(found - x.astype(np.float64) @ w).max() < 1e-4
