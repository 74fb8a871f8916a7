"""`out=` of programs in segments, and of results whose sizes a run finds.

NumPy is the judge of what comes out. How much is held is the system's count; that a run ended early
is seen by the segments it entered.
"""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import arenite
from arenite import Var, arange
from arenite.errors import DoesNotFit, InvalidArgument, ShapeMismatch
from arenite.tensor import concat
from tests.pipeline.segments import segments_of
from tests.pipeline.test_in_place import no_new_arrays

Array = NDArray[Any]

N_LARGE = 1000  # of such squares each takes 4 MB
SMALL_NBYTES = 2**20
TWO = np.array(2)


def total(n: Any) -> Any:
    """0 + 1 + ... below n; native code is left for it."""
    return arange(n).sum().astype("float32")


def grown(x: Any, n: Any) -> Any:
    return arenite.fori_loop(n, lambda i, v: concat([v, v[:1]]), x, grows=True)


# Where results are written.


def status_nbytes(name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.M)
    assert found is not None
    return 1024 * int(found[1])


def peak_nbytes(call: Callable[[], Any]) -> int:
    """Bytes of memory that a call takes at the most beside what is there."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")
    before = status_nbytes("VmRSS")
    call()
    return status_nbytes("VmHWM") - before


def in_a_segment(x: Any, n: Any) -> Any:
    return x * total(n) + 1


def in_a_branch(x: Any, n: Any) -> Any:
    k = total(n)
    return arenite.cond(k > 0, lambda: x * total(k.astype("int64") + 1) + 1, lambda: x)


def in_rows(x: Any, n: Any) -> Any:
    return arenite.scan(lambda k, row: (k, row * total(k) + 1), n, x)[1]


def in_what_structure_decides(x: Any, n: Any) -> Any:
    return arenite.specialize(lambda k, y: y * (k - 1) + 1, arenite.spec((N_LARGE, N_LARGE)), n, x)


def of_a_size_found_before(x: Any, n: Any) -> Any:
    rows = arange(n * (N_LARGE // 2)).astype("float32")
    return x[:1] * total(n) + rows[:, None] * 0 + 1


def of_rows_it_finds(x: Any, n: Any) -> Any:
    k = total(n)
    return x[x[:, 0] * k > 0] + 1


@pytest.mark.skipif(sys.platform != "linux", reason="reads and resets /proc/self")
@pytest.mark.parametrize(
    "function",
    [
        in_a_segment,
        in_a_branch,
        in_rows,
        in_what_structure_decides,
        of_a_size_found_before,
        of_rows_it_finds,
    ],
    ids=lambda function: function.__name__,
)
def test_a_result_in_out_takes_no_memory_beside_the_arenas(function: Any) -> None:
    x = np.ones((N_LARGE, N_LARGE), np.float32)
    out = np.zeros_like(x)
    with arenite.compile(function, x, TWO) as program:
        segments = segments_of(program)
        program(x, TWO, out=out)  # everything is compiled
        assert (out == 2).all()
        out[...] = 0
        assert sum(one.kept_nbytes for one in segments.executables) < SMALL_NBYTES
        arenas = sum(one.plan.peak_nbytes for one in segments.executables)
        assert peak_nbytes(lambda: program(x, TWO, out=out)) < x.nbytes // 2
        assert (out == 2).all()
        # The plan counts them: what is given, arenas, and little more.
        assert 0 <= program.plan.peak_nbytes - 2 * x.nbytes - arenas < SMALL_NBYTES


def test_a_budget_counts_a_result_in_out_once() -> None:
    x = np.ones((100, 100), np.float32)
    out = np.zeros_like(x)
    with arenite.compile(in_a_segment, x, TWO, memory=2 * x.nbytes + 4096) as program:
        program(x, TWO, out=out)
        assert (out == 2).all()
        assert program.plan.peak_nbytes >= 2 * x.nbytes
        # Not in C order: it is made elsewhere, and there is no room for that.
        with pytest.raises(DoesNotFit):
            program(x, TWO, out=np.zeros_like(x).T)
        np.testing.assert_array_equal(program(x, TWO), out)


def test_states_that_change_places_do_so_with_out() -> None:
    one, other = (arenite.State((3,), "float32", name=name) for name in ("one", "other"))

    def function(x: Any, n: Any) -> Any:
        a, b = one.value, other.value
        one.set(b + 0 * total(n))
        other.set(a)
        return a, x * total(n)

    x, out = np.ones(3, np.float32), (np.zeros(3, np.float32), np.zeros(3, np.float32))
    with arenite.compile(function, x, TWO) as program:
        program.state["one"].load(x)
        for n_runs in range(4):
            program(x, TWO, out=out)
            np.testing.assert_array_equal(out, [x * (n_runs % 2 == 0), x])


# What does not fit.


def test_what_does_not_fit_ends_the_run_as_soon_as_it_is_known() -> None:
    runs = arenite.State((), "int64", name="runs")

    def function(x: Any, n: Any) -> Any:
        runs.set(runs.value + 1)
        made = grown(x, n)
        late = arange(made.sum().astype("int64") * 0 + n).sum()
        return made, x * late

    x = np.array([3, 0, 5])
    with arenite.compile(function, x, TWO) as program:
        program(x, TWO)
        entered = [one.n_entered for one in segments_of(program).segments]
        wrong = (np.zeros(4, np.int64), np.zeros(3, np.int64))
        both = r"turned out to be int64\[5\] and does not go into an array of int64\[4\]"
        with pytest.raises(ShapeMismatch, match=both + ".* states are as they were"):
            program(x, TWO, out=wrong)
        again = [one.n_entered for one in segments_of(program).segments]
        assert any(a == b > 0 for a, b in zip(entered, again, strict=True)), "the rest was run"
        assert program.state["runs"].numpy() == 1
        right = (np.zeros(5, np.int64), np.zeros(3, np.int64))
        assert program(x, TWO, out=right) is right
        assert [one.tolist() for one in right] == [[3, 0, 5, 3, 3], [3, 0, 5]]
        assert program.state["runs"].numpy() == 2


def test_what_the_last_segment_finds_leaves_the_states_too() -> None:
    runs = arenite.State((), "int64", name="runs")

    def function(x: Any, n: Any) -> Any:
        runs.set(runs.value + 1)
        return (x * total(n))[x > 0]

    x = np.array([3, 0, 5], np.float32)
    with arenite.compile(function, x, TWO) as program:
        with pytest.raises(ShapeMismatch, match=r"float32\[2\] .* float32\[1\]"):
            program(x, TWO, out=np.zeros(1, np.float32))
        with pytest.raises(ShapeMismatch, match=r"does not go into an array of float32\[4\]"):
            program(x, TWO, out=np.zeros(4, np.float32))
        closed = np.zeros(2, np.float32)
        closed.flags.writeable = False
        with pytest.raises(InvalidArgument, match="no array that can be written to"):
            program(x, TWO, out=closed)
        assert program.state["runs"].numpy() == 0
        out = np.zeros(2, np.float32)
        assert program(x, TWO, out=out) is out
        assert out.tolist() == [3, 5]


# Room for the most there may be.


def positives(x: Any, n: Any) -> Any:
    return x[x[:, 0] > 0] * 2, x + 1


def positives_in_segments(x: Any, n: Any) -> Any:
    return x[x[:, 0] > 0] * 2 * total(n), x + total(n)


def positives_found_before(x: Any, n: Any) -> Any:
    found = x[x[:, 0] > 0]
    k = arange(found.shape[0] + n).sum() * 0 + 1
    return found * 2 * k.astype("float32"), x + 1


@pytest.mark.parametrize(
    "function",
    [positives, positives_in_segments, positives_found_before],
    ids=lambda function: function.__name__,
)
@pytest.mark.parametrize("n_found", [0, 1, 3, 5])
def test_an_array_for_the_most_there_may_be_is_filled_from_the_front(
    function: Any, n_found: int
) -> None:
    x = np.random.default_rng(3).normal(size=(5, 4)).astype(np.float32)
    x[:, 0] = -1
    x[np.random.default_rng(n_found).permutation(5)[:n_found], 0] = 1
    with arenite.compile(function, x, TWO) as program:
        whole = np.full((5, 8), 9, np.float32)
        for out in (np.full_like(x, 9), whole[:, ::2]):  # written in place, and copied
            other = np.zeros_like(x)
            made, rest = program(x, TWO, out=(out, other))
            assert rest is other
            assert made.shape == (n_found, 4)
            assert np.shares_memory(made, out) or not n_found
            np.testing.assert_array_equal(made, x[x[:, 0] > 0] * 2)
            np.testing.assert_array_equal(out[:n_found], made)
            np.testing.assert_array_equal(other, x + 1)
        assert (whole[:, 1::2] == 9).all()
        exact = (np.full((n_found, 4), 9, np.float32), other)
        assert program(x, TWO, out=exact) is exact
        np.testing.assert_array_equal(exact[0], made)


def test_in_an_array_for_the_most_there_may_be_nothing_is_copied() -> None:
    x = np.arange(200, dtype=np.float32) - 50
    with arenite.compile(lambda x: x[x > 0], x) as program:
        out = np.full(200, 9, np.float32)
        with no_new_arrays():
            made = program(x, out=out)
        np.testing.assert_array_equal(made, x[x > 0])
        assert made.base is out


def test_with_other_sizes_an_array_is_for_the_most_of_all() -> None:
    spec = arenite.spec((Var("n", 0, 9), 2))
    with arenite.compile(lambda x: x.nonzero(), spec) as program:
        for n in (9, 0, 3):
            x = np.arange(2 * n).reshape(n, 2).astype(np.float32) % 3
            out = (np.full(18, 7), np.full(18, 7))
            for made, right, array in zip(program(x, out=out), np.nonzero(x), out, strict=True):
                np.testing.assert_array_equal(made, right)
                assert (array[len(right) :] == 7).all()


def test_one_value_whose_size_is_found_is_two_results() -> None:
    def function(x: Any) -> Any:
        made = x.nonzero()[0]
        return made, made

    x = np.ones(40, np.float32)
    with arenite.compile(function, x) as program:
        one, other = program(x)
        one[...] = -1
        np.testing.assert_array_equal(other, np.arange(40))
        out = (np.zeros(40, np.int64), np.zeros(40, np.int64))
        program(x, out=out)
        np.testing.assert_array_equal(out, [np.arange(40)] * 2)
