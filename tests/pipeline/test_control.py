"""Branches and loops through the whole compiler, against loops written in NumPy."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import arenite
from arenite import Tensor, Var, spec
from arenite.errors import IndexOutOfRange, RunCancelled
from arenite.schedule import Loop
from arenite.tensor.compile import CompiledFunction
from tests.pipeline.trial import run_poisoned

Array = NDArray[Any]
F32 = np.float32


def compiled(function: Callable[..., Any], *specs: Any, threads: int = 2) -> CompiledFunction:
    made: CompiledFunction = arenite.compile(function, *specs, threads=threads)
    return made


def run(function: Callable[..., Any], *arrays: Any, specs: Any = None) -> list[Array]:
    """The leaves of what the function returns, by one and two threads over a poisoned arena."""
    given = [np.asarray(array) for array in arrays]
    results = []
    for threads in (1, 2):
        with compiled(function, *(specs or given), threads=threads) as program:
            [executable] = program.executables
            executable.verify()
            results.append(run_poisoned(executable, *given))
            again = executable(*given)
            executable.verify()
            assert [a.tobytes() for a in again] == [r.tobytes() for r in results[-1]]
    assert [a.tobytes() for a in results[0]] == [b.tobytes() for b in results[1]]
    return results[0]


def rows(n: int, width: int = 6, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal((n, width)).astype(F32)


# Branches.


@pytest.mark.parametrize("holds", [True, False])
def test_one_side_of_an_if_is_what_comes_out(holds: bool) -> None:
    def choose(c: Tensor, x: Tensor, y: Tensor) -> Any:
        shared = (x * y).exp()
        return arenite.cond(c, lambda: (shared + 1).sqrt(), lambda: shared - x) * 2 + shared

    x, y = rows(3), rows(3, seed=1)
    [result] = run(choose, np.array(holds), x, y)
    shared = np.exp(x * y)
    expected = (np.sqrt(shared + 1) if holds else shared - x) * 2 + shared
    np.testing.assert_allclose(result, expected, rtol=1e-5)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("second", [True, False])
def test_ifs_stand_in_each_other_and_side_by_side(first: bool, second: bool) -> None:
    def choose(c: Tensor, d: Tensor, x: Tensor) -> tuple[Tensor, ...]:
        inner = arenite.cond(d, lambda: x.sum(0), lambda: x.max(0))
        nested = arenite.cond(c, lambda: inner * 2, lambda: x[0])
        beside, twin = arenite.cond(
            c, lambda: (x + 1, x @ x.T), lambda: (x * 3, x[:, :4] @ x[:, :4].T)
        )
        after = arenite.cond(d, lambda: beside.sum(), lambda: nested.sum())
        return nested, beside, twin, after

    x = rows(4)
    results = run(choose, np.array(first), np.array(second), x)
    inner = x.sum(0) if second else x.max(0)
    nested = inner * 2 if first else x[0]
    beside = x + 1 if first else x * 3
    twin = x @ x.T if first else x[:, :4] @ x[:, :4].T
    after = beside.sum() if second else nested.sum()
    for result, expected in zip(results, (nested, beside, twin, after), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


def test_the_side_not_taken_raises_nothing() -> None:
    def choose(c: Tensor, x: Tensor, at: Tensor) -> Any:
        return arenite.cond(c, lambda: x[at], lambda: -x[:2])

    x, bad = rows(5), np.array([1, 7])
    with compiled(choose, np.array(True), x, bad) as program:
        np.testing.assert_array_equal(program(np.array(False), x, bad), -x[:2])
        np.testing.assert_array_equal(program(np.array(True), x, np.array([4, 0])), x[[4, 0]])
        with pytest.raises(IndexOutOfRange, match="outside its axis"):
            program(np.array(True), x, bad)


def test_a_side_may_hand_through_what_it_gets() -> None:
    def choose(c: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        a, b, fixed = arenite.cond(c, lambda: (x, y, 1.0), lambda: (y, x, x))
        return a, b, fixed

    x, y = rows(2), rows(2, seed=1)
    for holds in (True, False):
        a, b, fixed = run(choose, np.array(holds), x, y)
        np.testing.assert_array_equal(a, x if holds else y)
        np.testing.assert_array_equal(b, y if holds else x)
        np.testing.assert_array_equal(fixed, np.ones_like(x) if holds else x)


# Loops.


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7])
def test_a_loop_carries_values_and_stacks_rows(n: int) -> None:
    def step(state: dict[str, Tensor], x: Tensor) -> tuple[dict[str, Tensor], Any]:
        s = (state["s"] * 0.5 + x).tanh()
        return {"s": s, "n": state["n"] + 1}, (s, s.sum() * state["n"])

    def network(start: Tensor, xs: Tensor) -> Any:
        return arenite.scan(step, {"s": start, "n": 2.0}, xs)

    start, xs = rows(1)[0], rows(n, seed=1)
    count, s, stacked, sums = run(network, start, xs)  # keys of a dict are in order
    expected, state, number = [], start, 2.0
    totals = []
    for x in xs:
        state = np.tanh(state * 0.5 + x)
        expected.append(state)
        totals.append(state.sum() * number)
        number += 1
    np.testing.assert_allclose(s, state, rtol=1e-5)
    assert count == number
    np.testing.assert_allclose(stacked, np.reshape(expected, (n, 6)), rtol=1e-5)
    np.testing.assert_allclose(sums, np.array(totals, F32), rtol=1e-4, atol=1e-5)


def test_the_number_of_rows_may_be_a_variable() -> None:
    def network(start: Tensor, xs: Tensor) -> Any:
        def step(state: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            new = state @ state.T @ x + state.sum()
            return new * 0.1, new

        return arenite.scan(step, start, xs)

    time = Var("time", 0, 9)
    start = rows(4, 4)
    for n in (0, 1, 2, 5, 9):
        xs = np.random.default_rng(n).standard_normal((n, 4, 4)).astype(F32)
        last, stacked = run(network, start, xs, specs=(start, spec((time, 4, 4))))
        state, made = start, []
        for x in xs:
            made.append(state @ state.T @ x + state.sum())
            state = made[-1] * F32(0.1)
        np.testing.assert_allclose(last, state, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(stacked, np.reshape(made, (n, 4, 4)), rtol=1e-4, atol=1e-4)


def test_values_may_change_places() -> None:
    def network(a: Tensor, b: Tensor) -> Any:
        def swap(i: Tensor, state: Any) -> Any:
            return state[1], state[0] + i, state[2]

        return arenite.fori_loop(5, swap, (a, b, a))

    a, b = np.arange(4), np.arange(4) * 10
    one, two, same = run(network, a, b)
    x, y = a, b
    for i in range(5):
        x, y = y, x + i
    np.testing.assert_array_equal(one, x)
    np.testing.assert_array_equal(two, y)
    np.testing.assert_array_equal(same, a)


@pytest.mark.parametrize("limit", [-1, 0, 5, 1000])
def test_a_loop_ends_when_its_data_say_so(limit: int) -> None:
    def collatz(n: Tensor) -> Any:
        return arenite.while_loop(
            lambda s: (s[0] > 1) & (s[1] < limit),
            lambda s: (
                arenite.cond(s[0] % 2 == 0, lambda: s[0] // 2, lambda: 3 * s[0] + 1),
                s[1] + 1,
            ),
            (n, 0),
        )

    for start in (1, 6, 27):
        value, steps = run(collatz, np.array(start))
        n, k = start, 0
        while n > 1 and k < limit:
            n, k = (n // 2 if n % 2 == 0 else 3 * n + 1), k + 1
        assert (int(value), int(steps)) == (n, k)


@pytest.mark.parametrize("n", [0, 1, 2, 10, 90])
def test_fibonacci(n: int) -> None:
    def fibonacci(n: Tensor) -> Any:
        return arenite.fori_loop(n, lambda i, s: (s[1], s[0] + s[1]), (np.int64(0), np.int64(1)))

    a, _ = run(fibonacci, np.array(n))
    x, y = 0, 1
    for _ in range(n):
        x, y = y, x + y
    assert int(a) == x


def test_a_loop_stands_in_a_loop() -> None:
    def power(x: Tensor, shifts: Tensor) -> Any:
        def outer(state: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
            def inner(j: Tensor, s: Tensor) -> Tensor:
                return (s @ x) * 0.3 + shift + j.astype("float32")

            done = arenite.fori_loop(3, inner, state)
            return done, arenite.scan(lambda c, r: (c + r, c * 2), done[0], done)[1]

        return arenite.scan(outer, x, shifts)

    x, shifts = rows(4, 4), rows(5, 4, seed=1)
    last, stacked = run(power, x, shifts)
    state, made = x, []
    for shift in shifts:
        for j in range(3):
            state = (state @ x) * F32(0.3) + shift + F32(j)
        c, part = state[0], []
        for r in state:
            part.append(c * 2)
            c = c + r
        made.append(part)
    np.testing.assert_allclose(last, state, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(stacked, np.array(made), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("holds", [True, False])
def test_an_if_in_a_loop_and_a_loop_in_an_if(holds: bool) -> None:
    def network(c: Tensor, x: Tensor, xs: Tensor) -> Any:
        def step(state: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
            new = arenite.cond(row.sum() > 0, lambda: state + row.sort(), lambda: state * row)
            return new, new.sum()

        def many() -> Any:
            return arenite.scan(step, x, xs)

        return arenite.cond(c, many, lambda: (x.cumsum(), xs[:, 0]))

    x, xs = rows(1)[0], rows(8, seed=3)
    last, sums = run(network, np.array(holds), x, xs)
    state, made = x, []
    for row in xs:
        state = state + np.sort(row) if row.sum() > 0 else state * row
        made.append(state.sum())
    expected = (state, np.array(made)) if holds else (np.cumsum(x), xs[:, 0])
    np.testing.assert_allclose(last, expected[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(sums, expected[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("n", [0, 1, 2])
@pytest.mark.parametrize("m", [0, 1, 2, 3])
def test_two_loops_begin_with_one_value(n: int, m: int) -> None:
    def network(x: Tensor, n: Tensor, m: Tensor) -> Any:
        start = x.sort()
        a = arenite.fori_loop(n, lambda i, s: s + 1, start)
        b = arenite.fori_loop(m, lambda i, s: s * 2, start)
        return a + b, a

    x = np.array([3, 1, 2, 0, 4])
    both, first = run(network, x, np.array(n), np.array(m))
    np.testing.assert_array_equal(first, np.sort(x) + n)
    np.testing.assert_array_equal(both, np.sort(x) + n + np.sort(x) * 2**m)


def test_what_fails_is_not_taken_out_of_a_side_of_a_body() -> None:
    def network(x: Tensor, at: Tensor, n: Tensor) -> Any:
        def body(i: Tensor, s: Tensor) -> Any:
            return arenite.cond(i >= n, lambda: s + x[at].sum(), lambda: s + 1)

        return arenite.fori_loop(3, body, np.int64(0))

    x, bad, good = np.arange(4), np.array([0, 9]), np.array([1, 3])
    with compiled(network, x, bad, np.array(0)) as program:
        assert program(x, bad, np.array(5)) == 3
        assert program(x, good, np.array(1)) == 1 + 2 * 4
        with pytest.raises(IndexOutOfRange):
            program(x, bad, np.array(2))


def test_what_is_the_same_in_all_iterations_is_computed_before_them() -> None:
    def network(x: Tensor, w: Tensor) -> Any:
        # The passes make packed weights of w, and a convolution that reads these.
        return arenite.fori_loop(4, lambda i, s: s.conv(w, padding=1) * 0.1 + x, x)

    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 16, 9, 9)).astype(F32)
    w = (rng.standard_normal((16, 16, 3, 3)) * 0.1).astype(F32)
    [result] = run(network, x, w)
    with compiled(network, x, w) as program:
        [loop] = [s for s in program.executables[0].schedule.steps if isinstance(s, Loop)]
        read = {node for step in loop.body.steps for node in step.inputs}
        assert all(node.shape != w.shape for node in read)
    state = x
    for _ in range(4):
        padded = np.pad(state, ((0, 0), (0, 0), (1, 1), (1, 1)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
        state = np.einsum("ncijrs,ocrs->noij", windows, w) * F32(0.1) + x
    np.testing.assert_allclose(result, state, rtol=1e-3, atol=1e-4)


def test_an_lstm_over_time() -> None:
    width, hidden, time = 12, 16, 9
    rng = np.random.default_rng(0)
    w = (rng.standard_normal((width + hidden, 4 * hidden)) * 0.3).astype(F32)
    bias = rng.standard_normal(4 * hidden).astype(F32)

    def network(xs: Tensor, w: Tensor, bias: Tensor) -> Any:
        def step(state: Any, x: Tensor) -> Any:
            h, c = state
            gates = arenite.tensor.concat([x, h], axis=-1) @ w + bias
            i, f, g, o = (gates[:, k * hidden : (k + 1) * hidden] for k in range(4))
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            return (h, c), h

        zero = arenite.tensor.zeros((3, hidden), "float32")
        return arenite.scan(step, (zero, zero), xs)

    xs = rng.standard_normal((time, 3, width)).astype(F32)
    h, c, stacked = run(network, xs, w, bias)

    def sigmoid(x: Array) -> Array:
        return np.asarray(1 / (1 + np.exp(-x)))

    nh = nc = np.zeros((3, hidden), F32)
    made = []
    for x in xs:
        i, f, g, o = np.split(np.concatenate([x, nh], -1) @ w + bias, 4, -1)
        nc = sigmoid(f) * nc + sigmoid(i) * np.tanh(g)
        nh = sigmoid(o) * np.tanh(nc)
        made.append(nh)
    for result, expected in ((h, nh), (c, nc), (stacked, np.array(made))):
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


# What programs with loops are like.


def test_a_hundred_thousand_iterations_are_one_entry_into_native_code() -> None:
    def count(n: Tensor) -> Any:
        return arenite.fori_loop(n, lambda i, s: (s + i) % 1_000_003, np.int64(0))

    with compiled(count, np.array(0)) as program:
        [executable] = program.executables
        assert len(executable.kernels) < 6
        total = 0
        for i in range(100_000):
            total = (total + i) % 1_000_003
        assert program(np.array(100_000)) == total
        executable.verify()


def test_a_long_chain_in_a_body() -> None:
    def network(x: Tensor) -> Tensor:
        def body(i: Tensor, s: Tensor) -> Tensor:
            for k in range(2_000):
                s = s + 1 if k % 2 else -s
            return s

        return arenite.fori_loop(3, body, x)

    x = np.arange(5)
    [result] = run(network, x)
    expected = x
    for _ in range(3):
        for k in range(2_000):
            expected = expected + 1 if k % 2 else -expected
    np.testing.assert_array_equal(result, expected)


def test_sides_of_a_branch_share_their_bytes() -> None:
    def one_side(x: Tensor) -> Tensor:
        return (x.sort() @ x).sort() @ x

    def both(c: Tensor, x: Tensor) -> Any:
        return arenite.cond(c, lambda: one_side(x), lambda: one_side(x.T) + 1)

    x = rows(32, 32)
    with compiled(one_side, x) as alone, compiled(both, np.array(True), x) as program:
        extra = program.executable.plan.peak_nbytes - alone.executable.plan.peak_nbytes
        # The result is written by either, and the condition has a few bytes of its own.
        assert extra <= x.nbytes + 256


def test_a_scan_keeps_no_copy_of_what_it_goes_through() -> None:
    def network(xs: Tensor) -> Any:
        return arenite.scan(lambda s, x: (s + x, s * x), np.zeros(64, F32), xs)

    xs = np.random.default_rng(0).standard_normal((1000, 64)).astype(F32)
    with compiled(network, xs) as program:
        [executable] = program.executables
        assert executable.plan.peak_nbytes < 4 * 64 * 4 + 256
        assert [kernel.border for kernel in executable.kernels if "copy" in kernel.border] != []
        last, stacked = program(xs)
    state = np.zeros(64, F32)
    for k, x in enumerate(xs):
        np.testing.assert_allclose(stacked[k], state * x, rtol=1e-5, atol=1e-6)
        state = state + x
    np.testing.assert_allclose(last, state, rtol=1e-5, atol=1e-6)


def test_a_state_that_is_updated_element_by_element_has_one_place() -> None:
    def in_place(x: Tensor) -> Any:
        return arenite.fori_loop(5, lambda i, s: (s * 0.5 + 1).tanh(), x.exp())

    def not_in_place(x: Tensor) -> Any:
        return arenite.fori_loop(5, lambda i, s: (s.T * 0.5 + 1).tanh(), x.exp())

    def read_later(x: Tensor) -> Any:
        def body(i: Tensor, s: Any) -> Any:
            new = s[0] * 0.5
            return new, new.sort() + s[0]

        return arenite.fori_loop(5, body, (x.exp(), x))

    x = rows(64, 64)
    plans = []
    for function in (in_place, not_in_place):
        [result] = run(function, x)
        state = np.exp(x)
        for _ in range(5):
            seen = state if function is in_place else state.T
            state = np.tanh(seen * F32(0.5) + 1)
        np.testing.assert_allclose(result, state, rtol=1e-4, atol=1e-5)
        with compiled(function, x) as program:
            plans.append(program.executable.plan.peak_nbytes)
    assert plans[0] < x.nbytes + 512
    assert plans[1] >= 2 * x.nbytes
    state, other = np.exp(x), x
    for _ in range(5):
        new = state * F32(0.5)
        state, other = new, np.sort(new, -1) + state
    for result, expected in zip(run(read_later, x), (state, other), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


def test_a_profile_counts_the_runs_of_a_kernel_in_a_loop() -> None:
    def network(x: Tensor) -> Any:
        return arenite.fori_loop(12, lambda i, s: s.sort() + x, x)

    x = rows(1)[0]
    with compiled(network, x) as program:
        profile = program.profile(x)
        times = {kernel.name.rsplit("_", 1)[0]: kernel.n_runs for kernel in profile.kernels}
        assert times["sort"] == 12
        assert "12" in str(profile)
        events = json.loads(profile.to_chrome_trace())["traceEvents"]
        assert sum(event["name"].startswith("sort_") for event in events) == 12
        assert "loop 12 times" in str(program.executables[0].schedule)


def test_a_cancelled_loop_ends() -> None:
    from threading import Timer

    def for_ever(x: Tensor) -> Any:
        return arenite.while_loop(lambda s: s >= 0, lambda s: (s + 1) % 1000, x)

    with compiled(for_ever, np.array(0)) as program:
        timer = Timer(0.2, program.executable.cancel)
        timer.start()
        with pytest.raises(RunCancelled):
            program(np.array(0))
        timer.join()
        assert program(np.array(-5)) == -5


def test_an_index_out_of_range_in_a_loop_names_its_kernel() -> None:
    def walk(x: Tensor, at: Tensor) -> Any:
        return arenite.fori_loop(4, lambda i, s: x[s + i], at)

    x = np.arange(4)
    with compiled(walk, x, np.array(0)) as program:
        with pytest.raises(IndexOutOfRange, match="outside its axis, in kernel gather"):
            program(x, np.array(3))
        program.executable.reset()
        at = 0
        with pytest.raises(IndexOutOfRange):
            program(x, np.array(at))
