"""Memory of whole programs: what is reused, what is left over, and what is never relied on.

Every run here begins with an arena full of 0xFF: NaN to a float, -1 to an integer. A kernel that
reads what nobody wrote, or that writes a byte too many, changes a result.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from arenite import ir
from arenite.backends.cpu import compile  # noqa: A004
from arenite.errors import DoesNotFit
from arenite.ir import Var, reference
from arenite.ir.graph import Graph
from arenite.ir.node import Node
from arenite.ir.regions import loop
from arenite.memory import MemoryPlan, planner
from arenite.pipeline import build, compile_anew, compile_graph, planning
from arenite.program.options import Options
from arenite.runtime.executable import Executable
from tests.pipeline.graphs import FLOAT32, INT64, random_array, square_graph
from tests.pipeline.loaded import loaded
from tests.pipeline.trial import run_poisoned

Array = NDArray[Any]

#: Of both axes of the values in random graphs.
SIZE = 40


def x_of(*shape: ir.Dim, index: int = 0) -> Node:
    return ir.graph_input(f"x{index}", index, shape, FLOAT32)


def in_place(plan: MemoryPlan) -> list[str]:
    """The values that lie in the bytes of one that ends where they begin."""
    return [str(slot.id) for slot in plan.slots.values() if slot.took_over is not None]


def chain_of_sorts(n: int, *shape: int) -> Graph:
    """Sorting reads and writes memory, so every step between is a value with bytes of its own."""
    y = x = x_of(*shape)
    for k in range(n):
        y = ir.make("sort", ir.make("tanh", y), axis=1, descending=bool(k % 2))
    return Graph((x,), (y,))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.usefixtures("shared")
def test_random_graphs_with_all_work_shared(seed: int) -> None:
    graph = square_graph(seed, 40, SIZE)
    compiled = compile_anew(graph)
    results = []
    for threads in (1, 2):
        with Executable(graph, compiled, threads) as program:
            for run in range(5):
                results.append(run_poisoned(program, *squares(run)))
            program.verify()
    for one, other in zip(results[:5], results[5:], strict=True):
        for a, b in zip(one, other, strict=True):
            assert a.tobytes() == b.tobytes(), "one and two threads differ"
    for got, wanted in zip(results[0], reference.evaluate(graph, squares(0)), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-3)


def squares(seed: int) -> list[Array]:
    return [random_array((SIZE, SIZE), FLOAT32, seed + k) for k in (10, 20)]


@pytest.mark.usefixtures("shared")
def test_the_random_graphs_share_work_and_reuse_bytes() -> None:
    """Or the test above would show nothing."""
    n_launches = n_shared = n_in_place = 0
    for seed in range(4):
        compiled = compile_anew(square_graph(seed, 40, SIZE))
        n_launches += len(compiled.launches)
        n_shared += sum(launch.is_shared for launch in compiled.launches)
        n_in_place += len(in_place(compiled.plan))
        work = [slot.nbytes for slot in compiled.plan.slots.values() if slot.region == "work"]
        assert compiled.plan.peak_nbytes < sum(work)
    assert n_launches > 40
    assert n_shared > n_launches / 2
    assert n_in_place > 4


def test_a_map_takes_over_the_bytes_of_what_dies_in_it() -> None:
    graph = chain_of_sorts(3, 8, 100)
    with compile_graph(graph) as program:
        assert any(value.startswith("tanh") for value in in_place(program.plan))
        [result] = run_poisoned(program, random_array((8, 100), FLOAT32, 1))
    [wanted] = reference.evaluate(graph, [random_array((8, 100), FLOAT32, 1)])
    np.testing.assert_allclose(result, wanted, rtol=1e-5)


def test_nothing_takes_over_what_is_read_elsewhere_too() -> None:
    """Its transpose is read at other places than where the result is written."""
    x = x_of(64, 64)
    y = ir.make("sort", ir.make("tanh", x), axis=1, descending=False)
    z = ir.make("add", y, ir.make("permute", y, axes=(1, 0)))
    graph = Graph((x,), (ir.make("sort", z, axis=0, descending=True),))
    with compile_graph(graph, threads=2) as program:
        assert not any(value.startswith("add") for value in in_place(program.plan))
        given = random_array((64, 64), FLOAT32, 2)
        [result] = run_poisoned(program, given)
        program.verify()
    np.testing.assert_allclose(result, reference.evaluate(graph, [given])[0], atol=1e-6)


def test_the_arena_does_not_grow_with_the_depth() -> None:
    peaks = []
    for n in (4, 16):
        with compile_graph(chain_of_sorts(n, 8, 100)) as program:
            peaks.append(program.plan.peak_nbytes)
    assert peaks[0] == peaks[1]


def test_scratch_is_named_counted_and_lives_for_one_launch() -> None:
    x = x_of(100, 1000)
    graph = Graph((x,), (ir.make("sort", x, axis=1, descending=False),))
    with compile_graph(graph) as program:
        [(name, slot)] = [
            (name, slot) for name, slot in program.plan.slots.items() if "scratch" in str(name)
        ]
        assert name == f"{program.kernels[0].entry_point}.scratch0"
        tiles = program.kernels[0].global_size[0]
        assert slot.nbytes == tiles * 1000 * 2 * 8, "each tile has room for a line, twice"
        assert program.plan.peak_nbytes >= slot.nbytes
        assert slot.lifetime.end - slot.lifetime.start == 1


def test_a_budget_too_small_is_refused_with_what_fills_it() -> None:
    graph = chain_of_sorts(2, 64, 1000)
    with pytest.raises(MemoryError, match="scratch"):
        compile_graph(graph, Options(memory=600_000))


def test_a_budget_counts_everything() -> None:
    """Arena, inputs, outputs and weights: the least that works is the plan's total."""
    weights = np.ones((64, 64), np.float32)
    x = x_of(40, 64)
    product = ir.make("matmul", x, ir.buffer(weights), transpose_a=False, transpose_b=False)
    graph = Graph((x,), (ir.make("sort", product, axis=1, descending=False),))
    with compile_graph(graph) as program:
        total = program.plan.total_nbytes
    assert total >= weights.nbytes + 2 * 40 * 64 * 4
    with compile_graph(graph, Options(memory=total)) as program:
        assert program.plan.total_nbytes <= total
    for memory, named in ((40_000, "scratch"), (1000, r"inputs, .* x0 \(10240\)"), (0, "x0")):
        with pytest.raises(DoesNotFit, match=named) as refused:
            compile_graph(graph, Options(memory=memory))
        assert refused.value.capacity == memory
        assert {"x0", "out0"} <= {name for name, _ in refused.value.live}
        compile_graph(graph, Options(memory=refused.value.smallest_known)).close()


# Sizes that are known when the program is called.


def dynamic_graph() -> Graph:
    """A scan, a sort, a norm, a matmul and a gather over rows and columns that are both open."""
    rows, columns = Var("rows", 1, 40), Var("columns", 0, 300)
    x, w = x_of(rows, columns), x_of(columns, 7, index=1)
    places = ir.graph_input("places", 2, (Var("n", 0, 9),), INT64)
    y = ir.make("sort", ir.make("tanh", x), axis=1, descending=True)
    total = ir.make("sum", y, axes=(1,))
    centred = ir.make(
        "sub", y, ir.make("expand", ir.make("reshape", total, shape=(rows, 1)), shape=y.shape)
    )
    mixed = ir.make("matmul", centred, w, transpose_a=False, transpose_b=False)
    picked = ir.make("gather", ir.make("cumsum", mixed, axis=0), places, axis=0)
    joined = ir.make("concat", centred, x, axis=1)
    return Graph((x, w, places), (picked, joined, ir.make("max", joined, axes=(0,))))


def check_sizes(program: Executable, rows: int, columns: int, n: int) -> None:
    """A program of `dynamic_graph`, over a poisoned arena, by the reference."""
    given = [
        random_array((rows, columns), FLOAT32, rows),
        random_array((columns, 7), FLOAT32, columns),
        np.arange(n) % rows,
    ]
    results = run_poisoned(program, *given)
    for got, wanted in zip(results, reference.evaluate(program.graph, given), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)
    program.verify()


def test_plans_for_several_sizes_in_turn() -> None:
    graph = dynamic_graph()
    with compile_graph(graph, threads=2) as program:
        largest = program.plan.peak_nbytes
        for rows, columns, n in (
            (1, 1, 1), (40, 300, 9), (7, 64, 0), (3, 0, 2), (40, 65, 5), (1, 300, 9), (7, 64, 0)
        ):  # fmt: skip
            check_sizes(program, rows, columns, n)
            bound = loaded(program).binder.bound[(columns, n, rows)].plan
            bound.verify()
            assert bound.peak_nbytes <= largest
            scratch = [s.nbytes for name, s in bound.slots.items() if "scratch" in str(name)]
            assert scratch, "scratch follows the sizes too"
            assert all(nbytes <= 16 * rows * columns for nbytes in scratch)
        assert program.plan.peak_nbytes == largest, "the plan at the largest sizes stays"


def test_for_a_new_size_nothing_is_compiled_or_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("the plan of the largest sizes and its code serve all others")

    with compile_graph(dynamic_graph()) as program:
        for module, name in (
            (build, "build"),
            (compile, "linked_kernels"),
            (planning, "planned"),
            (planner, "_place_region"),
        ):
            monkeypatch.setattr(module, name, never)
        for rows in range(1, 15):
            x, w = random_array((rows, 50), FLOAT32, 1), random_array((50, 7), FLOAT32, 2)
            program(x, w, np.zeros(0, np.int64))
            assert program.n_binds == rows


# Size of a program.


def test_a_chain_of_a_hundred_thousand_nodes() -> None:
    x = x_of(8)
    half = ir.full((8,), 0.5, FLOAT32)
    y = x
    for _ in range(50_000):
        y = ir.make("mul", ir.make("add", y, half), half)
    graph = Graph((x,), (y,))
    compiled = compile_anew(graph)
    with Executable(graph, compiled) as program:
        [result] = run_poisoned(program, np.ones(8, np.float32))
    np.testing.assert_allclose(result, np.full(8, 0.5), rtol=1e-6)


def test_scratch_for_images_of_a_size_known_later() -> None:
    """As much as the largest image takes, or a little more: blocks are cut otherwise."""
    weights = ir.constant(np.ones((128, 128, 3, 3), np.float32))
    attrs = {"strides": (1, 1), "dilations": (1, 1), "padding": ((1, 1), (1, 1)), "groups": 1}

    def peak(size: ir.Dim) -> int:
        graph = Graph.of([ir.make("conv", x_of(1, 128, size, size), weights, **attrs)])
        return build.plan_program(graph, Options(winograd=False)).plan.peak_nbytes

    assert peak(Var("size", 1, 70)) < 3 * peak(70)


def test_loops_short_of_memory_are_verified_as_they_were_made() -> None:
    """Without packed weights: verifying looks at the kernels that there are."""
    weights = np.random.default_rng(0).integers(-1, 2, (70, 70)).astype(np.float32)
    x, number, carried = x_of(40, 70), ir.parameter((), INT64), ir.parameter((40, 70), FLOAT32)
    product = ir.make("matmul", carried, ir.buffer(weights), transpose_a=False, transpose_b=False)
    [last] = loop(ir.size(3, INT64), [x], ((number, carried), [product]))
    graph = Graph((x,), (last,))
    usual = compile_anew(graph)
    tight = compile_anew(graph, Options(usual.plan.total_nbytes - 1))  # panels are padded
    assert usual.load
    assert not tight.load
    given = np.random.default_rng(1).integers(-2, 3, (40, 70)).astype(np.float32)
    for compiled in (usual, tight):
        with Executable(graph, compiled) as program:
            program.verify()
            [found] = run_poisoned(program, given) if compiled is tight else program(given)
            np.testing.assert_array_equal(found, given @ weights @ weights @ weights)
