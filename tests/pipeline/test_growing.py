"""Loops whose state grows without a bound."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import arenite
from arenite import Var, spec
from arenite.errors import (
    ShapeMismatch,
)
from arenite.pipeline.segmented import SegmentedExecutable
from arenite.tensor import arange, concat, ones
from tests.pipeline.segments import Array, check, numbers, repeated


def test_a_loop_that_appends_runs_in_native_code_until_there_is_no_room() -> None:
    def network(x: Any, n: Any) -> Any:
        return arenite.fori_loop(n, lambda i, v: concat([v, v[-1:] * 2 % 37 + i]), x, grows=True)

    expected = repeated(lambda i, v: np.concatenate([v, v[-1:] * 2 % 37 + i]))
    executable = check(network, expected, *[(numbers(3), n) for n in (0, 1, 50, 300, 4)])
    entered = {tuple(one.sizes.values()): one.n_entered for one in executable.plan.segments}
    # Three calls that need a capacity enter it once each: as often as digits, not as iterations.
    assert entered[64,] == 3 * 4
    assert entered[256,] == entered[1024,] == 3


def test_a_loop_that_only_a_condition_ends() -> None:
    def network(x: Any) -> Any:
        return arenite.while_loop(
            lambda v: v.sum() < 1000, lambda v: concat([v, v[-2:] + v[:2]]), x, grows=True
        )

    def expected(v: Array) -> Array:
        while v.sum() < 1000:
            v = np.concatenate([v, v[-2:] + v[:2]])
        return v

    check(network, expected, (np.arange(6),), (np.array([1, 1]),), (np.array([5000]),),
          specs=[spec((Var("n", 1, 9),), "int64")])  # fmt: skip


STEPS: dict[str, tuple[Callable[..., Any], Callable[..., Any], Array, int]] = {
    "doubles": (
        lambda i, v: concat([v, v * 2 % 11 + i]),
        lambda i, v: np.concatenate([v, v * 2 % 11 + i]),
        numbers(3),
        8,
    ),
    "another axis": (
        lambda i, v: concat([v, v[:, :1] - i], 1),
        lambda i, v: np.concatenate([v, v[:, :1] - i], 1),
        numbers(4, 2),
        70,
    ),
    "both axes": (
        lambda i, v: concat(
            [concat([v, v[:, np.array([0])]], 1), ones((1, v.shape[1] + 1), "int64") * i]
        ),
        lambda i, v: np.concatenate(
            [np.concatenate([v, v[:, :1]], 1), np.full((1, v.shape[1] + 1), i)]
        ),
        numbers(2, 2),
        5,
    ),
    "shrinks": (lambda i, v: v[1:] + i, lambda i, v: v[1:] + i, numbers(90), 71),
    "shrinks to nothing": (lambda i, v: v[1:] + i, lambda i, v: v[1:] + i, numbers(5), 9),
    "its size alone": (
        lambda i, v: concat([ones(v.shape, "int64").cumsum(), arenite.tensor.zeros((1,), "int64")]),
        lambda i, v: np.append(np.arange(1, len(v) + 1), 0),
        numbers(3),
        5,
    ),
    "what is found in it": (
        lambda i, v: concat([v, v[v % 3 == i % 3] * 2 % 50]),
        lambda i, v: np.concatenate([v, v[v % 3 == i % 3] * 2 % 50]),
        np.arange(6),
        8,
    ),
    "sorted": (
        lambda i, v: concat([v.sort(), v.sum().reshape(1) % 17]),
        lambda i, v: np.append(np.sort(v), v.sum() % 17),
        numbers(3),
        66,
    ),
    "a product": (
        lambda i, v: concat([v, ((v @ v.T).sum(0, keepdims=True) @ v) % 5]),
        lambda i, v: np.concatenate([v, ((v @ v.T).sum(0, keepdims=True) @ v) % 5]),
        numbers(2, 3),
        20,
    ),
    "does not grow for long": (
        lambda i, v: concat([v[:0], v]),
        lambda i, v: np.concatenate([v[:0], v]),
        numbers(3),
        3,
    ),
}


@pytest.mark.parametrize("name", [name for name in STEPS if name != "does not grow for long"])
def test_what_bodies_do_with_sizes(name: str) -> None:
    body, numpy_body, x, n = STEPS[name]
    check(
        lambda x, n: arenite.fori_loop(n, body, x, grows=True), repeated(numpy_body), (x, n), (x, 0)
    )


def test_a_body_that_keeps_all_sizes_is_a_plain_loop() -> None:
    body, numpy_body, x, n = STEPS["does not grow for long"]
    program = arenite.compile(
        lambda x, n: arenite.fori_loop(n, body, x, grows=True), x, np.array(n)
    )
    assert not isinstance(program.executable, SegmentedExecutable)
    np.testing.assert_array_equal(program(x, np.array(n)), repeated(numpy_body)(x, n))


def test_several_values_one_grows_and_one_shrinks() -> None:
    def network(x: Any, y: Any, n: Any) -> Any:
        def body(i: Any, state: Any) -> Any:
            return {
                "a": concat([state["a"], state["b"][:1]]),
                "b": state["b"][1:],
                "s": state["s"] + y,
            }

        made = arenite.fori_loop(n, body, {"a": x[:2], "b": x, "s": y * 0}, grows=True)
        return made["a"].sum() * made["s"], made["a"], made["b"]

    def expected(x: Array, y: Array, n: Array) -> Any:
        a, b = np.append(x[:2], x[: int(n)]), x[int(n) :]
        return a.sum() * (y * int(n)), a, b

    check(network, expected, (numbers(100), numbers(3), 71), (numbers(100), numbers(3), 0))


def test_rows_without_a_bound() -> None:
    def network(x: Any, n: Any) -> Any:
        last, rows = arenite.scan(lambda s, _: (s * 3 % 7 + x, s.sum()), x, length=n.sum())
        return last, rows, rows.sum()

    def expected(x: Array, n: Array) -> Any:
        s, rows = x, []
        for _ in range(n.sum()):
            rows.append(s.sum())
            s = s * 3 % 7 + x
        return s, np.array(rows, int), np.sum(rows, dtype=int)

    x = numbers(5)
    check(network, expected, (x, np.array([3, 4])), (x, np.array([0, 0])), (x, np.array([90, 200])))


def test_rows_of_a_state_that_grows() -> None:
    def network(x: Any, n: Any) -> Any:
        return arenite.scan(
            lambda s, _: (concat([s, s[:1] + 1]), s.sum() + 0 * s.shape[0]), x, length=n, grows=True
        )

    def expected(x: Array, n: Array) -> Any:
        rows = []
        for _ in range(int(n)):
            rows.append(x.sum())
            x = np.append(x, x[:1] + 1)
        return x, np.array(rows, int)

    check(network, expected, (numbers(3), 100), (numbers(3), 0))


def test_rows_of_different_shapes_are_an_error() -> None:
    program = arenite.compile(
        lambda x, n: arenite.scan(lambda s, _: (s[1:], s), x, length=n, grows=True)[1],
        numbers(5),
        np.array(1),
    )
    assert program(numbers(5), np.array(1)).shape == (1, 5)
    with pytest.raises(ShapeMismatch, match="what is stacked is of one shape"):
        program(numbers(5), np.array(2))
    assert program(numbers(5), np.array(1)).shape == (1, 5)


def test_loops_and_branches_around_loops_that_grow() -> None:
    def network(x: Any, n: Any) -> Any:
        def body(i: Any, v: Any) -> Any:
            w = arenite.cond(
                i % 2 == 0,
                lambda: arenite.fori_loop(
                    i, lambda j, u: concat([u, u[:1] + j]), v, grows=True
                ).sum(),
                lambda: v.sum(),
            )
            return concat([v, w.reshape(1) % 100])

        grown = arenite.fori_loop(n, body, x, grows=True)
        plain, rows = arenite.scan(
            lambda s, row: (s + arange(row % 5).sum(), (s * 2)), np.int64(0), x
        )
        return grown, plain, rows

    def expected(x: Array, n: Array) -> Any:
        v = x
        for i in range(int(n)):
            u = v
            for j in range(i if i % 2 == 0 else 0):
                u = np.append(u, u[:1] + j)
            v = np.append(v, u.sum() % 100)
        s, rows = 0, []
        for row in x:
            rows.append(s * 2)
            s += np.arange(row % 5).sum()
        return v, np.asarray(s), np.array(rows)

    check(network, expected, (numbers(6), 6), (numbers(6), 0))
