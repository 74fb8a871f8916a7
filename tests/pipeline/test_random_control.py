"""Random graphs with ifs and loops in each other, against the oracle, bit for bit."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arenite import pipeline
from arenite.ir import Dim, Var, evaluate, verify
from arenite.ir.graph import Graph
from arenite.passes import run
from arenite.pipeline import compile_anew, program
from arenite.pipeline.program import compile_program
from arenite.runtime.executable import Executable
from arenite.schedule import branches_of_ifs
from tests.passes.lists import PASSES
from tests.pipeline.control_graphs import SIZE, ControlMaker
from tests.pipeline.trial import run_poisoned


@given(st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_passes_and_outlining_change_nothing(seed: int) -> None:
    maker = ControlMaker(seed)
    graph = maker.make()
    verify(graph)
    arrays = maker.arrays(seed)
    expected = [array.tobytes() for array in evaluate(graph, arrays)]
    for record in run(graph, PASSES)[1]:
        verify(record.graph)
        assert [a.tobytes() for a in evaluate(record.graph, arrays)] == expected, record.name
    branched = branches_of_ifs(run(graph, PASSES)[0])
    verify(branched)
    assert not any(node.op == "if" for node in branched.everything)
    assert [a.tobytes() for a in evaluate(branched, arrays)] == expected


def check(seed: int, size: Dim = SIZE, sizes: tuple[int, ...] = (SIZE, SIZE, SIZE)) -> None:
    maker = ControlMaker(seed, size)
    graph = maker.make()
    program = compile_anew(graph)
    for threads in (1, 2):
        with Executable(graph, program, threads) as executable:
            executable.verify()
            for run_seed, n in enumerate(sizes):
                arrays = maker.arrays(run_seed, n)
                results = run_poisoned(executable, *arrays)
                expected = evaluate(graph, arrays)
                for result, wanted in zip(results, expected, strict=True):
                    assert result.tobytes() == wanted.tobytes(), f"seed {seed}\n{graph}"
            executable.verify()


@given(st.integers(0, 2**32))
@settings(max_examples=25, deadline=None)
def test_compiled_they_give_what_the_oracle_gives(seed: int) -> None:
    check(seed)


@given(st.integers(0, 2**32))
@settings(max_examples=15, deadline=None)
def test_with_a_size_that_is_a_variable(seed: int) -> None:
    check(seed, Var("n", 1, 8), (3, 8, 1, 5))


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("seed", range(8))
def test_with_every_kernel_shared_too(seed: int) -> None:
    check(seed)


def check_segments(seed: int, size: Dim = SIZE, sizes: tuple[int, ...] = (SIZE,) * 3) -> None:
    maker = ControlMaker(seed, size, grows=True)
    graph = maker.make(6)
    verify(graph)
    results: list[list[bytes]] = []
    for threads in (1, 2):
        with compile_program(graph, threads=threads) as executable:
            found = []
            for run_seed, n in enumerate(sizes):
                arrays = maker.arrays(run_seed, n)
                found += [array.tobytes() for array in executable(*arrays)]
                executable.verify()
            results.append(found)
    given = [maker.arrays(k, n) for k, n in enumerate(sizes)]
    wanted = [array.tobytes() for arrays in given for array in evaluate(graph, arrays)]
    assert results[0] == wanted, f"seed {seed}\n{graph}"
    assert results[1] == wanted, f"seed {seed}\n{graph}"


@given(st.integers(0, 2**32))
@settings(max_examples=8, deadline=None)
def test_with_values_that_grow_and_structure_that_is_computed(seed: int) -> None:
    check_segments(seed)


@given(st.integers(0, 2**32))
@settings(max_examples=4, deadline=None)
def test_with_values_that_grow_from_a_size_that_is_a_variable(seed: int) -> None:
    check_segments(seed, Var("n", 1, 8), (3, 8, 1, 5))


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("seed", range(2))
def test_with_values_that_grow_and_every_kernel_shared(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def uncached(graph: Graph, *options: Any, threads: int | None) -> Executable:
        return Executable(graph, compile_anew(graph, *options), threads)

    for module in (pipeline, program):
        monkeypatch.setattr(module, "compile_graph", uncached)
    check_segments(seed)
