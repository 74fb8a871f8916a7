"""Plans made for concurrency: no launch waits for bytes, judged by brute force on values alone.

The judge knows of values what reads and writes them, and of tables who waits for whom; it looks at
no address, no tick and no lifetime.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import arenite
from arenite import ir
from arenite.errors import DoesNotFit, InvalidArgument
from arenite.ir import reference
from arenite.ir.graph import Graph
from arenite.memory import MemoryPlan
from arenite.pipeline import compile_anew, compile_graph
from arenite.program.compiled import Compiled
from arenite.program.launch import Launch
from arenite.program.options import Options
from arenite.runtime.executable import Executable
from tests.pipeline.control_graphs import ControlMaker
from tests.pipeline.graphs import FLOAT32, random_array, square_graph
from tests.pipeline.loaded import loaded
from tests.pipeline.test_delays import delayed_runs, undelayed
from tests.pipeline.test_plan import check_sizes, dynamic_graph, in_place
from tests.pipeline.test_random_state import Program as StateProgram
from tests.pipeline.test_waits import before, has_race, touched
from tests.pipeline.trial import run_poisoned

SIZE = 40


def squares(seed: int) -> list[NDArray[Any]]:
    return [random_array((SIZE, SIZE), FLOAT32, seed + k) for k in (10, 20)]


def conflict(a: Launch, b: Launch) -> bool:
    """Whether one of two launches writes a value that the other touches."""
    return bool({*a.writes} & {*b.reads, *b.writes} or {*b.writes} & {*a.reads, *a.writes})


def before_by_data(launches: Sequence[Launch]) -> list[set[int]]:
    """For each launch those that data alone puts before it, and worker 0's own order."""
    known: list[set[int]] = []
    last_alone: int | None = None
    for k, launch in enumerate(launches):
        earlier = {j for j in range(k) if conflict(launches[j], launch)}
        if not launch.is_shared:
            earlier |= set() if last_alone is None else {last_alone}
            last_alone = k
        known.append(earlier.union(*(known[one] for one in earlier)))
    return known


def both(graph: Graph) -> tuple[Compiled, Compiled]:
    return compile_anew(graph), compile_anew(graph, Options(plan="concurrency"))


def extra_waits(program: Executable) -> set[tuple[int, int]]:
    """Pairs that the table orders and data does not."""
    table = loaded(program).assembly.table(loaded(program).binder.places(program.plan))
    pairs = enumerate(zip(before(table), before_by_data(program.compiled.launches), strict=True))
    return {(one, k) for k, (kept, needed) in pairs for one in kept - needed}


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("seed", range(8))
def test_no_launch_waits_for_bytes(seed: int) -> None:
    graph = square_graph(seed, 40, SIZE)
    small, wide = both(graph)
    results = []
    for compiled in (small, wide):
        for threads in (1, 2):
            with Executable(graph, compiled, threads) as program:
                program.verify()
                table = loaded(program).assembly.table(loaded(program).binder.places(program.plan))
                assert not has_race(table, touched(program))
                results.append([run_poisoned(program, *squares(run)) for run in range(3)])
                if compiled is wide:
                    assert not extra_waits(program)
    for other in results[1:]:
        for one, same in zip(results[0], other, strict=True):
            assert all(a.tobytes() == b.tobytes() for a, b in zip(one, same, strict=True))
    for got, wanted in zip(results[0][0], reference.evaluate(graph, squares(0)), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("seed", range(4))
def test_delays_change_no_bit(seed: int) -> None:
    """With every launch beside others that data lets run, in one order or another."""
    graph = square_graph(seed, 30, SIZE)
    small, wide = both(graph)
    plain = [one.tobytes() for one in undelayed(graph, small, squares(seed))]
    for threads in (2, 4):
        for found in delayed_runs(graph, wide, squares(seed), threads, 6):
            assert found == plain


@pytest.mark.usefixtures("shared")
def test_the_price_is_what_the_judge_finds() -> None:
    """Of the plan for memory some waits are for bytes alone, or the test above would show
    nothing; each is counted where no others imply it."""
    n_extra = n_counted = 0
    more = []
    for seed in range(12):
        graph = square_graph(seed, 40, SIZE)
        small, wide = both(graph)
        with Executable(graph, small, 2) as program:
            extra = extra_waits(program)
        assert bool(extra) == bool(small.plan.reuse_edges)
        assert small.plan.reuse_edges <= len(extra)
        n_extra += len(extra)
        n_counted += small.plan.reuse_edges
        assert (small.plan.objective, wide.plan.objective) == ("memory", "concurrency")
        assert wide.plan.reuse_edges == 0
        assert small.plan.instead is None
        assert wide.plan.instead is not None
        assert wide.plan.instead.peak_nbytes == small.plan.peak_nbytes
        assert wide.plan.instead.reuse_edges == small.plan.reuse_edges
        more.append(wide.plan.peak_nbytes - small.plan.peak_nbytes)
    assert n_counted > 10
    assert n_extra > n_counted
    assert sum(more) > 0


@pytest.mark.usefixtures("shared")
def test_bytes_are_reused_all_the_same() -> None:
    """One after the other, and in place where whoever reads them too is over by then."""
    n_alias = 0
    for seed in range(12):
        plan = compile_anew(square_graph(seed, 40, SIZE), Options(plan="concurrency")).plan
        plan.verify()
        work = [slot.nbytes for slot in plan.slots.values() if slot.region == "work"]
        assert plan.peak_nbytes < sum(work)
        n_alias += sum(slot.alias_of is not None for slot in plan.slots.values())
        assert not in_place(plan)
    assert n_alias > 4


@pytest.mark.usefixtures("shared")
def test_two_branches_have_bytes_of_their_own() -> None:
    """Two chains of sorts side by side: for memory they share bytes, here they do not."""
    x = ir.graph_input("x", 0, (8, 100), FLOAT32)
    ends = []
    for k in (1, 2):
        y = ir.make("mul", x, ir.full(x.shape, float(k), FLOAT32))
        for n in range(4):
            y = ir.make("sort", ir.make("tanh", y), axis=1, descending=bool(n % 2))
        ends.append(ir.make("cummax", y, axis=1))
    graph = Graph((x,), (ir.make("sub", *ends),))
    small, wide = both(graph)
    assert small.plan.reuse_edges > 0
    launches = wide.launches
    known = before_by_data(launches)
    beside = [(a, b) for a, b in combinations(range(len(launches)), 2) if a not in known[b]]
    assert beside
    for a, b in beside:
        for one in launches[a].writes:
            for other in (*launches[b].reads, *launches[b].writes):
                assert one == other or are_apart(wide, int(one), int(other))
    with Executable(graph, wide, 2) as program:
        program.verify()
        given = random_array((8, 100), FLOAT32, 1)
        [got] = run_poisoned(program, given)
    np.testing.assert_allclose(got, reference.evaluate(graph, [given])[0], rtol=1e-5, atol=1e-6)


def are_apart(compiled: Compiled, one: int, other: int) -> bool:
    a, b = (compiled.plan.slots[compiled.values[k].name] for k in (one, other))
    return a.region != b.region or a.end <= b.offset or b.end <= a.offset


@pytest.mark.usefixtures("shared")
def test_sizes_that_come_with_a_call() -> None:
    graph = dynamic_graph()
    compiled = compile_anew(graph, Options(plan="concurrency"))
    with Executable(graph, compiled, 2) as program:
        for rows, columns, n in ((40, 300, 9), (1, 1, 1), (7, 64, 0), (3, 0, 2), (40, 65, 5)):
            check_sizes(program, rows, columns, n)


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("seed", range(8))
def test_branches_and_loops(seed: int) -> None:
    maker = ControlMaker(seed)
    graph = maker.make()
    compiled = compile_anew(graph, Options(plan="concurrency"))
    for threads in (1, 2):
        with Executable(graph, compiled, threads) as program:
            program.verify()
            for run in range(3):
                arrays = maker.arrays(run)
                results = run_poisoned(program, *arrays)
                for got, wanted in zip(results, reference.evaluate(graph, arrays), strict=True):
                    assert got.tobytes() == wanted.tobytes()


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("seed", range(12))
def test_states_become_what_they_do_for_memory(seed: int) -> None:
    """Which the reference judges, in `test_random_state`."""
    graph = StateProgram(seed).graph()
    rng = np.random.default_rng(seed)
    small, wide = both(graph)
    with Executable(graph, small, 1) as one, Executable(graph, wide, 2) as two:
        two.verify()
        for _ in range(3):
            given = [rng.integers(-99, 99, shape) for shape in ((6, 4), (2, 4))]
            at = np.asarray(rng.integers(0, 5))
            for a, b in zip(one(*given, at), two(*given, at), strict=True):
                assert a.tobytes() == b.tobytes()
        for state in graph.states:
            name = state.attr("name")
            assert one.state[name].numpy().tobytes() == two.state[name].numpy().tobytes()


def test_the_plan_prints_and_saves_what_it_was_made_for_and_its_price() -> None:
    def twice(x: arenite.Tensor) -> arenite.Tensor:
        return x.sort(axis=1) + (x * 2).sort(axis=0)

    given = random_array((300, 300), FLOAT32, 1)
    with (
        arenite.compile(twice, given) as small,
        arenite.compile(twice, given, plan="concurrency") as wide,
    ):
        assert "made for memory" in str(small.plan)
        more = wide.plan.peak_nbytes - small.plan.peak_nbytes
        assert more > 0
        edges = small.plan.reuse_edges
        assert f"made for memory: {edges} waits are there for reuse alone" in str(small.plan)
        made_for = "made for concurrency: no launch waits for reuse alone"
        price = f"{more} bytes more than made for memory, with {edges} such waits"
        assert f"{made_for}; {price}" in str(wide.plan)
        assert MemoryPlan.from_json(wide.plan.to_json()) == wide.plan
        assert small(given).tobytes() == wide(given).tobytes()


def test_a_budget_that_only_the_plan_for_memory_meets() -> None:
    def twice(x: arenite.Tensor) -> arenite.Tensor:
        return x.sort(axis=1) + (x * 2).sort(axis=0)

    given = random_array((300, 300), FLOAT32, 1)
    with arenite.compile(twice, given) as small:
        least = small.plan.total_nbytes
    with arenite.compile(twice, given, memory=least):
        pass
    with pytest.raises(DoesNotFit, match="plan='memory'"):
        arenite.compile(twice, given, memory=least, plan="concurrency")


def test_another_word_is_refused() -> None:
    x = ir.graph_input("x", 0, (2,), FLOAT32)
    with pytest.raises(InvalidArgument, match="memory or concurrency, not for 'speed'"):
        compile_graph(Graph((x,), (ir.make("neg", x),)), Options(plan="speed"))
