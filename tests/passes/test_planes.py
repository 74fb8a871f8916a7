"""The pass that computes complex values in two planes: what is complex after it, and that nothing
means anything else."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from arenite import ir
from arenite.dtype import BY_NAME, DType, Kind
from arenite.ir import reference, verify
from arenite.ir.graph import Graph
from arenite.ir.node import Node, Origin, Origins
from arenite.ir.regions import loop
from arenite.passes import run
from arenite.passes.planes import planes
from tests.passes.lists import PASSES

Array = NDArray[Any]

BOOL, INT64, FLOAT32 = (BY_NAME[name] for name in ("bool", "int64", "float32"))
C64 = BY_NAME["complex64"]


def x_of(*shape: int, index: int = 0, dtype: DType = C64) -> Node:
    return ir.graph_input(f"x{index}", index, shape, dtype)


def some(*shape: int) -> Array:
    rng = np.random.default_rng(0)
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(np.complex64)


def complex_ops(graph: Graph) -> set[str]:
    return {node.op for node in graph.everything if node.dtype.kind is Kind.COMPLEX}


def means_the_same(graph: Graph, *arrays: Array) -> None:
    split = planes(graph)
    verify(split)
    before, after = (reference.evaluate(one, list(arrays)) for one in (graph, split))
    for one, other in zip(before, after, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_only_what_lies_in_memory_stays_complex() -> None:
    x, table = x_of(3, 5), ir.buffer(some(3, 5))
    y = ir.make("sum", ir.make("mul", ir.make("add", x, table), x), axes=(1,))
    graph = Graph((x,), (y, x, ir.make("eq", x, table)))
    split = planes(graph)
    assert complex_ops(split) == {"input", "buffer", "complex"}
    assert [node.dtype for node in split.outputs] == [C64, C64, BOOL]
    assert split.outputs[1] is x
    means_the_same(graph, some(3, 5))


def test_a_graph_without_complex_values_stays_as_it_is() -> None:
    x = x_of(3, dtype=FLOAT32)
    graph = Graph((x,), (ir.make("neg", x),))
    assert planes(graph) is graph


def test_bodies_and_branches_mean_the_same() -> None:
    x, flag = x_of(4), x_of(index=1, dtype=BOOL)
    i, carried = ir.parameter((), INT64), ir.parameter((4,), C64)
    turned = ir.make("mul", carried, ir.full((4,), 1j, C64))
    last, rows = loop(
        ir.full((), 3, INT64),
        [x],
        ((i, carried), [ir.make("sub", turned, x)]),
        rows=[ir.make("imag", carried)],
    )
    graph = Graph((x, flag), (ir.make("if", flag, last, ir.make("neg", x)), rows))
    assert complex_ops(planes(graph)) == {"input", "parameter", "loop", "if", "complex"}
    for holds in (True, False):
        means_the_same(graph, some(4), np.asarray(holds))


def test_rows_are_taken_and_put_where_they_lie() -> None:
    x, places = x_of(9, 4), x_of(3, index=1, dtype=INT64)
    rows = ir.make("gather", x, places, axis=0)
    put = ir.make("update_slice", x, ir.make("neg", rows), ir.full((), 2, INT64), axis=0)
    graph = Graph((x, places), (ir.make("mul", rows, rows), put))
    split = planes(graph)
    assert complex_ops(split) == {"input", "gather", "update_slice", "complex"}
    means_the_same(graph, some(9, 4), np.array([8, 0, 8]))


def test_lines_are_kept() -> None:
    x = x_of(3)
    y = ir.make("mul", x, x)
    here = Origin("model.py", 4)
    graph, _ = run(Graph((x,), (y,), (), Origins({y: [here]})), PASSES)
    made = [node for node in graph.nodes if node.op in ("mul", "sub", "add", "complex")]
    assert len(made) >= 4
    assert all(graph.origins.of(node) == (here,) for node in made)


def test_chains_are_as_long_as_they_like() -> None:
    x = x_of(2)
    y = x
    for _ in range(20_000):
        y = ir.make("add", y, x)
    assert len(planes(Graph((x,), (y,)))) > 40_000
