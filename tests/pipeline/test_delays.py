"""Random graphs with random delays in their launches: any number of threads, the same bits.

All work is shared and cut into small tiles, and the arena holds nothing of use when a run begins:
a launch that does not wait for what it needs shows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import arenite
from arenite import Var, spec
from arenite.backends.cpu.execution import binding
from arenite.ir import reference
from arenite.ir.graph import Graph
from arenite.pipeline import compile_anew
from arenite.program.compiled import Compiled
from arenite.runtime.executable import Executable
from tests.pipeline.control_graphs import ControlMaker
from tests.pipeline.delays import MAX_STEPS, DelayedTable, workers_that_join
from tests.pipeline.graphs import FLOAT32, GraphMaker, random_array, square_graph
from tests.pipeline.trial import run_poisoned

Array = NDArray[Any]

pytestmark = pytest.mark.usefixtures("shared")

SIZE = 24


def squares(seed: int) -> list[Array]:
    return [random_array((SIZE, SIZE), FLOAT32, seed + k) for k in (10, 20)]


def delayed_runs(
    graph: Graph, compiled: Compiled, arrays: list[Array], threads: int, n_runs: int
) -> list[list[bytes]]:
    """The bytes of all outputs, run by run, each with other delays."""
    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(binding, "BoundTable", DelayedTable)
        with Executable(graph, compiled, threads) as program:
            for seed in range(n_runs):
                patch.setattr(DelayedTable, "seed", 7919 * seed)
                found.append([one.tobytes() for one in run_poisoned(program, *arrays)])
    return found


def undelayed(graph: Graph, compiled: Compiled, arrays: list[Array]) -> list[Array]:
    with Executable(graph, compiled, 1) as program:
        return run_poisoned(program, *arrays)


def compiled_from(function: Any, *specs: Any) -> tuple[Graph, Compiled]:
    """The graph of a function of tensors, compiled anew: with all of its work shared."""
    with arenite.compile(function, *specs) as program:
        graph: Graph = program.executable.graph
    return graph, compile_anew(graph)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("threads", [2, 4])
def test_delays_change_no_bit(seed: int, threads: int) -> None:
    graph, arrays = square_graph(seed, 30, SIZE), squares(seed)
    compiled = compile_anew(graph)
    results = undelayed(graph, compiled, arrays)
    for got, wanted in zip(results, reference.evaluate(graph, arrays), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-3)
    plain = [one.tobytes() for one in results]
    for found in delayed_runs(graph, compiled, arrays, threads, 6):
        assert found == plain


@pytest.mark.parametrize("seed", range(4))
def test_delays_change_no_bit_of_graphs_of_all_shapes(seed: int) -> None:
    maker = GraphMaker(seed)
    graph = maker.make(60)
    arrays = maker.arrays(seed)
    compiled = compile_anew(graph)
    plain = [one.tobytes() for one in undelayed(graph, compiled, arrays)]
    for threads in (2, 4):
        for found in delayed_runs(graph, compiled, arrays, threads, 3):
            assert found == plain


@pytest.mark.parametrize("threads", [2, 4])
def test_delays_change_no_bit_of_sizes_that_come_and_go(threads: int) -> None:
    rows, columns = Var("rows", 1, 40), Var("columns", 1, 60)

    def function(x: Any, w: Any) -> Any:
        y = x.tanh().sort(1)
        return (y @ w).cumsum(0), (y - y.max(0)).sum(1)

    arrays = [
        [random_array((n, m), FLOAT32, n), random_array((m, 5), FLOAT32, m)]
        for n, m in ((1, 1), (40, 60), (7, 33), (23, 60), (40, 60), (7, 33))
    ]
    graph, compiled = compiled_from(function, spec((rows, columns)), spec((columns, 5)))
    plain = [[one.tobytes() for one in undelayed(graph, compiled, given)] for given in arrays]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(binding, "BoundTable", DelayedTable)
        with Executable(graph, compiled, threads) as program:
            for seed, (given, wanted) in enumerate(zip(arrays, plain, strict=True)):
                patch.setattr(DelayedTable, "seed", 104729 * seed)
                assert [one.tobytes() for one in run_poisoned(program, *given)] == wanted


@pytest.mark.parametrize("threads", [2, 4])
def test_delays_change_no_bit_of_loops_and_branches(threads: int) -> None:
    def function(x: Any, n: Any) -> Any:
        def body(k: Any, carried: Any) -> Any:
            y, total = carried
            y = (y @ x).tanh().sort(0)
            return y, total + arenite.cond(k % 2 == 0, lambda: y.cumsum(1), lambda: (y * 2).sort(1))

        return arenite.fori_loop(n, body, (x, x * 0))

    x, n = random_array((SIZE, SIZE), FLOAT32, 1), np.array(5)
    graph, compiled = compiled_from(function, x, n)
    plain = [one.tobytes() for one in undelayed(graph, compiled, [x, n])]
    for found in delayed_runs(graph, compiled, [x, n], threads, 8):
        assert found == plain


@pytest.mark.parametrize("seed", range(6))
def test_delays_change_no_bit_of_random_loops_and_branches(seed: int) -> None:
    maker = ControlMaker(seed)
    graph, arrays = maker.make(), maker.arrays(seed)
    compiled = compile_anew(graph)
    plain = [one.tobytes() for one in reference.evaluate(graph, arrays)]
    for threads in (2, 4):
        for found in delayed_runs(graph, compiled, arrays, threads, 4):
            assert found == plain


def test_without_waits_a_graph_goes_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the tests above would show nothing."""
    monkeypatch.setattr(DelayedTable, "keeps_waits", False)
    for seed in range(20):
        # Where other processes take the cores, a thread may be stopped at any moment.
        monkeypatch.setattr(DelayedTable, "max_steps", MAX_STEPS << seed // 2)
        graph, arrays = square_graph(seed, 30, SIZE), squares(seed)
        compiled = compile_anew(graph)
        plain = [one.tobytes() for one in undelayed(graph, compiled, arrays)]
        with workers_that_join():
            if any(found != plain for found in delayed_runs(graph, compiled, arrays, 2, 6)):
                return
    raise AssertionError("20 graphs without any order came out right: the judge sees nothing")
