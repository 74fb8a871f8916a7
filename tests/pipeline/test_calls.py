"""Calling what was compiled: bad indices, cancelled and interrupted runs, several threads, the end.

On one thread and on two. Runs that are to be ended are far longer than the test waits for them, so
that only their being ended can let a test pass.
"""

from __future__ import annotations

import gc
import mmap
import os
import threading
from collections.abc import Callable
from inspect import currentframe
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import arenite
from arenite import Var, device
from arenite.errors import (
    IndexOutOfRange,
    InvalidArgument,
    RunCancelled,
    RunFailed,
    ShapeMismatch,
)
from arenite.program import threads
from arenite.tensor.compile import CompiledFunction
from tests.pipeline.interrupted import cancelled, run_script

Array = NDArray[Any]

both = pytest.mark.parametrize("threads", [1, 2])


def line_number() -> int:
    """Of the caller."""
    frame = currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno


# A bad index.


@both
@pytest.mark.parametrize("axis", [0, 1])
def test_a_bad_index_names_its_line_and_poisons_until_reset(threads: int, axis: int) -> None:
    lines: list[int] = []

    def function(x: Any, places: Any) -> Any:
        y = x.exp()
        lines.append(line_number() + 1)
        return y.take(places, axis).sum()

    x = np.arange(12_000, dtype=np.float32).reshape(100, 120) / 12_000
    good = np.arange(40).repeat(50)
    bad = good.copy()
    bad[1234] = 120
    with arenite.compile(function, x, good, threads=threads) as program:
        wanted = np.exp(x).take(good, axis).sum()
        np.testing.assert_allclose(program(x, good), wanted, rtol=1e-4)
        with pytest.raises(IndexOutOfRange) as failure:
            program(x, bad)
        message = str(failure.value)
        assert f"{__file__}:{lines[0]}" in message
        assert "kernel gather" in message
        assert "reset()" in message
        with pytest.raises(RunFailed, match="before reset"):
            program(x, good)
        program.reset()
        np.testing.assert_allclose(program(x, good), wanted, rtol=1e-4)
        with pytest.raises(IndexError, match="outside its axis"):
            program.profile(x, bad)
        with pytest.raises(RunFailed, match="before reset"):
            program.profile(x, good)
        program.reset()
        assert program.profile(x, good).kernels


@both
def test_a_bad_index_in_a_loop_names_its_line(threads: int) -> None:
    lines: list[int] = []

    def function(x: Any, n: Any) -> Any:
        def body(k: Any, total: Any) -> Any:
            lines.append(line_number() + 1)
            return total + x.take(k, 0)

        return arenite.fori_loop(n, body, x[0] * 0)

    x = np.arange(40, dtype=np.float32).reshape(4, 10)
    with arenite.compile(function, x, np.array(0), threads=threads) as program:
        np.testing.assert_array_equal(program(x, np.array(4)), x.sum(0))
        with pytest.raises(IndexOutOfRange, match=f"{__file__}:{lines[0]}"):
            program(x, np.array(5))
        program.reset()
        np.testing.assert_array_equal(program(x, np.array(3)), x[:3].sum(0))


@both
def test_a_bad_index_of_a_scatter_is_named_too(threads: int) -> None:
    def function(x: Any, places: Any, updates: Any) -> Any:
        return x.scatter(places, updates, 0)

    x, updates = np.zeros((5, 3), np.float32), np.ones((2, 3), np.float32)
    with arenite.compile(function, x, np.zeros((2, 3), np.int64), updates, threads=threads) as p:
        for bad in (5, -6, 2**62, -(2**63)):
            with pytest.raises(IndexOutOfRange, match=r"kernel scatter.*test_calls.py:\d+"):
                p(x, np.full((2, 3), bad), updates)
            p.reset()
        made = p(x, np.full((2, 3), 4), updates)
    np.testing.assert_array_equal(made[:, 0], [0, 0, 0, 0, 1])


@both
def test_bad_input_leaves_it_usable(threads: int) -> None:
    x = np.ones((4, 5), np.float32)
    with arenite.compile(lambda x: x.sum(), x, threads=threads) as program:
        with pytest.raises(ShapeMismatch):
            program(x.T)
        with pytest.raises(TypeError, match="float64"):
            program(x.astype(np.float64))
        assert program(x) == 20


@both
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16])
def test_arrays_at_any_address_are_taken(threads: int, dtype: Any) -> None:
    """Element by element off the lines of memory, and off the elements' own alignment."""
    size = np.dtype(dtype).itemsize

    def function(x: Any) -> Any:
        return x @ x, x.sort(0), x.cumsum(1), x.T + 1

    wanted = np.arange(31 * 31).reshape(31, 31) % 17
    memory = np.zeros(wanted.size * size + 64, np.uint8)
    with arenite.compile(function, arenite.spec((31, 31), dtype), threads=threads) as program:
        expected = [one.tobytes() for one in program(wanted.astype(dtype))]
        for offset in (0, size, 3 * size, 1, size - 1, 33):
            x = memory[offset : offset + wanted.size * size].view(dtype).reshape(31, 31)
            x[...] = wanted
            assert [one.tobytes() for one in program(x)] == expected


# A run that is ended.

#: Of a long run: some 40 s of work, in a thousand launches.
ROWS = 50_000


def layers(x: Any, w: Any) -> Any:
    for _ in range(1000):
        x = (x @ w).tanh()
    return x


def long_program(threads: int) -> CompiledFunction:
    rows = arenite.spec((Var("rows", 1, ROWS), 64))
    program: CompiledFunction = arenite.compile(
        layers, rows, arenite.spec((64, 64)), threads=threads
    )
    return program


def short_run_is_right(program: CompiledFunction) -> bool:
    """Three rows of the long program."""
    x = np.linspace(-1, 1, 192, dtype=np.float32).reshape(3, 64)
    wanted = x
    for _ in range(1000):
        wanted = np.tanh(wanted)
    return np.allclose(program(x, np.eye(64, dtype=np.float32)), wanted, atol=1e-4)


@both
def test_another_thread_cancels_a_run_and_leaves_it_usable(threads: int) -> None:
    with long_program(threads) as program:
        ends: list[object] = []

        def run() -> None:
            try:
                ends.append(program(np.ones((ROWS, 64), np.float32), np.eye(64, dtype=np.float32)))
            except RunFailed as error:
                ends.append(error)

        for _ in range(2):
            runner = threading.Thread(target=run)
            runner.start()
            while runner.is_alive():
                program.cancel()
                runner.join(0.01)
            assert isinstance(ends[-1], RunCancelled), ends[-1]
            assert short_run_is_right(program)


@both
def test_an_endless_loop_is_cancelled(threads: int) -> None:
    def endless(x: Any, limit: Any) -> Any:
        return arenite.while_loop(lambda y: y.sum() < limit, lambda y: y.sort(), x)

    x = np.arange(100, dtype=np.float32)
    with arenite.compile(endless, x, np.float32(0), threads=threads) as program:
        end = cancelled(program, lambda: program(x, np.float32(np.inf)))
        assert isinstance(end, RunCancelled), end
        np.testing.assert_array_equal(program(x, np.float32(5)), x)


@both
def test_a_cancel_without_a_run_does_nothing(threads: int) -> None:
    x = np.ones((200, 200), np.float32)
    with arenite.compile(lambda x: x @ x, x, threads=threads) as program:
        program.cancel()
        for _ in range(3):
            np.testing.assert_array_equal(program(x), x @ x)
            program.cancel()


@both
def test_ctrl_c_ends_a_run_and_leaves_it_usable(threads: int) -> None:
    script = f"""
import os, signal, sys, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever started these tests
import numpy as np
from tests.pipeline.test_calls import ROWS, long_program, short_run_is_right
program = long_program({threads})
main = threading.get_ident()
def interrupt():
    # Once the main thread is in native code, whose caller is in this file, it stays there.
    while not sys._current_frames()[main].f_code.co_filename.endswith("native.py"):
        time.sleep(0.001)
    time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt).start()
try:
    program(np.ones((ROWS, 64), np.float32), np.eye(64, dtype=np.float32))
    print("it came to its end")
except KeyboardInterrupt:
    print("interrupted", short_run_is_right(program))
"""
    assert run_script(script) == (0, "", "interrupted True\n")


# Several threads.


def in_threads(n: int, work: Callable[[int], None]) -> None:
    """Call `work` with 0 .. n-1, each in a thread; raises what one of them raised."""
    errors: list[BaseException] = []

    def guarded(k: int) -> None:
        try:
            work(k)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(k,)) for k in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@both
@pytest.mark.parametrize("size", [8, 300])
def test_threads_that_call_one_program_queue(threads: int, size: int) -> None:
    """Some runs keep the GIL, some give it up."""

    def work(k: int) -> None:
        for turn in range(10):
            x = np.full((size, size), k + turn / 16, np.float32)
            made, total = program(x)
            np.testing.assert_allclose(made, x @ x, rtol=1e-4)
            np.testing.assert_allclose(total, x.sum(), rtol=1e-4)

    spec = arenite.spec((size, size))
    with arenite.compile(lambda x: (x @ x, x.sum()), spec, threads=threads) as program:
        in_threads(4, work)


@both
def test_threads_that_call_one_program_with_several_sizes_queue(threads: int) -> None:
    def function(x: Any) -> Any:
        return (x.sort() @ x.T).cumsum(0)

    spec = arenite.spec((Var("n", 1, 40), 90))
    with arenite.compile(function, spec, threads=threads) as program:

        def work(k: int) -> None:
            for turn in range(8):
                x = np.full((1 + (k * 7 + turn) % 40, 90), 1 + k, np.float32)
                wanted = (np.sort(x) @ x.T).cumsum(0)
                np.testing.assert_allclose(program(x), wanted, rtol=1e-4)

        def work_or_verify(k: int) -> None:
            for _ in range(5):
                program.verify() if k == 4 else work(k)

        in_threads(5, work_or_verify)


@both
def test_several_programs_run_in_several_threads(threads: int) -> None:
    x = np.linspace(-1, 1, 250 * 250, dtype=np.float32).reshape(250, 250)
    programs = [
        arenite.compile(lambda x, k=k: (x @ x + k).sum(0), x, threads=threads) for k in range(4)
    ]

    def work(k: int) -> None:
        for _ in range(20):
            np.testing.assert_allclose(programs[k](x), (x @ x + k).sum(0), rtol=1e-2, atol=1e-2)

    in_threads(4, work)
    for program in programs:
        program.close()


@both
def test_closing_waits_for_the_run_in_progress(threads: int) -> None:
    x = np.ones((400, 400), np.float32)
    ends: list[object] = []
    program = arenite.compile(lambda x: x @ x @ x, x, threads=threads)

    def work() -> None:
        try:
            while True:
                ends.append(bool((program(x) == 160_000).all()))
        except RunFailed as error:
            ends.append(error)

    runner = threading.Thread(target=work)
    runner.start()
    while not ends:
        runner.join(0.001)
    program.close()
    runner.join()
    assert all(end is True for end in ends[:-1])
    assert "closed" in str(ends[-1])


# The end.


def mapped_nbytes() -> int:
    """What this process has mapped, by the system's count."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE


@both
def test_close_gives_every_byte_back(threads: int) -> None:
    x = np.ones((1000, 1000), np.float32)

    def function(x: Any) -> Any:
        return ((x + 1).sort() @ x).sort() @ x

    allocator = device.get("cpu")

    def cycle() -> tuple[int, int, int, int]:
        """Live and pooled bytes, buffers and mapped bytes after a life; the arena's on the way."""
        with arenite.compile(function, x, threads=threads) as program:
            program(x)
            peak = program.plan.peak_nbytes
            assert peak > x.nbytes
            assert allocator.stats.live_nbytes >= peak
        gc.collect()
        stats = allocator.stats
        return stats.live_nbytes, stats.n_live, stats.pooled_nbytes, mapped_nbytes()

    gc.collect()
    allocator.trim()
    live, n_live = allocator.stats.live_nbytes, allocator.stats.n_live
    cycle()
    first = cycle()
    for _ in range(3):
        again = cycle()
    assert again[:3] == (live, n_live, 0)
    # An arena is 12 MB and more: its bytes would show, were they kept once in three lives.
    assert again[3] - first[3] < x.nbytes


def test_what_nobody_closed_gives_its_code_back_when_it_is_collected() -> None:
    x = np.ones((64, 64), np.float32)

    def code_nbytes() -> int:
        """Executable memory that belongs to no file."""
        lines = Path("/proc/self/maps").read_text().splitlines()
        ends = [line.split()[0].split("-") for line in lines if " r-xp 00000000 00:00 0" in line]
        return sum(int(end, 16) - int(start, 16) for start, end in ends)

    def use() -> None:
        program = arenite.compile(lambda x: (x @ x).sort(), x)
        program(x)

    use()
    gc.collect()
    before = code_nbytes()
    held = arenite.compile(lambda x: (x @ x).sort(), x)
    assert code_nbytes() > before, "or this would show nothing"
    held.close()
    for _ in range(5):
        use()
    gc.collect()
    assert code_nbytes() == before


@both
def test_what_is_closed_says_so(threads: int) -> None:
    x = np.ones((4, 4), np.float32)
    with arenite.compile(lambda x: x @ x, x, threads=threads) as program:
        made = program(x)
        executable = program.executable
    executable.close()
    for use in (executable, executable.profile, executable.run_checked):
        with pytest.raises(RunFailed, match="was closed; compile again"):
            use(x)
    with pytest.raises(RunFailed, match="was closed"):
        executable.reset()
    assert "closed" in repr(executable)
    executable.cancel()
    np.testing.assert_array_equal(made, x @ x)


def test_an_error_inside_a_with_closes_too() -> None:
    with pytest.raises(ZeroDivisionError), arenite.compile(lambda x: -x, np.ones(3)) as program:
        raise ZeroDivisionError
    with pytest.raises(RunFailed, match="closed"):
        program(np.ones(3))


def test_threads_are_as_many_as_the_process_may_keep_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(8))
    monkeypatch.setattr(threads, "cgroup_cpus", lambda: 2.5)
    with arenite.compile(lambda x: x + 1, arenite.spec((3,))) as program:
        assert program.executable.threads == 2
        assert program(np.zeros(3, np.float32)).tolist() == [1, 1, 1]
    with pytest.raises(InvalidArgument, match="at least one thread, not 0"):
        arenite.compile(lambda x: x + 1, arenite.spec((3,)), threads=0)
