"""A run allocates nothing but what it returns, and enters Python for nothing between kernels."""

from __future__ import annotations

import ctypes
import gc
import mmap
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import arenite
from arenite import Var, device
from arenite.tensor.compile import CompiledFunction

Array = NDArray[Any]

both = pytest.mark.parametrize("threads", [1, 2])

N_RUNS = 200
#: Python keeps up to 2,000 small tuples of a size for reuse, which tracemalloc counts as live,
#: until the collector goes over everything.
N_RUNS_BEFORE = 2100


@pytest.fixture(autouse=True)
def _no_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def program_of(n_kernels: int, size: int, threads: int) -> CompiledFunction:
    """A chain in which every scan is a kernel with a value in the arena of its own."""

    def function(x: Any) -> Any:
        for k in range(n_kernels):
            x = (-x).cummax(k % 2)
        return x

    program: CompiledFunction = arenite.compile(
        function, arenite.spec((size, size)), threads=threads
    )
    return program


def run_often(program: CompiledFunction, arrays: list[Array], n: int) -> None:
    for k in range(n):
        program(arrays[k % len(arrays)])


def growth(program: CompiledFunction, arrays: list[Array]) -> int:
    """Bytes that Python and NumPy have more after N_RUNS runs than before."""
    tracemalloc.start()
    run_often(program, arrays, N_RUNS)
    before, _ = tracemalloc.get_traced_memory()
    run_often(program, arrays, N_RUNS)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return after - before


class Mallinfo(ctypes.Structure):
    """glibc's mallinfo2."""

    names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in names.split()]


def heap_nbytes() -> int:
    """What malloc has given out and mapped."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallinfo2"):
        pytest.skip("this C library does not tell what it has allocated")
    libc.mallinfo2.restype = Mallinfo
    info = libc.mallinfo2()
    return int(info.uordblks + info.hblkhd)


def mapped_nbytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE


@both
@pytest.mark.parametrize("size", [16, 130])  # results from NumPy's memory, and from the pool's
def test_repeated_calls_hold_nothing(threads: int, size: int) -> None:
    x = np.random.default_rng(1).standard_normal((size, size)).astype(np.float32)
    with program_of(20, size, threads) as program:
        gc.collect()
        run_often(program, [x], N_RUNS_BEFORE)
        stats, heap, mapped = device.get("cpu").stats, heap_nbytes(), mapped_nbytes()
        grown = growth(program, [x])
        after = device.get("cpu").stats
        assert len(program.kernels) >= 20
        # What one object for each run, or for each of the 4,000 launches, would be far above.
        assert grown < N_RUNS
        assert heap_nbytes() - heap < 20_000
        assert mapped_nbytes() == mapped
        assert (after.live_nbytes, after.n_live) == (stats.live_nbytes, stats.n_live)
        assert after.misses == stats.misses, "the system was asked for memory"


@both
def test_the_most_that_lives_in_a_run_is_the_result(threads: int) -> None:
    """Of a size that comes from NumPy, which tells tracemalloc; values between would double it."""
    x = np.random.default_rng(1).standard_normal((100, 100)).astype(np.float32)
    with program_of(20, 100, threads) as program:
        run_often(program, [x], 5)
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        run_often(program, [x], 5)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert x.nbytes <= peak - before < x.nbytes + 10_000


@both
def test_results_belong_to_the_caller(threads: int) -> None:
    """Memory is used again only when nobody sees it."""
    rng = np.random.default_rng(2)
    with program_of(3, 200, threads) as program:
        given = [rng.standard_normal((200, 200)).astype(np.float32) for _ in range(6)]
        held = [program(x) for x in given]
        copies = [result.copy() for result in held]
        parts = [held.pop(0)[5:, 3], held.pop(0).T[::2]]  # views alone keep the bytes, too
        wanted = [copies.pop(0)[5:, 3], copies.pop(0).T[::2]]
        for x in given:
            program(x + 1)
        for one, other in zip([*parts, *held], [*wanted, *copies], strict=True):
            assert one.tobytes() == other.tobytes()
        for one in held:
            one[...] = 0  # and are theirs to write
        again = program(given[-1])
        assert again.tobytes() == copies[-1].tobytes()


@both
def test_sizes_that_come_again_allocate_nothing(threads: int) -> None:
    rows = Var("rows", 1, 100)
    with arenite.compile(
        lambda x: (x.cummax(0) @ x.T).cummax(1), arenite.spec((rows, 20)), threads=threads
    ) as program:
        arrays = [np.ones((n, 20), np.float32) for n in (1, 30, 100, 7)]
        gc.collect()
        run_often(program, arrays, N_RUNS_BEFORE)
        stats, mapped = device.get("cpu").stats, mapped_nbytes()
        assert growth(program, arrays) < N_RUNS
        assert mapped_nbytes() == mapped
        assert device.get("cpu").stats.live_nbytes == stats.live_nbytes


def python_events(program: CompiledFunction, x: Array) -> int:
    """How many calls and returns of functions Python sees in one call."""
    n = 0

    def count(*_: object) -> None:
        nonlocal n
        n += 1

    program(x)
    sys.setprofile(count)
    program(x)
    sys.setprofile(None)
    return n


@both
def test_python_is_not_entered_between_kernels(threads: int) -> None:
    x = np.random.default_rng(1).standard_normal((40, 40)).astype(np.float32)
    counts = {}
    for n_kernels in (1, 10, 100):
        with program_of(n_kernels, 40, threads) as program:
            counts[len(program.kernels)] = python_events(program, x)
    assert len(counts) == 3
    assert len(set(counts.values())) == 1, counts


def test_a_team_costs_a_small_call_no_more_than_its_lock() -> None:
    """Of what Python does; workers are looked after in native code."""
    x = np.ones((4, 4), np.float32)
    counts = {}
    for threads in (1, 2):
        with program_of(1, 4, threads) as program:
            for _ in range(3):
                program(x)
            counts[threads] = python_events(program, x)
    # The team is asked for; its lock is taken and let go: three calls and their returns.
    assert counts[2] - counts[1] <= 6, counts


#: What an Executable takes beside its plan: code, table, registers, Python's own objects.
BESIDE_THE_PLAN_NBYTES = 2 * 2**20


@both
def test_a_life_takes_the_plan_and_little_more(threads: int) -> None:
    """By the system's count of mapped bytes, from before it is made until after it has run."""
    x = np.random.default_rng(1).standard_normal((1500, 1500)).astype(np.float32)

    def function(x: Any) -> Any:
        return ((x.cummax(0) + 1).cummax(1) * x.T).cummax(0)

    with arenite.compile(function, x, threads=threads) as first:
        first(x)  # from here on the program is in the cache, and everything is imported
    gc.collect()
    device.get("cpu").trim()
    before = mapped_nbytes()
    with arenite.compile(function, x, threads=threads) as program:
        result = program(x)
        grown = mapped_nbytes() - before
        planned = program.plan.peak_nbytes
    assert planned >= x.nbytes
    assert result.nbytes + planned <= grown < result.nbytes + planned + BESIDE_THE_PLAN_NBYTES
