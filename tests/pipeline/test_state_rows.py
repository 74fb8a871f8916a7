"""Rows of one state that several kernels of a run touch: who touches other rows need not wait, and
nobody sees bytes that are not meant. Judged by the same function on NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import arenite
from arenite.backends.cpu.execution import binding
from arenite.errors import UndeclaredAccess
from arenite.hazards import order
from arenite.ir.graph import Graph
from arenite.pipeline import compile_anew
from arenite.program.compiled import Compiled
from arenite.program.launch_hazards import data_hazards, placed
from arenite.program.options import Options
from arenite.program.places import Resizer
from arenite.runtime.executable import Executable
from arenite.tensor.state import State
from arenite.tensor.tracing import tracing
from tests.hazards.brute import reduction
from tests.pipeline.delays import DelayedTable

Array = NDArray[Any]

pytestmark = pytest.mark.usefixtures("shared")

SHAPE = (6, 5)


class NumpyState:
    """What State is, on an array."""

    def __init__(self) -> None:
        self.value = np.zeros(SHAPE, np.int64)

    def write(self, rows: Array, at: Any, axis: int = 0) -> None:
        self.value = self.value.copy()
        self.value[_rows(axis, int(at), rows.shape[axis])] = rows


def _rows(axis: int, at: int, count: int) -> tuple[slice, ...]:
    rows = slice(at, at + count)
    return (rows,) if axis == 0 else (slice(None), rows)


def random_function(seed: int) -> Callable[[Any, Any, Any], list[Any]]:
    """Reads some rows or columns, writes others; most places are known, some are found in a run."""

    def function(state: Any, x: Any, found: Any) -> list[Any]:
        rng = np.random.default_rng(seed)
        seen = []
        for _ in range(6):
            axis, count = int(rng.integers(2)), int(rng.integers(1, 3))
            at, source = (int(k) for k in rng.integers(0, SHAPE[axis] - count + 1, 2))
            rows = state.value[_rows(axis, source, count)] * 3 + x[_rows(axis, at, count)]
            state.write(rows % 1000, found if rng.random() < 0.15 else np.int64(at), axis)
            (a, b), (c, d) = (sorted(rng.choice(size + 1, 2, replace=False)) for size in SHAPE)
            seen.append(state.value[int(a) : int(b), int(c) : int(d)].cumsum(0))
        return seen

    return function


def compiled_for(function: Callable[..., Any], plan: str) -> tuple[Graph, Compiled]:
    specs = [arenite.spec(SHAPE, "int64"), arenite.spec((), "int64")]
    given = [one.argument(name, k) for k, (one, name) in enumerate(zip(specs, "xf", strict=True))]
    with tracing() as traced:
        outputs = function(State(SHAPE, "int64", name="rows"), *given)
    graph = Graph(
        tuple(one.node for one in given),
        tuple(one.node for one in outputs),
        (),
        updates=tuple(traced.updates),
    )
    return graph, compile_anew(graph, Options(plan=plan))


def given_for(run: int) -> list[Array]:
    return [np.random.default_rng(run).integers(0, 99, SHAPE), np.asarray(run % 4)]


@pytest.mark.parametrize("plan", ["memory", "concurrency"])
@pytest.mark.parametrize("seed", range(6))
def test_rows_are_what_numpy_has_whatever_runs_side_by_side(
    seed: int, plan: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    function, judge = random_function(seed), NumpyState()
    graph, compiled = compiled_for(function, plan)
    assert any(launch.parts for launch in compiled.launches)
    monkeypatch.setattr(binding, "BoundTable", DelayedTable)
    with Executable(graph, compiled, 4) as program:
        program.verify()
        for run in range(4):
            monkeypatch.setattr(DelayedTable, "seed", 7919 * run)
            given = given_for(run)
            for got, meant in zip(program(*given), function(judge, *given), strict=True):
                np.testing.assert_array_equal(got, meant)
            np.testing.assert_array_equal(program.state["rows"].numpy(), judge.value)


@pytest.mark.parametrize("seed", range(6))
def test_kernels_touch_no_byte_outside_of_their_parts(seed: int) -> None:
    function, judge = random_function(seed), NumpyState()
    with Executable(*compiled_for(function, "memory"), 1) as program:
        for run in range(2):
            watched = program.run_checked(*given_for(run))
            program(*given_for(run))
            for got, meant in zip(watched, function(judge, *given_for(run)), strict=True):
                np.testing.assert_array_equal(got, meant)


@pytest.mark.parametrize("seed", range(6))
def test_edges_on_final_addresses_are_those_that_shared_bytes_need(seed: int) -> None:
    _, compiled = compiled_for(random_function(seed), "memory")
    resizer = Resizer(compiled.frame, compiled.plan, compiled.pointers)
    hazards = placed(compiled.launches, resizer.places(compiled.plan))
    assert {edge.pair for edge in order(hazards)} == reduction(hazards)


def data_edges(function: Callable[..., Any]) -> set[tuple[str, str]]:
    """The ops of kernels, of which the one waits for the other."""
    _, compiled = compiled_for(function, "concurrency")
    launches = data_hazards(compiled.launches, {})
    return {
        (
            launches[edge.before].name.rpartition("_")[0],
            launches[edge.after].name.rpartition("_")[0],
        )
        for edge in order(launches)
    }


def two_writes(first: int, second: Any, axis: int = 0) -> Callable[..., Any]:
    def function(state: Any, x: Any, found: Any) -> list[Any]:
        at = found if second is None else np.int64(second)
        state.write(x[_rows(axis, 0, 2)].cumsum(0), np.int64(first), axis)
        state.write(x[_rows(axis, 2, 2)].cummax(0), at, axis)
        return []

    return function


def test_writes_of_other_rows_do_not_wait_for_each_other() -> None:
    assert ("update_slice", "update_slice") not in data_edges(two_writes(0, 2))
    assert ("update_slice", "update_slice") not in data_edges(two_writes(4, 2))


@pytest.mark.parametrize(("second", "axis"), [(1, 0), (None, 0), (2, 1)])
def test_writes_of_the_same_bytes_or_of_bytes_between_wait(second: Any, axis: int) -> None:
    assert ("update_slice", "update_slice") in data_edges(two_writes(0, second, axis))


def test_a_read_waits_for_the_write_of_its_rows_alone() -> None:
    def function(state: Any, x: Any, found: Any) -> list[Any]:
        state.write(x[:2].cumsum(0), np.int64(0))
        before = state.value[2:4].sum(axis=0)
        state.write(x[2:4].cummax(0), np.int64(2))
        return [before, state.value[:2].prod(axis=0), state.value[1:3].max(axis=0)]

    edges = data_edges(function)
    assert ("update_slice", "prod") in edges
    assert ("update_slice", "max") in edges
    assert ("sum", "update_slice") in edges  # of the rows it has read
    assert ("update_slice", "sum") not in edges
    assert ("update_slice", "update_slice") not in edges


def test_a_part_that_is_declared_too_small_is_named() -> None:
    def function(state: Any, x: Any, found: Any) -> list[Any]:
        state.write(x[:2], np.int64(2))
        return [state.value[2:].sum(axis=0)]

    graph, compiled = compiled_for(function, "memory")
    row = 8 * SHAPE[1]
    for op, parts in (("update_slice", (2 * row, 3 * row)), ("sum", (3 * row, 6 * row))):
        wrong = tuple(
            launch._replace(parts=tuple((k, *parts) for k, _, _ in launch.parts))
            if launch.name.startswith(op)
            else launch
            for launch in compiled.launches
        )
        assert wrong != compiled.launches
        with (
            Executable(graph, compiled._replace(launches=wrong), 1) as program,
            pytest.raises(UndeclaredAccess, match=op),
        ):
            program.run_checked(np.ones(SHAPE, np.int64), np.asarray(0))
