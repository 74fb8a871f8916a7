"""Workers that do not run: what they hold up is little, and nobody waits for one without a tile."""

from __future__ import annotations

import ctypes
import gc
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from numpy.typing import NDArray

from arenite.backends.cpu.driver import native
from arenite.backends.cpu.driver.layout import Team, Worker
from arenite.backends.cpu.driver.native import BoundTable, Outcome, OutcomeKind
from tests.runtime.kernels import address, n_away, of_each_thread
from tests.runtime.table_builder import TableBuilder

END = Outcome(OutcomeKind.END)
Back = Callable[[], None]


def napping(kernels: dict[str, int], microseconds: int) -> tuple[BoundTable, NDArray[np.int64]]:
    """Two tiles that meet; then worker 1 sleeps in its own, as if its CPU were another's."""
    arrived = np.zeros(8, np.int64)
    sleep = ctypes.cast(ctypes.CDLL(None).usleep, ctypes.c_void_p).value
    assert sleep is not None
    build = TableBuilder()
    with build.block(parallel=True):
        window = [address(arrived), 2, sleep, microseconds]
        build.launch(kernels["nap"], window, build.constant(2), shared=True)
    return BoundTable(*build.finish()), arrived


def run_both(model: BoundTable, arrived: NDArray[np.int64], all_back: Back) -> None:
    """It ends only where both take part."""
    all_back()
    arrived[0] = 0
    assert model.run(threads=2) == END
    assert arrived[0] == 2


def asleep_as(index: int) -> int:
    record = native.team().address + Team.WORKERS + index * Worker.NBYTES
    return ctypes.c_uint32.from_address(record + Worker.ASLEEP).value


def test_a_worker_that_held_the_others_up_rests_and_comes_back(
    kernels: dict[str, int], all_back: Back
) -> None:
    model, arrived = napping(kernels, 20_000)
    run_both(model, arrived, all_back)
    before = of_each_thread(Worker.N_RESTS)[1]
    for _ in range(100):  # on a busy machine the caller may be as late as the worker
        run_both(model, arrived, all_back)
        if of_each_thread(Worker.N_RESTS)[1] > before:
            break
    assert of_each_thread(Worker.N_RESTS)[1] > before
    assert of_each_thread(Worker.N_RESTS)[0] == 0, "the caller never does"


def rested(n_seconds: float) -> None:
    """As if worker 1 had just rested, and its CPU were to be tried for so long."""
    team = native.team()
    record = team.address + Team.WORKERS + Worker.NBYTES
    clocks = int(n_seconds * native.runtime().clocks_per_second)
    ctypes.c_int64.from_address(team.address + Team.TRY_CLOCKS).value = clocks
    ctypes.c_int64.from_address(record + Worker.TIMEOUT + 8).value = 1_000_000
    ctypes.c_uint32.from_address(record + Worker.AWAY).value = 1
    ctypes.c_uint32.from_address(team.address + Team.N_AWAY).value = 1


def test_nobody_waits_for_a_worker_whose_cpu_is_still_taken(
    kernels: dict[str, int], all_back: Back
) -> None:
    """It rests on before it has claimed anything, ever longer."""
    model, x = increments(kernels)
    assert model.run(threads=2) == END
    all_back()
    settled_fully()
    spin = ctypes.c_int64.from_address(native.team().address + Team.SPIN_CLOCKS)
    before, spin.value = spin.value, -1  # all time between two looks at the clock counts as lost
    try:
        rested(1e-3)
        n_tiles, n_rests = of_each_thread(Worker.N_TILES)[1], of_each_thread(Worker.N_RESTS)[1]
        n_runs, deadline = 1, time.monotonic() + 60
        while of_each_thread(Worker.N_RESTS)[1] < n_rests + 4:
            assert model.run(threads=2) == END
            n_runs += 1
            assert time.monotonic() < deadline
        assert of_each_thread(Worker.N_TILES)[1] == n_tiles
        assert (x == n_runs).all()
        assert of_each_thread(Worker.TIMEOUT + 8)[1] >= 8_000_000
    finally:
        spin.value = before


def test_a_caller_that_is_alone_claims_a_launch_at_once(
    kernels: dict[str, int], all_back: Back
) -> None:
    n_calls = np.zeros(8, np.int64)
    build = TableBuilder()
    with build.block(parallel=True):
        build.launch(kernels["meet"], [address(n_calls), 0, 1], build.constant(8), shared=True)
    model = BoundTable(*build.finish())
    all_back()
    assert model.run(threads=2) == END
    assert n_calls[0] == 8
    settled_fully()
    rested(3600)  # longer than the test
    for k in range(10):
        assert model.run(threads=2) == END
        assert n_calls[0] == 8 + 1 + k
    assert native.stop_team()


def test_a_worker_whose_cpu_is_free_again_comes_back(
    kernels: dict[str, int], all_back: Back
) -> None:
    model, arrived = napping(kernels, 0)
    run_both(model, arrived, all_back)
    settled_fully()
    spin = ctypes.c_int64.from_address(native.team().address + Team.SPIN_CLOCKS)
    before, spin.value = spin.value, 2**62  # no time counts as lost
    try:
        rested(1e-3)
        n_rests = of_each_thread(Worker.N_RESTS)[1]
        run_both(model, arrived, all_back)
        assert n_away() == 0
        assert of_each_thread(Worker.N_RESTS)[1] == n_rests
    finally:
        spin.value = before


def test_a_team_that_rests_can_be_stopped(kernels: dict[str, int], all_back: Back) -> None:
    model, arrived = napping(kernels, 20_000)
    for _ in range(3):
        run_both(model, arrived, all_back)
        assert native.stop_team()
        assert native.team().n_threads == 1
    assert asleep_as(1) == Worker.AWAKE


@contextmanager
def one_inside() -> Iterator[None]:
    """As if a worker without a tile had stopped inside a run."""
    gate = ctypes.c_int64.from_address(native.team().address + Team.GATE)
    deadline = time.monotonic() + 30
    while native.team().n_inside:
        assert time.monotonic() < deadline
    gate.value += 1
    try:
        yield
    finally:
        gate.value -= 1  # in no run: nobody else writes it


def increments(kernels: dict[str, int]) -> tuple[BoundTable, NDArray[np.int64]]:
    x = np.zeros(64, np.int64)
    build = TableBuilder()
    with build.block(parallel=True):
        build.launch(kernels["increment"], [address(x)], build.constant(1), shared=True)
    return BoundTable(*build.finish()), x


def settled() -> None:
    """Until workers that came late have left, but for the one that never does."""
    deadline = time.monotonic() + 30
    while native.team().n_inside > 1:
        assert time.monotonic() < deadline


def test_a_run_does_not_wait_for_a_worker_without_a_tile(kernels: dict[str, int]) -> None:
    model, x = increments(kernels)
    model.run(threads=2)
    with one_inside():
        for _ in range(100):
            assert model.run(threads=2) == END
        assert (x == 101).all()
        settled()
    assert model.run(threads=2) == END


def test_a_run_that_fails_waits_for_all(kernels: dict[str, int]) -> None:
    """Some may be in the middle of a tile."""
    build = TableBuilder()
    with build.block(parallel=True):
        build.launch(kernels["fail"], [7, 0], build.constant(1), shared=True)
    model = BoundTable(*build.finish())
    model.run(threads=2)
    outcomes: list[Outcome] = []
    runner = threading.Thread(target=lambda: outcomes.append(model.run(threads=2)))
    with one_inside():
        runner.start()
        runner.join(0.1)
        assert not outcomes
        settled()
    runner.join()
    assert [one.kind for one in outcomes] == [OutcomeKind.ERROR]


def test_memory_that_a_late_worker_may_read_stays(kernels: dict[str, int]) -> None:
    def memory() -> weakref.ref[NDArray[np.int64]]:
        model, _ = increments(kernels)
        model.run(threads=2)
        return weakref.ref(model.registers)

    gc.collect()
    memory()
    with one_inside():
        kept = memory()
        gc.collect()
        assert kept() is not None
        settled()
    memory()
    settled_fully()
    memory()
    assert kept() is None


def settled_fully() -> None:
    deadline = time.monotonic() + 30
    while native.team().n_inside:
        assert time.monotonic() < deadline


@pytest.mark.parametrize("threads", [2, 3])
def test_tables_that_come_and_go_while_workers_are_late(
    kernels: dict[str, int], threads: int
) -> None:
    """Each is gone as soon as its run is over, and its memory is written over by the next."""
    for turn in range(300):
        x = np.zeros(64, np.int64)
        build = TableBuilder()
        n = 1 + turn % 5
        with build.block(parallel=True):
            before = [
                build.launch(kernels["increment"], [address(x)], build.constant(1), shared=True)
            ]
            for _ in range(n - 1):
                before = [
                    build.launch(
                        kernels["increment"], [address(x)], build.constant(1), shared=True,
                        waits=before,
                    )
                ]  # fmt: skip
        assert BoundTable(*build.finish()).run(threads) == END
        assert (x == n).all()


def test_a_worker_that_seldom_holds_the_others_up_does_not_rest(
    kernels: dict[str, int], all_back: Back
) -> None:
    model, arrived = napping(kernels, 20_000)
    run_both(model, arrived, all_back)
    team = native.team()
    before = of_each_thread(Worker.N_RESTS)[1]
    record = team.address + Team.WORKERS + Worker.NBYTES
    n_held = 0
    for _ in range(20):
        deadline = time.monotonic() + 30
        while asleep_as(1) == Worker.RESTING:  # what it does when that ends must be done
            assert time.monotonic() < deadline
        for word in (Worker.FREE_SINCE, Worker.HELD_AT, Worker.REST_NS):
            ctypes.c_int64.from_address(record + word).value = 0  # not since the machine started
        run_both(model, arrived, all_back)
        n_held += ctypes.c_int64.from_address(record + Worker.HELD_AT).value > 0
    assert n_held > 0, "it was seen"
    assert of_each_thread(Worker.N_RESTS)[1] <= before + 1, "one may have been asked for before"


def test_a_worker_leaves_the_cpu_that_the_caller_has_come_to(
    kernels: dict[str, int], all_back: Back
) -> None:
    cpus = os.sched_getaffinity(0)
    if len(cpus) < 2:
        pytest.skip("one CPU is all there is")

    def pinned() -> set[int]:
        """The CPUs that threads are bound to, each to one."""
        found = [os.sched_getaffinity(int(name)) for name in os.listdir("/proc/self/task")]
        return {cpu for allowed in found if len(allowed) == 1 for cpu in allowed}

    model, arrived = napping(kernels, 0)
    run_both(model, arrived, all_back)
    team = native.team()
    [taken] = {cpu for cpu in pinned() if cpu == of_each_thread(Worker.CPU)[1]}
    try:
        os.sched_setaffinity(0, {taken})  # this thread alone
        word = ctypes.c_int64.from_address(team.address + Team.PLACE_AT)
        assert word.value > 0
        word.value = 0
        run_both(model, arrived, all_back)
        assert word.value > 0, "and looked at again some time later only"
        assert of_each_thread(Worker.CPU)[0] == taken != of_each_thread(Worker.CPU)[1]
        assert of_each_thread(Worker.CPU)[1] in pinned()
    finally:
        os.sched_setaffinity(0, cpus)
