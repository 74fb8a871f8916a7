"""An arena over several buffers: where it is cut, and programs whose arenas no binding holds."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arenite.backends.webgpu.arena_cuts import Stretch, stretches
from arenite.dtype import BY_NAME
from arenite.errors import DoesNotFit
from arenite.ir import graph_input, make, reference
from arenite.ir.graph import Graph
from arenite.memory import MemoryPlan, Slot, Value, plan
from arenite.memory.values import ARENA_REGIONS
from arenite.pipeline import compile_graph
from arenite.tensor import State, Tensor
from tests.backends.webgpu.runner import ON_WEBGPU, Array, executable, loaded, webgpu
from tests.backends.webgpu.test_random_graphs import BOUND, TIPPED
from tests.memory.problems import values
from tests.pipeline.graphs import GraphMaker

F32 = BY_NAME["float32"]


def place(cut: list[Stretch], slot: Slot) -> tuple[int, int]:
    """The buffer of a value, and the byte it begins at there."""
    k = max(k for k, one in enumerate(cut) if one.begin <= slot.offset)
    return k, slot.offset - cut[k].begin


def owner(plan: MemoryPlan, slot: Slot) -> Slot:
    while slot.alias_of is not None:
        slot = plan.slots[slot.alias_of]
    return slot


@given(values(), st.integers(1, 40))
def test_values_stay_apart_and_what_shares_bytes_stays_together(
    made: list[Value], largest: int
) -> None:
    planned = plan(made)
    cut = stretches(planned, largest)
    slots = [s for s in planned.slots.values() if s.region in ARENA_REGIONS and s.capacity]
    reached = [0] * len(cut)
    for slot in slots:
        k, at = place(cut, slot)
        assert at + slot.capacity <= cut[k].nbytes
        reached[k] = max(reached[k], at + slot.capacity)
    assert reached == [one.nbytes for one in cut] or planned.peak_nbytes <= largest
    for one, other in combinations(slots, 2):
        (a, begin), (b, after) = place(cut, one), place(cut, other)
        if owner(planned, one) is owner(planned, other):
            assert a == b
            assert after - begin == other.offset - one.offset
        elif a == b:
            # As far from each other as in the plan, which holds them apart while both live.
            assert after - begin == other.offset - one.offset


@given(values(), st.integers(24, 60))
def test_a_buffer_is_too_large_only_for_a_value_that_is(made: list[Value], largest: int) -> None:
    alone = [value._replace(takes_over=()) for value in made if value.alias is None]
    planned = plan(alone)
    for stretch in stretches(planned, largest):
        assert stretch.nbytes <= largest


def test_where_nothing_reaches_over_no_byte_is_lost() -> None:
    from arenite.memory import Lifetime

    made = [Value(k, 64, Lifetime(0, 9)) for k in range(10)]
    cut = stretches(plan(made), 200)
    assert [one.nbytes for one in cut] == [192, 192, 192, 64]


def network(rows: int) -> list[Array]:
    rng = np.random.default_rng(0)
    return [rng.integers(-2, 3, (rows, 64)).astype(np.float32) for _ in range(6)]


def test_work_values_beyond_one_binding_are_in_several_buffers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Sums of products of six arrays, all of which live to the end: whole numbers, so exact."""
    gpu, arrays = webgpu(), network(32)
    inputs = [graph_input(f"x{k}", k, (32, 64), F32) for k in range(6)]
    squares = [
        make("matmul", a, b, transpose_a=False, transpose_b=True) for a, b in pairwise(inputs)
    ]
    total = squares[0]
    for one in squares[1:]:
        total = make("add", make("neg", total), one)
    expected = [a @ b.T for a, b in pairwise(arrays)]
    wanted = expected[0]
    for exact in expected[1:]:
        wanted = exact - wanted
    monkeypatch.setattr(gpu, "limits", gpu.limits._replace(binding_nbytes=20_000))
    with executable([total]) as program:
        regions = loaded(program).regions
        assert program.plan.peak_nbytes > 20_000
        assert len(regions.arena) > 1
        assert all(one.gpu.size <= 20_000 for one in regions.arena)
        for results in (program(*arrays), program.run_checked(*arrays)):
            assert np.array_equal(results[0], wanted)
        program.verify()
        assert program.profile(*arrays).kernels


def test_states_beyond_one_binding_are_in_several_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    import arenite

    gpu = webgpu()
    monkeypatch.setattr(gpu, "limits", gpu.limits._replace(binding_nbytes=9_000))
    sums = [State((2000,), "float32", name=f"sum{k}") for k in range(3)]

    def step(x: Tensor) -> Tensor:
        for k, one in enumerate(sums):
            one.set(one.value + x * float(k + 1))
        return sums[0].value + sums[2].value

    x = np.arange(2000, dtype=np.float32)
    with arenite.compile(step, x, device="webgpu") as run:
        for turn in (1, 2, 3):
            np.testing.assert_array_equal(run(x), 4 * turn * x)
        np.testing.assert_array_equal(run.state["sum1"].numpy(), 6 * x)
        run.state["sum2"].load(np.ones(2000, np.float32))
        np.testing.assert_array_equal(run(x), 4 * x + 1 + 3 * x)


@pytest.mark.parametrize("seed", range(3))
def test_random_graphs_in_an_arena_of_many_buffers(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu, maker = webgpu(), GraphMaker(seed)
    graph = maker.make(40)
    arrays = maker.arrays(seed)
    with compile_graph(graph, ON_WEBGPU) as program:
        slots = program.plan.slots.values()
        largest = max(slot.capacity for slot in slots if slot.region in ARENA_REGIONS)
        whole = program(*arrays)
        n_bytes = program.plan.peak_nbytes
    if n_bytes <= largest:
        pytest.skip("one value is all there is in this arena")
    limits = gpu.limits._replace(binding_nbytes=-(-largest // 256) * 256)
    monkeypatch.setattr(gpu, "limits", limits)
    with compile_graph(graph, ON_WEBGPU) as program:
        assert len(loaded(program).regions.arena) > 1
        found, checked = program(*arrays), program.run_checked(*arrays)
    for one, again, other, wanted in zip(
        found, checked, whole, reference.evaluate(graph, arrays), strict=True
    ):
        assert one.tobytes() == again.tobytes() == other.tobytes()
        near = np.isclose(one, wanted, rtol=BOUND, atol=BOUND, equal_nan=True)
        assert np.count_nonzero(~near) <= TIPPED * near.size


def test_a_value_beyond_one_binding_is_refused_with_its_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpu = webgpu()
    monkeypatch.setattr(gpu, "limits", gpu.limits._replace(binding_nbytes=1024))
    x = graph_input("x", 0, (300,), F32)
    with pytest.raises(DoesNotFit, match=r"largest value .*12\d\d bytes; .* binds 1024 at once"):
        compile_graph(Graph.of([make("neg", x)]), ON_WEBGPU)
