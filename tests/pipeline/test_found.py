"""Sizes found while running: nonzero and masks, and what is made of them, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import arenite
from arenite import Tensor, Var, spec
from arenite.errors import InvalidGraph
from arenite.ir import Graph, evaluate, full, make, verify
from arenite.ir.compose.counted_sizes import nonzero
from arenite.ir.dim import Found
from arenite.pipeline import compile_anew
from arenite.program.compiled import Compiled
from arenite.runtime.executable import Executable
from tests.pipeline.segments import numbers
from tests.pipeline.trial import run_poisoned

Array = NDArray[Any]


def check(
    function: Callable[..., Any],
    numpy_function: Callable[..., Any],
    *arrays: Array,
    specs: Any = (),
) -> None:
    """Equal on one and two threads over a poisoned arena, and by the oracle."""
    wanted = numpy_function(*arrays)
    expected = list(wanted) if isinstance(wanted, tuple) else [wanted]
    for threads in (1, 2):
        with arenite.compile(function, *(specs or arrays), threads=threads) as program:
            [executable] = program.executables
            executable.verify()
            by_oracle = evaluate(executable.graph, list(arrays))
            for results in (run_poisoned(executable, *arrays), executable(*arrays), by_oracle):
                assert len(results) == len(expected)
                for one, other in zip(results, expected, strict=True):
                    assert one.shape == other.shape
                    np.testing.assert_array_equal(one, other)
            executable.verify()


CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "nonzero": (lambda x: (x > 0).nonzero(), lambda x: np.nonzero(x > 0)),
    "nonzero of numbers": (lambda x: x.nonzero(), lambda x: np.nonzero(x)),
    "elements": (lambda x: x[x > 3], lambda x: x[x > 3]),
    "rows": (lambda x: x[x[:, 0] > 0], lambda x: x[x[:, 0] > 0]),
    "columns": (lambda x: x[:, x[0] > 0], lambda x: x[:, x[0] > 0]),
    "none": (lambda x: x[x > 100], lambda x: x[x > 100]),
    "all": (lambda x: x[x > -100], lambda x: x[x > -100]),
    "elementwise": (lambda x: x[x > 0] * 2 + 1, lambda x: x[x > 0] * 2 + 1),
    "sum": (lambda x: x[x > 0].sum(), lambda x: x[x > 0].sum()),
    "sum of rows": (lambda x: x[x[:, 1] < 0].sum(0), lambda x: x[x[:, 1] < 0].sum(0)),
    "sorted": (lambda x: x[x > 0].sort(), lambda x: np.sort(x[x > 0])),
    "product": (lambda x: x[x[:, 0] > 0] @ x.T, lambda x: x[x[:, 0] > 0] @ x.T),
    "count": (lambda x: x[x > 0] * 0 + x[x > 0].shape[0] * 0 + 1, lambda x: x[x > 0] * 0 + 1),
    "mask of a mask": (
        lambda x: (lambda y: y[y < 5])(x[x > 0]),
        lambda x: (lambda y: y[y < 5])(x[x > 0]),
    ),
    "two sizes": (
        lambda x: arenite.tensor.concat([x[x > 2], x[x < -2], x[0]]),
        lambda x: np.concatenate([x[x > 2], x[x < -2], x[0]]),
    ),
    "running sums of rows": (
        lambda x: arenite.scan(lambda c, row: (c + row, c + row), x[0], x[x[:, 0] > 0])[1],
        lambda x: x[0] + x[x[:, 0] > 0].cumsum(0),
    ),
    "outer": (
        lambda x: x[x > 4][:, None] * x[x < -4][None, :],
        lambda x: x[x > 4][:, None] * x[x < -4][None, :],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_made_of_a_mask(name: str) -> None:
    function, numpy_function = CASES[name]
    for seed in range(2):
        check(function, numpy_function, numbers(7, 5, seed=seed))


def test_with_a_variable_batch() -> None:
    for n in (0, 1, 7, 40):
        check(*CASES["rows"], numbers(n, 5), specs=[spec((Var("n", 0, 40), 5), "int64")])
    for n in (1, 7, 40):
        for name in ("two sizes", "running sums of rows"):
            check(*CASES[name], numbers(n, 5), specs=[spec((Var("n", 1, 40), 5), "int64")])


def test_a_size_without_a_value_of_that_size() -> None:
    def count(x: Tensor) -> tuple[Tensor, Tensor]:
        kept = x[x > 0]
        n = kept.shape[0]
        ones = arenite.tensor.ones((n,), "int64")
        return ones.sum(), kept.max()

    check(count, lambda x: ((x > 0).sum(), x[x > 0].max()), numbers(6, 6))


def test_inside_loops_and_branches() -> None:
    def network(xs: Tensor) -> Any:
        def step(total: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            kept = x[x > 0]
            total = arenite.cond(
                kept.sum() > 10, lambda: total + kept.sort().cumsum().sum(), lambda: total - 1
            )
            return total, kept.sum()

        return arenite.scan(step, np.int64(0), xs)

    def expected(xs: Array) -> tuple[Array, Array]:
        total, sums = 0, []
        for x in xs:
            kept = x[x > 0]
            total = total + np.cumsum(np.sort(kept)).sum() if kept.sum() > 10 else total - 1
            sums.append(kept.sum())
        return np.asarray(total), np.array(sums)

    check(network, expected, numbers(9, 8))


def test_what_has_a_size_of_its_iteration_stays_in_the_body() -> None:
    def network(xs: Tensor) -> Any:
        def step(total: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            kept = x[x > 0]
            weights = arenite.tensor.ones(kept.shape[:1], "int64").cumsum() * 3
            return total + (kept * weights).sum(), weights.sum()

        return arenite.scan(step, np.int64(0), xs)

    def expected(xs: Array) -> tuple[Array, Array]:
        total, sums = 0, []
        for x in xs:
            kept = x[x > 0]
            weights = np.arange(1, len(kept) + 1) * 3
            total += (kept * weights).sum()
            sums.append(weights.sum())
        return np.asarray(total), np.array(sums)

    check(network, expected, numbers(9, 8))


def test_a_loop_over_what_was_found() -> None:
    def network(x: Tensor) -> Any:
        kept = x[x[:, 0] > 0]
        state, rows = arenite.scan(lambda s, row: (s + row, s * 2), x[0] * 0, kept)
        return state, rows, arenite.fori_loop(3, lambda i, s: s + i, kept)

    def expected(x: Array) -> Any:
        kept = x[x[:, 0] > 0]
        state, rows = x[0] * 0, []
        for row in kept:
            rows.append(state * 2)
            state = state + row
        return state, np.reshape(rows, (len(kept), 4)), kept + 3

    for seed in range(3):
        check(network, expected, numbers(6, 4, seed=seed))


def test_the_size_is_found_anew_in_every_run_and_by_a_program_from_a_file() -> None:
    with arenite.compile(lambda x: x[x > 0] + 1, spec((30,), "int64")) as program:
        graph, sections = program.executable.graph, program.executables[0].compiled.sections()
        read = Compiled.from_sections({name: memoryview(data) for name, data in sections.items()})
        with Executable(graph, read, 2) as other:
            for seed in range(4):
                x = numbers(30, seed=seed)
                np.testing.assert_array_equal(program(x), x[x > 0] + 1)
                np.testing.assert_array_equal(other(x)[0], x[x > 0] + 1)
            assert "found" in str(program.executables[0].schedule)
            assert program.profile(x).kernels


def test_tensors_with_sizes_to_be_found_have_numbers() -> None:
    x = Tensor(numbers(40))
    kept = (x * 3)[x > 0]
    assert isinstance(kept.shape[0], Found)
    wanted = (numbers(40) * 3)[numbers(40) > 0]
    np.testing.assert_array_equal(kept.numpy(), wanted)
    assert kept.shape == wanted.shape


def test_graphs_made_twice_have_one_digest() -> None:
    def digest() -> str:
        x = arenite.ir.graph_input("x", 0, (9,), arenite.dtype.of("int64"))
        mask = make("gt", x, full((9,), 0, x.dtype))
        return Graph.of([nonzero(mask)]).digest()

    first = digest()
    x = arenite.ir.graph_input("x", 0, (4,), arenite.dtype.of("bool"))
    keep = nonzero(x)
    assert digest() == first != Graph.of([keep]).digest()


def test_a_size_that_nobody_finds_is_an_error() -> None:
    stray = full((Found("found_stray", 0, 4),), 1, arenite.dtype.of("int64"))
    with pytest.raises(InvalidGraph, match="no cut of the graph says what size found_stray is"):
        verify(Graph.of([stray]))
    with pytest.raises(InvalidGraph, match="needs size found_stray before it is found"):
        compile_anew(Graph.of([stray]))
