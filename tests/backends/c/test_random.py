"""Random graphs as C, under sanitizers, held to NumPy and to the reference: values of all types,
branches and loops, states, sizes that are variables or found while running."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import arenite
from arenite.ir import Var, evaluate
from arenite.ir.graph import Graph
from arenite.program.arguments import Arguments
from tests.backends.c.executables import CProgram, needs_compiler
from tests.pipeline.control_graphs import ControlMaker
from tests.pipeline.graphs import GraphMaker
from tests.pipeline.mixed_graphs import MixedMaker
from tests.pipeline.segments import numbers
from tests.pipeline.test_found import CASES
from tests.pipeline.test_random_state import N_RUNS, Program

Array = NDArray[Any]

pytestmark = needs_compiler


def same_bits(graph: Graph, got: list[Array], wanted: list[Array]) -> None:
    for node, one, other in zip(graph.outputs, got, wanted, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        if one.dtype.kind not in "biu":
            one, other = one.astype(np.float64), other.astype(np.float64)
        np.testing.assert_array_equal(one, other, err_msg=repr(node))


@pytest.mark.parametrize("is_later", [False, True], ids=["known sizes", "sizes found later"])
@pytest.mark.parametrize("seed", [1, 2])
def test_values_of_many_types(seed: int, is_later: bool) -> None:
    maker = MixedMaker(seed, is_later)
    graph, expected = maker.make(60)
    program = CProgram(graph)
    sizes = Arguments(program.interface.inputs, graph.vars).sizes(maker.arrays)
    same_bits(graph, program(*maker.arrays, **sizes), expected)


@pytest.mark.parametrize("seed", [3, 4])
def test_floats_within_rounding(seed: int) -> None:
    maker = GraphMaker(seed)
    graph = maker.make(40)
    arrays = maker.arrays(seed)
    with np.errstate(all="ignore"):
        expected = evaluate(graph, arrays)
    for got, wanted in zip(CProgram(graph)(*arrays), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("seed", [0, 5, 9])
def test_branches_and_loops_with_a_variable_size(seed: int) -> None:
    maker = ControlMaker(seed, Var("n", 1, 8))
    graph = maker.make()
    program = CProgram(graph)
    for run_seed, n in enumerate((3, 8, 1)):
        arrays = maker.arrays(run_seed, n)
        same_bits(graph, program(*arrays, n=n), evaluate(graph, arrays))


@pytest.mark.parametrize("seed", [2, 7, 96])
def test_states_from_run_to_run(seed: int) -> None:
    graph = Program(seed).graph()
    rng = np.random.default_rng(seed)
    held: dict[str, Array] = {}
    calls, expected = [], []
    for _ in range(N_RUNS):
        wide, rows = (rng.integers(-99, 99, shape) for shape in ((6, 4), (2, 4)))
        calls.append([wide, rows, np.asarray(rng.integers(0, 5))])
        expected.append(evaluate(graph, calls[-1], states=held))
    for got, wanted in zip(CProgram(graph).calls(calls, {}), expected, strict=True):
        same_bits(graph, got, wanted)


def test_sizes_that_a_run_finds() -> None:
    names = ["rows", "columns", "none", "sum", "product", "mask of a mask", "outer"]
    array = numbers(7, 5, seed=1)
    x = arenite.spec(array.shape, "int64").argument("x", 0)
    made = [CASES[name][0](x) for name in names]
    graph = Graph((x.node,), tuple(one.node for one in made))
    wanted = [np.asarray(CASES[name][1](array)) for name in names]
    same_bits(graph, CProgram(graph)(array), wanted)
