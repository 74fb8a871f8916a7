"""What a run does to its process: signals, forks, exits, and no allocation between kernels."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from arenite.backends.cpu.driver import native
from arenite.backends.cpu.driver.layout import Worker
from arenite.backends.cpu.driver.native import BoundTable, Outcome, OutcomeKind
from arenite.errors import InvalidArgument, RunFailed
from arenite.program.threads import cgroup_cpus, default_n_threads
from tests.runtime.kernels import address, n_polls, of_each_thread
from tests.runtime.table_builder import TableBuilder

END = Outcome(OutcomeKind.END)

#: Python 3.12 and later warn of every fork of a process that has threads.
forks = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

#: A loop of busy kernels in a process of its own: `model` runs `trips` times some 10 µs.
SETUP = """
import os, signal, sys, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever started these tests
import numpy as np
from arenite.backends.cpu.target import X86_64
from arenite.backends.cpu.driver import native
from arenite.backends.cpu.compiling.pool import compile_modules
from arenite.backends.cpu.compiling.link import link_objects
from arenite.backends.cpu.compiling.loader import load_code
from arenite.backends.cpu.driver.native import BoundTable
from tests.runtime.kernels import address, kernel_module, n_polls
from tests.runtime.table_builder import TableBuilder
image = link_objects(compile_modules([kernel_module()], X86_64))
code = load_code(image.image, permanent=True)
out = np.zeros(64, np.int64)
def busy(trips, threads, cost_ns=10_000):
    build = TableBuilder()
    counter, n, tiles = build.register(), build.constant(trips), build.constant(4)
    with build.loop(counter, n), build.block(parallel=True):
        fn = code.address(image.entries["busy"])
        build.launch(fn, [address(out), 2000], tiles, shared=threads > 1, cost_ns=cost_ns)
    return BoundTable(*build.finish()), counter
"""


def run_script(script: str) -> subprocess.CompletedProcess[str]:
    """In a new process, with this repository in its path."""
    root = str(Path(__file__).parent.parent.parent)
    return subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {root!r})\n{SETUP}\n{script}"],
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("cost_ns", [0, 10_000])
def test_ctrl_c_ends_a_run_and_leaves_a_usable_table(threads: int, cost_ns: int) -> None:
    script = f"""
model, counter = busy(2**62, {threads}, {cost_ns})
def interrupt():
    while model.registers[counter] < 100:
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt).start()
try:
    model.run({threads})
    sys.exit("it came to its end")
except KeyboardInterrupt:
    pass
done = int(model.registers[counter])
model.registers[3] = 50  # a short run now
print(n_polls(model), model.run({threads}).kind.name, model.registers[counter])
"""
    run = run_script(script)
    assert (run.returncode, run.stderr) == (0, "")
    polls, outcome, counted = run.stdout.split()
    assert int(polls) >= 1
    assert (outcome, counted) == ("END", "50")


def test_a_signal_handler_of_the_user_runs_and_may_let_the_run_go_on() -> None:
    script = """
model, counter = busy(2**62, 2)
seen = []
signal.signal(signal.SIGUSR1, lambda *_: (seen.append(int(model.registers[counter])),
                                          model.cancel() if len(seen) == 3 else None))
def signals():
    while threading.main_thread().is_alive() and len(seen) < 3:
        os.kill(os.getpid(), signal.SIGUSR1)
        time.sleep(0.06)
threading.Thread(target=signals).start()
print(model.run(2).kind.name, len(seen), seen == sorted(seen))
"""
    run = run_script(script)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.split() == ["CANCELLED", "3", "True"]


@pytest.mark.parametrize("asleep", [False, True])
@pytest.mark.parametrize(
    "leave",
    ["sys.exit(0)", "os._exit(0)", "native.stop_team()", "import atexit; atexit._clear()"],
)
def test_a_process_with_a_team_exits_cleanly(leave: str, asleep: bool) -> None:
    wait = "time.sleep(0.01)" if asleep else "pass"
    run = run_script(f"model, _ = busy(100, 2)\nmodel.run(2)\n{wait}\n{leave}")
    assert (run.returncode, run.stderr) == (0, "")


def test_a_daemon_thread_in_a_run_does_not_hold_up_the_exit() -> None:
    script = """
model, counter = busy(2**62, 2)
threading.Thread(target=lambda: model.run(2), daemon=True).start()
while model.registers[counter] < 10:
    time.sleep(0.001)
"""
    run = run_script(script)
    assert (run.returncode, run.stderr) == (0, "")


def increments(kernels: dict[str, int], n: int) -> tuple[BoundTable, NDArray[np.int64]]:
    x = np.zeros(64, np.int64)
    build = TableBuilder()
    window, tiles = build.window([address(x)]), build.constant(1)
    with build.block(parallel=True):
        before: list[int] = []
        for _ in range(n):
            before = [build.launch(kernels["increment"], window, tiles, shared=True, waits=before)]
    return BoundTable(*build.finish()), x


@forks
def test_a_forked_process_works_with_a_team_of_its_own(kernels: dict[str, int]) -> None:
    model, x = increments(kernels, 20)
    assert model.run(threads=2) == END
    for _ in range(2):
        child = os.fork()
        if child == 0:
            right = native._team is None and model.run(threads=2) == END and (x == 40).all()
            os._exit(0 if right else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert model.run(threads=2) == END
    assert (x == 40).all()


@forks
def test_a_table_that_ran_while_the_process_forked_is_refused_in_the_child(
    kernels: dict[str, int],
) -> None:
    out = np.zeros(64, np.int64)
    build = TableBuilder()
    counter, for_ever = build.register(), build.constant(2**63 - 1)
    with build.loop(counter, for_ever), build.block():
        build.launch(kernels["busy"], [address(out), 1000], 1)
    model = BoundTable(*build.finish())
    runner = threading.Thread(target=model.run)
    runner.start()
    while model.registers[counter] == 0:
        time.sleep(0.001)
    child = os.fork()
    if child == 0:
        try:
            model.run()
        except RunFailed:
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    while runner.is_alive():
        model.cancel()
        runner.join(0.01)


class Mallinfo(ctypes.Structure):
    """glibc's mallinfo2."""

    names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in names.split()]


@pytest.mark.parametrize("threads", [1, 2])
def test_a_run_allocates_nothing_and_enters_python_never(
    kernels: dict[str, int], threads: int
) -> None:
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallinfo2"):
        pytest.skip("this C library does not tell what it has allocated")
    libc.mallinfo2.restype = Mallinfo
    model, x = increments(kernels, 200)

    def run_often(n: int) -> None:
        for _ in range(n):
            model.run(threads)

    run_often(3)
    polls = n_polls(model)
    blocks, heap = sys.getallocatedblocks(), libc.mallinfo2()
    tracemalloc.start()
    run_often(1)
    traced, _ = tracemalloc.get_traced_memory()
    run_often(100)
    traced_after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    blocks_after, heap_after = sys.getallocatedblocks(), libc.mallinfo2()
    assert (x == 104 * 200).all()
    # Numbers far below one for each of the 20,000 launches: what the counting itself needs.
    assert traced_after - traced < 1000
    assert abs(blocks_after - blocks) < 100
    assert heap_after.uordblks - heap.uordblks < 20_000
    one, _ = increments(kernels, 1)
    one.run(threads)
    assert python_calls(model, threads) == python_calls(one, threads)
    assert n_polls(model) - polls <= 1


def python_calls(model: BoundTable, threads: int) -> int:
    """How many calls and returns of functions Python sees in one run."""
    n = 0

    def count(*_: object) -> None:
        nonlocal n
        n += 1

    sys.setprofile(count)
    model.run(threads)
    sys.setprofile(None)
    return n


def test_workers_block_all_signals(kernels: dict[str, int]) -> None:
    model, _ = increments(kernels, 5)
    model.run(threads=2)
    own = {str(thread.native_id) for thread in threading.enumerate()}
    masks = {}
    for status in Path("/proc/self/task").glob("*/status"):
        fields = dict(
            line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line
        )
        if status.parent.name not in own:
            masks[status.parent.name] = int(fields["SigBlk"], 16)
    assert masks
    interrupt = 1 << (signal.SIGINT - 1)
    assert any(mask & interrupt for mask in masks.values())


def test_a_stopped_team_starts_again(kernels: dict[str, int]) -> None:
    model, x = increments(kernels, 10)
    assert model.run(threads=3) == END
    assert native.team().n_threads >= 3
    assert native.stop_team()
    assert native.team().n_threads == 1
    assert model.run(threads=2) == END
    assert native.team().n_threads == 2
    assert (x == 20).all()


def test_a_run_may_use_fewer_threads_than_the_team_has(kernels: dict[str, int]) -> None:
    model, x = increments(kernels, 50)
    assert model.run(threads=4) == END
    before = of_each_thread(Worker.N_TILES)
    for _ in range(200):
        assert model.run(threads=2) == END
    after = of_each_thread(Worker.N_TILES)
    assert after[2:] == before[2:], "threads that were not invited took part"
    assert sum(after) - sum(before) == 200 * 50
    assert (x == 201 * 50).all()


def test_a_team_sleeps_and_is_woken(kernels: dict[str, int], all_back: Callable[[], None]) -> None:
    arrived = np.zeros(8, np.int64)
    build = TableBuilder()
    with build.block(parallel=True):
        build.launch(kernels["meet"], [address(arrived), 2, 10**10], build.constant(2), shared=True)
    model = BoundTable(*build.finish())
    for pause in (0, 0.01, 0.01):
        time.sleep(pause)
        all_back()
        arrived[0] = 0
        assert model.run(threads=2) == END, "both tiles must be run at once for this to end"
        assert arrived[0] == 2


def test_a_team_has_bounds(kernels: dict[str, int]) -> None:
    model, _ = increments(kernels, 1)
    with pytest.raises(InvalidArgument, match="1 to 1024"):
        model.run(threads=5000)
    with pytest.raises(InvalidArgument, match="1 to 1024"):
        model.run(threads=0)
    assert 1 <= default_n_threads() <= len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        ("0::/a/b", {"a/b/cpu.max": "150000 100000"}, 1.5),
        ("0::/a/b", {"a/b/cpu.max": "max 100000", "a/cpu.max": "200000 100000"}, 2.0),
        ("0::/a", {"a/cpu.max": "max 100000"}, None),
        ("0::/a", {}, None),
        ("4:cpu,cpuacct:/a", {"cpu/a/cpu.cfs_quota_us": "50000",
                              "cpu/a/cpu.cfs_period_us": "100000"}, 0.5),
        ("4:cpu,cpuacct:/a", {"cpu/a/cpu.cfs_quota_us": "-1",
                              "cpu/a/cpu.cfs_period_us": "100000"}, None),
        ("0::/../a", {"cpu.max": "300000 100000", "a/cpu.max": "100000 100000"}, 3.0),
        ("7:memory:/a", {"cpu/a/cpu.cfs_quota_us": "50000"}, None),
    ],
)  # fmt: skip
def test_the_groups_share_of_cpus_is_read(
    tmp_path: Path, own: str, files: dict[str, str], expected: float | None
) -> None:
    (tmp_path / "own").write_text(own)
    for name, text in files.items():
        path = tmp_path / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert cgroup_cpus(tmp_path / "own", tmp_path / "root") == expected
    assert cgroup_cpus(tmp_path / "missing", tmp_path / "root") is None
