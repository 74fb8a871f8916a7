"""Passes: every rewrite keeps every bit, and leaves what it says it leaves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from arenite import ir
from arenite.dtype import BY_NAME
from arenite.errors import InvalidGraph
from arenite.ir import OPS, reference, verify
from arenite.ir.graph import Graph
from arenite.ir.node import Node, Origin, Origins
from arenite.passes import Pass, apply, run
from arenite.passes.split import SPLIT_FROM, split
from tests.ir.op_examples import ALL_EXAMPLES, numbers
from tests.passes.lists import PASSES
from tests.pipeline.graphs import GraphMaker, random_array

FLOAT32, INT32, BOOL = BY_NAME["float32"], BY_NAME["int32"], BY_NAME["bool"]
BY_PASS = {one.name: one for one in PASSES}

#: Held to a tolerance elsewhere, or no graph by itself.
NOT_ALONE = ("attention", "random_bits", "parameter")


def x_of(*shape: int, index: int = 0, dtype: Any = FLOAT32) -> Node:
    return ir.graph_input(f"x{index}", index, shape, dtype)


def after(name: str, node: Node) -> Node:
    """What a pass makes of a node."""
    rule = BY_PASS[name].rule
    assert rule is not None
    return apply(Graph.of([node]), rule).outputs[0]


def bits(arrays: list[NDArray[Any]]) -> list[tuple[Any, ...]]:
    return [(array.dtype, array.shape, array.tobytes()) for array in arrays]


@pytest.mark.parametrize("seed", range(30))
def test_no_pass_changes_a_bit_of_a_random_graph(seed: int) -> None:
    maker = GraphMaker(seed)
    graph = maker.make(60)
    arrays = maker.arrays(seed)
    arrays[0].flat[0] = -0.0
    arrays[-1].flat[0] = np.nan
    expected = bits(reference.evaluate(graph, arrays))
    for record in run(graph, PASSES)[1]:
        verify(record.graph)
        assert bits(reference.evaluate(record.graph, arrays)) == expected, record.name


@pytest.mark.parametrize("op", [op for op in OPS if op not in NOT_ALONE])
def test_no_pass_changes_the_meaning_of_an_op(op: str) -> None:
    graph = Graph.of([ALL_EXAMPLES[op]()])
    bindings = {var.name: var.low for var in graph.vars}
    arrays = [numbers(node) for node in graph.inputs]
    [expected] = reference.evaluate(graph, arrays, bindings)
    rewritten, _ = run(graph, PASSES)
    verify(rewritten)
    [made] = reference.evaluate(rewritten, arrays, bindings)
    assert made.dtype == expected.dtype
    np.testing.assert_allclose(made, expected, rtol=1e-6)


def test_what_does_nothing_goes() -> None:
    x = x_of(3, 4)
    one, zero = ir.full((3, 4), 1.0, FLOAT32), ir.full((3, 4), 0.0, FLOAT32)
    turned = ir.make("permute", x, axes=(1, 0))
    for node in (
        ir.make("reshape", ir.make("reshape", x, shape=(12,)), shape=(3, 4)),
        ir.make("permute", turned, axes=(1, 0)),
        ir.make("mul", x, one),
        ir.make("div", x, one),
        ir.make("sub", x, zero),
        ir.make("neg", ir.make("neg", x)),
        ir.make("cast", x, dtype=FLOAT32),
        ir.make("where", ir.full((3, 4), True, BOOL), x, zero),
        ir.make("slice", x, start=(0, 0), stop=(3, 4), step=(1, 1)),
        ir.make("concat", x, axis=0),
    ):
        assert after("simplify", node) is x, node


def test_what_changes_a_bit_stays() -> None:
    x = x_of(3)
    plus_zero = ir.make("add", x, ir.full((3,), 0.0, FLOAT32))
    assert after("simplify", plus_zero) is plus_zero, "-0.0 + 0.0 is 0.0"
    less_minus_zero = ir.make("sub", x, ir.full((3,), -0.0, FLOAT32))
    assert after("simplify", less_minus_zero) is less_minus_zero, "-0.0 - -0.0 is 0.0"
    integers = x_of(3, dtype=INT32)
    assert after("simplify", ir.make("add", integers, ir.full((3,), 0, INT32))) is integers


def test_constants_fold_up_to_a_size() -> None:
    small, large = (ir.constant(np.arange(n, dtype=np.float32)) for n in (4, 100_000))
    assert after("fold", ir.make("neg", small)).op == "constant"
    assert after("fold", ir.make("neg", large)).op == "neg"
    assert after("fold", ir.make("neg", ir.full((4,), 2.0, FLOAT32))) is ir.full(
        (4,), -2.0, FLOAT32
    )


def test_equal_elements_need_no_memory() -> None:
    ones = ir.constant(np.full((2, 3), -0.0, np.float32))
    assert after("fold", ones) is ir.full((2, 3), -0.0, FLOAT32)
    mixed = ir.constant(np.array([0.0, -0.0], np.float32))
    assert after("fold", mixed) is mixed
    half = ir.make("expand", ir.constant(np.array([[0.5]], np.float32)), shape=(4, 3))
    assert after("fold", half) is ir.full((4, 3), 0.5, FLOAT32)
    nothing = ir.constant(np.zeros((3, 0), np.float32))
    assert after("fold", nothing) is nothing
    assert after("fold", ir.make("neg", nothing)).op == "constant"


def test_reductions_over_no_axes_are_what_they_reduce() -> None:
    x = x_of(3, 4)
    assert after("expand", ir.make("sum", x, axes=())) is x


@pytest.mark.parametrize(
    ("indices", "axis", "is_slice"),
    [
        ([1, 3, 5], 1, True),
        ([0, 1, 2, 3], 0, True),
        ([[2, 4], [6, 8]], 2, True),
        (3, 1, True),
        ([2], 0, True),
        ([0, 0, 1], 0, False),
        ([5, 3, 1], 1, False),
        ([4, 7], 1, False),
        ([-1], 1, False),
    ],
)
def test_indices_that_lie_evenly_apart_are_a_slice(indices: Any, axis: int, is_slice: bool) -> None:
    x, at = x_of(4, 7, 9), np.array(indices, np.int64)
    node = ir.make("gather", x, ir.constant(at), axis=axis)
    made = after("simplify", node)
    assert (made is not node) == is_slice
    if is_slice:
        assert all(one.op != "gather" for one in Graph.of([made]).nodes)
        array = random_array((4, 7, 9), FLOAT32, 3)
        [result] = reference.evaluate(Graph.of([made]), [array])
        np.testing.assert_array_equal(result, np.take(array, at, axis=axis))


@pytest.mark.parametrize("op", ["sum", "max", "min"])
@pytest.mark.parametrize(
    ("shape", "axes"),
    [((SPLIT_FROM,), (0,)), ((3, SPLIT_FROM // 2 + 1), (1,)), ((600, 500, 2), (0, 1))],
)
def test_long_reductions_are_split(op: str, shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    node = ir.make(op, x_of(*shape), axes=axes)
    made = split(node)
    assert made is not node
    assert split(made) is made, "what it leaves is not split again"
    array = random_array(shape, FLOAT32, 3)
    [expected] = reference.evaluate(Graph.of([node]), [array])
    [result] = reference.evaluate(Graph.of([made]), [array])
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("width", [768, SPLIT_FROM])
def test_many_short_rows_are_not_split_because_there_may_be_one(width: int) -> None:
    """A layer norm over open sizes is one kernel; one long row is not."""
    rows = ir.Var("rows", 1, 4096)
    x = ir.graph_input("x", 0, (rows, width), FLOAT32)
    node = ir.make("sum", x, axes=(1,))
    assert (split(node) is node) == (width == 768)


@pytest.mark.parametrize("op", ["sum", "max"])
@pytest.mark.parametrize(("rows", "columns"), [(508, 512), (512, 128), (2048, 3)])
def test_chunks_of_an_open_batch_are_as_long_as_those_of_one(
    op: str, rows: int, columns: int
) -> None:
    """However large a batch may become, its bound makes no more chunks than eight tiles need."""
    batch = ir.Var("batch", 1, 1 << 20)
    node = ir.make(op, ir.graph_input("x", 0, (batch, rows, columns), FLOAT32), axes=(1,))
    made = after("split", node)
    assert split(made) is made, "what it leaves is not split again"
    graph = Graph.of([made])
    reductions = [one for one in graph.nodes if one.op == op]
    assert len(reductions) <= 3, "chunks, what they gave, and the rest"
    array = random_array((1, rows, columns), FLOAT32, 3)
    [result] = reference.evaluate(graph, [array])
    expected = getattr(np, op)(array, axis=1)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("most", [64, 2048, 1 << 16])
def test_chunks_of_an_open_size_are_not_empty_far_below_its_bound(most: int) -> None:
    """A mean over an image of any size: of one that is an eighth of the largest too."""
    height = ir.Var("height", 1, most)
    x = ir.graph_input("x", 0, (ir.Var("batch", 1, 64), height, height, 96), FLOAT32)
    made = split(ir.make("sum", x, axes=(1, 2)))
    chunks = [node.shape[1] for node in Graph.of([made]).nodes if node.op == "reshape"]
    assert len(chunks) == (most > 64)
    assert all(isinstance(n, int) and 2 <= n <= most // 8 for n in chunks)
    shape = (1, most // 8, most // 8, 96) if most < 1 << 16 else (1, 1, 1, 96)
    array = random_array(shape, FLOAT32, 3)
    [result] = reference.evaluate(Graph.of([made]), [array])
    np.testing.assert_allclose(result, array.sum((1, 2)), rtol=1e-4, atol=1e-2)


def test_small_floats_are_summed_in_float32_when_split() -> None:
    node = ir.make("sum", x_of(SPLIT_FROM, dtype=BY_NAME["bfloat16"]), axes=(0,))
    partial = [n for n in Graph.of([split(node)]).nodes if n.op == "sum"]
    assert {n.dtype for n in partial} == {FLOAT32}


def test_each_pass_is_recorded_with_its_graph() -> None:
    x = x_of(4)
    graph, records = run(Graph((x,), (ir.make("neg", ir.make("neg", x)),)), PASSES)
    assert [record.name for record in records] == [one.name for one in PASSES]
    assert records[-1].graph is graph
    assert "after simplify: 1 nodes" in repr(records[-1])


def test_origins_survive() -> None:
    x = x_of(4)
    y = ir.make("neg", ir.make("mul", x, ir.full((4,), 1.0, FLOAT32)))
    here = Origin("model.onnx", name="relu_3")
    graph, _ = run(Graph((x,), (y,), (), Origins({y: [here]})), PASSES)
    assert graph.origins.of(graph.outputs[0]) == (here,)


def test_a_rule_that_changes_a_type_is_refused() -> None:
    x = x_of(4)
    wrong = Pass("wrong", lambda node: ir.full((3,), 0.0, FLOAT32) if node.op == "neg" else node)
    with pytest.raises(InvalidGraph, match="another type"):
        run(Graph((x,), (ir.make("neg", x),)), (wrong,))
