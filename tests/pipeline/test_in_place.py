"""`out=` without a copy: native code writes to the caller's arrays, where they lie so that it can.

NumPy is the judge of what comes out. That nothing was copied is seen by taking away what makes new
arrays; how much is held, by the counts of the allocator and of the system.
"""

from __future__ import annotations

import gc
import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import arenite
from arenite import Var, arange
from arenite.backends.cpu.execution import arrays
from arenite.backends.cpu.execution.arrays import Results
from arenite.errors import InvalidArgument, ShapeMismatch
from arenite.tensor import concat
from tests.pipeline.segments import segments_of
from tests.pipeline.test_quick import no_long_way

Array = NDArray[Any]

X = np.arange(12, dtype=np.float32).reshape(3, 4)
N_WIDE = 200  # wide enough to be kept


@contextmanager
def no_new_arrays() -> Iterator[None]:
    def refuse(*_: object) -> None:
        raise AssertionError("a new array was made")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Results, "new", refuse)
        yield


def both(x: Any) -> Any:
    return x @ x.T, (x + 1).cummax(1)


def wanted(x: Array) -> tuple[Array, Array]:
    return x @ x.T, np.maximum.accumulate(x + 1, 1)


@pytest.mark.parametrize("threads", [1, 2])
def test_results_are_written_where_the_caller_wants_them(threads: int) -> None:
    x = np.random.default_rng(1).integers(-4, 4, (N_WIDE, N_WIDE)).astype(np.float32)
    with arenite.compile(both, x, threads=threads) as program:
        out = (np.full_like(x, 9), np.full_like(x, 9))
        with no_new_arrays():
            assert program(x, out=out) is out
        for one, other in zip(out, wanted(x), strict=True):
            np.testing.assert_array_equal(one, other)
        with no_new_arrays(), no_long_way():
            made = program.executable(x + 1, out=out)
        assert [*map(id, made)] == [*map(id, out)]
        for one, other in zip(out, wanted(x + 1), strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_function_of_one_result_is_quick_too() -> None:
    with arenite.compile(lambda x: x * 2, X) as program:
        out = np.zeros_like(X)
        program(X)
        with no_new_arrays(), no_long_way():
            assert program(X, out=out) is out
    np.testing.assert_array_equal(out, X * 2)


def test_with_other_sizes_too() -> None:
    spec = arenite.spec((Var("n", 0, 500), 100))
    with arenite.compile(lambda x: x.cumsum(0) * 2, spec) as program, no_new_arrays():
        for n in (3, 500, 0, 500, 3):
            x, out = np.ones((n, 100), np.float32), np.zeros((n, 100), np.float32)
            program(x, out=out)
            np.testing.assert_array_equal(out, x.cumsum(0) * 2)


def halved(x: Any) -> Any:
    return x[::-1] + 1, x, x[:3] * 2


def halved_in_segments(x: Any) -> Any:
    """The same in a branch, in the rows of a loop, and in what is handed through; each is cut."""
    one = arange((x[0] * 0).astype("int64") + 2).sum()
    first = arenite.cond(
        one > 0, lambda: x[::-1] + arange(one + 1).sum().astype("float32"), lambda: x
    )
    _, rows = arenite.scan(
        lambda k, row: (k, row * 2 * arange(k + 1).sum().astype("float32")), one, x[:3]
    )
    return first, x, rows


@pytest.fixture(scope="module", params=[halved, halved_in_segments])
def halves(request: Any) -> Iterator[Any]:
    with arenite.compile(request.param, arenite.spec((6,))) as program:
        yield program.executable


@settings(max_examples=150)
@given(st.data())
def test_arrays_that_share_bytes_with_inputs_get_the_same(halves: Any, data: st.DataObject) -> None:
    """The inputs' old elements count, wherever results go."""
    whole = np.arange(40, dtype=np.float32)
    kept = np.full(whole.nbytes + 1, 7, np.uint8)
    starts = data.draw(st.lists(st.integers(0, 40), min_size=4, max_size=4))
    views = []
    for n, start in zip((6, 6, 6, 3), starts, strict=True):
        step = data.draw(st.sampled_from([1, 1, 1, 2, -1]))
        if data.draw(st.booleans()):
            view = whole[start : start + n * abs(step)][::step][:n]
        else:  # off the alignment
            view = kept[1:].view(np.float32)[start : start + n]
        views.append(view if len(view) == n else np.zeros(n, np.float32))
    x, *out = views
    before = x.copy()
    try:
        halves(x, out=out)
    except InvalidArgument:
        pairs = [(a, b) for k, a in enumerate(out) for b in out[:k]]
        assert any(np.shares_memory(a, b) for a, b in pairs)
        return
    for one, right in zip(out, (before[::-1] + 1, before, before[:3] * 2), strict=True):
        np.testing.assert_array_equal(one, right)


def test_what_is_given_as_an_input_is_never_taken_for_a_result() -> None:
    """Three arrays of one kind; one too many is given, and one too few wanted."""
    with arenite.compile(lambda x: (x + 1, x * 2), X) as program:
        out = [np.zeros_like(X), np.zeros_like(X)]
        program.executable(X, out=out)
        other = X.copy()
        with pytest.raises(InvalidArgument, match="1 inputs are needed, not 2"):
            program.executable(X, other, out=out[:1])
        np.testing.assert_array_equal(other, X)
        with pytest.raises(InvalidArgument, match="1 inputs are needed, not 0"):
            program.executable(out=[X.copy(), *out])


@pytest.mark.parametrize(
    ("spoiled", "problem"),
    [
        (lambda a: np.broadcast_to(a, a.shape), "no array that can be written to"),
        (lambda a: a.tolist(), "out is of structure"),
        (lambda a: "text", "no array that can be written to"),
        (lambda a: a.astype(np.float64), "float64"),
        (lambda a: a.astype(a.dtype.newbyteorder()), "does not go into"),
        (lambda a: a.T.copy(), r"\[4, 3\]"),
        (lambda a: a[:2], r"\[2, 4\]"),
    ],
)
def test_what_does_not_fit_is_told_after_a_quick_call_too(spoiled: Any, problem: str) -> None:
    with arenite.compile(lambda x: x + 1, X) as program:
        for _ in range(2):
            program(X, out=np.zeros_like(X))
            with pytest.raises(ValueError, match=problem):
                program(X, out=spoiled(np.zeros_like(X)))


def test_an_array_that_does_more_on_being_written_to_does_it() -> None:
    out: Any = np.ma.MaskedArray(np.zeros_like(X), mask=True)
    with arenite.compile(lambda x: x + 1, X) as program:
        for _ in range(2):
            out[...] = np.ma.masked
            program(X, out=out)
            assert not out.mask.any()
            np.testing.assert_array_equal(out.data, X + 1)


def counted(function: Any, *specs: Any) -> Any:
    """A program that counts its runs."""
    runs = arenite.State((), "int64", name="runs")

    def counting(*arguments: Any) -> Any:
        runs.set(runs.value + 1)
        return function(*arguments)

    return arenite.compile(counting, *specs)


def grown(x: Any, n: Any) -> Any:
    made = arenite.fori_loop(n, lambda i, v: concat([v, v[:1]]), x, grows=True)
    return made, x + 1


def nonzeros(x: Any, _: Any) -> Any:
    return x.nonzero()[0], x + 1


@pytest.mark.parametrize("function", [grown, nonzeros], ids=["segments", "found sizes"])
def test_what_can_not_fit_is_refused_before_a_run_also_where_sizes_are_found(function: Any) -> None:
    x, n = np.array([3, 0, 5]), np.array(2)
    right = [np.zeros(5 if function is grown else 2, np.int64), np.zeros(3, x.dtype)]
    with counted(function, x, n) as program:
        for wrong in (
            [right[0], np.zeros(4, x.dtype)],
            [right[0], right[1].astype(np.float32)],
            [right[0][None], right[1]],
            [right[0].astype(np.float32), right[1]],
        ):
            with pytest.raises(ShapeMismatch, match="does not go into an array of"):
                program(x, n, out=tuple(wrong))
        with pytest.raises(InvalidArgument, match="2 outputs do not go into 1 arrays"):
            program.executable(x, n, out=right[:1])
        assert program.state["runs"].numpy() == 0
        assert not any(array.any() for array in right)
        n_found, n_given = len(right[0]), len(right[0]) - 1
        both = rf"turned out to be int64\[{n_found}\] .* an array of int64\[{n_given}\]"
        with pytest.raises(ShapeMismatch, match=both):
            program(x, n, out=(right[0][1:], right[1]))
        program(x, n, out=tuple(right))
        assert right[0].tolist() == ([3, 0, 5, 3, 3] if function is grown else [0, 2])
        assert right[1].tolist() == [4, 1, 6]


def test_a_result_that_may_not_be_larger_is_refused_before_a_run() -> None:
    x, n = np.array([3, 0, 5]), np.array(2)
    with counted(nonzeros, x, n) as program:
        with pytest.raises(ShapeMismatch, match="does not go into an array of"):
            program(x, n, out=(np.zeros(9, np.int64), np.zeros(3, np.int64)))
        assert program.state["runs"].numpy() == 0


def test_results_that_are_one_value_are_two_arrays() -> None:
    def function(x: Any) -> Any:
        made = x + 1
        return made, x, made, x

    with arenite.compile(function, X) as program:
        for _ in range(2):
            made = program(X)
            for k, one in enumerate(made):
                np.testing.assert_array_equal(one, X if k % 2 else X + 1)
                one[...] = -1
        out = tuple(np.zeros_like(X) for _ in made)
        program(X, out=out)
        for k, one in enumerate(out):
            np.testing.assert_array_equal(one, X if k % 2 else X + 1)


# What is held.


def mapped_nbytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE


@pytest.mark.parametrize("threads", [1, 2])
def test_a_call_with_out_takes_no_memory_for_results(threads: int) -> None:
    x = np.ones((2000, 2000), np.float32)
    out = np.zeros_like(x)
    with arenite.compile(lambda x: x + 1, x, threads=threads) as program:
        small = program.plan.total_nbytes - 2 * x.nbytes
        before = mapped_nbytes()
        for _ in range(3):
            program(x, out=out)
        assert mapped_nbytes() - before < small + 2**20
        assert program.executables[0].kept_nbytes == 0
    assert (out == 2).all()


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
def test_what_is_kept_for_results_is_what_the_plan_counts_for_them() -> None:
    x = np.ones((N_WIDE, N_WIDE), np.float32)
    gc.collect()
    n_live = arrays._MEMORY.stats.n_live
    with arenite.compile(both, x) as program:
        counted = sum(
            slot.nbytes for name, slot in program.plan.slots.items() if str(name).startswith("out")
        )
        assert counted == 2 * x.nbytes
        held = [program(x) for _ in range(4)]
        assert program.executables[0].kept_nbytes == 0, "all is the caller's"
        parts = [held.pop()[0][3:, 1].T, memoryview(held.pop()[1])]
        del held
        assert program.executables[0].kept_nbytes == counted
        assert arrays._MEMORY.stats.n_live - n_live == 4  # with what the views hold
        del parts
        assert program.executables[0].kept_nbytes == counted
        assert arrays._MEMORY.stats.n_live - n_live == 2
        kept = program(x)
    del program
    assert (kept[0] == N_WIDE).all()
    del kept
    assert arrays._MEMORY.stats.n_live == n_live
    assert arrays._MEMORY.stats.pooled_nbytes == 0


def test_results_in_turn_take_memory_once() -> None:
    x = np.ones((N_WIDE, N_WIDE), np.float32)
    with arenite.compile(lambda x: x + 1, x) as program:
        made = program(x)
        made = program(x)
        misses = arrays._MEMORY.stats.misses
        for _ in range(10):
            made = program(x)
        assert arrays._MEMORY.stats.misses == misses
    assert (made == 2).all()


def test_segments_under_a_budget_keep_nothing_for_results() -> None:
    def function(x: Any, n: Any) -> Any:
        rows = arenite.fori_loop(n, lambda i, v: concat([v, v[:1] + 1]), x, grows=True)
        return rows * 2

    x, n = np.ones((2, 10_000), np.float32), np.array(3)
    right = 2 * np.concatenate([x, *[x[:1] + 1] * 3])
    for memory in (None, 4 * 2**20):
        with arenite.compile(function, x, n, memory=memory) as program:
            for _ in range(2):
                np.testing.assert_array_equal(program(x, n), right)
            kept = sum(one.kept_nbytes for one in segments_of(program).executables)
            arenas = sum(one.plan.peak_nbytes for one in segments_of(program).executables)
            assert (kept == 0) == (memory is not None)
            assert segments_of(program)._open.nbytes == arenas + kept
