"""States that branches and loops set: only where the branch is taken, once for each iteration.

The judge is the same function in plain Python, over NumPy arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import arenite
from arenite import Tensor
from arenite.errors import InvalidArgument

Array = NDArray[Any]


def compiled_and_checked(function: Any, *specs: Any) -> Any:
    made = arenite.compile(function, *specs)
    made.verify()
    return made


def test_a_branch_that_is_not_taken_sets_nothing() -> None:
    x = arenite.State((), name="x")

    def step(go: Tensor) -> Tensor:
        arenite.cond(go, lambda: x.set(x.value + 1), lambda: None)
        return x.value

    with compiled_and_checked(step, arenite.spec((), "bool")) as program:
        made = [float(program(np.bool_(go))) for go in (True, False, False, True)]
    assert made == [1, 1, 1, 2]


def test_a_side_does_not_see_what_the_other_sets() -> None:
    x, y = arenite.State((3,), name="x"), arenite.State((3,), name="y")

    def step(go: Tensor, v: Tensor) -> Any:
        def yes() -> Tensor:
            x.set(x.value * 2 + v)
            return x.value - 1

        def no() -> Tensor:
            y.set(x.value + v)  # x as it was before
            return y.value

        seen = arenite.cond(go, yes, no)
        return seen, x.value, y.value

    rng = np.random.default_rng(1)
    a = b = np.zeros(3, np.float32)
    with compiled_and_checked(step, arenite.spec((), "bool"), arenite.spec((3,))) as program:
        for go in (True, False, True, True, False):
            v = rng.integers(-5, 5, 3).astype(np.float32)
            if go:
                a = a * 2 + v
                seen = a - 1
            else:
                b = a + v
                seen = b
            for made, expected in zip(program(np.bool_(go), v), (seen, a, b), strict=True):
                np.testing.assert_array_equal(made, expected)
            np.testing.assert_array_equal(program.state["x"].numpy(), a)


@pytest.mark.parametrize("trips", [0, 1, 5])
def test_a_body_sets_once_for_each_iteration(trips: int) -> None:
    count, total = arenite.State((), "int64", name="count"), arenite.State((), name="total")

    def step(n: Tensor, v: Tensor) -> Any:
        def body(i: Tensor, s: Tensor) -> Tensor:
            count.set(count.value + 1)  # of values from outside only
            total.set(total.value + s)
            return s + v

        last = arenite.fori_loop(n, body, v)
        return last, count.value, total.value

    with compiled_and_checked(step, arenite.spec((), "int64"), arenite.spec(())) as program:
        n_done, added = 0, 0.0
        for v in (2.0, 3.0):
            s = v
            for _ in range(trips):
                n_done, added, s = n_done + 1, added + s, s + v
            made = [float(one) for one in program(np.int64(trips), np.float32(v))]
            assert made == [s, n_done, added]


def test_a_state_that_a_body_only_reads_is_what_it_was() -> None:
    kept, other = arenite.State((4,), name="kept"), arenite.State((4,), name="other")

    def step(v: Tensor) -> Any:
        kept.set(v)
        made = arenite.fori_loop(3, lambda i, s: s + kept.value * 2 + other.value, v)
        other.set(made)
        return made

    v = np.arange(4, dtype=np.float32)
    with compiled_and_checked(step, v) as program:
        np.testing.assert_array_equal(program(v), v * 7)
        np.testing.assert_array_equal(program(v), v * 7 + 3 * v * 7)


def test_nested_loops_and_branches_over_one_state() -> None:
    log, at = arenite.State((40,), "int64", name="log"), arenite.State((), "int64", name="at")

    def note(value: Tensor) -> None:
        log.write(value.reshape(1), at=at.value)
        at.set(at.value + 1)

    def step(n: Tensor) -> Tensor:
        def inner(j: Tensor, s: Tensor) -> Tensor:
            arenite.cond((s + j) % 3 == 0, lambda: note(s), lambda: None)
            return s + j

        def outer(i: Tensor, s: Tensor) -> Tensor:
            s = arenite.fori_loop(i + 1, inner, s)
            note(s * 100)
            return s + 1

        return arenite.fori_loop(n, outer, n)

    expected: list[int] = []

    def judge(n: int) -> int:
        s = n
        for i in range(n):
            for j in range(i + 1):
                if (s + j) % 3 == 0:
                    expected.append(s)
                s += j
            expected.append(s * 100)
            s += 1
        return s

    with compiled_and_checked(step, arenite.spec((), "int64")) as program:
        for n in (3, 0, 5, 2):
            assert program(np.int64(n)) == judge(n)
            assert program.state["at"].numpy() == len(expected)
            assert program.state["log"].numpy()[: len(expected)].tolist() == expected


def test_scans_and_while_loops_carry_states_too() -> None:
    kept = arenite.State((2, 3), name="kept")

    def step(xs: Tensor, limit: Tensor) -> Any:
        def row(s: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            old = kept.value
            kept.set(old * 0.5 + x)
            return s + 1, old.sum(axis=0)

        n, rows = arenite.scan(row, limit * 0, xs)

        def body(s: Tensor) -> Tensor:
            kept.set(kept.value + 1)
            return s + kept.value.sum()

        return n, rows, arenite.while_loop(lambda s: s < limit, body, limit * 0)

    rng = np.random.default_rng(2)
    state = np.zeros((2, 3), np.float32)
    with compiled_and_checked(step, arenite.spec((4, 2, 3)), arenite.spec(())) as program:
        for limit in (50.0, -1.0, 500.0):
            xs = rng.integers(-3, 3, (4, 2, 3)).astype(np.float32)
            rows = []
            for x in xs:
                rows.append(state.sum(axis=0))
                state = state * np.float32(0.5) + x
            s = np.float32(0)
            while s < limit:
                state = state + 1
                s = s + state.sum()
            n, made, total = program(xs, np.float32(limit))
            assert n == 4
            np.testing.assert_array_equal(made, rows)
            np.testing.assert_allclose(total, s, rtol=1e-6)
            np.testing.assert_array_equal(program.state["kept"].numpy(), state)


def test_a_condition_that_sets_does_so_each_time_it_is_looked_at() -> None:
    looks = arenite.State((), "int64", name="looks")

    def step(n: Tensor) -> Any:
        def condition(s: Tensor) -> Any:
            looks.set(looks.value + 1)
            return s < n

        return arenite.while_loop(condition, lambda s: s + 1, n * 0)

    with compiled_and_checked(step, arenite.spec((), "int64")) as program:
        for n, expected in ((3, 4), (0, 5), (2, 8)):
            assert program(np.int64(n)) == n
            assert program.state["looks"].numpy() == expected


def test_a_growing_loop_carries_states() -> None:
    kept = arenite.State((), "int64", name="kept")

    def step(n: Tensor) -> Tensor:
        def body(i: Tensor, s: Tensor) -> Tensor:
            kept.set(kept.value + i)
            return arenite.tensor.concat([s, kept.value.reshape(1)])

        start = arenite.tensor.zeros((1,), "int64")
        return arenite.fori_loop(n, body, start, grows=True)

    total = 0
    with arenite.compile(step, arenite.spec((), "int64")) as program:
        for n in (4, 0, 90):
            expected = [0]
            for i in range(n):
                total += i
                expected.append(total)
            assert program(np.int64(n)).tolist() == expected
            assert program.state["kept"].numpy() == total


def test_a_value_of_a_body_that_leaks_is_refused() -> None:
    kept = arenite.State((), name="kept")
    leaked: list[Tensor] = []

    def step(x: Tensor) -> Tensor:
        def body(i: Tensor, s: Tensor) -> Tensor:
            leaked.append(s)
            return s + 1

        made: Tensor = arenite.fori_loop(3, body, x)
        kept.set(leaked[0])
        return made

    with pytest.raises(InvalidArgument, match="a value of the body of a loop"):
        arenite.compile(step, arenite.spec(()))


def test_a_function_that_specialize_traces_has_no_states() -> None:
    kept = arenite.State((), name="kept")

    def inner(k: int, y: Tensor) -> Tensor:
        kept.set(y.sum())
        return y * k

    def step(x: Tensor) -> Tensor:
        made: Tensor = arenite.specialize(inner, arenite.spec((3,)), x.argmax(), x)
        return made

    with (
        arenite.compile(step, arenite.spec((3,))) as program,
        pytest.raises(InvalidArgument, match="specialize"),
    ):
        program(np.ones(3, np.float32))


def test_all_variants_have_one_state() -> None:
    total = arenite.State((2,), name="total")
    other = arenite.State((2,), name="other")

    def step(x: Tensor, how: str) -> Tensor:
        if how == "other":
            other.set(other.value + x)
            return other.value
        total.set(total.value + x if how == "add" else total.value * x)
        return total.value

    x = np.array([2, 3], np.float32)
    a = b = np.zeros(2, np.float32)
    with arenite.compile(step, arenite.spec((2,)), arenite.static) as program:
        for how in ("add", "add", "mul", "other", "add", "mul", "mul", "other"):
            if how == "other":
                b = b + x
            else:
                a = a + x if how == "add" else a * x
            np.testing.assert_array_equal(program(x, how), b if how == "other" else a)
        np.testing.assert_array_equal(program.state["total"].numpy(), a)
        np.testing.assert_array_equal(program.state["other"].numpy(), b)
        program.state["total"].load(x)
        np.testing.assert_array_equal(program(x, "add"), x + x)
        np.testing.assert_array_equal(program.run_checked(x, "mul"), 2 * x * x)
        np.testing.assert_array_equal(program(x, "mul"), 2 * x * x)
        program.reset_state()
        np.testing.assert_array_equal(program(x, "add"), x)


def test_more_variants_than_are_kept_have_one_state() -> None:
    total = arenite.State((), "int64", name="total")

    def step(x: Tensor, k: int) -> Tensor:
        total.set(total.value * 2 + x * k)
        return total.value

    expected = 0
    with arenite.compile(step, arenite.spec((), "int64"), arenite.static) as program:
        for k in (*range(18), 0, 17):
            expected = expected * 2 + k
            assert program(np.int64(1), k) == expected


def test_a_state_of_all_variants_has_one_type() -> None:
    def step(x: Tensor, n: int) -> Tensor:
        kept = arenite.State((n,), name="kept")
        kept.set(kept.value + x)
        return kept.value

    with arenite.compile(step, arenite.spec(()), arenite.static) as program:
        program(np.float32(1), 2)
        with pytest.raises(InvalidArgument, match=r"float32\[3\].*float32\[2\]"):
            program(np.float32(1), 3)
